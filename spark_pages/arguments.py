"""Validation of arguments: each is checked for type and range before anything is done with it. Pure.

One function for each kind of argument: numbers, times, durations, names, texts. All public callables use
them, so that the same value means the same everywhere. What stands for a missing value (NaN, NaT, NA) is none
of them.
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import UnionType
from typing import Any, TypeVar, cast

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from spark_pages.errors import InvalidInputError
from spark_pages.printable import is_encodable

Kind = TypeVar("Kind")

Moment = datetime | str | int | np.datetime64 | np.integer[Any] | pa.TimestampScalar
"""What is taken for a time, see `as_microseconds`."""

MOST_NUMBER = (1 << 63) - 1
"""Greatest number that the formats on storage can hold."""

_SHOWN = 60
_MOST_BITS = 128
"""Numbers of more bits are refused as such; fewer are compared with what there is, such as rows."""

_CONTAINERS = (list, tuple, set, frozenset, Mapping, np.ndarray)
_MOST_DEPTH = 64
"""Levels of lists and mappings that values may have; types of Arrow are less deep."""

_BOOLEANS = frozenset((bool, np.bool_))
_EPOCH = datetime.fromtimestamp(0, UTC)
_MICROSECOND = timedelta(microseconds=1)
_FIRST_US = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_LAST_US = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_TIME = (
    "a time: text as of ISO 8601, such as 2026-11-23T18:00:00Z, a datetime, or microseconds since 1970, of "
    "the years 1 to 9999"
)
_ATTOSECONDS = {
    "W": 604_800 * 10**18, "D": 86_400 * 10**18, "h": 3_600 * 10**18, "m": 60 * 10**18, "s": 10**18,
    "ms": 10**15, "us": 10**12, "ns": 10**9, "ps": 10**6, "fs": 10**3, "as": 1,
}  # fmt: skip
_IN_MICROSECOND = 10**12


def as_int(
    value: object,
    what: str,
    expected: str = "a whole number",
    least: int | None = None,
    most: int | None = None,
) -> int:
    """Return the value as a Python number.

    Parameters
    ----------
    what, expected
        The parameter, and what it has to be, for the message.
    least, most
        Bounds that belong to it; None where the caller reports numbers out of range itself.

    Raises
    ------
    InvalidInputError
        If it is something else: text, fractions and booleans are never taken for a number.
    """
    number = value if type(value) is int else _index(value, what, expected)
    if (
        number.bit_length() > _MOST_BITS
        or (least is not None and number < least)
        or (most is not None and number > most)
    ):
        raise InvalidInputError(
            f"Cannot use {_shown(value)} as {what}: expected {expected}{_between(least, most)}.",
            hint=f"Pass {what} as an int{_between(least, most)}.",
        )
    return number


def as_flag(value: object, what: str) -> bool:
    """Return the value, which is True or False; also one of numpy.

    Raises
    ------
    InvalidInputError
        If it is something else: numbers and texts are never taken for one.
    """
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise InvalidInputError(
        f"Cannot use {_shown(value)} as {what}: expected True or False.",
        hint=f"Pass {what}=True or {what}=False.",
    )


def as_seconds(value: object, what: str, least: float = 0.0) -> float:
    """Return a duration in seconds, which is finite and not below `least`.

    Raises
    ------
    InvalidInputError
        If it is something else.
    """
    if isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool):
        try:
            seconds = float(value)
        except (OverflowError, TypeError):  # too large, or a duration of numpy, which is an integer to it
            seconds = math.inf
        if math.isfinite(seconds) and seconds >= least:
            return seconds
    raise InvalidInputError(
        f"Cannot use {_shown(value)} as {what}: expected a number of seconds from {least:g}.",
        hint=f"Pass {what} in seconds, such as {max(least, 30):g}.",
    )


def as_microseconds(value: object, what: str = "timestamp") -> int:
    """Return a time as microseconds since 1970; what is finer is rounded down.

    Parameters
    ----------
    value
        A datetime, also of pandas; ISO 8601 text; whole microseconds; a ``numpy.datetime64``; or a timestamp
        of pyarrow, as `Store.history` returns. Without a time zone it is in UTC.

    Raises
    ------
    InvalidInputError
        If it is something else, stands for a missing value, or lies outside of the years 1 to 9999.
    """
    try:
        moment = _microseconds(value)
    except (ArithmeticError, TypeError, ValueError):
        moment = None
    if moment is None or not _FIRST_US <= moment <= _LAST_US:
        raise InvalidInputError(
            f"Cannot use {_shown(value)} as {what}: expected {_TIME}.",
            hint=f"Pass {what} as in `datetime.now(timezone.utc)` or '2026-11-23T18:00:00Z'.",
        )
    return moment


def as_upper_bound(value: object, what: str) -> int:
    """Return a time as `as_microseconds` does; of a number beyond the last, the last."""
    if type(value) is int and _LAST_US < value <= MOST_NUMBER:
        return _LAST_US
    return as_microseconds(value, what)


def as_duration(value: object, what: str) -> timedelta:
    """Return a duration as a plain timedelta; also of pandas and of numpy.

    Raises
    ------
    InvalidInputError
        If it is something else, or stands for a missing value.
    """
    try:
        if isinstance(value, np.timedelta64):
            return timedelta(microseconds=_from_numpy(value))
        if isinstance(value, timedelta):
            return timedelta(value.days, value.seconds, value.microseconds)
    except (ArithmeticError, TypeError, ValueError):
        pass
    raise InvalidInputError(
        f"Cannot use {_shown(value)} as {what}: expected a timedelta.",
        hint=f"Pass {what} as in `datetime.timedelta(days=7)`.",
    )


def as_str(value: object, what: str) -> str:
    """Return the value, which is text that UTF-8 can express.

    Raises
    ------
    InvalidInputError
        If it is something else.
    """
    check_kind(value, str, what, "text")
    text = cast(str, value)
    if not is_encodable(text):
        raise InvalidInputError(
            f"Cannot use {_shown(text)} as {what}: expected text that UTF-8 can express, without "
            "halves of surrogate pairs.",
            hint="Decode the bytes that it came from with errors='replace' in place of 'surrogateescape'.",
        )
    return text if type(text) is str else str.__str__(text)


def as_path(value: object, what: str, expected: str = "a path") -> str:
    """Return a path of the file system, which is not empty.

    Raises
    ------
    InvalidInputError
        If it is something else.
    """
    check_kind(value, str | os.PathLike, what, expected)
    path: object = os.fspath(cast("str | os.PathLike[str]", value))  # which may be bytes
    if not isinstance(path, str) or not path or "\0" in path:
        raise InvalidInputError(
            f"Cannot use {_shown(value)} as {what}: expected {expected}, neither empty nor with NUL.",
            hint=f"Pass {what} as a str or a pathlib.Path, such as '/data/store'.",
        )
    return str.__str__(path)


def as_choice(value: object, what: str, choices: Sequence[str]) -> str:
    """Return a text that is one of some.

    Raises
    ------
    InvalidInputError
        If it is something else; names them.
    """
    if isinstance(value, str) and value in choices:
        return str.__str__(value)
    known = f"{', '.join(map(repr, choices[:-1]))} or {choices[-1]!r}"
    raise InvalidInputError(
        f"Cannot use {_shown(value)} as {what}: expected {known}.",
        hint=f"Pass {what}={choices[0]!r}, for example.",
    )


def as_names(value: object, what: str) -> list[str]:
    """Return several names, in order.

    Raises
    ------
    InvalidInputError
        If they are something else; a single name is no list of its letters.
    """
    if isinstance(value, str):
        shown = shortened(value)
        raise InvalidInputError(
            f"Cannot use the text {shown} as {what}: expected a list of names, such as [{shown}].",
            hint=f"Pass {what}=[{shown}].",
        )
    return [as_str(each, f"a name in {what}") for each in as_list(value, object, what, "names")]


def as_list(value: object, kind: type[Kind] | UnionType, what: str, expected: str) -> list[Kind]:
    """Return several values of one type, in order.

    Parameters
    ----------
    expected
        What they are, in words.

    Raises
    ------
    InvalidInputError
        If they are no list, or one of them is something else.
    """
    try:
        found = list(cast("Iterable[Kind]", value))
    except (TypeError, OSError, ValueError, LookupError):
        raise InvalidInputError(
            f"Cannot use {_shown(value)} as {what}: expected a list of {expected}.",
            hint=f"Pass {what} as a list, such as [x] for one x.",
        ) from None
    for each in found:
        if not isinstance(each, kind):
            check_kind(each, kind, f"a value in {what}", f"one of {expected}")
    return found


def check_kind(value: object, kind: type | UnionType, what: str, expected: str) -> None:
    """Raise InvalidInputError if the value is of another type.

    Parameters
    ----------
    expected
        The type in words.

    Raises
    ------
    InvalidInputError
        If it is not.
    """
    if not isinstance(value, kind):
        raise InvalidInputError(
            f"Cannot use {_shown(value)} as {what}: expected {expected}.",
            hint=f"Pass {expected} as {what}.",
        )


def check_callable(value: object, what: str) -> None:
    """Raise InvalidInputError if the value cannot be called."""
    if not callable(value):
        raise InvalidInputError(
            f"Cannot use {_shown(value)} as {what}: expected a function.",
            hint=f"Pass a function as {what}, such as `lambda each: None`.",
        )


def check_texts(value: object, what: str, removable: bool = False) -> None:
    """Raise InvalidInputError if the value is not texts by name.

    Parameters
    ----------
    removable
        Whether None may stand for a text, to say that there is to be none.

    Raises
    ------
    InvalidInputError
        If it is something else.
    """
    check_kind(value, Mapping, what, "texts by name")
    for name, each in cast(Mapping[object, object], value).items():
        as_str(name, f"a name in {what}")
        if each is not None or not removable:
            as_str(each, f"{shortened(name)} in {what}")


def check_nesting(value: object, what: str) -> None:
    """Raise InvalidInputError if values are nested too deep: Arrow recurses, and would end the process.

    Notes
    -----
    Looks into lists, tuples and mappings. Of flat lists at the types only, some 20 ns a value.
    """
    level = {id(value): value}
    for _ in range(_MOST_DEPTH):
        level = {id(part): part for each in level.values() for part in _containers_in(each)}
        if not level:
            return
    raise InvalidInputError(
        f"Cannot use values in {what}: they are nested deeper than {_MOST_DEPTH} levels.",
        hint=f"Flatten the values to at most {_MOST_DEPTH} levels of lists and mappings, or store them as "
        "JSON text.",
    )


def check_names_once(names: Iterable[str], what: str) -> None:
    """Raise InvalidInputError if a name is there twice.

    Parameters
    ----------
    what
        What cannot be done otherwise, for the message: "append to 'flights'".

    Raises
    ------
    InvalidInputError
        Tells the first that is.
    """
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidInputError(
                f"Cannot {what}: two of the columns given have the name {name!r}.",
                hint=f"Rename one of the columns {name!r}, or leave it out.",
            )
        seen.add(name)


def number_list(values: ArrayLike) -> NDArray[Any]:
    """Return row numbers as an array of their own type and shape.

    Raises
    ------
    InvalidInputError
        If it is none at all, such as lists of several lengths, or some of it is masked.
    """
    if isinstance(values, list | tuple) and not _BOOLEANS.isdisjoint(map(type, values)):
        raise InvalidInputError(
            f"Cannot use {_shown(values)} as rows: expected whole numbers, found booleans.",
            hint="Pass row numbers, such as `numpy.flatnonzero(mask)` in place of a mask.",
        )
    if np.ma.is_masked(values):
        raise InvalidInputError(
            "Cannot use a masked array as rows: expected whole numbers, found some that are masked.",
            hint="Pass the numbers that are not masked: `rows.compressed()`.",
        )
    try:
        return np.asarray(values)
    except (ArithmeticError, TypeError, ValueError) as error:
        raise InvalidInputError(
            f"Cannot use {_shown(values)} as rows: expected a list of whole numbers.",
            hint="Pass row numbers in one flat list, such as [0, 7, 12].",
        ) from error


def _containers_in(value: object) -> list[object]:
    parts: Iterable[object] = ()
    if isinstance(value, Mapping):
        parts = value.values()
    elif isinstance(value, list | tuple | set | frozenset) or (
        isinstance(value, np.ndarray) and value.dtype.hasobject
    ):
        parts = value
    if not any(issubclass(kind, _CONTAINERS) for kind in set(map(type, parts))):
        return []
    return [part for part in parts if isinstance(part, _CONTAINERS)]


def _index(value: object, what: str, expected: str) -> int:
    """Return what is a whole number to Python, such as one of numpy."""
    if not isinstance(value, bool):
        try:
            return operator.index(value)  # type: ignore[arg-type]
        except TypeError:
            pass
    raise InvalidInputError(
        f"Cannot use {_shown(value)} as {what}: expected {expected}.",
        hint=f"Pass {what} as an int: text, fractions and booleans are not converted, so write int(x) "
        "where one is meant.",
    )


def _between(least: int | None, most: int | None) -> str:
    if least is None:
        return "" if most is None else f" of at most {most}"
    return f" from {least}" if most is None else f" from {least} to {most}"


def _microseconds(value: object) -> int | None:
    """Return the time, which may be out of range; None where there is none."""
    if isinstance(value, pa.TimestampScalar):
        return None if not value.is_valid else value.value * _ATTOSECONDS[value.type.unit] // _IN_MICROSECOND
    if isinstance(value, np.datetime64):
        is_calendar = np.datetime_data(value.dtype)[0] in ("Y", "M")
        return _from_numpy(value.astype("datetime64[D]") if is_calendar else value)
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    if not isinstance(moment, datetime):
        return as_int(moment, "timestamp")
    if moment != moment:  # noqa: PLR0124 - NaT is a datetime that equals nothing
        return None
    zone = UTC if moment.utcoffset() is None else moment.tzinfo
    day, time = moment.date(), moment.time()  # of pandas, without nanoseconds and arithmetic of its own
    plain = datetime.combine(day, time.replace(fold=moment.fold), zone)
    return (plain - _EPOCH) // _MICROSECOND


def _from_numpy(value: np.datetime64 | np.timedelta64) -> int:
    """Return microseconds of what numpy counts in units of its own; raises ValueError for NaT."""
    unit, count = np.datetime_data(value.dtype)
    if np.isnat(value) or unit not in _ATTOSECONDS:
        raise ValueError(unit)
    return int(value.astype(np.int64)) * count * _ATTOSECONDS[unit] // _IN_MICROSECOND


def _shown(value: object) -> str:
    """Show a value on one line, shortened where it is long, with its type."""
    return f"{shortened(value)} ({type(value).__name__})"


def shortened(value: object) -> str:
    """Show a value on one line, shortened where it is long; also one that cannot be shown."""
    try:
        shown = " ".join(repr(value).split())
    except Exception:  # noqa: BLE001 - of the caller's own class, or a number of too many digits
        shown = "a value without a repr"
    return shown if len(shown) <= _SHOWN else shown[: _SHOWN - 1] + "…"
