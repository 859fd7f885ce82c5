"""The pages of one column that some rows touch, as arrays: what a read asks for before it has any values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spark_pages.model.page import PageSlice
from spark_pages.model.page_schema import PAGE_SCHEMA, empty_batch
from spark_pages.model.run import PageRun


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
