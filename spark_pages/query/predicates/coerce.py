"""Both sides of an operator, brought to types between which Arrow loses and refuses nothing. Pure.

Left alone, Arrow makes whole numbers beside 0.5 ones of 32 bits in floating point, and those beside a decimal
so wide that the result has no type.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}
"""Most digits of whole numbers, by their bits."""

_MOST_DIGITS_128 = 38
_MOST_DIGITS_256 = 76


@dataclass(frozen=True, eq=False, slots=True)
class Side:
    """What stands on one side of an operator.

    Attributes
    ----------
    expression
        The same as an Arrow expression; of a number that stands in the text, Arrow's choice of it.
    kind
        Its type; None where that is not known, as of a number that stands in the text.
    number
        How the number is written, where one stands there.
    """

    expression: pc.Expression
    kind: pa.DataType | None
    number: str | None = None


def kind_of(expression: pc.Expression, schema: pa.Schema) -> pa.DataType | None:
    """Return the type of an expression over some columns; None if it does not fit them."""
    from pyarrow.acero import (  # noqa: PLC0415 - imports pandas and pyarrow.dataset
        Declaration,
        ProjectNodeOptions,
        TableSourceNodeOptions,
    )

    source = Declaration("table_source", TableSourceNodeOptions(schema.empty_table()))
    project = Declaration("project", ProjectNodeOptions([expression], ["value"]))
    try:
        return Declaration.from_sequence([source, project]).to_table(use_threads=False).schema.field(0).type
    except (pa.ArrowException, TypeError):
        return None


def calculated(
    operator: Callable[[pc.Expression, pc.Expression], pc.Expression],
    left: Side,
    right: Side,
    schema: pa.Schema,
) -> pc.Expression:
    """Both sides with ``+ - *`` or ``%`` between them.

    Notes
    -----
    As in other SQL, 0.5 is a decimal beside whole numbers and decimals, and 5e-1 floating point. Decimals get
    256 bits where 128 are too few for the result.
    """
    sides = unify(_literal_like(left, right.kind), _literal_like(right, left.kind))
    found = operator(*sides)
    if kind_of(found, schema) is not None:
        return found
    return operator(*(_wide(each, kind_of(each, schema)) for each in sides))


def unify(left: Side, right: Side) -> tuple[pc.Expression, pc.Expression]:
    """Both sides, of types that Arrow compares and calculates with, whatever the numbers."""
    one, two = left.kind, right.kind
    if one is None or two is None:
        return left.expression, right.expression
    if _is_exact(one) and pa.types.is_floating(two):
        return as_double(left.expression), right.expression
    if pa.types.is_floating(one) and _is_exact(two):
        return left.expression, as_double(right.expression)
    unsigned = (
        pa.uint64() in (one, two) and one != two and pa.types.is_integer(one) and pa.types.is_integer(two)
    )
    if unsigned or pa.types.is_decimal(one) or pa.types.is_decimal(two):  # no integer holds what both hold
        return _as_plain_decimal(left), _as_plain_decimal(right)
    return left.expression, right.expression


def as_decimal(expression: pc.Expression, kind: pa.DataType, wanted: pa.DataType) -> pc.Expression:
    """Whole numbers as decimals of a type; what does not fit fails where it is met, not before."""
    digits = _DIGITS[kind.bit_width] + max(0, wanted.scale)
    return expression.cast(_decimal(digits, max(0, wanted.scale))).cast(wanted)


def with_room(side: Side) -> pc.Expression:
    """Decimals with one more digit, which rounding may need."""
    kind = side.kind
    if kind is None or not pa.types.is_decimal(kind):
        return side.expression
    return side.expression.cast(_decimal(kind.precision + 1, kind.scale))


def as_double(expression: pc.Expression) -> pc.Expression:
    """Numbers in floating point, the nearest where there is none that is equal."""
    return expression.cast(pa.float64(), safe=False)


def as_time(expression: pc.Expression, kind: pa.DataType) -> pc.Expression:
    """Text as times of day: Arrow reads such text behind a date only."""
    moments = pc.binary_join_element_wise(pc.scalar("1970-01-01 "), expression, "").cast(pa.timestamp("ns"))
    return moments.cast(pa.time64("ns")).cast(kind)


def as_exact_integer(expression: pc.Expression) -> pc.Expression:
    """Whole numbers of any width and sign, for which there is no integer."""
    return expression.cast(pa.decimal128(_DIGITS[64], 0))


def _literal_like(side: Side, other: pa.DataType | None) -> Side:
    """Cast a literal number to the type of the other side; return anything else unchanged."""
    if side.number is None or other is None:
        return side
    exponent = "e" in side.number.lower()
    if pa.types.is_floating(other) or (exponent and _is_exact(other)):
        return Side(pc.scalar(float(side.number)), pa.float64())
    number = Decimal(side.number)
    if pa.types.is_decimal(other) or (pa.types.is_integer(other) and "." in side.number):
        value = pa.scalar(number)
        return Side(pc.scalar(value), value.type)
    return Side(side.expression, pa.int64()) if other == pa.uint64() else side


def _is_exact(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_decimal(kind))


def _as_plain_decimal(side: Side) -> pc.Expression:
    """Whole numbers as decimals, and decimals of no negative scale, with which Arrow does not calculate."""
    kind = side.kind
    if kind is not None and pa.types.is_integer(kind):
        return side.expression.cast(pa.decimal128(_DIGITS[kind.bit_width], 0))
    if kind is not None and pa.types.is_decimal(kind) and kind.scale < 0:
        return side.expression.cast(_decimal(min(kind.precision - kind.scale, _MOST_DIGITS_256), 0))
    return side.expression


def _wide(expression: pc.Expression, kind: pa.DataType | None) -> pc.Expression:
    if kind is None or not pa.types.is_decimal(kind):
        return expression
    return expression.cast(pa.decimal256(kind.precision, kind.scale))


def _decimal(digits: int, scale: int) -> pa.DataType:
    if digits <= _MOST_DIGITS_128:
        return pa.decimal128(digits, scale)
    return pa.decimal256(min(digits, _MOST_DIGITS_256), scale)
