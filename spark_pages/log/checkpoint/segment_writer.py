"""Write segments of a checkpoint: pack pages into segments of even size, and move inline pages to files."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_pages.arrow.columns import number_column, numbers_of, optional_text, valid_of
from spark_pages.format.checkpoint_tree import Node, even_chunks
from spark_pages.format.names import page_file_key, part_key, segment_key, stats_key
from spark_pages.format.segment import Segment, encode_nodes, encode_segment, encode_stats, written_for
from spark_pages.log.checkpoint.object_writer import ObjectWriter
from spark_pages.log.checkpoint.reader import TreeReader
from spark_pages.log.checkpoint.write_plan import (
    NewSegment,
    PlannedSegment,
    Slab,
    Source,
    StoredPages,
    sources_of,
)
from spark_pages.model.chain_tree import ChainKey, Piece, UnloadedRun
from spark_pages.model.ids import CATALOG_TABLE
from spark_pages.model.location import Location
from spark_pages.model.page import PAGE_ALIGNMENT, PageKind
from spark_pages.model.page_schema import PAGE_SCHEMA, STATS_SCHEMA, concat_batches
from spark_pages.model.run import PageRun


@dataclass(frozen=True, eq=False, slots=True)
class _Loaded:
    """The pages of a source, with the chain of each."""

    source: Source
    table_ids: NDArray[np.int64]
    field_ids: NDArray[np.int64]
    run: PageRun


class SegmentWriter:
    """Writes segments; `finish` writes the page files of inline pages that got a home.

    Parameters
    ----------
    objects
        Where segments go.
    tree
        Reads the segments that are there.
    version
        Of the checkpoint.
    token
        32 hexadecimal digits, for the names of page files.

    Notes
    -----
    Holds the sources of one segment, and of the last one the source that the next may go on with.
    """

    def __init__(self, objects: ObjectWriter, tree: TreeReader | None, version: int, token: str) -> None:
        self._objects = objects
        self._tree = tree
        self._homes = InlinePageWriter(page_file_key(version, token, 0))
        self._catalog_homes = InlinePageWriter(page_file_key(version, token, 1))  # whose pages live on
        self._loaded: dict[int, _Loaded] = {}

    def __call__(self, planned: PlannedSegment) -> Node:
        """Start to write a segment."""
        table_ids, field_ids, runs = [], [], []
        loaded: dict[int, _Loaded] = {}
        for slab in planned.slabs:
            name = id(slab.source)  # of an object that is held
            if name not in loaded:
                loaded[name] = self._loaded.get(name) or self._load(slab.source)
            source = loaded[name]
            table_ids.append(source.table_ids[slab.start : slab.stop])
            field_ids.append(source.field_ids[slab.start : slab.stop])
            runs.append(self._with_inline_pages_placed(source, slab))
        last = id(planned.slabs[-1].source)
        self._loaded = {last: loaded[last]}
        segment = Segment.of(
            np.concatenate(table_ids),
            np.concatenate(field_ids),
            concat_batches([run.pages for run in runs], PAGE_SCHEMA),
        )
        return self._write(planned, segment, runs)

    def finish(self) -> None:
        """Start to write the page files that remain."""
        self._homes.write(self._objects)
        self._catalog_homes.write(self._objects)

    def _load(self, source: Source) -> _Loaded:
        if isinstance(source, StoredPages):
            assert self._tree is not None
            segment = self._tree.segment(source.node)
            return _Loaded(source, segment.table_ids, segment.field_ids, self._tree.run(source.node))
        run = PageRun.concat(list(_runs(source.pieces)))
        tables, fields = (np.broadcast_to(np.int64(number), run.num_pages) for number in source.key)
        return _Loaded(source, tables, fields, run)

    def _with_inline_pages_placed(self, loaded: _Loaded, slab: Slab) -> PageRun:
        run = loaded.run.slice(slab.start, slab.stop)
        if isinstance(slab.source, StoredPages):
            return run
        homes = self._catalog_homes if slab.source.key[0] == CATALOG_TABLE else self._homes
        return homes.place_inline_pages(run)

    def _write(self, planned: PlannedSegment, segment: Segment, runs: list[PageRun]) -> Node:
        location = self._objects.put(encode_segment(segment, planned.version), segment_key)
        stats = concat_batches([run.stats for run in runs], STATS_SCHEMA)
        stats_location: Location | None = None
        if stats.column("null_count").null_count < stats.num_rows:
            stats_location = self._objects.put(encode_stats(stats, planned.version), stats_key)
        entries = numbers_of(segment.pages.column("entry_count"))
        last = len(segment.bounds) - 2
        (first_start, first_stop), (last_start, last_stop) = (
            (int(segment.bounds[chain]), int(segment.bounds[chain + 1])) for chain in (0, last)
        )
        return Node(
            planned.level,
            (int(segment.chain_tables[0]), int(segment.chain_fields[0])),
            (int(segment.chain_tables[last]), int(segment.chain_fields[last])),
            segment.pages.num_rows,
            first_stop - first_start,
            int(entries[first_start:first_stop].sum()),
            last_stop - last_start,
            int(entries[last_start:last_stop].sum()),
            location.digest,
            location.length,
            stats_location.digest if stats_location else "",
            stats_location.length if stats_location else 0,
        )


def _runs(pieces: Iterable[Piece]) -> Iterator[PageRun]:
    for piece in pieces:
        if isinstance(piece, UnloadedRun):
            yield from _runs(piece.expand())
        elif piece.num_pages:
            yield piece


class InlinePageWriter:
    """Collects the inline pages of one checkpoint.

    Parameters
    ----------
    key
        Of the page file.
    """

    def __init__(self, key: str) -> None:
        self._key = key
        self._data = bytearray()

    def place_inline_pages(self, run: PageRun) -> PageRun:
        """Move the inline pages of a run into the file, and change nothing but their location."""
        inline = run.numbers("kind") == PageKind.INLINE
        if not inline.any():
            return run
        where = np.flatnonzero(inline)
        data = run.pages.column("data")
        lengths, offsets = self._place(data.take(number_column(where, pa.int64())))
        path = run.pages.column("path")
        indices = np.where(valid_of(path), numbers_of(path.indices), 0).astype(np.int32)
        paths = path.dictionary.to_pylist()
        indices[where] = len(paths)
        replaced = {
            "kind": _with(run, "kind", where, int(PageKind.FILE)),
            "path": pa.DictionaryArray.from_arrays(
                number_column(indices, pa.int32(), valid_of(path) | inline),
                optional_text([*paths, self._key]),
            ),
            "offset": _with(run, "offset", where, offsets),
            "alloc_len": _with(run, "alloc_len", where, _aligned(lengths)),
            "actual_len": _with(run, "actual_len", where, lengths),
            "data": pc.if_else(_flags(inline), pa.scalar(None, data.type), data),
        }
        columns = [replaced.get(name, run.pages.column(name)) for name in PAGE_SCHEMA.names]
        return PageRun(pa.RecordBatch.from_arrays(columns, schema=PAGE_SCHEMA), lambda: run.stats)

    def _place(self, pages: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Put the pages behind those that are there; gives their lengths, and the offset of each."""
        lengths = numbers_of(pc.binary_length(pages)).astype(np.int64)
        allocated = _aligned(lengths)
        ends = np.cumsum(allocated)
        starts = ends - allocated
        content = np.frombuffer(b"".join(pages.to_pylist()), np.uint8)
        placed = np.zeros(int(ends[-1]), dtype=np.uint8)
        before = np.cumsum(lengths) - lengths
        placed[np.repeat(starts - before, lengths) + np.arange(len(content))] = content
        offsets = starts + len(self._data)
        self._data += placed.data
        return lengths, offsets

    def write(self, objects: ObjectWriter) -> None:
        """Write the file, if any page needs it."""
        if self._data:
            objects.put_at(self._key, self._data)


def _aligned(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return -(-lengths // PAGE_ALIGNMENT) * PAGE_ALIGNMENT


def _with(run: PageRun, name: str, where: NDArray[np.int64], values: NDArray[np.int64] | int) -> pa.Array:
    """Return a numeric column of the run with other values at some positions."""
    numbers = run.numbers(name).copy()
    numbers[where] = values
    return number_column(numbers, PAGE_SCHEMA.field(name).type)


def _flags(values: NDArray[np.bool_]) -> pa.Array:
    bits = pa.py_buffer(np.packbits(values, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, bits])


# Packing pages into segments of about the target size, as they come, chain by chain.
#
# Only numbers of pages decide where a segment ends, so nothing has to be loaded for it.


class SegmentPacker:
    """Takes pages in the order of chains and positions, and gives segments.

    Parameters
    ----------
    target
        Pages of a segment; the last ones may have a quarter more.
    level
        Of the nodes.
    version
        Of the checkpoint.
    make
        What becomes of a segment that is decided on: a node where it is written at once.
    """

    def __init__(
        self, target: int, level: int, version: int, make: Callable[[PlannedSegment], NewSegment]
    ) -> None:
        self._target = target
        self._level = level
        self._version = version
        self._make = make
        self._slabs: deque[Slab] = deque()
        self._segments: list[NewSegment] = []
        self.waiting = 0

    def add(self, key: ChainKey, pieces: Iterable[Piece]) -> None:
        """Pages of one chain come next."""
        for source in sources_of(key, pieces):
            self.add_slice(source, 0, source.num_pages)

    def add_slice(self, source: Source, start: int, stop: int) -> None:
        """Pages [start, stop) of a source come next."""
        if start >= stop:
            return
        self._slabs.append(Slab(source, start, stop))
        self.waiting += stop - start
        while self.waiting >= 2 * self._target:
            self._emit(self._target)
            self.waiting -= self._target

    def add_segment(self, segment: NewSegment) -> None:
        """Add the pages of a whole segment."""
        for slab in _slabs_of(segment):
            self.add_slice(slab.source, slab.start, slab.stop)

    def add_in_front(self, segment: NewSegment) -> None:
        """Put a whole segment before the waiting pages. No segment may be full since the last `take_full`."""
        assert not self._segments
        self._slabs.extendleft(reversed(_slabs_of(segment)))
        self.waiting += segment.pages

    def take_full(self) -> list[NewSegment]:
        """Return the segments that became full since the last call."""
        segments, self._segments = self._segments, []
        return segments

    def take_all(self) -> list[NewSegment]:
        """Return the full segments and one of all waiting pages."""
        for start, stop in even_chunks(self.waiting, self._target):
            self._emit(stop - start)
        self.waiting = 0
        return self.take_full()

    def _emit(self, count: int) -> None:
        slabs: list[Slab] = []
        while count:
            slab = self._slabs.popleft()
            stop = min(slab.start + count, slab.stop)
            slabs.append(Slab(slab.source, slab.start, stop))
            count -= stop - slab.start
            if stop < slab.stop:
                self._slabs.appendleft(Slab(slab.source, stop, slab.stop))
        self._segments.append(self._make(PlannedSegment(self._level, self._version, tuple(slabs))))


def _slabs_of(segment: NewSegment) -> Sequence[Slab]:
    if isinstance(segment, PlannedSegment):
        return segment.slabs
    return (Slab(StoredPages(segment), 0, segment.pages),)


def write_parts(
    objects: ObjectWriter, nodes: Sequence[Node], target: int, level: int, version: int
) -> list[Node]:
    """Nodes of the manifest parts that hold the given nodes, about `target` in each."""
    parts = []
    for start, stop in even_chunks(len(nodes), target):
        children = nodes[start:stop]
        location = objects.put(encode_nodes(children, written_for(version)), part_key)
        first, last = children[0].first, children[-1].last
        pages = sum(node.pages for node in children)
        parts.append(
            Node(
                level,
                first,
                last,
                pages,
                *_totals(children, first),
                *_totals(children, last),
                location.digest,
                location.length,
            )
        )
    return parts


def _totals(nodes: Sequence[Node], key: ChainKey) -> tuple[int, int]:
    counts = [count for node in nodes if (count := node.count(key)) is not None]
    return sum(pages for pages, _ in counts), sum(rows for _, rows in counts)
