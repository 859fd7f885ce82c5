"""Planned segments become objects: pages are loaded, inline ones get a home, and a node tells of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spark_pages.arrow.columns import numbers_of
from spark_pages.format.checkpoint_tree import Node
from spark_pages.format.names import page_file_key, segment_key, stats_key
from spark_pages.format.segment import Segment, encode_segment, encode_stats
from spark_pages.log.checkpoint.inline_page_writer import InlineHomes
from spark_pages.log.checkpoint.object_writer import ObjectWriter
from spark_pages.log.checkpoint.reader import TreeReader
from spark_pages.log.checkpoint.write_plan import PlannedSegment, Slab, Source, StoredPages
from spark_pages.model.chain_tree import LazyRun, Piece
from spark_pages.model.ids import CATALOG_TABLE
from spark_pages.model.location import Location
from spark_pages.model.page_schema import PAGE_SCHEMA, STATS_SCHEMA, concat_batches
from spark_pages.model.run import PageRun


@dataclass(frozen=True, eq=False, slots=True)
class _Loaded:
    """The pages of a source, with the chain of each."""

    source: Source
    table_ids: NDArray[np.int64]
    field_ids: NDArray[np.int64]
    run: PageRun


class SegmentMaker:
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
        self._homes = InlineHomes(page_file_key(version, token, 0))
        self._catalog_homes = InlineHomes(page_file_key(version, token, 1))  # whose pages live on
        self._loaded: dict[int, _Loaded] = {}

    def __call__(self, planned: PlannedSegment) -> Node:
        """The segment is on its way to storage."""
        table_ids, field_ids, runs = [], [], []
        loaded: dict[int, _Loaded] = {}
        for slab in planned.slabs:
            name = id(slab.source)  # of an object that is held
            if name not in loaded:
                loaded[name] = self._loaded.get(name) or self._load(slab.source)
            source = loaded[name]
            table_ids.append(source.table_ids[slab.start : slab.stop])
            field_ids.append(source.field_ids[slab.start : slab.stop])
            runs.append(self._at_home(source, slab))
        last = id(planned.slabs[-1].source)
        self._loaded = {last: loaded[last]}
        segment = Segment.of(
            np.concatenate(table_ids),
            np.concatenate(field_ids),
            concat_batches([run.pages for run in runs], PAGE_SCHEMA),
        )
        return self._write(planned, segment, runs)

    def finish(self) -> None:
        """The page files are on their way to storage, too."""
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

    def _at_home(self, loaded: _Loaded, slab: Slab) -> PageRun:
        run = loaded.run.slice(slab.start, slab.stop)
        if isinstance(slab.source, StoredPages):
            return run
        homes = self._catalog_homes if slab.source.key[0] == CATALOG_TABLE else self._homes
        return homes.give_home(run)

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
        if isinstance(piece, LazyRun):
            yield from _runs(piece.expand())
        elif piece.num_pages:
            yield piece
