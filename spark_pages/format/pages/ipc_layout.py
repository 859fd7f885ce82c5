"""The messages at the start of a page's Arrow stream, read without Arrow for streams like those seen before.

Arrow needs a whole stream in memory to say where its buffers lie, so narrowed integers would have to be
widened, and all else copied, before anybody knows what is wanted. But the streams of a column differ in a
few numbers of their second message alone: rows, nulls, and where each buffer lies. So that message is taken
apart once for each schema (`number_offsets`), and later ones are held against it byte by byte.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Place: TypeAlias = tuple[int, int]
"""First byte, and how many."""

_MESSAGE = struct.Struct("<II")
_CONTINUATION = 0xFFFF_FFFF
_KNOWN_SHAPES = 512


@dataclass(frozen=True, slots=True)
class FlatColumn:
    """How the values of a column without columns inside lie in memory.

    Attributes
    ----------
    kind
        The type.
    bits
        Bits of a value; 0 for text and binary.
    offset_bytes
        Bytes of an offset of text and binary; else 0.
    """

    kind: pa.DataType
    bits: int
    offset_bytes: int

    @classmethod
    @lru_cache(256)
    def of(cls, kind: pa.DataType) -> FlatColumn | None:
        """None for types that are not flat."""
        types = pa.types
        if types.is_string(kind) or types.is_binary(kind):
            return cls(kind, 0, 4)
        if types.is_large_string(kind) or types.is_large_binary(kind):
            return cls(kind, 0, 8)
        if (types.is_primitive(kind) or types.is_decimal(kind)) and not types.is_null(kind):
            return cls(kind, kind.bit_width, 0)
        return None


class BatchLayout(NamedTuple):
    """What the messages of one stream say.

    Attributes
    ----------
    schema
        Of the stream: one column, ``data``.
    column
        Its memory.
    rows, nulls
        Entries, and how many of them are null.
    begin
        First byte of the body in the stream.
    varied : (int, int, int)
        Where the stream says how long its body is, how many are null, and how long the text is; for the last
        once more the second where there is no text. These alone differ between pages that were cut alike.
    validity, values, text : (int, int)
        First byte in the stream and bytes of each buffer. *Values* are offsets where there is text or binary,
        and there is *text* only then.
    """

    schema: pa.Schema
    column: FlatColumn
    rows: int
    nulls: int
    begin: int
    varied: tuple[int, int, int]
    validity: Place
    values: Place
    text: Place


@dataclass(frozen=True, slots=True)
class _Shape:
    """A schema, and the record batch message that follows it.

    Attributes
    ----------
    length
        Bytes of that message, with what stands in front of it.
    mask, fixed
        The message as one number, without the numbers that differ: ``message & mask == fixed``.
    numbers
        These, as they lie in the message.
    in_order
        Puts them in order: body length, rows, rows again and nulls, then start and bytes of each buffer.
    varied
        Where in the message those are that `BatchLayout` names so.
    """

    schema: pa.Schema
    column: FlatColumn
    length: int
    mask: int
    fixed: int
    numbers: struct.Struct
    in_order: Callable[[tuple[int, ...]], tuple[int, ...]]
    varied: tuple[int, int, int]


_shapes: dict[bytes, _Shape | None] = {}
"""By the bytes of the schema message; None where Arrow is to be asked each time."""


def extent_of(stream: memoryview, at: int, stream_bytes: int) -> BatchLayout | None:
    """Where the buffers of a stream lie; None where that is for Arrow to find out.

    Parameters
    ----------
    stream
        Memory with the messages in it.
    at
        Where they begin.
    stream_bytes
        Bytes of the whole stream, which nothing may lie outside of.

    Notes
    -----
    3 µs. What is given has been held against the sizes: every buffer lies in the stream and is as long as its
    entries need. A stream that breaks a rule gives None, and Arrow says what is wrong with it.
    """
    try:
        mark, length = _MESSAGE.unpack_from(stream, at)
        first = at + 8 + length
        shape = _shapes.get(bytes(stream[at:first]))
        if shape is None:
            return None
        message = bytes(stream[first : first + shape.length])
        found = shape.in_order(shape.numbers.unpack_from(message))
    except struct.error:
        return None
    if int.from_bytes(message, "little") & shape.mask != shape.fixed:
        return None
    body, rows, node_rows, nulls, v_start, v_size, start, size = found[:8]
    column = shape.column
    begin = first - at + shape.length
    if rows != node_rows or not 0 <= nulls <= rows or not rows or mark != _CONTINUATION:
        return None
    if column.offset_bytes:
        t_start, t_size = found[8:]
        needed = (rows + 1) * column.offset_bytes
    else:
        t_start = t_size = 0
        needed = (rows * column.bits + 7) // 8
    if v_start < 0 or start < 0 or t_start < 0 or t_size < 0 or begin + body > stream_bytes:
        return None
    if v_start + v_size > body or start + size > body or t_start + t_size > body or size < needed:
        return None
    if v_size < (rows + 7) // 8 and (nulls or v_size):
        return None
    before = first - at
    body_at, nulls_at, text_at = shape.varied
    return BatchLayout(
        shape.schema, column, rows, nulls, begin, (before + body_at, before + nulls_at, before + text_at),
        (begin + v_start, v_size), (begin + start, size), (begin + t_start, t_size),
    )  # fmt: skip


def match_layouts(
    streams: NDArray[np.uint8], stream_bytes: NDArray[np.int64], extent: BatchLayout
) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """Nulls and bytes of text in each of several streams that say the same else.

    Parameters
    ----------
    streams : shape (n_streams, width)
        The first bytes of each, as far as the body at least.
    stream_bytes : int64, shape (n_streams,)
        Bytes of each, which nothing may lie outside of.
    extent
        Of one of them.

    Returns
    -------
    two of int64, shape (n_streams,), or None
        None where they say anything else than that one: then each is for `extent_of`.
    """
    begin = extent.begin
    if begin > streams.shape[1]:
        return None
    messages = streams[:, :begin]
    same = messages == messages[0]
    for at in extent.varied:
        same[:, at : at + 8] = True
    if not same.all():
        return None
    bodies, nulls, texts = (
        np.ascontiguousarray(messages[:, at : at + 8]).view("<i8")[:, 0] for at in extent.varied
    )
    if not extent.column.offset_bytes:
        texts = np.zeros_like(nulls)
    most_nulls = extent.rows if extent.validity[1] else 0
    fixed_end = max(sum(extent.validity), sum(extent.values), extent.text[0])
    # No body is longer than its stream, and no text than its body: so no sum wraps around.
    if (
        ((nulls < 0) | (nulls > most_nulls) | (bodies < 0) | (bodies > stream_bytes - begin)).any()
        or ((texts < 0) | (texts > bodies) | (begin + bodies < fixed_end)).any()
        or (extent.text[0] + texts > begin + bodies).any()
    ):
        return None
    return nulls, texts


def register(known: bytes, batch: memoryview, schema: pa.Schema) -> None:
    """Streams that begin with the same schema are known from now on.

    Parameters
    ----------
    known
        The schema message of a stream that Arrow has read.
    batch
        What follows it: one record batch.
    schema
        Of that stream.
    """
    if known in _shapes:
        return
    try:
        shape = _shape_of(batch, schema)
    except (struct.error, ValueError):  # an empty batch leaves numbers out: the next one may tell more
        return
    if len(_shapes) >= _KNOWN_SHAPES:  # metadata of its own in every page would fill the memory
        _shapes.clear()
    _shapes[known] = shape


def _shape_of(message: memoryview, schema: pa.Schema) -> _Shape | None:
    column = FlatColumn.of(schema.types[0]) if len(schema) == 1 else None
    if column is None:
        return None
    length, places = number_offsets(message, 3 if column.offset_bytes else 2)
    whole, layout, at = bytearray(b"\xff" * length), "<", 0
    for place in sorted(places):
        layout += f"{place - at}xq"
        at = place + 8
        whole[place:at] = bytes(8)
    mask = int.from_bytes(whole, "little")
    ranks = {place: rank for rank, place in enumerate(sorted(places))}
    return _Shape(
        schema,
        column,
        length,
        mask,
        int.from_bytes(message[:length], "little") & mask,
        struct.Struct(layout),
        itemgetter(*(ranks[place] for place in places)),
        (places[0], places[3], places[9] if column.offset_bytes else places[3]),
    )


def number_offsets(message: memoryview, buffers: int) -> tuple[int, list[int]]:
    """Bytes of a record batch message of one column with so many buffers, and the places of its numbers.

    Returns
    -------
    int, list of int
        The places are those of: bytes of the body, rows, rows again, nulls, start and bytes of each buffer.

    Raises
    ------
    ValueError, struct.error
        If it leaves one out, or has compressed buffers or several columns.

    Notes
    -----
    A flatbuffer. Source: Apache Arrow, ``format/Message.fbs`` and "Encapsulated message format".
    """
    mark, size = _MESSAGE.unpack_from(message)
    table = _MESSAGE.size + _number("<I", message, _MESSAGE.size)
    body = _field(message, table, 3)
    header = _field(message, table, 2)
    batch = header + _number("<I", message, header)
    rows = _field(message, batch, 0)
    lists = []
    for index, count in ((1, 1), (2, buffers)):
        place = _field(message, batch, index)
        place += _number("<I", message, place)
        if _number("<I", message, place) != count:
            raise ValueError("other columns or buffers")
        lists += [place + 4 + 8 * each for each in range(2 * count)]
    if mark != _CONTINUATION or _has_field(message, batch, 3):
        raise ValueError("compressed buffers")
    return _MESSAGE.size + size, [body, rows, *lists]


def _field(message: memoryview, table: int, index: int) -> int:
    if not _has_field(message, table, index):
        raise ValueError(f"no field {index}")
    vtable = table - _number("<i", message, table)
    return table + _number("<H", message, vtable + 4 + 2 * index)


def _has_field(message: memoryview, table: int, index: int) -> bool:
    vtable = table - _number("<i", message, table)
    there = 4 + 2 * index < _number("<H", message, vtable)
    return there and _number("<H", message, vtable + 4 + 2 * index) != 0


def _number(layout: str, message: memoryview, at: int) -> int:
    return int(struct.unpack_from(layout, message, at)[0])
