"""Sets of rows as sorted, disjoint ranges: what is left of a table after statistics have spoken. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]


def sorted_rows(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the row numbers in order, each once.

    Notes
    -----
    `np.unique` hashes them, which takes ten times as long for a few hundred thousand.
    """
    if len(rows) < 2 or (rows[1:] > rows[:-1]).all():
        return rows
    rows = np.sort(rows)
    first = np.ones(len(rows), bool)
    first[1:] = rows[1:] != rows[:-1]
    return rows[first]


@dataclass(frozen=True, eq=False, slots=True)
class RowRanges:
    """Rows [starts[i], ends[i]) for every i.

    Attributes
    ----------
    starts, ends : int64, shape (n_ranges,)
        Increasing; ranges neither touch nor overlap.
    """

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]

    @classmethod
    def of(cls, start: int, stop: int) -> RowRanges:
        """Create the rows [start, stop)."""
        bounds = [(start, stop)] if start < stop else []
        return cls(np.array([b[0] for b in bounds], np.int64), np.array([b[1] for b in bounds], np.int64))

    @classmethod
    def joined(cls, bounds: NDArray[np.int64]) -> RowRanges:
        """Join ranges, shape (n, 2), that may overlap and come in any order."""
        bounds = bounds[bounds[:, 0] < bounds[:, 1]]
        bounds = bounds[np.argsort(bounds[:, 0], kind="stable")]
        starts, reach = bounds[:, 0], np.maximum.accumulate(bounds[:, 1])
        first = np.ones(len(starts), dtype=bool)
        first[1:] = starts[1:] > reach[:-1]
        last = np.ones(len(starts), dtype=bool)
        last[:-1] = first[1:]
        return cls(starts[first], reach[last])

    @classmethod
    def chosen(cls, bounds: NDArray[np.int64], keep: Bools) -> RowRanges:
        """Select the cells [bounds[i], bounds[i + 1]) where `keep` is true, and join adjacent ones."""
        filled = bounds[1:] > bounds[:-1]
        cells = np.flatnonzero(keep & filled)
        starts, ends = bounds[:-1][cells], bounds[1:][cells]
        first = np.ones(len(starts), dtype=bool)
        first[1:] = starts[1:] > ends[:-1]
        last = np.ones(len(starts), dtype=bool)
        last[:-1] = first[1:]
        return cls(starts[first], ends[last])

    @classmethod
    def complement(cls, ranges: RowRanges, stop: int) -> RowRanges:
        """Return the rows of [0, stop) that are not in a set."""
        starts, ends = np.append(0, ranges.ends), np.append(ranges.starts, stop)
        some = starts < ends
        return cls(starts[some], ends[some])

    @property
    def num_rows(self) -> int:
        """How many rows that are."""
        return int((self.ends - self.starts).sum())

    def rows(self) -> NDArray[np.int64]:
        """Return the number of each row, shape (num_rows,)."""
        if len(self.starts) == 1:
            return np.arange(self.starts[0], self.ends[0])
        counts = self.ends - self.starts
        before = np.cumsum(counts) - counts
        return np.repeat(self.starts - before, counts) + np.arange(int(counts.sum()))

    def part(self, first: int, last: int) -> RowRanges:
        """Return rows [first, last) of the set, counted within the set."""
        counts = self.ends - self.starts
        before = np.cumsum(counts) - counts
        low = np.maximum(first - before, 0)
        high = np.minimum(last - before, counts)
        some = low < high
        return RowRanges(self.starts[some] + low[some], self.starts[some] + high[some])

    def between(self, first: int, last: int) -> RowRanges:
        """Return the rows of the set that are in [first, last), by binary search."""
        begin = int(np.searchsorted(self.ends, first, side="right"))
        end = int(np.searchsorted(self.starts, last)) if first < last else begin
        some = slice(begin, end)
        return RowRanges(np.maximum(self.starts[some], first), np.minimum(self.ends[some], last))

    def covers(self, rows: NDArray[np.int64]) -> Bools:
        """Whether each row is in the set."""
        if not len(self.starts):
            return np.zeros(len(rows), dtype=bool)
        index = np.searchsorted(self.starts, rows, side="right") - 1
        inside: Bools = (index >= 0) & (rows < self.ends[np.maximum(index, 0)])
        return inside


def _combine(sets: list[RowRanges], how: Callable[[Bools, Bools], Bools]) -> RowRanges:
    bounds = sorted_rows(np.concatenate([part for each in sets for part in (each.starts, each.ends)]))
    if len(bounds) < 2:
        return RowRanges.of(0, 0)
    keep = reduce(how, (each.covers(bounds[:-1]) for each in sets))
    return RowRanges.chosen(bounds, keep)


def intersection(sets: list[RowRanges]) -> RowRanges:
    """Rows that are in all sets."""
    return _combine(sets, np.logical_and)


def difference(one: RowRanges, other: RowRanges) -> RowRanges:
    """Rows that are in one set and not in the other."""
    return _combine([one, other], lambda left, right: left & ~right)


def union(sets: list[RowRanges]) -> RowRanges:
    """Rows that are in any set."""
    return _combine(sets, np.logical_or)
