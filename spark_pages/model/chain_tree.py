"""Nodes of the counted tree of a chain: loaded and unloaded runs, selections of pages, and edits.

A promise knows how many pages and rows it stands for (`UnloadedRun`), or not even that (`PartialRun`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import cast

import numpy as np
from numpy.typing import NDArray

from spark_pages.errors import DamageError
from spark_pages.model.page import PageSlice
from spark_pages.model.page_schema import PAGE_SCHEMA, empty_batch
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
        """Create the layout of pieces, with running totals."""
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
        """Return the pieces whose size is known."""
        return [piece for piece in self.pieces if not isinstance(piece, PartialRun)]


class ChainDraft:
    """A chain while splices are applied: its pieces, and the row at which each begins, changed in place.

    A splice leaves the rows of all pieces behind it where they were, or is at the end of the chain. So it
    costs the pieces that it touches, and thousands in one commit do not cost the square of that.
    """

    def __init__(self, layout: ChainLayout) -> None:
        self.pieces: list[Piece] = [piece for piece in layout.pieces if not isinstance(piece, PartialRun)]
        self._first_rows = list(layout.first_rows)

    def append(self, tail: Sequence[Piece]) -> None:
        """Append pieces."""
        if tail:
            self.pieces = cast("list[Piece]", merge_small((*self.pieces, *tail)))
            self._first_rows = list(accumulate((piece.num_rows for piece in self.pieces), initial=0))

    def check_end(self, edit: ChainEdit) -> None:
        """Raise DamageError if an append does not begin where the chain ends."""
        if edit.first_row != self._first_rows[-1]:
            raise DamageError(
                f"Cannot lengthen a liveness chain: a splice begins at row {edit.first_row}, but the "
                f"chain ends at row {self._first_rows[-1]}: the log contradicts itself."
            )

    def replace(self, edit: ChainEdit) -> None:
        """Replace the run that the edit names by the pages that it adds."""
        first, last = edit.first_row, edit.first_row + edit.removed_entries
        begin_piece, end_piece = self._loaded(first, last)
        runs = [piece for piece in self.pieces[begin_piece:end_piece] if isinstance(piece, PageRun)]
        begin = _find(runs, first - self._first_rows[begin_piece], edit)
        if begin < 0:
            raise DamageError(
                f"Cannot replace pages of a chain: a splice removes {len(edit.removed)} pages from "
                f"row {first} on, beginning with page {edit.removed[0]:016x}, but the chain does not "
                "hold that run there: the log contradicts itself."
            )
        end = begin + len(edit.removed)
        begin_row, end_row = (self._first_rows[begin_piece] + _rows_before(runs, at) for at in (begin, end))
        if (begin_row, end_row - begin_row) != (first, edit.removed_entries):
            raise DamageError(
                f"Cannot replace pages of a chain: a splice removes rows [{first}, {last}), but the "
                f"pages that it names hold rows [{begin_row}, {end_row}): the log contradicts itself."
            )
        if edit.added.num_rows != edit.removed_entries and end_row != self._first_rows[-1]:
            raise DamageError(
                f"Cannot replace pages of a chain: a splice puts {edit.added.num_rows} rows in the "
                f"place of rows [{first}, {last}), which are not the last of the chain: the log "
                "contradicts itself."
            )
        new: list[Piece] = [*_cut(runs, 0, begin)]
        if edit.added.num_pages:
            new.append(edit.added)
        new += _cut(runs, end, sum(run.num_pages for run in runs))
        self._put(begin_piece, end_piece, new)

    def _loaded(self, first: int, last: int) -> tuple[int, int]:
        """Load the pieces that rows [first, last] touch, and return their range [begin, end)."""
        while True:
            rows = self._first_rows
            begin = bisect_left(rows, first, 1) - 1
            end = bisect_right(rows, last, 0, len(self.pieces))
            near = self.pieces[begin:end]
            if not any(isinstance(piece, UnloadedRun) for piece in near):
                return begin, end
            new: list[Piece] = []
            for piece in near:
                new += parts_of(piece) if isinstance(piece, UnloadedRun) else [piece]
            self._put(begin, end, new)

    def _put(self, begin: int, end: int, new: Sequence[Piece]) -> None:
        """Replace pieces [begin, end) by these."""
        rows = accumulate((piece.num_rows for piece in new), initial=self._first_rows[begin])
        self.pieces[begin:end] = new
        self._first_rows[begin : end + 1] = rows


def parts_of(piece: UnloadedRun) -> Sequence[PageRun | UnloadedRun]:
    """Expand an unloaded run by one level."""
    parts = piece.expand()
    pages, rows = sum(part.num_pages for part in parts), sum(part.num_rows for part in parts)
    if (pages, rows) != (piece.num_pages, piece.num_rows):
        raise DamageError(
            f"Cannot read a part of a checkpoint: it should hold {piece.num_pages} pages with "
            f"{piece.num_rows} rows of a chain, but holds {pages} with {rows}: the checkpoint "
            "contradicts itself."
        )
    return parts


def joined_pieces(appended: Sequence[Piece]) -> list[Piece]:
    """Join loaded neighbours into runs, and drop pieces without pages."""
    tail: list[Piece] = []
    for lazy, group in groupby(
        (piece for piece in appended if piece.num_pages), key=lambda piece: isinstance(piece, UnloadedRun)
    ):
        pieces = list(group)
        tail += pieces if lazy else [PageRun.concat([p for p in pieces if isinstance(p, PageRun)])]
    return tail


def merge_small(pieces: Sequence[Piece | PartialRun]) -> list[Piece | PartialRun]:
    """Merge small runs at the end, like the digits of a binary counter.

    So a stream of single pages costs O(log pages) each and leaves O(log pages) pieces.
    """
    merged = list(pieces)
    while len(merged) > 1:
        before, last = merged[-2:]
        if not (isinstance(before, PageRun) and isinstance(last, PageRun)):
            break
        if before.base_position >= 0 or before.num_pages > last.num_pages:
            break
        merged[-2:] = [PageRun.concat([before, last])]
    return merged


def _find(runs: Sequence[PageRun], first: int, edit: ChainEdit) -> int:
    """Index of the first page that the edit removes, of runs laid end to end; -1 where they are not there.

    Parameters
    ----------
    first
        Row of the runs at which the edit begins. Only pages that touch it, or the row at which it ends, and
        what lies between are looked at.
    """
    removed = np.array(edit.removed, np.int64)
    last = first + edit.removed_entries
    skipped, near = -1, []
    for run in runs:
        start, stop = run.overlapping(first, last)
        skipped = start if skipped < 0 else skipped
        near.append(run.page_ids[start:stop])
        first, last = first - run.num_rows, last - run.num_rows
    ids = np.concatenate(near) if near else removed[:0]
    begin = next(iter(np.flatnonzero(ids == removed[0]).tolist()), -1)
    if begin < 0 or not np.array_equal(ids[begin : begin + len(removed)], removed):
        return -1
    return skipped + begin


def _rows_before(runs: Sequence[PageRun], index: int) -> int:
    """Rows before a page of runs laid end to end."""
    rows = 0
    for run in runs:
        if index <= run.num_pages:
            return rows + run.rows_before(index)
        index -= run.num_pages
        rows += run.num_rows
    return rows


def _cut(runs: Sequence[PageRun], start: int, stop: int) -> list[PageRun]:
    """Pages [start, stop) of several runs laid end to end."""
    pieces = []
    first = 0
    for run in runs:
        low, high = max(start - first, 0), min(stop - first, run.num_pages)
        if low < high:
            pieces.append(run.slice(low, high))
        first += run.num_pages
    return pieces


_MOST_PAGES = 8192
"""Neighbours are joined up to so many pages, about a segment. A run of half as many is never copied."""

_FEW_PIECES = 2
"""So few neighbours are not joined: a second look costs less than a copy."""


class JoinedRuns:
    """Loaded neighbours of a layout as one run each. A run is made on request, and kept.

    Parameters
    ----------
    layout
        The pieces of a chain.
    earlier
        The same of an earlier layout of the chain, whose runs are used again: between two loaded pieces
        nothing changes.

    Notes
    -----
    Each run that is made copies the descriptors of its pieces. Safe to share between threads: two that ask at
    once may both make a run.
    """

    __slots__ = ("_runs", "_starts", "layout")

    def __init__(self, layout: ChainLayout, earlier: JoinedRuns | None = None) -> None:
        self.layout = layout
        # By ids of the first and last piece. Both are held, so that no other piece gets their ids.
        self._runs: dict[tuple[int, int], tuple[PageRun, PageRun, PageRun]] = earlier._runs if earlier else {}
        self._starts: list[int] | None = None

    def at(self, index: int) -> tuple[PageRun, int]:
        """Return the run that contains the loaded piece at an index, and the first row of the run."""
        if self._starts is None:
            self._starts = _starts_of_groups(self.layout.pieces)
        starts = self._starts
        group = bisect_right(starts, index)
        begin, end = starts[group - 1], starts[group] if group < len(starts) else len(self.layout.pieces)
        pieces = self.layout.pieces
        if end - begin <= _FEW_PIECES:
            return _loaded(pieces[index]), self.layout.first_rows[index]
        first, last = _loaded(pieces[begin]), _loaded(pieces[end - 1])
        found = self._runs.get((id(first), id(last)))
        if found is None:  # else no look at the pieces between, of which many updates make many
            joined = PageRun.concat([_loaded(piece) for piece in pieces[begin:end]])
            found = self._runs[id(first), id(last)] = (first, last, joined)
        return found[2], self.layout.first_rows[begin]


def _loaded(piece: Piece | PartialRun) -> PageRun:
    """Return a piece that is loaded, as all of a group of several are."""
    assert isinstance(piece, PageRun)
    return piece


def _starts_of_groups(pieces: Sequence[Piece | PartialRun]) -> list[int]:
    """Return where groups of loaded neighbours begin. Long runs and unloaded runs stay separate."""
    starts: list[int] = []
    room = -1
    for index, piece in enumerate(pieces):
        alone = not isinstance(piece, PageRun) or piece.num_pages * 2 >= _MOST_PAGES
        pages = piece.num_pages if isinstance(piece, PageRun) else _MOST_PAGES
        if alone or pages > room:
            starts.append(index)
            room = _MOST_PAGES
        room = -1 if alone else room - pages
    return starts


@dataclass(frozen=True, eq=False, slots=True)
class PageSelection:
    """Pages in row order, and which rows of each.

    Attributes
    ----------
    run
        The pages; one that two ranges touch comes twice.
    starts, stops : int64, shape (n_pages,)
        First row inside of each page, and one past the last; ``0 <= start < stop <= entry_count``.
    """

    run: PageRun
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]

    @classmethod
    def of_run(
        cls, run: PageRun, first_row: int, starts: NDArray[np.uint64], ends: NDArray[np.uint64]
    ) -> PageSelection:
        """Select the pages of a run that rows [starts[i], ends[i]) touch, for every i.

        Parameters
        ----------
        first_row
            Row of the chain at which the run begins; rows outside of the run are left out.
        starts, ends : uint64, shape (n_ranges,)
            Increasing, without overlap; every range has a row in the run.
        """
        begin, end = np.uint64(first_row), np.uint64(first_row + run.num_rows)
        low = (np.maximum(starts, begin) - begin).astype(np.int64)
        high = (np.minimum(ends, end) - begin).astype(np.int64)
        page_ends = run.prefix_entries.view(np.int64)
        first = np.searchsorted(page_ends, low, side="right")
        count = np.searchsorted(page_ends, high, side="left") + 1 - first
        if len(count) == 1:
            pages = np.arange(int(first[0]), int(first[0] + count[0]))
        else:
            before = np.cumsum(count) - count
            pages = np.repeat(first - before, count) + np.arange(int(count.sum()))
            low, high = np.repeat(low, count), np.repeat(high, count)
        entries = run.numbers("entry_count")[pages]
        begins = page_ends[pages] - entries
        cut_starts = np.maximum(low - begins, 0)
        cut_stops = np.minimum(high - begins, entries)
        filled = cut_starts < cut_stops
        if not filled.all():
            pages, cut_starts, cut_stops = pages[filled], cut_starts[filled], cut_stops[filled]
        return cls(run.take(pages), cut_starts, cut_stops)

    @classmethod
    def joined(cls, cuts: Sequence[PageSelection]) -> PageSelection:
        """Concatenate selections."""
        if len(cuts) == 1:
            return cuts[0]
        if not cuts:
            none = np.zeros(0, dtype=np.int64)
            return cls(PageRun(empty_batch(PAGE_SCHEMA)), none, none)
        return cls(
            PageRun.concat([cut.run for cut in cuts]),
            np.concatenate([cut.starts for cut in cuts]),
            np.concatenate([cut.stops for cut in cuts]),
        )

    def slices(self) -> list[PageSlice]:
        """Return the selection as one object for each page."""
        return list(map(PageSlice, self.run.descriptors(), self.starts.tolist(), self.stops.tolist()))
