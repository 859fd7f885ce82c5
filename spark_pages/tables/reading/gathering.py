"""Some entries of many pages as one array, in any order: what a take does once it has the pages."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.io import PlainPage
from spark_pages.io.pages.sound_values import check_values
from spark_pages.model.columns import number_column, valid_of
from spark_pages.tables.arrays.joining import (
    TAKE,
    UNCHECKED,
    DoesNotFitError,
    empty_array,
    join,
    take_entries,
    takes,
)
from spark_pages.tables.reading.assembling import Values, as_array, entries_of

_DENSE = 8
"""Where less than so many entries stand in the pages for each one wanted, the pages are joined as they are.
"""


def gather(
    pages: Sequence[Values], bounds: NDArray[np.int64], offsets: NDArray[np.int64], kind: pa.DataType
) -> pa.Array:
    """Some entries of each page, one page after another.

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
    wanted = number_column(offsets, pa.int64())
    if len(pages) < 2:
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
    take = take_entries
    if takes(kind):  # asked once, because to hash a type takes as long as a take
        take = _take_directly
    chosen: list[pa.Array] = []
    unchecked = False  # text is, page by page, until all of it is
    for page, (low, high) in shares:
        text = page.take_text(offsets[low:high]) if isinstance(page, PlainPage) else None
        unchecked |= text is not None
        chosen.append(take(as_array(page), wanted.slice(low, high - low)) if text is None else text)
    found = join(chosen, kind)
    if unchecked:
        try:
            check_values(found)
        except pa.ArrowInvalid:
            for page in pages:
                as_array(page)  # of which one says what is wrong, and where
            raise
    return found


def _take_directly(array: pa.Array, indices: pa.Array) -> pa.Array:
    return TAKE.call([array, indices], UNCHECKED)


def _plain_width(kind: pa.DataType) -> int:
    """Bytes of an entry, where it is nothing but these bytes; else 0."""
    if not (pa.types.is_primitive(kind) or pa.types.is_decimal(kind)) or kind.bit_width % 8:
        return 0
    return int(kind.bit_width // 8)


def _gather_plain(
    shares: Sequence[tuple[Values, tuple[int, int]]],
    offsets: NDArray[np.int64],
    kind: pa.DataType,
    width: int,
) -> pa.Array:
    """The entries by numpy: a third of what the same takes by Arrow for a few of each page.

    Of a page that is not Arrow yet no others are put together, or widened.
    """
    plain = np.dtype((np.void, width)) if width > 8 else np.dtype(f"u{width}")
    found = np.empty(len(offsets), plain)
    valid: NDArray[np.bool_] | None = None
    for page, (low, high) in shares:
        wanted = offsets[low:high]
        nulls = page.nulls if isinstance(page, PlainPage) else page.null_count
        if not isinstance(page, PlainPage) or not page.take_into(wanted, found[low:high]):
            array = as_array(page)
            values = np.frombuffer(array.buffers()[1], plain, len(array), array.offset * width)
            found[low:high] = values[wanted]
        if nulls:
            if valid is None:
                valid = np.ones(len(offsets), np.bool_)
            valid[low:high] = (page.valid() if isinstance(page, PlainPage) else valid_of(page))[wanted]
    validity = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    nulls = 0 if valid is None else len(valid) - int(np.count_nonzero(valid))
    return pa.Array.from_buffers(kind, len(found), [validity, pa.py_buffer(found)], nulls)


def gather_in_parts(
    pages: Sequence[Values],
    bounds: NDArray[np.int64],
    offsets: NDArray[np.int64],
    order: NDArray[np.int64] | None,
    kind: pa.DataType,
) -> pa.ChunkedArray:
    """The same as `gather`, then in another order, in as many arrays as it takes.

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
