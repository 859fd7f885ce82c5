"""Integers of a page in fewer bytes, in front of the codec, and back.

Most integers of a page lie in a narrow range, or follow each other in narrow steps: timestamps, ids, codes,
the offsets of text. Kept as differences in one, two or four bytes each they cost the codec less time, and
the page less room. `docs/format.md` ("Narrowed pages") is the specification.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import lz4.block
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.errors import DamageError
from spark_pages.format.pages.codecs import MAX_UNCOMPRESSED_BYTES

MAX_WIDENING = 8
"""An eight-byte number may be kept in one byte: a stream is at most so many times what is stored of it."""

TableEntry: TypeAlias = tuple[int, int, int, int, int, bytes, int, int]
"""A buffer in narrow form, as the table has it: start, count, kind, wide, narrow, zeros, base, first."""

_COUNT = struct.Struct("<Q")
_RANGE = struct.Struct("<IIBBB5sqq")
RESERVED = bytes(5)
SAME_ENTRY_BYTES, ONE_ENTRY_BYTES = 24, _COUNT.size + _RANGE.size
"""A table with one entry; behind the first of these bytes stand only `base` and `first`."""

FRAME_OF_REFERENCE, DELTA = 1, 2
TRIED = 2048
_LOOKED_AT = 16
"""Most uneven steps are so within the first of them."""

_FEWEST = 32
"""Shorter buffers are left alone: their entry in the table would cost as much as they save."""


@dataclass(frozen=True, slots=True)
class EncodedRange:
    """One buffer of the stream in its narrow form.

    Attributes
    ----------
    start, count
        First byte in the stream, and how many numbers.
    kind
        Differences from the least number, or each from the one before.
    wide, narrow
        Bytes of a number in the stream, and as kept.
    base
        What is added to every difference.
    first
        Differences from neighbours: the first number.
    data
        The differences.
    """

    start: int
    count: int
    kind: int
    wide: int
    narrow: int
    base: int
    first: int
    data: NDArray[Any]


def encode(head: pa.Buffer, body: pa.Buffer, tail: bytes, columns: Sequence[pa.Array]) -> bytes | None:
    """Narrow the integers of a stream, and prefix the table of narrowed buffers; None without gain.

    Parameters
    ----------
    head, body, tail
        An Arrow IPC stream of one record batch, in three parts.
    columns
        The columns of that batch, read from `body` without a copy: so it is known where each buffer lies.

    Notes
    -----
    Where both forms are equally narrow, both are tried with LZ4, on a part. Differences from neighbours are
    kept where they are a tenth smaller: summing them up takes four times as long. About 40 µs for 64 KiB.
    """
    found = [
        kept
        for column in columns
        for integers in _integers(column)
        if (kept := _encode_range(body, head.size, integers)) is not None
    ]
    if not found:
        return None
    found.sort(key=lambda each: each.start)
    whole = memoryview(body)
    parts: list[Any] = [_COUNT.pack(len(found))]
    parts += [
        _RANGE.pack(r.start, r.count, r.kind, r.wide, r.narrow, RESERVED, r.base, r.first) for r in found
    ]
    parts.append(head)
    at = 0
    for r in found:
        start = r.start - head.size
        parts += [whole[at:start], r.data, bytes(-r.count * r.narrow % 8)]
        at = start + r.count * r.wide
    parts += [whole[at:], tail]
    return b"".join(parts)


def decode(data: pa.Buffer, stream_bytes: int, *, where: str) -> pa.Buffer:
    """Restore the stream that `encode` narrowed.

    Parameters
    ----------
    data
        The table, and the stream with narrow integers.
    stream_bytes
        Bytes of the stream, as the page's header says.
    where
        What is being read, for error messages.

    Raises
    ------
    DamageError
        If the table contradicts itself or the sizes; found out before the stream is allocated.
    """
    ranges, at = read_encoding_table(data, stream_bytes, where)
    source = np.frombuffer(data, np.uint8)
    target = pa.allocate_buffer(stream_bytes)
    stream = np.frombuffer(target, np.uint8)
    done = 0
    for start, count, kind, wide, narrow, _, base, first in ranges:
        stream[done:start] = source[at : at + start - done]
        at += start - done
        kept = source[at : at + count * narrow].view(f"<u{narrow}")
        at += -(-count * narrow // 8) * 8
        done = start + count * wide
        decode_column(kept, stream[start:done].view(f"<u{wide}"), kind, base, first)
    stream[done:] = source[at:]
    return target


def check_stream_bytes(stored: int, stream_bytes: int, *, where: str = "a page") -> None:
    """Nothing, if so few stored bytes can stand for a stream of this size.

    Raises
    ------
    DamageError
        If they cannot.
    """
    most = min(MAX_UNCOMPRESSED_BYTES, stored * MAX_WIDENING)
    if not 0 < stream_bytes <= most:
        raise DamageError(
            f"Cannot widen {where}: expected at most {most} bytes from {stored}, found a promise of "
            f"{stream_bytes}."
        )


def decode_column(kept: NDArray[Any], out: NDArray[Any], kind: int, base: int, first: int) -> None:
    """Fill `out`, of unsigned numbers; sums wrap around, as the differences did."""
    around = (1 << (8 * out.itemsize)) - 1
    if kind == DELTA and (steps := _even_steps(kept)) is not None:
        step = out.dtype.type((base + int(steps[0])) & around)
        np.multiply(np.arange(len(out), dtype=out.dtype), step, out=out)
        out += out.dtype.type(first & around)
        return
    if base:
        np.add(kept, out.dtype.type(base & around), out=out, dtype=out.dtype)
    else:
        out[:] = kept
    if kind == DELTA:
        out[0] = first & around
        np.add.accumulate(out, out=out)


def decode_columns(
    kept: NDArray[Any], out: NDArray[Any], kind: int, bases: NDArray[np.int64], firsts: NDArray[np.int64]
) -> None:
    """Restore several buffers of one length, shape (n_buffers, n_numbers)."""
    bases, firsts = bases.astype(out.dtype)[:, None], firsts.astype(out.dtype)[:, None]
    if kind == DELTA and (steps := _even_steps(kept)) is not None:
        steps = bases + steps.astype(out.dtype)
        count = np.arange(kept.shape[1], dtype=out.dtype)
        if (steps == steps[0]).all():  # then one row tells all, and each number is written once
            np.add(count * steps[0], firsts, out=out)
        else:
            np.multiply(count, steps, out=out)
            out += firsts
        return
    if bases.any():
        np.add(kept, bases, out=out, dtype=out.dtype)
    else:
        out[:] = kept
    if kind == DELTA:
        out[:, :1] = firsts
        np.add.accumulate(out, axis=1, out=out)


def decode_entries(
    kept: NDArray[Any], which: NDArray[np.int64], out: NDArray[Any], kind: int, base: int, first: int
) -> bool:
    """Restore some numbers of a buffer into `out`; False if they depend on all of their neighbours."""
    around = (1 << (8 * out.itemsize)) - 1
    if kind == DELTA:
        steps = _even_steps(kept)
        if steps is None:
            return False
        step = out.dtype.type((base + int(steps[0])) & around)
        np.multiply(which, step, out=out, dtype=out.dtype, casting="unsafe")
        base = first
    else:
        out[:] = kept[which]
    if base:
        out += out.dtype.type(base & around)
    return True


def _even_steps(kept: NDArray[Any]) -> NDArray[Any] | None:
    """Return the step of a buffer, shape (…, 1), if all steps are equal, which needs no running sum.

    The first difference is none, and is not looked at.
    """
    steps = kept[..., -1:]
    if kept.ndim == 1:  # by bytes: a third of what numpy takes for so little
        last = steps.tobytes()
        even = kept[1:2].tobytes() == last and kept[1:].tobytes() == last * (len(kept) - 1)
        return steps if even else None
    if (kept[..., 1:_LOOKED_AT] != steps).any() or (kept[..., 1:] != steps).any():
        return None
    return steps


def encoded_bytes(entry: TableEntry) -> int:
    """Bytes that a buffer in narrow form takes, with the zeros behind it."""
    return -(-entry[1] * entry[4] // 8) * 8


def one_entry(entry: TableEntry) -> bytes:
    """Encode a table with this entry only."""
    return _COUNT.pack(1) + _RANGE.pack(*entry)


def read_encoding_table(data: pa.Buffer, stream_bytes: int, where: str) -> tuple[list[TableEntry], int]:
    """Read and validate the entries of the table, and return where the stream begins.

    Raises
    ------
    DamageError
        If the table contradicts itself or the sizes.
    """
    try:
        (count,) = _COUNT.unpack_from(data)
        begin = _COUNT.size + count * _RANGE.size
        if begin > data.size:
            raise _damage(where, f"a table of {count} ranges in {data.size} bytes")
        ranges = list(_RANGE.iter_unpack(memoryview(data)[_COUNT.size : begin]))
    except struct.error as error:
        raise _damage(where, f"no table ({error})") from error
    done, kept = 0, begin
    for start, numbers, kind, wide, narrow, reserved, _, _ in ranges:
        if kind not in (FRAME_OF_REFERENCE, DELTA) or wide not in (2, 4, 8) or narrow not in (1, 2, 4):
            raise _damage(where, f"a range of kind {kind} with {wide} and {narrow} bytes a number")
        if narrow >= wide or not numbers or start % wide or start < done or reserved != RESERVED:
            raise _damage(where, f"a range of {numbers} numbers at {start}, behind {done}")
        kept += start - done + -(-numbers * narrow // 8) * 8
        done = start + numbers * wide
    if done > stream_bytes or kept + stream_bytes - done != data.size:
        raise _damage(where, f"ranges up to {done} of {stream_bytes} bytes in {data.size}")
    return ranges, begin


@dataclass(frozen=True, eq=False, slots=True)
class _Integers:
    """A buffer of integers: how many, bytes of each, and whether they are offsets, which never fall."""

    buffer: pa.Buffer | None
    count: int
    wide: int
    offsets: bool = False


def _integers(array: pa.Array) -> Iterator[_Integers]:
    """Iterate over the integer buffers of an array."""
    kind, types = array.type, pa.types
    if types.is_dictionary(kind):
        yield from _integers(array.indices)
        yield from _integers(array.dictionary)
    elif types.is_run_end_encoded(kind):
        yield from _integers(array.run_ends)
        yield from _integers(array.values)
    elif types.is_struct(kind):
        for index in range(kind.num_fields):
            yield from _integers(array.field(index))
    elif types.is_fixed_size_list(kind):
        yield from _integers(array.values)
    elif (types.is_integer(kind) or types.is_temporal(kind)) and not types.is_interval(kind):
        yield _Integers(array.buffers()[1], len(array), kind.bit_width // 8)
    elif (wide := _offset_bytes(kind)) is not None:
        yield _Integers(array.buffers()[1], len(array) + 1, wide, offsets=True)
        if types.is_map(kind):
            yield from _integers(array.keys)
            yield from _integers(array.items)
        elif types.is_list(kind) or types.is_large_list(kind):
            yield from _integers(array.values)


def _offset_bytes(kind: pa.DataType) -> int | None:
    """Bytes of an offset of lists, text and binary; None for other types."""
    types = pa.types
    if types.is_string(kind) or types.is_binary(kind) or types.is_list(kind) or types.is_map(kind):
        return 4
    if types.is_large_string(kind) or types.is_large_binary(kind) or types.is_large_list(kind):
        return 8
    return None


def _encode_range(body: pa.Buffer, before: int, found: _Integers) -> EncodedRange | None:
    buffer, count, wide = found.buffer, found.count, found.wide
    if buffer is None or wide == 1 or count < _FEWEST or buffer.size < count * wide:
        return None
    start = buffer.address - body.address
    if not 0 <= start <= body.size - count * wide or (before + start) % wide:
        return None  # not in the stream, such as an array that IPC leaves out
    values = np.frombuffer(buffer, f"<i{wide}", count)
    from_least = None if found.offsets else _fewest_bytes(values, wide)
    from_neighbour = None
    if from_least is None or from_least[0] > 1 or not is_scattered(values):
        steps = np.subtract(values[1:], values[:-1])
        from_neighbour = _fewest_bytes(steps, wide)
    choices = []
    if from_least is not None and (from_neighbour is None or from_least[0] <= from_neighbour[0]):
        narrow, base = from_least
        data = differences(values, base, narrow)
        choices.append(EncodedRange(before + start, count, FRAME_OF_REFERENCE, wide, narrow, base, 0, data))
    if from_neighbour is not None and (from_least is None or from_neighbour[0] <= from_least[0]):
        narrow, base = from_neighbour
        data = differences(steps, base, narrow, first=1)
        first = int(values[0])
        choices.append(EncodedRange(before + start, count, DELTA, wide, narrow, base, first, data))
    if len(choices) < 2:
        return choices[0] if choices else None
    return choices[is_smaller(choices[0].data, choices[1].data)]


def is_smaller(least: NDArray[Any], neighbour: NDArray[Any]) -> bool:
    """Whether LZ4 makes differences from neighbours a tenth smaller; of the first that there are."""
    sizes = [len(lz4.block.compress(each[:TRIED], store_size=False)) for each in (least, neighbour)]
    return sizes[1] * 10 < sizes[0] * 9


def is_scattered(values: NDArray[Any]) -> bool:
    """Whether neighbours, where they are looked at, lie as far apart as any: then steps are no narrower."""
    some = values[: TRIED // 8]
    low, high = int(some.min()), int(some.max())
    return int(np.abs(np.subtract(some[1:], some[:-1])).max()) * 4 > high - low


def differences(values: NDArray[Any], base: int, narrow: int, first: int = 0) -> NDArray[Any]:
    """Encode values as narrow differences from the base, after a gap of zeros."""
    kept = np.empty(first + len(values), f"<u{narrow}")
    kept[:first] = 0
    if base:
        np.subtract(values, base, out=kept[first:], dtype=values.dtype, casting="unsafe")
    else:
        kept[first:] = values
    return kept


def _fewest_bytes(values: NDArray[Any], wide: int) -> tuple[int, int] | None:
    """Bytes that each value needs above the least one, and that one; None if that saves nothing."""
    least, most = int(values.min()), int(values.max())
    narrow = next((width for width in (1, 2, 4) if most - least < 1 << (8 * width)), 8)
    if narrow >= wide:
        return None
    if least > 0 and most < 1 << (8 * narrow):
        least = 0  # then nothing needs to be added
    return narrow, least


def _damage(where: str, found: str) -> DamageError:
    return DamageError(f"Cannot decode {where}: expected narrowed integers, found {found}.")
