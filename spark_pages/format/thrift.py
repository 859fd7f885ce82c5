"""Structs of Thrift in compact form, as Parquet has them: numbers of fields and their values. Pure.

https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from __future__ import annotations

from typing import TypeAlias

Value: TypeAlias = "int | bytes | list[Value] | Fields"
Fields: TypeAlias = dict[int, Value]

_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _STRUCT = 1, 2, 3, 7, 8, 12
_INTEGERS = (4, 5, 6)
_LISTS = (9, 10)
_DEEPEST = 12


def read_struct(data: bytes, at: int, stop: int, depth: int = 0) -> tuple[Fields, int]:
    """The struct that begins at a place and ends before another, and the place behind it.

    Raises
    ------
    ValueError
        If there is none: it does not end, has a field twice or a map, or is too deep.

    Notes
    -----
    About 1 µs a field.
    """
    fields: Fields = {}
    field = 0
    if depth > _DEEPEST:
        raise ValueError("a struct of Thrift that is too deep")
    while True:
        if at >= stop:
            raise _endless()
        head, at = data[at], at + 1
        if not head:
            return fields, at
        if head >> 4:
            field += head >> 4
        else:
            field, at = _signed(data, at, stop)
        if field in fields:
            raise ValueError(f"a struct of Thrift with field {field} twice")
        kind = head & 15
        if kind in _INTEGERS and at < stop and data[at] < 128:  # most fields, without a call
            fields[field], at = (data[at] >> 1) ^ -(data[at] & 1), at + 1
        elif kind in (_TRUE, _FALSE):
            fields[field] = int(kind == _TRUE)
        else:
            fields[field], at = _value(kind, data, at, stop, depth)


def _value(kind: int, data: bytes, at: int, stop: int, depth: int) -> tuple[Value, int]:
    if kind in _INTEGERS:
        return _signed(data, at, stop)
    if kind == _STRUCT:
        return read_struct(data, at, stop, depth + 1)
    if kind in _LISTS:
        return _list(data, at, stop, depth + 1)
    if kind == _BINARY:
        size, at = _varint(data, at, stop)
    elif kind in (_TRUE, _FALSE, _BYTE, _DOUBLE):
        size = 8 if kind == _DOUBLE else 1
    else:
        raise ValueError(f"a struct of Thrift with a value of kind {kind}")
    if size > stop - at:
        raise _endless()
    return data[at : at + size], at + size


def _list(data: bytes, at: int, stop: int, depth: int) -> tuple[Value, int]:
    if at >= stop:
        raise _endless()
    head, at = data[at], at + 1
    count = head >> 4
    if count == 15:
        count, at = _varint(data, at, stop)
    if count > stop - at:  # each takes a byte at least
        raise _endless()
    values: list[Value] = []
    for _ in range(count):
        value, at = _value(head & 15, data, at, stop, depth)
        values.append(value)
    return values, at


def _signed(data: bytes, at: int, stop: int) -> tuple[int, int]:
    value, at = _varint(data, at, stop)
    return (value >> 1) ^ -(value & 1), at


def _varint(data: bytes, at: int, stop: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= stop:
            break
        byte, at = data[at], at + 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise _endless()


def _endless() -> ValueError:
    return ValueError("a struct of Thrift that does not end")
