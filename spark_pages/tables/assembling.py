"""One array out of the rows of several pages, some of which are not Arrow yet.

What `joining.join` does for arrays, in one pass: values go from the decompressed page straight to their
place. So a scan copies each value once, and widens what is narrowed on the way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.errors import DamageError
from spark_pages.io import FlatColumn, PlainPage
from spark_pages.model.columns import valid_of
from spark_pages.tables.joining import DoesNotFitError, join

Values: TypeAlias = pa.Array | PlainPage
"""The values of a page."""

Part: TypeAlias = tuple[Values, int, int]
"""Entries [start, stop) of a page."""

_MOST_TEXT = (1 << 31) - 1


def as_array(values: Values) -> pa.Array:
    """The values of a page as Arrow has them."""
    return values.array() if isinstance(values, PlainPage) else values


def entries_of(values: Values) -> int:
    """How many entries the page shows."""
    return values.rows if isinstance(values, PlainPage) else len(values)


def in_units(parts: Sequence[Part], unit: int) -> Iterator[list[Part]]:
    """The parts cut into stretches of `unit` entries; the last may be shorter."""
    stretch: list[Part] = []
    lacking = unit
    for values, begin, stop in parts:
        start = begin
        if stop - start > lacking:
            values = as_array(values)  # noqa: PLW2901 - it goes into two stretches, and is put together once
        while stop - start > lacking:
            stretch.append((values, start, start + lacking))
            yield stretch
            start, stretch, lacking = start + lacking, [], unit
        stretch.append((values, start, stop))
        lacking -= stop - start
        if not lacking:
            yield stretch
            stretch, lacking = [], unit
    if stretch:
        yield stretch


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
    return pa.Array.from_buffers(kind, rows, [validity, *buffers], nulls)


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
    if isinstance(values, PlainPage) and stop - start < values.rows:
        return values.array(), start, stop
    return part


def _fixed(parts: Sequence[Part], rows: int, width: int) -> pa.Buffer:
    """Values of so many bytes each."""
    target = pa.allocate_buffer(rows * width)
    out = np.frombuffer(target, np.uint8)
    at = 0
    for values, start, stop in parts:
        size = (stop - start) * width
        if isinstance(values, PlainPage):
            values.numbers_into(out[at : at + size])
        else:
            first = (values.offset + start) * width
            out[at : at + size] = np.frombuffer(values.buffers()[1], np.uint8, size, first)
        at += size
    return target


def _text(parts: Sequence[Part], rows: int, width: int) -> list[pa.Buffer]:
    """Offsets, and the bytes that they point into."""
    offsets = pa.allocate_buffer((rows + 1) * width)
    ends = np.frombuffer(offsets, f"<i{width}")
    pieces: list[NDArray[np.uint8]] = []
    at = total = 0
    for values, start, stop in parts:
        share = ends[at : at + stop - start + 1]
        if isinstance(values, PlainPage):
            values.numbers_into(share.view(np.uint8))
            text = values.text()
        else:
            _, places, bytes_of = values.buffers()
            share[:] = np.frombuffer(places, share.dtype, len(share), (values.offset + start) * width)
            text = np.frombuffer(bytes_of, np.uint8) if bytes_of else np.zeros(0, np.uint8)
        first, last = int(share[0]), int(share[-1])
        if not 0 <= first <= last <= len(text):
            raise _outside(values, first, last, len(text))
        pieces.append(text[first:last])
        if total != first:
            share += share.dtype.type(total - first)
        at, total = at + stop - start, total + last - first
        if width == 4 and total > _MOST_TEXT:
            raise DoesNotFitError(f"{total} bytes of text")
    data = pa.allocate_buffer(total)
    np.concatenate(pieces, out=np.frombuffer(data, np.uint8)) if total else None
    return [offsets, data]


def _outside(values: Any, first: int, last: int, size: int) -> DamageError:
    where = values.where if isinstance(values, PlainPage) else "a page"
    return DamageError(
        f"Cannot decode {where}: expected text in {size} bytes, found it from {first} to {last}."
    )


def _validity(parts: Sequence[Part], rows: int) -> tuple[pa.Buffer | None, int]:
    """Which entries are not null, as bits, and how many are."""
    valid: NDArray[np.bool_] | None = None
    at = 0
    for values, start, stop in parts:
        count = stop - start
        nulls = values.nulls if isinstance(values, PlainPage) else values.null_count
        if nulls:
            if valid is None:
                valid = np.ones(rows, np.bool_)
            if isinstance(values, PlainPage):
                values.valid_into(valid[at : at + count])
            else:
                valid[at : at + count] = valid_of(values.slice(start, count))
        at += count
    if valid is None:
        return None, 0
    return pa.py_buffer(np.packbits(valid, bitorder="little")), rows - int(np.count_nonzero(valid))
