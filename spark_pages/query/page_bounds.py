"""What statistics prove of conditions: which pages cannot hold a row that meets one. Pure.

`SearchValues` are the values of a condition, prepared once for a column; `PageBounds` are the statistics of
some of its pages, decoded once for all conditions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_pages.arrow.columns import flags_of, numbers_of, valid_of
from spark_pages.errors import DamageError
from spark_pages.format.bounds import all_nan, comparable, decode_bounds, has_nan, plain_type
from spark_pages.query.predicates.literals import exact_values
from spark_pages.query.predicates.predicate import Condition

Flags = NDArray[np.bool_]

_NO_ORDER = (pa.ArrowException, DamageError, OverflowError, TypeError, ValueError)
"""Raised where values cannot be compared with bounds: then these prove nothing."""


@dataclass(frozen=True, eq=False, slots=True)
class SearchValues:
    """The values of a condition as bounds are compared with them.

    Attributes
    ----------
    operator
        As in the condition.
    values
        By `comparable`, sorted where there are several; None where the column has no such values, so that
        bounds prove nothing.
    null, nan
        Whether null, and whether NaN, is one of the members asked for, which no bound tells of.
    or_nan
        Whether NaN meets the condition too.
    """

    operator: str
    values: pa.Array | None
    null: bool
    nan: bool
    or_nan: bool

    @classmethod
    def of(cls, condition: Condition, kind: pa.DataType) -> SearchValues:
        """Those of a condition on a column of a type."""
        operator, or_nan = condition.operator, condition.or_nan or condition.operator == "!="
        if operator in ("is null", "is not null", "not in"):
            return cls(operator, None, False, False, or_nan)
        given = list(condition.value) if operator == "in" else [condition.value]
        members = [value for value in given if value is not None] if operator == "in" else given
        numbers = [value for value in members if not _is_nan(value)] if operator in ("==", "in") else members
        try:
            values = comparable(exact_values(numbers, plain_type(kind))) if numbers else _NOTHING
        except _NO_ORDER:
            values = None
        else:
            values = values.sort() if len(values) > 1 else values
        return cls(operator, values, len(members) < len(given), len(numbers) < len(members), or_nan)


@dataclass(frozen=True, eq=False)
class PageBounds:
    """Statistics of some pages of a column.

    Attributes
    ----------
    kind
        Type of the column.
    stats
        Statistics of the pages, row for row.
    entries : int64, shape (n_pages,)
        Rows of each page.
    """

    kind: pa.DataType
    stats: pa.RecordBatch
    entries: NDArray[np.int64]

    def may_match(self, asked: SearchValues) -> Flags:
        """Which pages may hold a row that meets a condition.

        Returns
        -------
        numpy.ndarray of bool, shape (n_pages,)
            False only where statistics prove that no row of the page meets the condition.

        Notes
        -----
        For n values and p pages O((n + p) log (n + p)), without a Python loop.
        """
        match asked.operator:
            case "is null":
                return self._some_null
            case "is not null":
                return self._some_value
            case "not in":
                return np.ones(len(self.entries), dtype=bool)  # null is a member like any other
        matching = self._some_value & self._matching(asked)
        return matching | self._some_null if asked.null else matching

    def _matching(self, asked: SearchValues) -> Flags:
        if asked.values is None:
            return np.ones(len(self.entries), dtype=bool)
        try:
            low, high = self._bounds
            if asked.operator not in ("==", "in"):
                found = _compared(asked.operator, low, high, self.stats.column("exact"), asked.values[0])
            elif len(asked.values) == 1:
                (value,) = asked.values
                found = _flags(pc.and_kleene(pc.less_equal(low, value), pc.greater_equal(high, value)))
            else:
                found = _may_contain_any(low, high, asked.values)
            if asked.nan:
                found = found | ~valid_of(low) | ~valid_of(high)  # else it is said where a value is NaN
        except _NO_ORDER:
            return np.ones(len(self.entries), dtype=bool)
        if asked.nan or asked.or_nan:
            return found | has_nan(self.kind, self.stats)
        return found & ~all_nan(self.kind, self.stats)

    @cached_property
    def _some_null(self) -> Flags:
        nulls = self.stats.column("null_count")
        found: Flags = ~valid_of(nulls) | (numbers_of(nulls) > 0)
        return found

    @cached_property
    def _some_value(self) -> Flags:
        nulls = self.stats.column("null_count")
        found: Flags = ~valid_of(nulls) | (numbers_of(nulls) < self.entries)
        return found

    @cached_property
    def _bounds(self) -> tuple[pa.Array, pa.Array]:
        low, high = (_decoded(self.kind, self.stats.column(name)) for name in ("min", "max"))
        return low, high


def _decoded(kind: pa.DataType, column: pa.Array) -> pa.Array:
    bounds = comparable(decode_bounds(kind, column))
    return pc.if_else(pc.is_nan(bounds), None, bounds) if pa.types.is_floating(bounds.type) else bounds


def _may_contain_any(low: pa.Array, high: pa.Array, values: pa.Array) -> Flags:
    """Mark the pages that may hold one of some increasing values.

    The least value that is not below the lower bound must not exceed the upper bound.
    """
    found: Flags
    if not len(values):
        found = np.zeros(len(low), dtype=bool)
        return found
    # Ranks, because Arrow sorts every type that has bounds, and numpy not.
    ranks = numbers_of(pc.rank(pa.concat_arrays([values, low, high]), tiebreaker="dense")).astype(np.int64)
    asked, lows, highs = np.split(ranks, [len(values), len(values) + len(low)])
    lows = np.where(valid_of(low), lows, 0)
    highs = np.where(valid_of(high), highs, len(ranks) + 1)
    least = np.searchsorted(asked, lows)
    found = (least < len(asked)) & (asked[np.minimum(least, len(asked) - 1)] <= highs)
    return found


def _compared(operator: str, low: pa.Array, high: pa.Array, exact: pa.Array, bound: pa.Scalar) -> Flags:
    match operator:
        case "<":
            return _flags(pc.less(low, bound))
        case "<=":
            return _flags(pc.less_equal(low, bound))
        case ">":
            return _flags(pc.greater(high, bound))
        case ">=":
            return _flags(pc.greater_equal(high, bound))
        case _:
            single = pc.and_(pc.equal(low, bound), pc.equal(high, bound))
            return _flags(pc.invert(pc.and_(single, exact)))


def _flags(result: pa.Array) -> Flags:
    """Where there is no bound, nothing is proved."""
    return flags_of(result.fill_null(True))


def _is_nan(value: Any) -> bool:
    """Whether a value of Python, numpy or Arrow is NaN, the only number that differs from itself."""
    if type(value) is int or type(value) is str:  # thousands stand in a list
        return False
    if isinstance(value, pa.Scalar):
        value = value.as_py() if pa.types.is_floating(value.type) else None
    return isinstance(value, float | np.floating) and math.isnan(value)


_NOTHING = pa.nulls(0, pa.int64())
