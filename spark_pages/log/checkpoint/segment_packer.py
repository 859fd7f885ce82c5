"""Packing pages into segments of about the target size, as they come, chain by chain.

Only numbers of pages decide where a segment ends, so nothing has to be loaded for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from spark_pages.format.checkpoint_tree import Node, even_chunks
from spark_pages.format.names import part_key
from spark_pages.format.segment import encode_nodes, written_for
from spark_pages.log.checkpoint.object_writer import ObjectWriter
from spark_pages.log.checkpoint.write_plan import (
    NewSegment,
    PlannedSegment,
    Slab,
    Source,
    StoredPages,
    sources_of,
)
from spark_pages.model.chain_tree import ChainKey, Piece


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
        """The pages of a whole segment come next."""
        for slab in _slabs_of(segment):
            self.add_slice(slab.source, slab.start, slab.stop)

    def add_in_front(self, segment: NewSegment) -> None:
        """A whole segment goes before what waits; nothing must have been cut since `take`."""
        assert not self._segments
        self._slabs.extendleft(reversed(_slabs_of(segment)))
        self.waiting += segment.pages

    def take_full(self) -> list[NewSegment]:
        """What has been cut since the last call."""
        segments, self._segments = self._segments, []
        return segments

    def take_all(self) -> list[NewSegment]:
        """The same, of all pages that came: nothing waits any more."""
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
