"""Least and greatest value, counts of values and nulls, over any rows of a column: mostly from statistics.

Follow `aggregate_rows`. `_Pages` says what statistics prove of each page that the rows touch; pages that they
say too little of are read: first those that have to be, then, from the outermost bound inward, such as could
still hold the answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_pages.arrow.columns import flags_of, nulls_of, number_column, numbers_of, valid_of
from spark_pages.arrow.join import take_entries
from spark_pages.errors import DamageError
from spark_pages.format.bounds import (
    all_nan,
    comparable,
    decode_bounds,
    from_comparable,
    has_bounds,
    has_nan,
    plain_type,
    plain_values,
)
from spark_pages.model.chain import ColumnChain
from spark_pages.model.page import PageDescriptor
from spark_pages.model.page_schema import PAGE_SCHEMA, empty_batch
from spark_pages.model.run import PageRun

_PAGES_AT_ONCE = 256
"""Pages whose values are in memory together."""

Flags = NDArray[np.bool_]
Numbers = NDArray[np.int64]
_NONE = np.zeros(0, np.int64)

ReadPages = Callable[[Sequence[PageDescriptor]], Sequence[pa.Array]]
"""Gives the values of pages, page by page."""


@dataclass(frozen=True, slots=True)
class Aggregate:
    """What some rows of a column hold, exactly.

    Attributes
    ----------
    min, max
        Of the type of the column (of a dictionary, of its values); a null scalar where there is no value, and
        None where the type has no order: lists, structs, maps, intervals. NaN is passed over, unless there is
        no other value. A zero is +0.0.
    count, null_count
        Rows with a value, NaN included, and rows without.
    pages_read
        Pages whose values had to be looked at; statistics told the rest.
    """

    min: pa.Scalar | None
    max: pa.Scalar | None
    count: int
    null_count: int
    pages_read: int

    def __repr__(self) -> str:
        low, high = (None if bound is None else bound.as_py() for bound in (self.min, self.max))
        return (
            f"Aggregate(min={low!r}, max={high!r}, count={self.count}, null_count={self.null_count}, "
            f"pages_read={self.pages_read})"
        )


def aggregate_rows(
    chain: ColumnChain,
    kind: pa.DataType,
    rows: tuple[int, int],
    read: ReadPages,
    *,
    dead: Numbers = _NONE,
    told: bool = True,
) -> Aggregate:
    """Aggregate rows [start, stop) of a chain.

    Parameters
    ----------
    kind
        Type of the column.
    rows
        First row, and one past the last.
    read
        Called for no more than 256 pages at a time.
    dead : int64, shape (n_dead,)
        The dead rows among them, increasing: they do not count.
    told
        Whether statistics speak of the values that `read` gives.

    Notes
    -----
    Where every page between has exact bounds, at most the two pages at the ends are read, and these only if
    they could matter. Text and binary of more than 32 bytes take one page more for each side, that of the
    outermost bound; beside it only pages with the very same cut bound, and none once a value is that bound.
    Loads the segments that hold the rows, with their statistics; O(pages) in numpy.
    """
    ordered = has_bounds(kind)
    pages = _Pages.of(chain, kind, *rows, dead, told=told and ordered)
    known = _KnownExtremes(pages, read, ordered)
    known.read_pages((pages.nulls < 0) | (ordered & pages.valued & ~pages.bounded & ~pages.only_nan))
    if ordered:
        known.add_bounds(pages.attained)
        known.add_nan(bool(pages.only_nan.any()))
        known.narrow(pages.valued & pages.bounded & ~pages.attained)
    low, high = known.extremes(kind)
    nulls = int(known.nulls.sum())
    return Aggregate(low, high, int(pages.rows.sum()) - nulls, nulls, int(np.count_nonzero(known.looked_at)))


@dataclass(frozen=True, eq=False, slots=True)
class _Pages:
    """The pages that some rows touch, each with one row of them at least; arrays of shape (n_pages,).

    Attributes
    ----------
    run
        The pages.
    starts, stops, rows
        First row of each that may count, in the page, one past the last, and how many of them are live.
    dead, bounds
        The dead rows, as offsets in their pages, page by page; and where those of each page are.
    nulls
        Null rows among them; -1 where nobody knows.
    lows, highs
        Bounds in a type that Arrow compares; null where there is none.
    attained
        Whether both bounds are values of the rows that count.
    only_nan
        Whether there is a NaN among the rows that count, and no other value.
    """

    run: PageRun
    starts: Numbers
    stops: Numbers
    rows: Numbers
    dead: Numbers
    bounds: Numbers
    nulls: Numbers
    lows: pa.Array
    highs: pa.Array
    attained: Flags
    only_nan: Flags

    @classmethod
    def of(
        cls, chain: ColumnChain, kind: pa.DataType, start: int, stop: int, dead: Numbers, *, told: bool
    ) -> _Pages:
        """Those of the live rows of [start, stop); `told` says whether bounds are to be believed."""
        parts = [
            (part.run, part.run.prefix_entries.astype(np.int64) + part.first_row)
            for part in chain.runs(start, stop)
        ]
        run = PageRun.concat([run for run, _ in parts]) if parts else PageRun(empty_batch(PAGE_SCHEMA))
        ends = np.concatenate([np.zeros(0, np.int64), *(ends for _, ends in parts)])
        entries = run.numbers("entry_count")
        firsts = ends - entries
        starts, stops = np.maximum(start - firsts, 0), np.minimum(stop - firsts, entries)
        died = np.searchsorted(dead, firsts + stops) - np.searchsorted(dead, firsts + starts)
        rows = stops - starts - np.where(stops > starts, died, 0)
        touched = np.flatnonzero(rows > 0)
        chosen = PageRun(run.pages.take(number_column(touched, pa.int64())))
        stats = run.stats.take(number_column(touched, pa.int64()))
        starts, stops, rows, entries = (each[touched] for each in (starts, stops, rows, entries))
        firsts = firsts[touched]
        low, high = np.searchsorted(dead, firsts + starts), np.searchsorted(dead, firsts + stops)
        places = np.concatenate([_NONE, *map(np.arange, low, high)]) if len(dead) else _NONE
        gone = dead[places] - np.repeat(firsts, high - low)
        lows, highs = (_bounds(kind, stats.column(name), told) for name in ("min", "max"))
        nulls = np.where(valid_of(stats.column("null_count")), numbers_of(stats.column("null_count")), -1)
        one_value = flags_of(pc.equal(lows, highs)) & (nulls == 0) & ~has_nan(kind, stats)
        told_of_rows = (rows == entries) | one_value
        exact = valid_of(stats.column("exact")) & flags_of(stats.column("exact"))
        whole = (rows == entries) | (nulls == 0)
        counted = np.where(whole, nulls, np.where(nulls == entries, rows, -1))
        some_value = (counted >= 0) & (counted < rows)
        return cls(
            *(chosen, starts, stops, rows, gone, np.append(0, np.cumsum(high - low)), counted, lows, highs),
            exact & told_of_rows & valid_of(lows) & valid_of(highs) & some_value,
            all_nan(kind, stats) & some_value & pa.types.is_floating(lows.type),
        )

    def live_rows(self, position: int, array: pa.Array) -> pa.Array:
        """Return the live entries of a page."""
        start, stop = int(self.starts[position]), int(self.stops[position])
        dead = self.dead[self.bounds[position] : self.bounds[position + 1]]
        if not len(dead):
            return array.slice(start, stop - start)
        live = np.delete(np.arange(start, stop), dead - start)
        return take_entries(array, number_column(live, pa.int64()))

    @property
    def valued(self) -> Flags:
        """Which pages may have a value among the rows that count."""
        return self.nulls < self.rows

    @property
    def bounded(self) -> Flags:
        """Which pages have both bounds."""
        return valid_of(self.lows) & valid_of(self.highs)


@dataclass(eq=False, slots=True)
class _KnownExtremes:
    """What is known so far."""

    pages: _Pages
    read: ReadPages
    ordered: bool
    nulls: Numbers = field(init=False)
    looked_at: Flags = field(init=False)
    found: dict[str, list[pa.Scalar]] = field(default_factory=lambda: {"min": [], "max": []})

    def __post_init__(self) -> None:
        self.nulls = self.pages.nulls.copy()
        self.looked_at = np.zeros(len(self.nulls), dtype=bool)

    def read_pages(self, chosen: Flags) -> None:
        """Read some pages."""
        positions = np.flatnonzero(chosen)
        self.looked_at |= chosen
        for first in range(0, len(positions), _PAGES_AT_ONCE):
            some = positions[first : first + _PAGES_AT_ONCE]
            run = PageRun(self.pages.run.pages.take(number_column(some, pa.int64())))
            self._record(some, self.read(run.descriptors(0, run.num_pages)))

    def narrow(self, chosen: Flags) -> None:
        """None of some pages could change what is known any more: those that could, from outside, are read.

        One of each side, then two, four, … with the same bound: where bounds are cut alike, either the first
        tells enough, or most likely all are needed.
        """
        most = 1
        while True:
            lower, higher = self._could_change(chosen & ~self.looked_at)
            if not (lower | higher).any():
                return
            least, greatest = _least(self.pages.lows, lower), _greatest(self.pages.highs, higher)
            self.read_pages(_first(least, most) | _first(greatest, most))
            most *= 2

    def _record(self, positions: Numbers, arrays: Sequence[pa.Array]) -> None:
        for position, array in zip(positions.tolist(), arrays, strict=True):
            values = plain_values(self.pages.live_rows(position, array))
            self.nulls[position] = nulls_of(values)
            if self.ordered:
                bounds = pc.min_max(comparable(values))
                for name in self.found:
                    self.found[name].append(bounds[name])

    def add_bounds(self, chosen: Flags) -> None:
        """Add the bounds of pages whose bounds are values."""
        mask = pa.array(chosen)
        for name, bounds in (("min", self.pages.lows), ("max", self.pages.highs)):
            self.found[name].append(pc.min_max(bounds.filter(mask))[name])

    def add_nan(self, some: bool) -> None:
        """Record that some values are NaN."""
        if some:
            for values in self.found.values():
                values.append(pa.scalar(math.nan, self.pages.lows.type))

    def _could_change(self, chosen: Flags) -> tuple[Flags, Flags]:
        """Which of some pages could have a smaller value than the least so far, and which a greater one."""
        low, high = self._best("min"), self._best("max")
        if low is None or high is None or not chosen.any():
            return chosen, chosen
        return chosen & flags_of(pc.less(self.pages.lows, low)), chosen & flags_of(
            pc.greater(self.pages.highs, high)
        )

    def extremes(self, kind: pa.DataType) -> tuple[pa.Scalar | None, pa.Scalar | None]:
        """Least and greatest value, in the type of the column."""
        if not self.ordered:
            nothing = pa.scalar(None, kind) if pa.types.is_null(kind) else None
            return nothing, nothing
        found = []
        for name in ("min", "max"):
            best = self._best(name, nan=True)
            if best is None:
                found.append(pa.scalar(None, plain_type(kind)))
                continue
            zero = pa.types.is_floating(best.type) and best.as_py() == 0
            found.append(from_comparable(pa.scalar(0.0, best.type) if zero else best, kind))
        return found[0], found[1]

    def _best(self, name: str, *, nan: bool = False) -> pa.Scalar | None:
        """Return the least or greatest value so far; `nan` says whether NaN counts if there is no other."""
        values = [value for value in self.found[name] if value.is_valid]
        if not values:
            return None
        best = pc.min_max(pa.array(values, values[0].type))[name]
        is_nan = pa.types.is_floating(best.type) and best.as_py() != best.as_py()
        return None if is_nan and not nan else best


def _bounds(kind: pa.DataType, column: pa.Array, told: bool) -> pa.Array:
    if told:
        try:
            bounds = comparable(decode_bounds(kind, column))
        except DamageError:
            pass  # no bounds of this type: what they are of, only the pages can tell
        else:
            floats = pa.types.is_floating(bounds.type)
            return pc.if_else(pc.is_nan(bounds), None, bounds) if floats else bounds
    return pa.nulls(len(column), pa.int64())


def _first(chosen: Flags, most: int) -> Flags:
    """Select the first of the chosen pages."""
    first: Flags = chosen & (np.cumsum(chosen) <= most)
    return first


def _least(lows: pa.Array, chosen: Flags) -> Flags:
    """Those of the pages chosen whose lower bound is the least."""
    mask = pa.array(chosen)
    return chosen & flags_of(pc.equal(lows, pc.min_max(lows.filter(mask))["min"]))


def _greatest(highs: pa.Array, chosen: Flags) -> Flags:
    mask = pa.array(chosen)
    return chosen & flags_of(pc.equal(highs, pc.min_max(highs.filter(mask))["max"]))
