"""One array out of the rows of several pages, some of which are not Arrow yet.

What `joining.join` does for arrays, in one pass: values go from the decompressed page straight to their
place. So a scan copies each value once, and widens what is narrowed on the way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.arrow.columns import valid_of
from spark_pages.arrow.join import DoesNotFitError, join
from spark_pages.arrow.validate_array import validate_array
from spark_pages.format.pages.lazy_page import text_outside
from spark_pages.io import FlatColumn, LazyPage, PageBatch

Values: TypeAlias = pa.Array | LazyPage
"""The values of a page."""

Part: TypeAlias = tuple[Values, int, int]
"""Entries [start, stop) of a page."""

_MOST_TEXT = (1 << 31) - 1


def as_array(values: Values) -> pa.Array:
    """The values of a page as Arrow has them."""
    return values.array() if isinstance(values, LazyPage) else values


def type_of(values: Values) -> pa.DataType:
    """The type under which the page holds them."""
    return values.column.kind if isinstance(values, LazyPage) else values.type


def entries_of(values: Values) -> int:
    """How many entries the page shows."""
    return values.rows if isinstance(values, LazyPage) else len(values)


def assemble(parts: Sequence[Part], kind: pa.DataType) -> pa.Array:
    """The entries of all parts, one after another.

    Raises
    ------
    DoesNotFitError
        If one array cannot hold them.
    DamageError
        If text or binary lies outside of its page.
    """
    column = _flat(kind)
    if len(parts) < 2 or column is None or column.bits % 8:
        return join([as_array(values).slice(start, stop - start) for values, start, stop in parts], kind)
    whole = [_as_it_is(part) for part in parts]
    rows = sum(stop - start for _, start, stop in whole)
    if column.offset_bytes:
        buffers = _text(whole, rows, column.offset_bytes)
    else:
        buffers = [_fixed(whole, rows, column.bits // 8)]
    validity, nulls = _validity(whole, rows)
    found = pa.Array.from_buffers(kind, rows, [validity, *buffers], nulls)
    if column.offset_bytes:
        try:
            validate_array(found)
        except pa.ArrowInvalid:
            for values, _, _ in whole:
                as_array(values)  # of which one says what is wrong, and where
            raise
    return found


def assembled(parts: Sequence[Part], kind: pa.DataType) -> list[pa.Array]:
    """The same, in as many arrays as it takes."""
    try:
        return [assemble(parts, kind)]
    except DoesNotFitError:
        middle = len(parts) // 2
        return assembled(parts[:middle], kind) + assembled(parts[middle:], kind)


@lru_cache(256)
def _flat(kind: pa.DataType) -> FlatColumn | None:
    return FlatColumn.of(kind)


def _as_it_is(part: Part) -> Part:
    """The part, as an array if it is not a whole page."""
    values, start, stop = part
    if isinstance(values, LazyPage) and stop - start < values.rows:
        return values.array(), start, stop
    return part


def _kin(parts: Sequence[Part]) -> Iterator[tuple[int, int, PageBatch | None, int]]:
    """Parts [first, stop) that one call of numpy can work on: whole pages that lie side by side.

    Also their block, None for parts that are to be looked at alone, and which page of it the first is.
    """
    first, count = 0, len(parts)
    while first < count:
        values, stop = parts[first][0], first + 1
        if not isinstance(values, LazyPage):
            yield first, stop, None, 0
        else:
            block, begin = values.block, values.index
            while stop < count:
                other = parts[stop][0]
                if not isinstance(other, LazyPage) or other.block is not block:
                    break
                if other.index != begin + stop - first:
                    break
                stop += 1
            yield first, stop, block, begin
        first = stop


def _fixed(parts: Sequence[Part], rows: int, width: int) -> pa.Buffer:
    """Values of so many bytes each."""
    target = pa.allocate_buffer(rows * width)
    out = np.frombuffer(target, np.uint8)
    at = 0
    for first, last, block, index in _kin(parts):
        values, start, stop = parts[first]
        size = (stop - start) * (last - first) * width
        share = out[at : at + size]
        if block is not None:
            block.numbers_into(index, index + last - first, share)
        elif isinstance(values, pa.Array):
            before = (values.offset + start) * width
            share[:] = np.frombuffer(values.buffers()[1], np.uint8, size, before)
        at += size
    return target


def _text(parts: Sequence[Part], rows: int, width: int) -> list[pa.Buffer]:
    """Offsets, and the bytes that they point into."""
    offsets = pa.allocate_buffer((rows + 1) * width)
    ends = np.frombuffer(offsets, f"<i{width}")
    ends[0] = 0
    pieces: list[NDArray[np.uint8]] = []
    at = total = 0
    for first, last, block, index in _kin(parts):
        values, start, stop = parts[first]
        each = stop - start
        # One page: its offsets are written to their place. Several overlap there, each in the last of the
        # one before it, so they are moved.
        here = ends[at : at + each + 1]
        found = here if last - first == 1 else np.empty((last - first) * (each + 1), ends.dtype)
        if block is not None:
            block.numbers_into(index, index + last - first, found.view(np.uint8))
        elif isinstance(values, pa.Array):
            before = (values.offset + start) * width
            found[:] = np.frombuffer(values.buffers()[1], ends.dtype, each + 1, before)
        begins, stops = found[:: each + 1].tolist(), found[each :: each + 1].tolist()
        shifts = []
        for (values, _, _), begin, end in zip(parts[first:last], begins, stops, strict=True):
            text = _text_of(values)
            if not 0 <= begin <= end <= len(text):
                where = values.where if isinstance(values, LazyPage) else "a page"
                raise text_outside(where, begin, end, len(text))
            pieces.append(text[begin:end])
            shifts.append(total - begin)
            total += end - begin
        if width == 4 and total > _MOST_TEXT:
            raise DoesNotFitError(f"{total} bytes of text")
        count = each * (last - first)
        if found is here:
            found += ends.dtype.type(shifts[0])
        else:
            share = ends[at + 1 : at + 1 + count].reshape(-1, each)
            moved = np.array(shifts, ends.dtype)[:, None]
            np.add(found.reshape(-1, each + 1)[:, 1:], moved, out=share)
        at += count
    data = pa.allocate_buffer(total)
    np.concatenate(pieces, out=np.frombuffer(data, np.uint8)) if total else None
    return [offsets, data]


def _text_of(values: Values) -> NDArray[np.uint8]:
    """The bytes that offsets point into."""
    if isinstance(values, LazyPage):
        return values.text()
    text = values.buffers()[2]
    return np.frombuffer(text, np.uint8) if text else np.zeros(0, np.uint8)


def _validity(parts: Sequence[Part], rows: int) -> tuple[pa.Buffer | None, int]:
    """Which entries are not null, as bits, and how many are."""
    valid: NDArray[np.bool_] | None = None
    at = 0
    for values, start, stop in parts:
        count = stop - start
        nulls = values.nulls if isinstance(values, LazyPage) else values.null_count
        if nulls:
            if valid is None:
                valid = np.ones(rows, np.bool_)
            if isinstance(values, LazyPage):
                values.valid_into(valid[at : at + count])
            else:
                valid[at : at + count] = valid_of(values.slice(start, count))
        at += count
    if valid is None:
        return None, 0
    return pa.py_buffer(np.packbits(valid, bitorder="little")), rows - int(np.count_nonzero(valid))
