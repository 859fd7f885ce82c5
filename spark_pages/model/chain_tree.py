"""What a chain is made of: loaded pages and promises of pages, with running totals.

A promise knows how many pages and rows it stands for (`UnloadedRun`), or not even that (`PartialRun`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from spark_pages.model.run import PageRun

ChainKey = tuple[int, int]
"""Table id and field id."""


@dataclass(frozen=True, eq=False, slots=True)
class UnloadedRun:
    """Pages that are known to be there, and how many, but are not loaded.

    Attributes
    ----------
    num_pages, num_rows
        What `expand` will give.
    expand
        Loads one level of the tree: smaller lazy runs, or pages.
    base_position
        Position of the first page in the chain's base of a checkpoint, or -1.
    """

    num_pages: int
    num_rows: int
    expand: Callable[[], Sequence[PageRun | UnloadedRun]]
    base_position: int = -1


@dataclass(frozen=True, eq=False, slots=True)
class PartialRun:
    """Pages of which not even the number is known yet.

    A chain does not look at them before it is asked for a row behind those that it knows of.

    Attributes
    ----------
    expand
        Gives them.
    """

    expand: Callable[[], Sequence[PageRun | UnloadedRun]]


Piece = PageRun | UnloadedRun


@dataclass(frozen=True, eq=False, slots=True)
class ChainEdit:
    """One splice of a chain, ready to apply.

    Attributes
    ----------
    first_row
        Row at which the removed run begins.
    removed
        Ids of the run that goes, in order; empty for an append.
    removed_entries
        Rows that the run holds.
    added
        Pages that take its place, or are appended.
    clears
        Whether everything before goes too (truncate).
    version
        Of the commit that made it; -1 where nobody asks.
    exact
        Whether an append must begin at `first_row`: in a liveness chain another place marks other rows.
    """

    first_row: int
    removed: tuple[int, ...]
    removed_entries: int
    added: Piece
    clears: bool = False
    version: int = -1
    exact: bool = False


@dataclass(frozen=True, eq=False, slots=True)
class ChainLayout:
    """Pieces, with running totals as far as sizes are known: in front of each, and the grand total last."""

    pieces: tuple[Piece | PartialRun, ...]
    first_rows: list[int]
    first_pages: list[int]

    @classmethod
    def of(cls, pieces: Sequence[Piece | PartialRun]) -> ChainLayout:
        """The pieces with their totals."""
        known: list[Piece] = []
        for piece in pieces:
            if isinstance(piece, PartialRun):
                break
            known.append(piece)
        return cls(
            tuple(pieces),
            list(accumulate((piece.num_rows for piece in known), initial=0)),
            list(accumulate((piece.num_pages for piece in known), initial=0)),
        )

    @property
    def complete(self) -> bool:
        """Whether the size of every piece is known."""
        return len(self.first_rows) > len(self.pieces)

    def known(self) -> list[Piece]:
        """The pieces whose size is known."""
        return [piece for piece in self.pieces if not isinstance(piece, PartialRun)]
