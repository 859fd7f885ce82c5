"""Segments that are decided on and not yet written: which pages, from where. Pure.

How many pages a source holds is known without loading it. So one process can decide on the segments of a
checkpoint, and others can write them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from spark_pages.format.checkpoint_tree import PAGES_PER_SEGMENT, Node
from spark_pages.model.chain_tree import ChainKey, Piece


@dataclass(frozen=True, eq=False, slots=True)
class StoredPages:
    """All pages of a segment that is there."""

    node: Node

    @property
    def num_pages(self) -> int:
        """Pages of all chains."""
        return self.node.pages


@dataclass(frozen=True, eq=False, slots=True)
class UnsavedPages:
    """Pages that commits brought to a chain."""

    key: ChainKey
    pieces: tuple[Piece, ...]

    @property
    def num_pages(self) -> int:
        """Pages of all pieces."""
        return sum(piece.num_pages for piece in self.pieces)


Source: TypeAlias = StoredPages | UnsavedPages


@dataclass(frozen=True, eq=False, slots=True)
class Slab:
    """Pages [start, stop) of a source."""

    source: Source
    start: int
    stop: int


@dataclass(frozen=True, eq=False, slots=True)
class PlannedSegment:
    """A segment to write.

    Attributes
    ----------
    level, version
        Of the node that it becomes, and of the checkpoint.
    slabs
        Its pages, in the order of chains and positions.
    """

    level: int
    version: int
    slabs: tuple[Slab, ...]

    @property
    def pages(self) -> int:
        """Pages of all chains, as of a `Node`."""
        return sum(slab.stop - slab.start for slab in self.slabs)


NewSegment: TypeAlias = Node | PlannedSegment
CarryOut: TypeAlias = Callable[[Sequence[PlannedSegment]], Sequence[Node] | None]
"""Writes segments and gives their nodes in the same order, every object found in storage; None if they shall
be written here."""


@dataclass(frozen=True, eq=False, slots=True)
class PlannedPart:
    """A manifest part to write, once all its segments are."""

    level: int
    children: tuple[NewSegment, ...]


NewPart: TypeAlias = Node | PlannedPart


def planned_in(parts: Iterable[NewPart]) -> list[PlannedSegment]:
    """Return the segments of the parts that are not yet written."""
    return [
        child
        for part in parts
        if isinstance(part, PlannedPart)
        for child in part.children
        if isinstance(child, PlannedSegment)
    ]


def sources_of(key: ChainKey, pieces: Iterable[Piece]) -> Iterator[UnsavedPages]:
    """Join small pieces into sources about as large as segments; commits bring runs of a page or two."""
    some: list[Piece] = []
    pages = 0
    for piece in pieces:
        if piece.num_pages:
            some.append(piece)
            pages += piece.num_pages
        if pages >= PAGES_PER_SEGMENT:
            yield UnsavedPages(key, tuple(some))
            some, pages = [], 0
    if some:
        yield UnsavedPages(key, tuple(some))
