"""The messages of an Arrow stream, looked at before Arrow reads them: what they say costs memory. Pure.

Source: Apache Arrow, ``format/Message.fbs`` and "Encapsulated message format"; FlatBuffers, "Internals".
"""

from __future__ import annotations

import struct

import pyarrow as pa

_PREFIX = struct.Struct("<II")
_CONTINUATION = 0xFFFF_FFFF
_DICTIONARY, _RECORD_BATCH = 2, 3
_HEADER_TYPE, _HEADER, _BODY_BYTES = 1, 2, 3
_BATCH_OF_DICTIONARY = 1
_COMPRESSION = 3


def is_compressed_within(stream: pa.Buffer) -> bool:
    """Whether buffers of the stream are compressed by Arrow: nothing bounds what they expand to.

    Raises
    ------
    ValueError, struct.error
        If its messages cannot be told apart.

    Notes
    -----
    Up to the first record batch, which is all that is read of a page. Some 3 µs a message.
    """
    view, at = memoryview(stream), 0
    while at < stream.size:
        mark, length = _PREFIX.unpack_from(view, at)
        if mark != _CONTINUATION:
            raise ValueError(f"a message behind the mark {mark:08x}")
        if not length:
            return False
        at += _PREFIX.size
        message = bytes(view[at : at + length])
        kind = _number("<B", message, _field(message, _root(message), _HEADER_TYPE))
        if kind in (_DICTIONARY, _RECORD_BATCH) and is_compressed(message, kind == _DICTIONARY):
            return True
        if kind == _RECORD_BATCH:
            return False
        body = _number("<q", message, _field(message, _root(message), _BODY_BYTES))
        if body < 0:
            raise ValueError(f"a body of {body} bytes")
        at += length + body
    return False


def is_compressed(message: bytes, dictionary: bool) -> bool:
    """Whether a record batch, or the one inside of a dictionary, has its field `compression`.

    Raises
    ------
    ValueError, struct.error
        If there is no batch in it.
    """
    header = _field(message, _root(message), _HEADER)
    batch = None if header is None else _follow(message, header)
    if dictionary and batch is not None:
        data = _field(message, batch, _BATCH_OF_DICTIONARY)
        batch = None if data is None else _follow(message, data)
    if batch is None:
        raise ValueError("a message without a batch")
    return _field(message, batch, _COMPRESSION) is not None


# Steps of FlatBuffers, in which the header of an Arrow message is written. `struct` checks the bounds.


def _root(message: bytes) -> int:
    return int(struct.unpack_from("<I", message)[0])


def _follow(message: bytes, place: int) -> int:
    return place + int(struct.unpack_from("<I", message, place)[0])


def _number(layout: str, message: bytes, place: int | None) -> int:
    """Read a number of a flatbuffer table; 0 if the table omits it."""
    return 0 if place is None else int(struct.unpack_from(layout, message, place)[0])


def _field(message: bytes, table: int, number: int) -> int | None:
    """Where a field of a table stands; None where the table does not have it."""
    vtable = table - struct.unpack_from("<i", message, table)[0]
    if vtable < 0:
        raise ValueError("a table without a vtable")
    (size,) = struct.unpack_from("<H", message, vtable)
    if 4 + 2 * number + 2 > size:
        return None
    (offset,) = struct.unpack_from("<H", message, vtable + 4 + 2 * number)
    return table + offset if offset else None
