"""Values as Avro, written by functions that are made once for a schema. Pure.

fastavro looks at the schema again for every value, and takes twice as long for a small commit. The bytes are
the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import index
from typing import Any

import fastavro

Write = Callable[[bytearray, Any], None]
"""Appends a value to bytes."""


def writer_of(schema: Any) -> Write:
    """What writes values of a schema; of a union of records, pairs of a record's name and its value.

    Notes
    -----
    The types that the log needs: not floating-point numbers, enumerations and fixed bytes.
    """
    return _writer(fastavro.parse_schema(schema), {})


def write_long(out: bytearray, value: int) -> None:
    """A whole number of up to 64 bits: small ones in few bytes, whatever their sign."""
    number = index(value)
    number = number << 1 if number >= 0 else ~(number << 1)
    if number >> 64:
        raise OverflowError(f"{value} has more than 64 bits")
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def write_bytes(out: bytearray, value: bytes | bytearray) -> None:
    """Bytes, their number in front of them."""
    size = len(value)
    if size < 0x40:
        out.append(size << 1)
    else:
        write_long(out, size)
    out += value


def _text(out: bytearray, value: str) -> None:
    write_bytes(out, value.encode())


def _boolean(out: bytearray, value: bool) -> None:
    out.append(1 if value else 0)


_PLAIN: dict[str, Write] = {
    "boolean": _boolean,
    "int": write_long,
    "long": write_long,
    "bytes": write_bytes,
    "string": _text,
}


def _writer(schema: Any, named: dict[str, Write]) -> Write:
    if isinstance(schema, str):
        return named.get(schema) or _PLAIN[schema]
    if isinstance(schema, list):
        return _optional(schema, named) if schema[0] == "null" else _one_of(schema, named)
    if schema["type"] == "array":
        return _array(_writer(schema["items"], named))
    if schema["type"] == "map":
        return _map(_writer(schema["values"], named))
    fields = [(field["name"], _writer(field["type"], named)) for field in schema["fields"]]

    def record(out: bytearray, value: dict[str, Any]) -> None:
        for name, write in fields:
            write(out, value[name])

    named[schema["name"]] = record
    return record


def _optional(schema: Sequence[Any], named: dict[str, Write]) -> Write:
    _, other = schema
    write = _writer(other, named)

    def optional(out: bytearray, value: Any) -> None:
        if value is None:
            out.append(0)
        else:
            out.append(2)
            write(out, value)

    return optional


def _one_of(schema: Sequence[Any], named: dict[str, Write]) -> Write:
    places = {each["name"]: (place, _writer(each, named)) for place, each in enumerate(schema)}

    def one_of(out: bytearray, value: tuple[str, Any]) -> None:
        place, write = places[value[0]]
        write_long(out, place)
        write(out, value[1])

    return one_of


def _array(write: Write) -> Write:
    def array(out: bytearray, values: Sequence[Any]) -> None:
        if values:
            write_long(out, len(values))
            for value in values:
                write(out, value)
        out.append(0)

    return array


def _map(write: Write) -> Write:
    def mapping(out: bytearray, values: dict[str, Any]) -> None:
        if values:
            write_long(out, len(values))
            for name, value in values.items():
                _text(out, name)
                write(out, value)
        out.append(0)

    return mapping
