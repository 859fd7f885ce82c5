"""Pages out of the runs of a chain: those that hold given rows, or stand at given positions."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spark_pages.model.chain_tree import ChainLayout, PartialRun, Piece
from spark_pages.model.page import PageSlice
from spark_pages.model.page_schema import PAGE_SCHEMA, empty_batch
from spark_pages.model.run import PageRun

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
        """The run that contains the piece at an index, which is loaded, and the first row of the run."""
        if self._starts is None:
            self._starts = _starts_of_groups(self.layout.pieces)
        starts = self._starts
        group = bisect_right(starts, index)
        begin, end = starts[group - 1], starts[group] if group < len(starts) else len(self.layout.pieces)
        pieces = [piece for piece in self.layout.pieces[begin:end] if isinstance(piece, PageRun)]
        if len(pieces) <= _FEW_PIECES:
            return pieces[index - begin], self.layout.first_rows[index]
        first, last = pieces[0], pieces[-1]
        found = self._runs.get((id(first), id(last)))
        if found is None:
            found = self._runs[id(first), id(last)] = (first, last, PageRun.concat(pieces))
        return found[2], self.layout.first_rows[begin]


def _starts_of_groups(pieces: Sequence[Piece | PartialRun]) -> list[int]:
    """Indices at which groups of loaded neighbours begin. Long runs, and promises of runs, stand alone."""
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
        """The pages of a run that rows [starts[i], ends[i]) touch, for every i.

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
        """The pages of all cuts, one after another."""
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
        """The same as one object for each page."""
        return list(map(PageSlice, self.run.descriptors(), self.starts.tolist(), self.stops.tolist()))
