"""Where a column lies in a checkpoint: the segments that hold its pages, and how much each holds of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from spark_pages.arrow.columns import numbers_of
from spark_pages.errors import ObjectNotFoundError
from spark_pages.format.checkpoint_tree import Node, nodes_of
from spark_pages.format.names import part_key, segment_key, stats_key
from spark_pages.format.segment import Segment
from spark_pages.log.checkpoint.reader import Checkpoint, TreeReader
from spark_pages.model.chain_tree import ChainKey
from spark_pages.model.location import Location
from spark_pages.model.run import PageRun
from spark_pages.service.freshness import SharedLoads
from spark_pages.service.responses import SegmentLocation

MANY_PAGES = 1 << 19
"""A part with so many pages of a column is one place, whose segments are listed when somebody asks."""

_KEPT_COUNTS = 1 << 16
_KEPT_PARTS = 64
_KEPT_SEGMENTS = 128


class UnnamedSegmentError(ObjectNotFoundError):
    """What a client speaks of is not named by the snapshot, or not any more; clients see its parent."""


class SegmentLocator:
    """Finds the places of columns in checkpoints.

    Parameters
    ----------
    tree
        Reads parts and segments, and keeps the newest.

    Notes
    -----
    An object that several threads want is fetched once. A column that lies wholly inside a segment is counted
    by reading that segment, once.
    """

    def __init__(self, tree: TreeReader) -> None:
        self._tree = tree
        self._parts: SharedLoads[Node, Sequence[Node]] = SharedLoads(_KEPT_PARTS)
        self._segments: SharedLoads[Node, Segment] = SharedLoads(_KEPT_SEGMENTS)
        self._stats: SharedLoads[Node, pa.RecordBatch] = SharedLoads(_KEPT_SEGMENTS)
        self._counts: SharedLoads[tuple[str, ChainKey], tuple[int, int]] = SharedLoads(_KEPT_COUNTS)

    def locate(self, checkpoint: Checkpoint, key: ChainKey) -> list[tuple[SegmentLocation, Node]]:
        """Locate a chain, base first and in row order, each place with its node."""
        return [found for parts in checkpoint.levels().values() for found in self._in_parts(parts, key)]

    def locate_in_part(self, part: Node, key: ChainKey) -> list[tuple[SegmentLocation, Node]]:
        """Locate a chain in one part."""
        return list(self._in_part(part, key))

    def pages(self, node: Node, key: ChainKey) -> PageRun:
        """Return the pages of a chain in a segment."""
        segment = self._segment(node)
        start, stop = segment.find(key)
        if not node.stats_length:
            return PageRun(segment.pages.slice(start, stop - start))
        return PageRun(
            segment.pages.slice(start, stop - start),
            lambda: self._stats_of(node).slice(start, stop - start),
        )

    def _in_parts(self, parts: Sequence[Node], key: ChainKey) -> Iterator[tuple[SegmentLocation, Node]]:
        for index in nodes_of(parts, key):
            part = parts[index]
            count = part.count(key)
            if count is not None and count[0] >= MANY_PAGES:
                location = _location(part_key(part.digest), part.digest, part.length)
                yield SegmentLocation(location, None, True, part.level, *count), part
            else:
                yield from self._in_part(part, key)

    def _in_part(self, part: Node, key: ChainKey) -> Iterator[tuple[SegmentLocation, Node]]:
        nodes = self._parts.get(part, lambda: self._tree.part(part))
        for index in nodes_of(nodes, key):
            node = nodes[index]
            pages, rows = node.count(key) or self._count(node, key)
            if pages:
                location = _location(segment_key(node.digest), node.digest, node.length)
                stats = None
                if node.stats_length:
                    stats = _location(stats_key(node.stats_digest), node.stats_digest, node.stats_length)
                yield SegmentLocation(location, stats, False, part.level, pages, rows), node

    def _count(self, node: Node, key: ChainKey) -> tuple[int, int]:
        return self._counts.get((node.digest, key), lambda: self._counted(node, key))

    def _counted(self, node: Node, key: ChainKey) -> tuple[int, int]:
        segment = self._segment(node)
        start, stop = segment.find(key)
        entries = numbers_of(segment.pages.column("entry_count"))[start:stop]
        return stop - start, int(entries.sum())

    def _segment(self, node: Node) -> Segment:
        return self._segments.get(node, lambda: self._tree.segment(node))

    def _stats_of(self, node: Node) -> pa.RecordBatch:
        return self._stats.get(node, lambda: self._tree.stats(node))


def node_of(found: Sequence[tuple[SegmentLocation, Node]], digest: str, what: str) -> Node:
    """Return the node with this digest.

    Raises
    ------
    UnnamedSegmentError
        If none of the places is it: the checkpoint is another one by now.
    """
    for place, node in found:
        if place.location.digest == digest:
            return node
    raise UnnamedSegmentError(
        f"{what} does not name {digest[:80] or 'that object'!r}.", hint="Open it again."
    )


def _location(key: str, digest: str, length: int) -> Location:
    return Location(key, length, digest, original_length=length)
