"""Some entries of many pages as one array, in any order: what a take does once it has the pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.arrow.columns import number_column, valid_of
from spark_pages.arrow.compact import retains_extra_memory, supports_take, take_unchecked
from spark_pages.arrow.join import DoesNotFitError, empty_array, join, take_entries
from spark_pages.arrow.validate_array import validate_array
from spark_pages.format.pages.lazy_page import take_texts
from spark_pages.io import LazyPage
from spark_pages.query.concat import Values, as_array, entries_of

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
    """The entries of each page, or of several neighbours, one after another; not known to be UTF-8."""
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
    validity, nulls = _validity(shares, offsets)
    return pa.Array.from_buffers(kind, high - low, [validity, *texts], nulls)


def _validity(shares: Sequence[Share], offsets: NDArray[np.int64]) -> tuple[pa.Buffer | None, int]:
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
    """The entries by numpy: a third of what the same takes by Arrow for a few of each page.

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
    validity, nulls = _validity(shares, offsets)
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
