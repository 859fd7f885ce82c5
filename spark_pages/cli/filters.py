"""``--filter "distance > 1000"``: text to the conditions that `Table.read` takes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from spark_pages.errors import InvalidInputError

_CONDITION = re.compile(
    r"\s*(?P<column>.+?)\s*(?:(?P<null>\bis\s+(?:not\s+)?null)|"
    r"(?P<operator>==|!=|<=|>=|=|<|>|\bnot\s+in\b|\bin\b)\s*(?P<value>.*?))\s*",
    re.IGNORECASE,
)


def parse_conditions(texts: Sequence[str], schema: pa.Schema) -> list[tuple[Any, ...]] | None:
    """Conditions that must all hold, with values of the columns' types; None where there are none.

    Parameters
    ----------
    texts
        Such as ``distance > 1000``, ``carrier in UA,DL`` or ``tailnum is null``.
    schema
        Of the table.

    Raises
    ------
    InvalidInputError
        If a text is no condition, or its value does not fit its column.
    """
    return [_condition(text, schema) for text in texts] or None


def _condition(text: str, schema: pa.Schema) -> tuple[Any, ...]:
    found = _CONDITION.fullmatch(text)
    if found is None:
        raise InvalidInputError(
            f"{text!r} is not a condition: expected a column, an operator and a value.",
            hint="For example --filter 'distance > 1000', 'carrier in UA,DL' or 'tailnum is null'.",
        )
    column = found["column"].strip("\"'`")
    if found["null"]:
        return column, " ".join(found["null"].lower().split())
    operator = " ".join(found["operator"].lower().split())
    if column not in schema.names:  # the reader says which columns there are
        return column, operator, found["value"]
    kind = schema.field(column).type
    if operator in ("in", "not in"):
        return column, operator, [_value(each.strip(), kind, text) for each in found["value"].split(",")]
    return column, operator, _value(found["value"], kind, text)


def _value(text: str, kind: pa.DataType, condition: str) -> Any:
    unquoted = text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text
    try:
        if pa.types.is_timestamp(kind) and kind.tz:
            naive = pa.scalar(unquoted.removesuffix("Z")).cast(pa.timestamp(kind.unit))
            return naive.cast(kind).as_py()
        return pa.scalar(unquoted).cast(kind).as_py()
    except pa.ArrowInvalid:
        raise InvalidInputError(f"{unquoted!r} in {condition!r} is not a value of type {kind}.") from None
