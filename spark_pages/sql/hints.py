"""Conditions that DuckDB tests itself, so that tables cannot know them, said as filters all the same. Pure.

DuckDB hands most conditions of WHERE over to the tables. It keeps comparisons of floating point numbers,
where NaN is the greatest to it and nothing to Arrow, and LIKE. A hint is a filter of one table that every row
passes which the query can use: it may let more rows pass, since DuckDB tests the condition anyway. So it
leaves a little room beside each bound, and lets NaN pass where that is greater.

It holds for outer joins too. A row that a hint leaves out would fail WHERE; where a join then puts nulls in
its place, these fail WHERE as well, because a comparison with null is not true.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from spark_pages.query.predicates.parsing import chain

_MIRRORED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.EQ: exp.EQ,
}
_WILDCARDS = frozenset("%_\\")


def conjuncts(condition: exp.Expr) -> list[exp.Expr]:
    """The parts of a condition all of which must hold."""
    while isinstance(condition, exp.Where | exp.Paren):
        condition = condition.this
    return chain(condition) if isinstance(condition, exp.And) else [condition]


def column_in(condition: exp.Expr) -> exp.Column | None:
    """The column that a condition compares with constants, if it is of a kind that may give a hint."""
    sides = [condition.args.get("this"), condition.args.get("expression")]
    if condition.args.get("negate"):  # NOT LIKE and NOT BETWEEN are nodes of the same kind
        return None
    match condition:
        case exp.Between() | exp.Like():
            sides = sides[:1]
        case exp.LT() | exp.LTE() | exp.GT() | exp.GTE() | exp.EQ():
            pass
        case _:
            return None
    columns = [side for side in sides if isinstance(side, exp.Column)]
    return columns[0] if len(columns) == 1 else None


def hint_of(condition: exp.Expr, name: str, kind: pa.DataType) -> pc.Expression | None:
    """The hint that a condition gives for the table of its column, or None.

    Parameters
    ----------
    condition
        One that `column_in` knows.
    name, kind
        The column.
    """
    column = pc.field(name)
    if isinstance(condition, exp.Like):
        return _prefix_hint(condition, column, kind)
    if not (pa.types.is_float32(kind) or pa.types.is_float64(kind)):
        return None
    if isinstance(condition, exp.Between):
        if condition.args.get("symmetric"):
            return None
        low, high = _number(condition.args["low"]), _number(condition.args["high"])
        return None if low is None or high is None else _within(column, low, high, kind)
    mirrored = not isinstance(condition.this, exp.Column)
    bound = _number(condition.this if mirrored else condition.expression)
    if bound is None:
        return None
    operator = _MIRRORED[type(condition)] if mirrored else type(condition)
    if operator in (exp.GT, exp.GTE):
        return _least(column, bound, kind)
    if operator in (exp.LT, exp.LTE):
        return _most(column, bound, kind)
    return _within(column, bound, bound, kind)


def _least(column: pc.Expression, bound: float, kind: pa.DataType) -> pc.Expression:
    return ~(column < _with_margin(bound, kind, -np.inf))  # NaN is not less, and passes


def _most(column: pc.Expression, bound: float, kind: pa.DataType) -> pc.Expression:
    return column <= _with_margin(bound, kind, np.inf)


def _within(column: pc.Expression, low: float, high: float, kind: pa.DataType) -> pc.Expression:
    return (column >= _with_margin(low, kind, -np.inf)) & _most(
        column, high, kind
    )  # NaN is greater than both


def _with_margin(bound: float, kind: pa.DataType, towards: float) -> pa.Scalar:
    """A number a little further: however the bound is rounded, it lies between."""
    number = np.float32 if pa.types.is_float32(kind) else np.float64
    with np.errstate(over="ignore"):
        value, end = number(bound), number(towards)
        return pa.scalar(np.nextafter(np.nextafter(value, end), end).item(), kind)


def _number(node: exp.Expr) -> float | None:
    match node:
        case exp.Literal() if not node.is_string:
            return float(node.name)
        case exp.Neg():
            value = _number(node.this)
            return None if value is None else -value
    return None


def _prefix_hint(condition: exp.Like, column: pc.Expression, kind: pa.DataType) -> pc.Expression | None:
    pattern = condition.expression
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if not text or not isinstance(pattern, exp.Literal) or not pattern.is_string:
        return None
    signs = [index for index, sign in enumerate(pattern.name) if sign in _WILDCARDS]
    prefix = pattern.name[: signs[0]] if signs else pattern.name
    return pc.starts_with(column, prefix) if prefix else None
