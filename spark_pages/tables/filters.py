"""Filters: what callers may write, the exact test, and which pages statistics rule out. Pure.

A filter is a list of ``(column, operator, value)``, all of which must hold, or a list of such lists,
one of which must hold: the convention of `pyarrow.parquet`. A `pyarrow.compute.Expression` is taken
too, but skips no pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_pages.errors import InvalidInputError

OPERATORS = ("==", "!=", "<", "<=", ">", ">=", "in", "not in", "is null", "is not null")

Filter: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Condition:
    """One comparison of a column with a value."""

    column: str
    operator: str
    value: Any

    def expression(self) -> pc.Expression:
        """The same as an Arrow expression."""
        column = pc.field(self.column)
        match self.operator:
            case "in":
                return _is_in(column, self.value)
            case "not in":
                return ~_is_in(column, self.value)
            case "is null":
                return column.is_null()
            case "is not null":
                return column.is_valid()
            case "==":
                return column == self.value
            case "!=":
                return column != self.value
            case "<":
                return column < self.value
            case "<=":
                return column <= self.value
            case ">":
                return column > self.value
            case _:
                return column >= self.value


def _is_in(column: pc.Expression, values: Sequence[Any]) -> pc.Expression:
    """Membership, with null as a member like any other; Arrow alone cannot type a list without values."""
    members = [value for value in values if value is not None]
    found = column.isin(members) if members else pc.scalar(False)
    return found | column.is_null() if len(members) < len(values) else found


Alternatives = tuple[tuple[Condition, ...], ...]


@dataclass(frozen=True, eq=False, slots=True)
class ParsedFilter:
    """A filter, ready to use.

    Attributes
    ----------
    expression
        The exact test.
    columns
        Columns that it reads, or None where an expression does not tell.
    alternatives
        The same as conditions, one alternative of which must hold; empty for an expression.
    """

    expression: pc.Expression
    columns: tuple[str, ...] | None
    alternatives: Alternatives


def parse_filter(given: Filter | None) -> ParsedFilter | None:
    """What a caller wrote, checked.

    Raises
    ------
    InvalidInputError
        If it is no filter; says which part.
    """
    if given is None:
        return None
    if isinstance(given, pc.Expression):
        return ParsedFilter(given, None, ())
    if isinstance(given, str) or not isinstance(given, Sequence) or not given:
        raise _not_a_filter(given)
    lists = [given] if isinstance(given[0], tuple) else given
    alternatives = tuple(tuple(_condition(item) for item in conditions) for conditions in lists)
    if not all(alternatives):
        raise _not_a_filter(given)
    expression = reduce(or_, (reduce(and_, (c.expression() for c in each)) for each in alternatives))
    columns = tuple(dict.fromkeys(c.column for each in alternatives for c in each))
    return ParsedFilter(expression, columns, alternatives)


def _condition(item: Any) -> Condition:
    if not isinstance(item, tuple) or not 2 <= len(item) <= 3 or not isinstance(item[0], str):
        raise _not_a_filter(item)
    operator = str(item[1]).lower().replace("=", "==", 1) if item[1] == "=" else str(item[1]).lower()
    if operator not in OPERATORS:
        raise InvalidInputError(
            f"{item[1]!r} is not an operator of a filter: expected one of {', '.join(OPERATORS)}."
        )
    value = item[2] if len(item) == 3 else None
    if operator in ("in", "not in"):
        if isinstance(value, str | bytes) or not isinstance(value, Iterable):
            raise InvalidInputError(
                f"{item!r}: expected a list of values after {operator!r}, found {value!r}."
            )
        value = list(value)
    return Condition(item[0], operator, value)


def _not_a_filter(given: Any) -> InvalidInputError:
    return InvalidInputError(
        f"{given!r} is not a filter: expected a list of (column, operator, value), a list of such lists, "
        f"or a pyarrow.compute.Expression."
    )


def may_match(
    condition: Condition, kind: pa.DataType, stats: pa.RecordBatch, entries: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Which pages may hold a row that meets the condition.

    Parameters
    ----------
    kind
        Type of the column.
    stats
        Statistics of the pages.
    entries : int64, shape (n_pages,)
        Rows of each page.

    Returns
    -------
    numpy.ndarray of bool, shape (n_pages,)
        False only where statistics prove that no row of the page meets the condition.
    """
    nulls = stats.column("null_count")
    known = nulls.is_valid().to_numpy(zero_copy_only=False)
    null_count = nulls.fill_null(0).to_numpy()
    if condition.operator == "is null":
        some_null: NDArray[np.bool_] = ~known | (null_count > 0)
        return some_null
    some_value: NDArray[np.bool_] = ~known | (null_count < entries)
    if condition.operator == "is not null":
        return some_value
    if condition.operator == "not in" or (
        condition.operator == "in" and any(value is None for value in condition.value)
    ):
        return np.ones(len(entries), dtype=bool)  # null is a member like any other
    try:
        low, high = _bounds(kind, stats.column("min")), _bounds(kind, stats.column("max"))
        values = condition.value if condition.operator == "in" else [condition.value]
        tests = [_test(condition.operator, low, high, stats.column("exact"), kind, value) for value in values]
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return some_value
    if not tests:
        return np.zeros(len(entries), dtype=bool)
    matching: NDArray[np.bool_] = some_value & reduce(or_, tests)
    return matching


def _test(
    operator: str, low: pa.Array, high: pa.Array, exact: pa.Array, kind: pa.DataType, value: Any
) -> NDArray[np.bool_]:
    given = pa.scalar(value, kind)
    if given.as_py() != (value.as_py() if isinstance(value, pa.Scalar) else value):
        raise ValueError(f"no {kind} is equal to the value, and the test itself does not round it")
    bound = given.cast(pa.binary()) if _is_text(kind) else given
    match operator:
        case "<":
            result = pc.less(low, bound)
        case "<=":
            result = pc.less_equal(low, bound)
        case ">":
            result = pc.greater(high, bound)
        case ">=":
            result = pc.greater_equal(high, bound)
        case "!=":
            single = pc.and_(pc.equal(low, bound), pc.equal(high, bound))
            result = pc.invert(pc.and_(single, exact))
        case _:
            result = pc.and_(pc.less_equal(low, bound), pc.greater_equal(high, bound))
    answer: NDArray[np.bool_] = result.fill_null(True).to_numpy(zero_copy_only=False)
    return answer


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )


def _bounds(kind: pa.DataType, column: pa.Array) -> pa.Array:
    """Bounds as values of the column's type (text and binary as binary), null where there is none."""
    if _is_text(kind):
        return column
    if pa.types.is_boolean(kind):
        return pc.equal(column, pa.scalar(b"\x01", pa.binary()))
    width = kind.bit_width // 8
    filled = column.fill_null(bytes(width))
    if not pc.all(pc.equal(pc.binary_length(filled), width)).as_py():
        raise ValueError("bounds of another type")
    _, offsets, data = filled.buffers()
    first = np.frombuffer(offsets, dtype=np.int32)[filled.offset] if len(filled) else 0
    values = pa.Array.from_buffers(kind, len(filled), [None, data.slice(int(first))])
    return pc.if_else(column.is_valid(), values, pa.scalar(None, kind))
