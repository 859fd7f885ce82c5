"""Conditions of Polars as expressions of Arrow, with the meaning that Polars gives them. Pure.

Polars serializes its expressions as JSON. What this module does not know is refused, so that no condition
changes its meaning on the way.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import warnings
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_pages.arguments import shortened
from spark_pages.errors import InvalidInputError

_EPOCH = dt.date(1970, 1, 1)
_UNITS = {"Microseconds": "us", "Milliseconds": "ms", "Nanoseconds": "ns"}
_COMPARE: dict[str, Callable[[Any, Any], pc.Expression]] = {
    "Eq": lambda one, other: one == other,
    "NotEq": lambda one, other: one != other,
    "Lt": lambda one, other: one < other,
    "LtEq": lambda one, other: one <= other,
    "Gt": lambda one, other: one > other,
    "GtEq": lambda one, other: one >= other,
}
_SWAPPED = {"Eq": "Eq", "NotEq": "NotEq", "Lt": "Gt", "LtEq": "GtEq", "Gt": "Lt", "GtEq": "LtEq"}
_NUMBERS = ("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64", "Float32", "Float64")


class _UnknownError(Exception):
    """Part of a condition that has no counterpart here; never leaves this module."""


def is_polars(given: object) -> bool:
    """Whether this is an expression of Polars."""
    return type(given).__module__.startswith("polars.") and hasattr(given, "meta")


def polars_condition(given: Any, schema: pa.Schema) -> pc.Expression:
    """Translate a condition of Polars.

    Parameters
    ----------
    given : polars.Expr
        Comparisons of columns with values, ``is_in``, ``is_between``, ``is_null``, ``is_not_null`` and
        ``is_nan``, joined by ``&``, ``|`` and ``~``.
    schema
        The columns of the table.

    Raises
    ------
    InvalidInputError
        If part of it is something else.
    """
    try:
        return _translated(_tree(given), schema)
    except _UnknownError as error:
        raise InvalidInputError(
            f"Cannot use the filter {shortened(given)}: {error} has no counterpart.",
            hint="Compare columns with values, or filter what `table.scan_polars()` returns.",
        ) from error


def polars_conjuncts(given: Any, schema: pa.Schema) -> pc.Expression | None:
    """Translate those conditions joined by ``&`` that can be; None if none can.

    Every row that passes the given condition passes the result.
    """
    try:
        waiting = [_tree(given)]
    except _UnknownError:
        return None
    found: pc.Expression | None = None
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict) and node.get("BinaryExpr", {}).get("op") in ("And", "LogicalAnd"):
            waiting += [node["BinaryExpr"]["right"], node["BinaryExpr"]["left"]]
            continue
        try:
            part = _translated(node, schema)
        except _UnknownError:
            continue
        found = part if found is None else found & part
    return found


def _tree(given: Any) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Polars warns that the format may change; what is new is refused
            return json.loads(given.meta.serialize(format="json"))
    except Exception as error:
        raise _UnknownError("the expression") from error


def _translated(node: Any, schema: pa.Schema) -> pc.Expression:
    kind, value = _only(node)
    if kind == "Column":
        if not pa.types.is_boolean(_field(value, schema).type):
            raise _UnknownError(f"column {value!r} as a condition")
        return pc.field(value)
    if kind == "BinaryExpr":
        op, left, right = value["op"], value["left"], value["right"]
        if op in ("And", "LogicalAnd"):
            return _translated(left, schema) & _translated(right, schema)
        if op in ("Or", "LogicalOr"):
            return _translated(left, schema) | _translated(right, schema)
        if op in _COMPARE:
            if _only(right)[0] == "Column" and _only(left)[0] != "Column":
                op, left, right = _SWAPPED[op], right, left
            return _compared(op, _column(left), _literal(right), schema)
        raise _UnknownError(f"operator {op}")
    if kind == "Function":
        return _function(value["function"], value["input"], schema)
    raise _UnknownError(str(kind))


def _function(function: Any, given: list[Any], schema: pa.Schema) -> pc.Expression:
    group, name = _only(function) if isinstance(function, dict) else (None, None)
    if group != "Boolean":
        raise _UnknownError(f"function {shortened(function)}")
    name, options = _only(name) if isinstance(name, dict) else (name, {})
    if name == "Not":
        return ~_translated(given[0], schema)
    column = _column(given[0])
    field = _field(column, schema)
    match name:
        case "IsNull":
            return pc.field(column).is_null()
        case "IsNotNull":
            return pc.field(column).is_valid()
        case "IsNan" if pa.types.is_floating(field.type):
            return pc.field(column).is_nan()
        case "IsNotNan" if pa.types.is_floating(field.type):
            return ~pc.field(column).is_nan()
        case "IsBetween":
            low, high = _literal(given[1]), _literal(given[2])
            closed = options.get("closed")
            lower = "GtEq" if closed in ("Both", "Left") else "Gt"
            upper = "LtEq" if closed in ("Both", "Right") else "Lt"
            return _compared(lower, column, low, schema) & _compared(upper, column, high, schema)
        case "IsIn" if not options.get("nulls_equal"):
            return _membership(column, given[1], schema)
    raise _UnknownError(f"function {name}")


def _membership(column: str, node: Any, schema: pa.Schema) -> pc.Expression:
    kind, value = _only(node)
    scalar = value.get("Scalar", {}) if kind == "Literal" and isinstance(value, dict) else {}
    if "List" not in scalar:
        raise _UnknownError("is_in of something other than values")
    try:
        members = pa.ipc.open_stream(bytes(scalar["List"])).read_all().column(0).combine_chunks()
    except (pa.ArrowException, ValueError, IndexError) as error:
        raise _UnknownError("is_in of such values") from error
    if members.null_count or (pa.types.is_floating(members.type) and pc.any(pc.is_nan(members)).as_py()):
        raise _UnknownError("is_in of null or NaN")
    if len({str(_field(column, schema).type), str(members.type)}) > 1:
        try:
            members = members.cast(_field(column, schema).type)
        except pa.ArrowException as error:
            raise _UnknownError("is_in of values of another type") from error
    # Null is no member: the row is dropped, but its negation must be null too.
    return pc.if_else(
        pc.field(column).is_valid(), pc.field(column).isin(members), pa.scalar(None, pa.bool_())
    )


def _compared(op: str, column: str, value: pa.Scalar, schema: pa.Schema) -> pc.Expression:
    field = _field(column, schema)
    found = _COMPARE[op](pc.field(column), value)
    if pa.types.is_floating(field.type) and op in ("Gt", "GtEq"):
        return found | pc.field(column).is_nan()  # to Polars, NaN is greater than every number
    if pa.types.is_dictionary(field.type):
        raise _UnknownError(f"an order of categories in column {column!r}")
    return found


def _field(name: str, schema: pa.Schema) -> pa.Field:
    index = schema.get_field_index(name)
    if index < 0:
        raise _UnknownError(f"column {name!r}")
    return schema.field(index)


def _column(node: Any) -> str:
    kind, value = _only(node)
    if kind != "Column":
        raise _UnknownError(f"{kind} in place of a column")
    return str(value)


def _literal(node: Any) -> pa.Scalar:
    kind, value = _only(node)
    if kind != "Literal":
        raise _UnknownError(f"{kind} in place of a value")
    (form, inner) = _only(value)
    if form == "Dyn":
        form, inner = _only(inner)
        if form in ("Int", "Float", "Str"):
            return _number(inner)
        raise _UnknownError(f"value {shortened(inner)}")
    name, inner = _only(inner)
    match name:
        case _ if name in _NUMBERS:
            return _number(inner)
        case "Boolean" | "String":
            return pa.scalar(inner)
        case "Binary":
            return pa.scalar(bytes(inner))
        case "Date":
            return pa.scalar(_EPOCH + dt.timedelta(days=inner))
        case "Datetime":
            number, unit, zone = inner
            return pa.scalar(number, pa.timestamp(_UNITS[unit], zone))
        case "Duration":
            number, unit = inner
            return pa.scalar(number, pa.duration(_UNITS[unit]))
        case "Time":
            return pa.scalar(inner, pa.time64("ns"))
        case "Decimal":
            digits, precision, scale = inner
            return pa.scalar(Decimal(digits).scaleb(-scale), pa.decimal128(precision, scale))
    raise _UnknownError(f"value of type {name}")


def _number(value: Any) -> pa.Scalar:
    if isinstance(value, float) and math.isnan(value):
        raise _UnknownError("NaN")
    if value is None or isinstance(value, bool | list | dict):
        raise _UnknownError(f"value {shortened(value)}")
    return pa.scalar(value)


def _only(node: Any) -> tuple[Any, Any]:
    """Return the one key of a node and its value."""
    if isinstance(node, dict) and len(node) == 1:
        return next(iter(node.items()))
    raise _UnknownError(shortened(node))
