"""Values that callers give beside a statement, as constants of its tree. Pure.

A value never becomes text of a statement before the statement is parsed, so nothing in it can be read as SQL.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from numbers import Integral, Real
from typing import Any, TypeAlias
from uuid import UUID

import numpy as np
import pyarrow as pa
from sqlglot import exp

from spark_pages.errors import InvalidInputError

GivenParameters: TypeAlias = Sequence[Any] | Mapping[str, Any] | None

_MOST_DIGITS = 38
_LARGEST_WHOLE = (1 << 127) - 1


class Parameters:
    """The parameters of one statement.

    Parameters
    ----------
    given
        A sequence for ``?`` and ``$1``, a mapping for ``$name`` and ``:name``, or None.
    tree
        The statement.

    Raises
    ------
    InvalidInputError
        If the statement has other parameters than are given, or a value is of a kind that SQL does not have.
    """

    def __init__(self, given: GivenParameters, tree: exp.Expr | None) -> None:
        nodes = [] if tree is None else list(tree.find_all(exp.Placeholder))
        nodes.sort(key=lambda node: int(node.meta.get("start", 0)))
        unnamed = [node for node in nodes if node.this is None]
        self._numbers = {node.meta.get("start"): number for number, node in enumerate(unnamed, 1)}
        if unnamed and len(unnamed) < len(nodes):
            raise InvalidInputError(
                "Cannot bind the parameters: the statement has ? beside others.",
                hint="Use one of ?, $1 and $name for all of them.",
            )
        self._values = _by_name(given)
        wanted = {self._name(node) for node in nodes}
        missing, unused = sorted(wanted - set(self._values)), sorted(set(self._values) - wanted)
        if missing or unused:
            told = [f"no value is given for {', '.join(map(_shown, missing))}"] if missing else []
            told += [f"the statement has no parameter {', '.join(map(_shown, unused))}"] if unused else []
            raise InvalidInputError(
                f"Cannot bind the parameters: {' and '.join(told)}.",
                hint="Give a list for ? and $1, or a mapping for $name.",
            )
        self._constants = {name: _constant(value, _shown(name)) for name, value in self._values.items()}

    def constant(self, node: exp.Placeholder) -> exp.Expr:
        """Return the value of a parameter."""
        return self._constants[self._name(node)].copy()

    def _name(self, node: exp.Placeholder) -> str:
        named = node.this if isinstance(node.this, str) else getattr(node.this, "name", "")
        return named or str(self._numbers[node.meta.get("start")])


def _by_name(given: GivenParameters) -> dict[str, Any]:
    if given is None:
        return {}
    if isinstance(given, Mapping):
        wrong = [name for name in given if not isinstance(name, str)]
        if wrong:
            raise InvalidInputError(
                f"Cannot bind the parameters: {wrong[0]!r} is not the name of one.",
                hint="Name each parameter by a text, such as {'n': 1} for $n.",
            )
        return dict(given)
    if isinstance(given, str | bytes) or not isinstance(given, Sequence):
        raise InvalidInputError(
            f"Cannot bind the parameters: expected a list or a mapping, found {type(given).__name__}.",
            hint="Pass a list for `?`, or a mapping for `$name`.",
        )
    return {str(number): value for number, value in enumerate(given, 1)}


def _shown(name: str) -> str:
    return f"${name}"


def _constant(value: Any, name: str, depth: int = 0) -> exp.Expr:
    """Convert a value to a constant of its type."""
    if depth > 50:
        raise InvalidInputError(
            f"Cannot bind {name}: its value is nested too deep.",
            hint="Flatten the value, or pass it as JSON text and read it with `json_extract`.",
        )
    if isinstance(value, pa.Scalar):
        return _of_arrow(value, name)
    if isinstance(value, np.generic):
        if isinstance(value, np.datetime64 | np.timedelta64):
            return _of_numpy_time(value, name)
        value = value.item()
    match value:
        case None:
            return exp.null()
        case bool():
            return exp.Boolean(this=value)
        case str():
            return _text(value, name)
        case Integral():
            return _whole(int(value), name)
        case Decimal() | Real() if not math.isfinite(value):
            return _cast(str(float(value)).lower(), "DOUBLE")
        case Decimal():
            return _decimal(value, name)
        case Real():
            return _cast(repr(float(value)), "DOUBLE")
        case bytes() | bytearray() | memoryview():
            return _cast("".join(f"\\x{byte:02X}" for byte in bytes(value)), "BLOB")
        case UUID():
            return _cast(str(value), "UUID")
        case dt.datetime() | dt.date() | dt.time() | dt.timedelta():
            return _of_arrow(_arrow_scalar(value, name), name)
        case Mapping() | list() | tuple() | np.ndarray() | pa.Array() | pa.ChunkedArray():
            return _nested(value, name, depth + 1)
    raise InvalidInputError(
        f"Cannot bind {name}: SQL has no value of type {type(value).__name__}.",
        hint="Pass a number, text, bytes, date, time, decimal or UUID, or a list or mapping of these, "
        "such as [1, 2].",
    )


def _nested(value: Any, name: str, depth: int) -> exp.Expr:
    if isinstance(value, np.ndarray) and value.ndim == 0:
        return _constant(value[()], name, depth)
    if not isinstance(value, Mapping):
        return exp.Array(expressions=[_constant(each, name, depth) for each in value])
    if not value or not all(isinstance(key, str) for key in value):
        raise InvalidInputError(
            f"Cannot bind {name}: a mapping has keys that are not text, and they are the names of its "
            "fields.",
            hint="Write the keys as text, such as {'x': 1}.",
        )
    fields = [
        exp.PropertyEQ(this=exp.to_identifier(key, quoted=True), expression=_constant(each, name, depth))
        for key, each in value.items()
    ]
    return exp.Struct(expressions=fields)


def _of_numpy_time(value: np.datetime64 | np.timedelta64, name: str) -> exp.Expr:
    """Units that Arrow does not have are days or seconds; those of days are dates."""
    if np.isnat(value):
        return exp.null()
    unit = np.datetime_data(value)[0]
    if isinstance(value, np.datetime64) and unit in ("Y", "M", "W", "D"):
        value = value.astype("M8[D]")
        days = pa.scalar(value.astype(np.int64).item(), pa.int64())
        try:
            return _of_arrow(days.cast(pa.int32()).cast(pa.date32()), name)
        except pa.ArrowInvalid as error:
            raise InvalidInputError(
                f"Cannot bind {name}: {value} is no date of SQL.",
                hint="Pass a value of the years 1 to 9999, such as `datetime.datetime(2026, 11, 23)`.",
            ) from error
    if unit in ("W", "D", "h", "m"):
        value = value.astype("M8[s]" if isinstance(value, np.datetime64) else "m8[s]")
    return _of_arrow(_arrow_scalar(value, name), name)


def _of_arrow(value: pa.Scalar, name: str) -> exp.Expr:
    """Convert an Arrow value. Times keep their unit, which Python lacks."""
    kind = value.type
    if not value.is_valid:
        return exp.null()
    if pa.types.is_timestamp(kind):
        text = str(value.cast(pa.timestamp(kind.unit)).cast(pa.string()).as_py())
        if kind.tz is not None:
            if kind.unit == "ns" and value.value % 1000:
                raise InvalidInputError(
                    f"Cannot bind {name}: times with a zone have microseconds in DuckDB.",
                    hint="Round it: `value.cast(pyarrow.timestamp('us', tz='UTC'))`; or pass a time "
                    "without a zone.",
                )
            return _cast(f"{text}+00", "TIMESTAMPTZ")
        return _cast(text, "TIMESTAMP_NS" if kind.unit == "ns" else "TIMESTAMP")
    if pa.types.is_date(kind):
        return _cast(str(value.cast(pa.date32()).cast(pa.string()).as_py()), "DATE")
    if pa.types.is_time(kind):
        return _cast(str(value.cast(pa.string()).as_py()), "TIME_NS" if kind.unit == "ns" else "TIME")
    if pa.types.is_duration(kind):
        whole = value.cast(pa.duration("ns")).value
        if whole % 1000:
            raise InvalidInputError(
                f"Cannot bind {name}: intervals of SQL have microseconds.",
                hint="Round it to microseconds, such as `datetime.timedelta(microseconds=1)`.",
            )
        return exp.Anonymous(this="to_microseconds", expressions=[_whole(whole // 1000, name)])
    if isinstance(value, pa.ExtensionScalar):
        return _of_arrow(value.value, name)
    if pa.types.is_map(kind):
        entries = [(each["key"], each["value"]) for each in value.values]
        sides = zip(*entries, strict=True) if entries else ((), ())
        return exp.Anonymous(this="map", expressions=[_constant(list(side), name, 2) for side in sides])
    if pa.types.is_struct(kind):
        return _nested({key: value[key] for key in kind.names}, name, 1)
    if isinstance(value, pa.ListScalar | pa.FixedSizeListScalar):
        return _nested(value.values, name, 1)
    if isinstance(value, pa.MonthDayNanoIntervalScalar):
        raise InvalidInputError(
            f"Cannot bind {name}: an interval of months is none of the values here.",
            hint="Pass days and microseconds, such as `datetime.timedelta(days=30)`, or write INTERVAL "
            "'1' MONTH.",
        )
    return _constant(value.as_py(), name, 1)


def _arrow_scalar(value: Any, name: str) -> pa.Scalar:
    try:
        fine = getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0)
        if not fine:
            return pa.scalar(value)
        return pa.scalar(
            value,
            pa.timestamp("ns", getattr(value, "tz", None) and "UTC")
            if isinstance(value, dt.datetime)
            else pa.duration("ns"),
        )
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(
            f"Cannot bind {name}: {value!r} is no value of SQL ({error}).",
            hint="Pass a plain value of Python: `value.as_py()`.",
        ) from error


def _whole(value: int, name: str) -> exp.Expr:
    if abs(value) > _LARGEST_WHOLE:
        raise InvalidInputError(
            f"Cannot bind {name}: the number has more than 128 bits.",
            hint="Pass it as text, or as a float: `float(value)`.",
        )
    number = exp.Literal.number(abs(value))
    return exp.Paren(this=exp.Neg(this=number)) if value < 0 else number


def _decimal(value: Decimal, name: str) -> exp.Expr:
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    scale = max(0, -exponent)
    precision = max(len(digits) + max(0, exponent), scale, 1)
    if precision > _MOST_DIGITS:
        raise InvalidInputError(
            f"Cannot bind {name}: a decimal of SQL has up to {_MOST_DIGITS} digits.",
            hint="Round it first: `round(value, 2)`, or pass it as text.",
        )
    return _cast(f"{value:f}", f"DECIMAL({precision}, {scale})")


def _text(value: str, name: str) -> exp.Expr:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            f"Cannot bind {name}: the text is no UTF-8 ({error}).",
            hint="Decode the text that it came from with errors='replace'.",
        ) from error
    return exp.Literal.string(value)


def _cast(text: str, kind: str) -> exp.Expr:
    return exp.Cast(this=exp.Literal.string(text), to=exp.DataType.build(kind, dialect="duckdb"))
