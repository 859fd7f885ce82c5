"""Applying splices to the pieces of a chain."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, groupby
from typing import cast

import numpy as np

from spark_pages.errors import DamageError
from spark_pages.model.chain_tree import ChainEdit, ChainLayout, PartialRun, Piece, UnloadedRun
from spark_pages.model.run import PageRun


class ChainDraft:
    """A chain while splices are applied: its pieces, and the row at which each begins, changed in place.

    A splice leaves the rows of all pieces behind it where they were, or is at the end of the chain. So it
    costs the pieces that it touches, and thousands in one commit do not cost the square of that.
    """

    def __init__(self, layout: ChainLayout) -> None:
        self.pieces: list[Piece] = [piece for piece in layout.pieces if not isinstance(piece, PartialRun)]
        self._first_rows = list(layout.first_rows)

    def append(self, tail: Sequence[Piece]) -> None:
        """These pieces come last."""
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
        """The run that the edit names gives way to what it adds."""
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
        """Which pieces [begin, end) touch rows [first, last], once those among them that were promises are
        loaded.
        """
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
        """These pieces in the place of pieces [begin, end)."""
        rows = accumulate((piece.num_rows for piece in new), initial=self._first_rows[begin])
        self.pieces[begin:end] = new
        self._first_rows[begin : end + 1] = rows


def parts_of(piece: UnloadedRun) -> Sequence[PageRun | UnloadedRun]:
    """What the promise stands for, one level further down."""
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
    """What was appended, neighbours that are loaded as one run; what has no pages is left out."""
    tail: list[Piece] = []
    for lazy, group in groupby(
        (piece for piece in appended if piece.num_pages), key=lambda piece: isinstance(piece, UnloadedRun)
    ):
        pieces = list(group)
        tail += pieces if lazy else [PageRun.concat([p for p in pieces if isinstance(p, PageRun)])]
    return tail


def merge_small(pieces: Sequence[Piece | PartialRun]) -> list[Piece | PartialRun]:
    """The pieces, with runs at the end joined like the digits of a binary counter.

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
