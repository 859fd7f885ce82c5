"""The counted tree of a checkpoint: nodes, where a chain lies in them, and how they are rewritten.

Pure. A `Node` stands for a manifest part (in the root) or for a segment (in a part). Nodes of one
level are sorted by chain and hold counts for their first and last chain only: a chain in between
lies wholly inside. So a change touches one node on each floor, and running totals are formed on
the way down.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from spark_pages.model.chain_tree import ChainKey, Piece

END = 1 << 62
"""Position behind the last page of a chain, wherever that is."""

PAGES_PER_SEGMENT = 8192
SEGMENTS_PER_PART = 1024


@dataclass(frozen=True, slots=True)
class Node:
    """One manifest part or one segment, as its parent lists it.

    Attributes
    ----------
    level
        0 for the base, 1 and more for tail runs, oldest first.
    first, last
        First and last chain in it.
    pages
        Pages in it, of all chains.
    first_pages, first_rows, last_pages, last_rows
        Pages and rows of its first and last chain that lie in this node.
    digest, length
        Of the object that holds it.
    stats_digest, stats_length
        Of the statistics of a segment; empty and 0 where there are none, and for parts.
    """

    level: int
    first: ChainKey
    last: ChainKey
    pages: int
    first_pages: int
    first_rows: int
    last_pages: int
    last_rows: int
    digest: str
    length: int
    stats_digest: str = ""
    stats_length: int = 0

    def count(self, key: ChainKey) -> tuple[int, int] | None:
        """Pages and rows of a chain in this node; None where only its content tells."""
        if key == self.first:
            return self.first_pages, self.first_rows
        if key == self.last:
            return self.last_pages, self.last_rows
        return None


def nodes_of(nodes: Sequence[Node], key: ChainKey) -> range:
    """Return the indices of the nodes that can hold pages of the chain."""
    start = bisect_left(nodes, key, key=lambda node: node.last)
    stop = bisect_right(nodes, key, key=lambda node: node.first)
    return range(start, max(start, stop))


@dataclass(frozen=True, eq=False, slots=True)
class Change:
    """Pages [start, stop) of a chain's part of a level go; `added` comes in their place.

    `start` may be `END` (append). `added` is None where only pages go.
    """

    start: int
    stop: int
    added: tuple[Piece, ...] = ()


Changes = Mapping[ChainKey, Sequence[Change]]


def assign(nodes: Sequence[Node], changes: Changes) -> dict[int, dict[ChainKey, list[Change]]]:
    """Which node each change belongs to, with positions counted inside that node.

    A chain that no node holds yet goes where its place in the order is.
    """
    assigned: dict[int, dict[ChainKey, list[Change]]] = {}
    for key, of_chain in changes.items():
        holders = nodes_of(nodes, key)
        if len(holders) <= 1:
            home = holders[0] if holders else min(holders.start, len(nodes) - 1)
            assigned.setdefault(home, {})[key] = list(of_chain)
            continue
        first = 0
        for index in holders:
            count = nodes[index].count(key)
            assert count is not None, "a chain in several nodes is the first or last of each"
            stop = first + count[0]
            inside = [
                clipped
                for change in of_chain
                if (clipped := _clip(change, first, stop, index == holders[-1])) is not None
            ]
            if inside:
                assigned.setdefault(index, {})[key] = inside
            first = stop
    return assigned


def _clip(change: Change, first: int, stop: int, is_last: bool) -> Change | None:
    inserts_here = bool(change.added) and (first <= change.start < stop or (is_last and change.start >= stop))
    low, high = max(change.start, first), min(change.stop, stop)
    if low < high:
        return Change(low - first, high - first, change.added if inserts_here else ())
    if inserts_here:
        return Change(change.start - first, change.start - first, change.added)
    return None


def changes_of_base(pieces: Sequence[Piece], base_pages: int) -> list[Change]:
    """How the base of a chain must change to become these pieces.

    Parameters
    ----------
    pieces
        The whole chain. Those with a base position are pages of the base, in its order.
    base_pages
        Pages of the chain in the base.
    """
    changes: list[Change] = []
    expected = 0
    added: list[Piece] = []
    for piece in pieces:
        if piece.base_position < 0:
            added.append(piece)
            continue
        if added or piece.base_position != expected:
            changes.append(Change(expected, piece.base_position, tuple(added)))
            added = []
        expected = piece.base_position + piece.num_pages
    if added or expected != base_pages:
        changes.append(Change(expected, base_pages, tuple(added)))
    return changes


def even_chunks(count: int, limit: int) -> list[tuple[int, int]]:
    """[start, stop) of chunks of about equal size, each at most a quarter over the limit."""
    if count <= limit + limit // 4:
        return [(0, count)] if count else []
    chunks = -(-count // limit)
    bounds = [count * index // chunks for index in range(chunks + 1)]
    return list(pairwise(bounds))
