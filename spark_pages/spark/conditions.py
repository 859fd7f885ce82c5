"""Filters of Spark as conditions that page statistics understand. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from spark_pages.spark.arrow_types import spark_type
from spark_pages.tables.filtering.filter_tree import beginning_with

Condition = tuple[str, str, Any]
"""Column, operator and value: a part of what `spark_pages.tables.filtering.filters` takes."""

_OPERATORS: dict[type[Filter], str] = {
    EqualTo: "==",
    EqualNullSafe: "==",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
    In: "in",
}


def conditions_of(given: Filter, schema: pa.Schema) -> list[Condition]:
    """What every row that passes the filter meets, as conditions that statistics understand; none where no
    page may be skipped.

    Notes
    -----
    Only for columns that Spark sees in their own type: a nanosecond cut off would change the answer.
    """
    negated = isinstance(given, Not)
    inner: Any = given.child if isinstance(given, Not) else given
    path: tuple[str, ...] = getattr(inner, "attribute", ())
    if len(path) != 1 or path[0] not in schema.names:
        return []
    column, kind = path[0], schema.field(path[0]).type
    null_safe = isinstance(inner, EqualNullSafe) and inner.value is None
    if null_safe or isinstance(inner, IsNull | IsNotNull):
        absent = isinstance(inner, IsNotNull) == negated
        return [(column, "is null" if absent else "is not null", None)]
    if negated or not _comparable(kind):
        return []
    if isinstance(inner, StringStartsWith):
        return [(each.column, each.operator, each.value) for each in beginning_with(column, inner.value)]
    operator = _OPERATORS.get(type(inner))
    if operator is None:
        return []
    values = list(inner.value) if operator == "in" else [inner.value]
    if not all(_fits(value, kind) for value in values):
        return []
    return [(column, operator, values if operator == "in" else inner.value)]


def _comparable(kind: pa.DataType) -> bool:
    cut = getattr(kind, "unit", None) == "ns"  # of a timestamp, a time or a duration
    return bool(spark_type(kind) == kind and not cut and not pa.types.is_nested(kind))


def _fits(value: Any, kind: pa.DataType) -> bool:
    if value is None:
        return False
    if pa.types.is_timestamp(kind):
        return isinstance(value, datetime) and (value.tzinfo is None) == (kind.tz is None)
    return True
