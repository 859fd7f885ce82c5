"""Numbers that a filter asks for, compared with numbers of another type without rounding either. Pure.

Arrow brings both sides of a comparison to one type, and fails on a row that does not fit it: a whole number
above 2^24 beside 2.5, one above 2^63 beside 7. So the number that is asked for is brought to the type of the
column instead, and where that type has no such number, the comparison becomes one with its neighbour:
``n > 2.5`` is ``n > 2`` where n is whole.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_FLOOR, Context, Decimal
from numbers import Integral
from typing import Any

import numpy as np
import pyarrow as pa

Number = int | float | Decimal
_PLAIN = (int, float, Decimal)

_WIDE = Context(prec=100)
"""More digits than any decimal has."""


def is_number(kind: pa.DataType | None) -> bool:
    """Whether values of the type are numbers that are compared here."""
    return kind is not None and bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def number_of(value: Any) -> Number | None:
    """Convert a number of Python, numpy or Arrow to a Python number; None for other values."""
    if type(value) in _PLAIN:  # thousands stand in a list
        plain: Number = value
        return plain
    if isinstance(value, pa.Scalar):
        value = value.as_py() if is_number(value.type) else None
    if isinstance(value, bool):
        return None
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value)
    return value if isinstance(value, Decimal) else None


def fit_comparison(operator: str, value: Any, kind: pa.DataType) -> tuple[str, Any]:
    """Return the comparison that holds for the same values of the type, with a value of that type.

    Parameters
    ----------
    operator
        One of ``== != < <= > >=``.
    value
        What is asked for; what is no number stays as it is.
    kind
        Type of the values that are compared. Beside decimals a float is the decimal that it is written as,
        and beside floats a decimal is the nearest double: 0.1 is 0.1 to whoever writes it.

    Returns
    -------
    operator, value
        The value is an int beside whole numbers, a Decimal beside decimals, a float beside floats. Where
        every value passes, or none, it is a comparison with the least value of the type, so that null stays
        unknown and statistics can tell.
    """
    number = number_of(value)
    if number is None or not is_number(kind):
        return operator, value
    if pa.types.is_floating(kind):
        return _compare_with_floats(operator, number)
    if type(number) is int and pa.types.is_integer(kind):
        least, most = _whole_limits(kind)
        if least <= number <= most:
            return operator, number
    return _compare_with_steps(operator, number, kind)


def fit_members(values: Sequence[Any], kind: pa.DataType) -> list[Any]:
    """Convert the values that the type has as `fit_comparison` does; what is no number stays as it is."""
    if pa.types.is_integer(kind) and all(type(value) is int for value in values):
        least, most = _whole_limits(kind)
        return [value for value in values if least <= value <= most]
    found = [fit_comparison("==", value, kind) for value in values]
    return [value for operator, value in found if operator == "=="]


def scalar_of(value: Any, kind: pa.DataType) -> Any:
    """Convert the result of `fit_comparison` for an Arrow expression; keep what is no number."""
    if number_of(value) is None or not is_number(kind):
        return value
    return pa.scalar(value, literal_type(kind))


def literal_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of a number compared with such values: floats compare as doubles."""
    return pa.float64() if pa.types.is_floating(kind) else kind


def _compare_with_floats(operator: str, number: Number) -> tuple[str, float]:
    try:
        nearest = float(number)
    except OverflowError:
        nearest = math.copysign(math.inf, number)
    if nearest == number or not isinstance(number, int):
        return operator, nearest
    below = nearest if nearest < number else math.nextafter(nearest, -math.inf)
    match operator:
        case "==":
            return "<", -math.inf
        case "!=":
            return "!=", math.nan  # NaN passes too
        case "<" | "<=":
            return "<=", below
        case _:
            return ">", below


def _compare_with_steps(operator: str, number: Number, kind: pa.DataType) -> tuple[str, int | Decimal]:
    """Beside values that lie at equal distances, from a least to a greatest one."""
    whole = pa.types.is_integer(kind)
    least, most = _whole_limits(kind) if whole else _decimal_limits(kind)
    every, none = (">=", least), ("<", least)
    asked = Decimal(repr(number)) if isinstance(number, float) and not whole else Decimal(number)
    if asked.is_nan():
        return every if operator == "!=" else none
    if asked > most:
        return every if operator in ("<", "<=", "!=") else none
    if asked < least:
        return every if operator in (">", ">=", "!=") else none
    step = Decimal((0, (1,), 0 if whole else -kind.scale))
    floor = asked.quantize(step, ROUND_FLOOR, _WIDE)
    below = int(floor) if whole else floor
    if floor == asked:
        return operator, below
    match operator:
        case "==":
            return none
        case "!=":
            return every
        case "<" | "<=":
            return "<=", below
        case _:
            return ">", below


def _whole_limits(kind: pa.DataType) -> tuple[int, int]:
    if pa.types.is_unsigned_integer(kind):
        return 0, (1 << kind.bit_width) - 1
    return -(1 << kind.bit_width - 1), (1 << kind.bit_width - 1) - 1


def _decimal_limits(kind: pa.DataType) -> tuple[Decimal, Decimal]:
    most = Decimal((0, (9,) * kind.precision, -kind.scale))
    return most.copy_negate(), most
