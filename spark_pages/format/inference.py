"""What Arrow loses when it makes arrays of Python values, which it does not report.

The type of a column follows from its first value: a datetime behind a date loses its time of day, a time
without a zone behind one with a zone is taken for UTC, times of day lose their zone, and a pandas Timestamp
its nanoseconds. With a given type, Arrow truncates fractions. `check_unchanged` compares the input with the
result, where they can differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

_TIMES = (date, time, timedelta)
_CONTAINERS = (list, tuple, set, frozenset, Mapping, np.ndarray)
_ABSENT = type(None)


class LossError(ValueError):
    """Values would not be the same under another type; never leaves this package."""


def check_inferred(given: Any, found: pa.Array | pa.ChunkedArray) -> None:
    """Raise LossError if an array that Arrow has made of Python values holds other times than they.

    Notes
    -----
    Some 0.1 µs a value of a list of times, 2 µs where they are of several classes; nothing of other types.
    """
    if _has_times(found.type) and _is_python(given) and not _is_uniform(given):
        check_unchanged(given, found)


def check_frame(frame: Any, schema: pa.Schema) -> None:
    """Raise LossError if a pandas frame has Python objects of which Arrow makes other times.

    Parameters
    ----------
    schema
        What Arrow has made of its columns, those of the frame first.
    """
    if not hasattr(frame, "iloc"):
        return
    for index, kind in enumerate(frame.dtypes):
        if _is_object(kind) and _has_times(schema.field(index).type):
            column = frame.iloc[:, index]
            if not _is_uniform(column):
                try:
                    check_unchanged(column, pa.array(column, from_pandas=True))
                except LossError as error:
                    raise LossError(f"in its column {schema.field(index).name!r}, {error}") from error


def check_unchanged(given: Iterable[Any], found: pa.Array | pa.ChunkedArray) -> None:
    """Raise LossError if one of the times or numbers given is another one in the array."""
    try:
        made = found.to_pylist()
    except (ArithmeticError, ValueError) as error:  # of a time that Python has none of
        raise LossError(f"a value cannot be compared with what was given: {error}") from error
    _compare(list(given), made)


def _compare(given: Any, made: Any) -> None:
    if made is None:
        return
    if isinstance(made, dict):
        fields = (
            given if isinstance(given, Mapping) else dict(given) if isinstance(given, list | tuple) else {}
        )
        for name, each in made.items():
            _compare(fields.get(name), each)
    elif isinstance(made, list | tuple):
        entries = given.items() if isinstance(given, Mapping) else given
        for one, other in zip(entries, made, strict=False):
            _compare(one, other)
    elif _differs(given, made):
        raise LossError(f"{given!r} would become {made!r}")


def _differs(given: Any, made: Any) -> bool:
    if isinstance(given, datetime) and isinstance(made, datetime):
        zones = given.tzinfo, made.tzinfo
        if None not in zones:  # in zones of their own, times of the hour that is repeated equal nothing
            return bool(given.astimezone(UTC) != made.astimezone(UTC))
        return bool(given != made)
    if isinstance(given, _TIMES):
        return isinstance(made, _TIMES) and bool(given != made)
    is_exact = isinstance(made, int | Decimal)
    return is_exact and isinstance(given, float | Decimal | np.floating) and bool(given != made)


def _is_python(given: Any) -> bool:
    """Whether values are objects of Python, whose types Arrow infers."""
    kind = getattr(given, "dtype", None)
    return _is_object(kind) if kind is not None else isinstance(given, Iterable)


def _is_uniform(given: Iterable[Any]) -> bool:
    """Whether values are times of one class that Arrow makes no others of."""
    kinds = set(map(type, given)) - {_ABSENT}
    if kinds in ({date}, {timedelta}):
        return True
    if kinds in ({datetime}, {time}):
        bare = {each.tzinfo is None for each in given if each is not None}
        return bare == {True} or (kinds == {datetime} and len(bare) == 1)
    return not any(issubclass(each, _TIMES + _CONTAINERS) for each in kinds)


def _is_object(dtype: Any) -> bool:
    return bool(getattr(dtype, "hasobject", False))  # of numpy; dtypes of pandas and Polars have no objects


@lru_cache(256)
def _has_times(kind: pa.DataType) -> bool:
    return bool(pa.types.is_temporal(kind)) or any(
        _has_times(kind.field(index).type) for index in range(kind.num_fields)
    )
