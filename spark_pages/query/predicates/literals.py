"""The values that a filter asks for, as values of a column's type. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_NANOSECOND_DIGITS = 9


def exact_values(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Cast values without rounding, as the test of a row does not round either.

    Parameters
    ----------
    values
        Python's or Arrow's. Those of Arrow are compared as Arrow's: Python knows no nanoseconds, and no year
        10,000.

    Raises
    ------
    ValueError, TypeError, OverflowError, pyarrow.ArrowException
        If one is no value of the type.
    """
    kinds = {value.type if isinstance(value, pa.Scalar) else None for value in values}
    if len(kinds) > 1:
        return pa.array([exact_values([value], kind)[0] for value in values], kind)
    (given_kind,) = kinds or {None}
    if given_kind is None:
        found = pa.array(values, kind)
        same = found.to_pylist() == list(values)
    else:
        given = pa.array(values, given_kind)
        found = given.cast(kind)
        same = found.cast(given_kind).equals(given)
    if not same:
        raise ValueError(f"no {kind} is equal to one of the values")
    return found


def array_of_values(values: list[pa.Scalar]) -> pa.Array:
    """Values of one type as they are, of several as Arrow brings them together."""
    if len({value.type for value in values}) == 1:
        return pa.array(values, values[0].type)
    return pa.array([value.as_py() for value in values])


def with_nanoseconds(values: Sequence[Any]) -> list[Any]:
    """Convert pandas values with nanoseconds to Arrow values, and then all values beside them.

    Raises
    ------
    pyarrow.ArrowException
        If one does not fit nanoseconds.

    Notes
    -----
    To Arrow a moment or span of pandas is one of Python, in microseconds.
    """
    fine = next((value for value in values if _nanoseconds(value) > 0), None)
    if fine is None:
        return list(values)
    coarse = pa.scalar(fine).type
    kind = pa.timestamp("ns", coarse.tz) if pa.types.is_timestamp(coarse) else pa.duration("ns")
    return [value if value is None else pa.scalar(value, kind) for value in values]


def _nanoseconds(value: Any) -> float:
    """Of a moment or span of pandas, which are some of Python too; NaN of its missing ones."""
    if isinstance(value, dt.datetime):
        return float(getattr(value, "nanosecond", 0))
    return float(getattr(value, "nanoseconds", 0)) if isinstance(value, dt.timedelta) else 0.0


def is_quoted_type(kind: pa.DataType) -> bool:
    """Whether values of a type are text in quotes where SQL tells of them."""
    return bool(
        pa.types.is_temporal(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )


def value_of_text(text: str, kind: pa.DataType) -> pa.Scalar:
    """Parse a quoted value of a type. A time without a zone is UTC."""
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        try:
            return pa.scalar(text).cast(kind)
        except pa.ArrowInvalid:
            plain = pa.scalar(text).cast(pa.timestamp(kind.unit))
            return plain.cast(pa.int64()).cast(kind)
    if pa.types.is_time(kind):
        return _time_of_text(text, kind)
    if pa.types.is_decimal(kind):
        return pa.scalar(Decimal(text))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pa.scalar(text.encode(), kind)
    return pa.scalar(text).cast(kind)


def times_of_text(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Text as times of day in nanoseconds: Arrow reads such text behind a date only.

    Raises
    ------
    pyarrow.ArrowInvalid
        If one is no time of day.
    """
    moments = pc.binary_join_element_wise(pa.scalar("1970-01-01 "), values, "").cast(pa.timestamp("ns"))
    return moments.cast(pa.time64("ns"))


def _time_of_text(text: str, kind: pa.DataType) -> pa.Scalar:
    """Parse a time of day in the unit of the type, or in nanoseconds if it is finer."""
    clock, _, fraction = text.strip().partition(".")
    if (fraction and not fraction.isdigit()) or len(fraction) > _NANOSECOND_DIGITS:
        raise ValueError("expected no zone, and up to 9 digits behind the second")
    time = dt.time.fromisoformat(clock)
    if time.tzinfo is not None:
        raise ValueError("a time of day has no zone")
    seconds = (time.hour * 60 + time.minute) * 60 + time.second
    exact = pa.scalar(seconds * 10**9 + int(fraction.ljust(_NANOSECOND_DIGITS, "0")), pa.time64("ns"))
    try:
        return exact.cast(kind)
    except pa.ArrowInvalid:
        return exact
