"""Packing pages into segments of about the target size, as they come, chain by chain.

At most twice the target waits in memory, so that a level of any size is rewritten in the memory of a few
segments.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.log.names import part_key, segment_key, stats_key
from spark_pages.log.object_writer import ObjectWriter
from spark_pages.log.segment import Segment, encode_nodes, encode_segment, encode_stats, written_for
from spark_pages.log.tree import Node, even_chunks
from spark_pages.model.chain import ChainKey
from spark_pages.model.columns import numbers_of
from spark_pages.model.location import Location
from spark_pages.model.run import PAGE_SCHEMA, STATS_SCHEMA, PageRun, concat_batches


@dataclass(eq=False, slots=True)
class _Slab:
    """Pages [start, stop) of a run, with the chain of every page of the run."""

    table_ids: NDArray[np.int64]
    field_ids: NDArray[np.int64]
    run: PageRun
    start: int
    stop: int


class SegmentPacker:
    """Takes pages in the order of chains and positions, and gives nodes of segments.

    Parameters
    ----------
    objects
        Where segments go.
    target
        Pages of a segment; the last ones may have a quarter more.
    level
        Of the nodes.
    version
        Of the checkpoint.
    """

    def __init__(self, objects: ObjectWriter, target: int, level: int, version: int) -> None:
        self._objects = objects
        self._target = target
        self._level = level
        self._version = version
        self._slabs: deque[_Slab] = deque()
        self._nodes: list[Node] = []
        self._spread: tuple[Segment, NDArray[np.int64], NDArray[np.int64]] | None = None
        self.waiting = 0

    def add(self, key: ChainKey, run: PageRun) -> None:
        """Pages of one chain come next."""
        tables, fields = (np.broadcast_to(np.int64(number), run.num_pages) for number in key)
        self._push(_Slab(tables, fields, run, 0, run.num_pages))

    def add_segment(self, segment: Segment, run: PageRun, start: int, stop: int) -> None:
        """Pages [start, stop) of a segment come next; `run` is all of its pages."""
        if start < stop:
            self._push(_Slab(*self._chains_of(segment), run, start, stop))

    def add_in_front(self, segment: Segment, run: PageRun) -> None:
        """A whole segment goes before what waits; nothing must have been written since `take`."""
        assert not self._nodes
        self._slabs.appendleft(_Slab(*self._chains_of(segment), run, 0, run.num_pages))
        self.waiting += run.num_pages

    def written(self) -> list[Node]:
        """Nodes of what has been written since the last call."""
        nodes, self._nodes = self._nodes, []
        return nodes

    def take(self) -> list[Node]:
        """The same, of all pages that came: nothing waits any more."""
        for start, stop in even_chunks(self.waiting, self._target):
            self._write(stop - start)
        self.waiting = 0
        return self.written()

    def _chains_of(self, segment: Segment) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Table and field id of each page; kept, because many slices of one segment come in a row."""
        if self._spread is None or self._spread[0] is not segment:
            self._spread = segment, segment.table_ids, segment.field_ids
        return self._spread[1:]

    def _push(self, slab: _Slab) -> None:
        if slab.start >= slab.stop:
            return
        self._slabs.append(slab)
        self.waiting += slab.stop - slab.start
        while self.waiting >= 2 * self._target:
            self._write(self._target)
            self.waiting -= self._target

    def _write(self, count: int) -> None:
        table_ids, field_ids, runs = [], [], []
        while count:
            slab = self._slabs[0]
            stop = min(slab.start + count, slab.stop)
            table_ids.append(slab.table_ids[slab.start : stop])
            field_ids.append(slab.field_ids[slab.start : stop])
            runs.append(slab.run.slice(slab.start, stop))
            count -= stop - slab.start
            slab.start = stop
            if slab.start == slab.stop:
                self._slabs.popleft()
        segment = Segment.of(
            np.concatenate(table_ids),
            np.concatenate(field_ids),
            concat_batches([run.pages for run in runs], PAGE_SCHEMA),
        )
        stats = concat_batches([run.stats for run in runs], STATS_SCHEMA)
        self._nodes.append(_write_segment(self._objects, segment, stats, self._level, self._version))


def _write_segment(
    objects: ObjectWriter, segment: Segment, stats: pa.RecordBatch, level: int, version: int
) -> Node:
    location = objects.put(encode_segment(segment, version), segment_key)
    stats_location: Location | None = None
    if stats.column("null_count").null_count < stats.num_rows:
        stats_location = objects.put(encode_stats(stats, version), stats_key)
    entries = numbers_of(segment.pages.column("entry_count"))
    last = len(segment.bounds) - 2
    (first_start, first_stop), (last_start, last_stop) = (
        (int(segment.bounds[chain]), int(segment.bounds[chain + 1])) for chain in (0, last)
    )
    return Node(
        level,
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
