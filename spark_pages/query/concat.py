"""Assembly of result arrays: concatenation of page ranges, and gathering of single entries.

Each value is copied once, from the decompressed page to its place in the result; encoded integers are decoded
on the way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby, pairwise
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.arrow.columns import number_column, valid_of
from spark_pages.arrow.compact import retains_extra_memory, supports_take, take_unchecked
from spark_pages.arrow.join import DoesNotFitError, empty_array, join, take_entries
from spark_pages.arrow.validate_array import validate_array
from spark_pages.format.pages.lazy_page import take_texts, text_outside
from spark_pages.io import FlatColumn, LazyPage, PageBatch

Values: TypeAlias = pa.Array | LazyPage
"""The values of a page."""

Part: TypeAlias = tuple[Values, int, int]
"""Entries [start, stop) of a page."""

_MOST_TEXT = (1 << 31) - 1


def as_array(values: Values) -> pa.Array:
    """Convert the values of a page to an Arrow array."""
    return values.array() if isinstance(values, LazyPage) else values


def type_of(values: Values) -> pa.DataType:
    """Return the type of the values of a page."""
    return values.column.kind if isinstance(values, LazyPage) else values.type


def entries_of(values: Values) -> int:
    """How many entries the page shows."""
    return values.rows if isinstance(values, LazyPage) else len(values)


def assemble(parts: Sequence[Part], kind: pa.DataType) -> pa.Array:
    """Concatenate parts.

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
    """Concatenate parts into as many arrays as they need."""
    try:
        return [assemble(parts, kind)]
    except DoesNotFitError:
        middle = len(parts) // 2
        return assembled(parts[:middle], kind) + assembled(parts[middle:], kind)


@lru_cache(256)
def _flat(kind: pa.DataType) -> FlatColumn | None:
    return FlatColumn.of(kind)


def _as_it_is(part: Part) -> Part:
    """Return the part, as an array if it is not a whole page."""
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
    """Return the bytes that the offsets point into."""
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


_DENSE = 8
"""Where less than so many entries stand in the pages for each one wanted, the pages are joined as they are.
"""

_TEXTS_TOGETHER = 64
"""Pages of text that entries are taken from together: more save little, and take memory."""

Share: TypeAlias = tuple[Values, tuple[int, int]]
"""A page, and which of the entries wanted are in it."""


def gather(
    pages: Sequence[Values], bounds: NDArray[np.int64], offsets: NDArray[np.int64], kind: pa.DataType
) -> pa.Array:
    """Gather entries of each page, page after page.

    Parameters
    ----------
    bounds : int64, shape (n_pages + 1,)
        ``offsets[bounds[i]:bounds[i + 1]]`` belong to page i.
    offsets : int64, shape (n_entries,)
        Positions in their pages.

    Raises
    ------
    DoesNotFitError
        As `join`.
    """
    if len(pages) < 2:
        wanted = number_column(offsets, pa.int64())
        return take_entries(as_array(pages[0]), wanted) if pages else empty_array(kind)
    lengths = np.array(list(map(entries_of, pages)))
    if lengths.sum() <= _DENSE * len(offsets):
        shift = np.repeat(np.cumsum(lengths) - lengths, np.diff(bounds))
        return take_entries(
            join(list(map(as_array, pages)), kind), number_column(offsets + shift, pa.int64())
        )
    shares = [each for each in zip(pages, pairwise(bounds.tolist()), strict=True) if each[1][0] < each[1][1]]
    width = _plain_width(kind)
    if width:
        return _gather_plain(shares, offsets, kind, width)
    found = join(list(_chosen(shares, offsets, kind)), kind)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        try:
            validate_array(found)  # text is not, page by page
        except pa.ArrowInvalid:
            for page in pages:
                as_array(page)  # of which one says what is wrong, and where
            raise
    return found


def _chosen(shares: Sequence[Share], offsets: NDArray[np.int64], kind: pa.DataType) -> Iterator[pa.Array]:
    """Iterate over the entries of each page, or of several neighbours, without validating UTF-8."""
    wanted = number_column(offsets, pa.int64())
    # Asked once, because to hash a type takes as long as a take.
    take = take_unchecked if supports_take(kind) and not retains_extra_memory(kind) else take_entries
    for offers_text, group in groupby(shares, _offers_text):
        some = list(group)
        size = _TEXTS_TOGETHER if offers_text else len(some)
        for part in (some[first : first + size] for first in range(0, len(some), size)):
            texts = _texts(part, offsets, kind) if offers_text else None
            if texts is not None:
                yield texts
            else:
                yield from (take(as_array(page), wanted.slice(low, high - low)) for page, (low, high) in part)


def _offers_text(share: Share) -> bool:
    return isinstance(share[0], LazyPage) and share[0].offers_text


def _texts(shares: Sequence[Share], offsets: NDArray[np.int64], kind: pa.DataType) -> pa.Array | None:
    """Text of neighbours; None where there is much of it."""
    pages, places = zip(*shares, strict=True)
    low, high = places[0][0], places[-1][1]
    texts = take_texts(pages, [0, *(stop - low for _, stop in places)], offsets[low:high])
    if texts is None:
        return None
    validity, nulls = _gather_validity(shares, offsets)
    return pa.Array.from_buffers(kind, high - low, [validity, *texts], nulls)


def _gather_validity(shares: Sequence[Share], offsets: NDArray[np.int64]) -> tuple[pa.Buffer | None, int]:
    """Which entries of neighbours are not null, as bits, and how many are."""
    valid: NDArray[np.bool_] | None = None
    for page, (low, high) in shares:
        if page.nulls if isinstance(page, LazyPage) else page.null_count:
            if valid is None:
                begin = shares[0][1][0]
                valid = np.ones(shares[-1][1][1] - begin, np.bool_)
            of_page = page.valid() if isinstance(page, LazyPage) else valid_of(page)
            valid[low - begin : high - begin] = of_page[offsets[low:high]]
    if valid is None:
        return None, 0
    return pa.py_buffer(np.packbits(valid, bitorder="little")), len(valid) - int(np.count_nonzero(valid))


def _plain_width(kind: pa.DataType) -> int:
    """Bytes of an entry, where it is nothing but these bytes; else 0."""
    if not (pa.types.is_primitive(kind) or pa.types.is_decimal(kind)) or kind.bit_width % 8:
        return 0
    return int(kind.bit_width // 8)


def _gather_plain(
    shares: Sequence[Share],
    offsets: NDArray[np.int64],
    kind: pa.DataType,
    width: int,
) -> pa.Array:
    """Gather entries with numpy, which takes a third of Arrow's time for few entries a page.

    Of a page that is not Arrow yet no others are put together, or widened.
    """
    plain = np.dtype((np.void, width)) if width > 8 else np.dtype(f"u{width}")
    found = np.empty(len(offsets), plain)
    for page, (low, high) in shares:
        wanted = offsets[low:high]
        if not isinstance(page, LazyPage) or not page.take_into(wanted, found[low:high]):
            array = as_array(page)
            values = np.frombuffer(array.buffers()[1], plain, len(array), array.offset * width)
            found[low:high] = values[wanted]
    validity, nulls = _gather_validity(shares, offsets)
    return pa.Array.from_buffers(kind, len(found), [validity, pa.py_buffer(found)], nulls)


def gather_in_parts(
    pages: Sequence[Values],
    bounds: NDArray[np.int64],
    offsets: NDArray[np.int64],
    order: NDArray[np.int64] | None,
    kind: pa.DataType,
) -> pa.ChunkedArray:
    """Gather entries as `gather` does, then reorder them, in as many arrays as they need.

    Parameters
    ----------
    order : int64, shape (n_entries,)
        Which of the entries gathered comes first, second, …; None leaves them as they are.
    """
    try:
        found = gather(pages, bounds, offsets, kind)
        if order is not None:
            found = take_entries(found, number_column(order, pa.int64()))
        return pa.chunked_array([found], kind)
    except DoesNotFitError:
        count = len(offsets)
        if count == 1:
            raise
        which = np.arange(count) if order is None else order
        half = count // 2
        parts = [_some(pages, bounds, offsets, part, kind) for part in (which[:half], which[half:])]
        return pa.chunked_array([chunk for part in parts for chunk in part.chunks], kind)


def _some(
    pages: Sequence[Values],
    bounds: NDArray[np.int64],
    offsets: NDArray[np.int64],
    which: NDArray[np.int64],
    kind: pa.DataType,
) -> pa.ChunkedArray:
    """Entries `which` of those that `gather` would give."""
    order = np.argsort(which, kind="stable")
    chosen = which[order]
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    shares = np.searchsorted(chosen, bounds)
    used = np.flatnonzero(np.diff(shares))
    shares = np.append(shares[used], len(chosen))
    return gather_in_parts([pages[index] for index in used.tolist()], shares, offsets[chosen], back, kind)
