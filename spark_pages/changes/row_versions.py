"""Which version wrote each row last, kept as ranges of rows. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spark_pages.model.row_ranges import RowRanges, sorted_rows

Numbers = NDArray[np.int64]

UNKNOWN = -1
"""Stands for the version of a row that no commit has written."""


@dataclass(frozen=True, eq=False, slots=True)
class _Ranges:
    """Disjoint ranges of rows in order, each with a version."""

    starts: Numbers
    ends: Numbers
    versions: Numbers

    def of(self, rows: Numbers) -> Numbers:
        """Return the version of each row, `UNKNOWN` outside of the ranges."""
        index = np.searchsorted(self.starts, rows, side="right") - 1
        inside = (index >= 0) & (rows < self.ends[np.maximum(index, 0)])
        return np.where(inside, self.versions[np.maximum(index, 0)], UNKNOWN)

    def under(self, newer: _Ranges) -> _Ranges:
        """Return these ranges with newer ones written over them."""
        bounds = sorted_rows(np.concatenate([self.starts, self.ends, newer.starts, newer.ends]))
        over = newer.of(bounds[:-1])
        versions = np.where(over == UNKNOWN, self.of(bounds[:-1]), over)
        known = versions != UNKNOWN
        starts, ends, versions = bounds[:-1][known], bounds[1:][known], versions[known]
        first = np.ones(len(starts), bool)
        first[1:] = (starts[1:] > ends[:-1]) | (versions[1:] != versions[:-1])
        last = np.append(first[1:], True)
        return _Ranges(starts[first], ends[last], versions[first])


class RowVersions:
    """The version that wrote each row last, fed with one commit after another.

    Notes
    -----
    Ranges of commits are merged when as many have come as there are: time grows with n log n, memory with
    the ranges that are left.
    """

    def __init__(self) -> None:
        self._levels: list[_Ranges] = []

    def write(self, bounds: list[tuple[int, int]], version: int) -> None:
        """Record that a version, newer than those before, wrote ranges [start, end)."""
        ranges = RowRanges.joined(np.array(bounds, np.int64).reshape(-1, 2))
        if not len(ranges.starts):
            return
        versions = np.full(len(ranges.starts), version, np.int64)
        self._levels.append(_Ranges(ranges.starts, ranges.ends, versions))
        while len(self._levels) > 1 and len(self._levels[-2].starts) <= 2 * len(self._levels[-1].starts):
            newer = self._levels.pop()
            self._levels.append(self._levels.pop().under(newer))

    def of(self, rows: Numbers) -> Numbers:
        """Return the version of each row, `UNKNOWN` where none wrote it."""
        found = np.full(len(rows), UNKNOWN, np.int64)
        for level in self._levels:
            newer = level.of(rows)
            found = np.where(newer == UNKNOWN, found, newer)
        return found
