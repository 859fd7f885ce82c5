"""Statistics of the values of pages, in the form that ``docs/format.md`` ("Statistics") gives. Pure.

A column comes whole: what numpy can do for all of its pages in one pass is done so (`reduceat`), the rest by
a few kernel calls for each page.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from math import isnan
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_pages.arrow.columns import nulls_of, numbers_of, valid_of
from spark_pages.errors import DamageError
from spark_pages.format.bounds import (
    bound_width,
    decode_bound,
    is_bytes,
    is_text,
    order_type,
    plain_values,
    used_of,
)
from spark_pages.model.page import STATISTIC_MAX_BYTES, PageStats

_LAST_CODE_POINT = 0x10FFFF
_SURROGATES = (0xD800, 0xDFFF)
_FIRST = np.zeros(1, np.int64)
_FEW = 64

_CODES = {
    kind.id: code
    for kinds, code in (
        ((pa.int8(),), "b"),
        ((pa.int16(),), "h"),
        ((pa.int32(), pa.date32(), pa.time32("s")), "i"),
        ((pa.int64(), pa.date64(), pa.time64("us"), pa.timestamp("us"), pa.duration("us")), "q"),
        ((pa.uint8(),), "B"),
        ((pa.uint16(),), "H"),
        ((pa.uint32(),), "I"),
        ((pa.uint64(),), "Q"),
        ((pa.float32(),), "f"),
        ((pa.float64(),), "d"),
    )
    for kind in kinds
}
"""By id of a type: how `struct` calls it."""


def page_stats(array: pa.Array) -> PageStats:
    """Null count, bounds and number of different values of `array`.

    Returns
    -------
    PageStats
        For numbers, booleans, dates, times, durations and decimals the bounds are the value as Arrow
        keeps it, little-endian; a boolean is one byte, 0 or 1. For text and binary they are the bytes,
        cut to ``STATISTIC_MAX_BYTES`` and rounded outward, so that text stays text; a maximum that cannot
        be rounded up is None. Bounds are None where there is no value but NaN, and for nested types; beside
        others NaN is passed over. The lower bound of a float is never +0.0, the upper never -0.0.

    Notes
    -----
    O(n); some 30 µs for a page of 64 KiB, half of it for the distinct estimate (see `stats.distinct`).
    """
    few = _small_stats(array)
    if few is not None:
        return few
    if pa.types.is_dictionary(array.type):
        return _of_dictionary(array)
    array = plain_values(array)
    nulls = nulls_of(array)
    if nulls == len(array):
        return PageStats(nulls)
    valid = valid_of(array) if nulls else None
    return _of_values(array, PageRows(_FIRST, np.array([len(array)]), np.array([nulls]), valid))[0]


def stats_of_pages(array: pa.Array, boundaries: Sequence[int] | NDArray[np.int64]) -> list[PageStats]:
    """Compute the `page_stats` of every page that `plan_pages` made of `array`.

    Parameters
    ----------
    array
        The whole column.
    boundaries : int64, shape (n_pages + 1,)
        First row of each page, and the number of rows last.

    Notes
    -----
    Numbers and times take two numpy passes over all pages, and a small sample of each.
    """
    bounds = np.asarray(boundaries, dtype=np.int64)
    if len(bounds) < 2:
        return []
    if len(bounds) == 2 and bounds[1] - bounds[0] <= _FEW:
        few = _small_stats(array.slice(int(bounds[0]), int(bounds[1] - bounds[0])))
        if few is not None:
            return [few]
    if pa.types.is_dictionary(array.type):
        return [_of_dictionary(array[start:end]) for start, end in pairwise(bounds.tolist())]
    array = plain_values(array).slice(int(bounds[0]), int(bounds[-1] - bounds[0]))
    starts, ends = bounds[:-1] - bounds[0], bounds[1:] - bounds[0]
    valid = valid_of(array) if nulls_of(array) else None
    nulls = _nulls(valid, starts, ends)
    held = np.flatnonzero(ends - starts > nulls)
    stats = [PageStats(count) for count in nulls.tolist()]
    if len(held):
        pages = PageRows(starts[held], ends[held], nulls[held], valid)
        for index, each in zip(held.tolist(), _of_values(array, pages), strict=True):
            stats[index] = each
    return stats


def _small_stats(array: pa.Array) -> PageStats | None:
    """Compute the statistics of few numbers in a tenth of numpy's time; None for other values."""
    code = _CODES.get(array.type.id)
    if code is None or not 0 < len(array) <= _FEW or array.null_count:
        return None
    width = struct.calcsize(code)
    values = struct.unpack_from(f"<{len(array)}{code}", array.buffers()[1], array.offset * width)
    if code in "fd":
        return _small_float_stats(values, code, array)
    low, high = min(values), max(values)
    different = 1 if low == high else len(set(values))
    return PageStats(0, struct.pack(f"<{code}", low), struct.pack(f"<{code}", high), True, different)


def _small_float_stats(values: tuple[float, ...], code: str, array: pa.Array) -> PageStats:
    bits, width = ("i", 4) if code == "f" else ("q", 8)
    told_apart = struct.unpack_from(f"<{len(array)}{bits}", array.buffers()[1], array.offset * width)
    nan = any(map(isnan, values))
    known = [value for value in values if not isnan(value)] if nan else values
    if not known:
        return PageStats(0, distinct=len(set(told_apart)), nan=True)
    low, high = min(known) or -0.0, max(known) or 0.0
    different = 1 if low == high and not nan else len(set(told_apart))
    bounds = struct.pack(f"<{code}", low), struct.pack(f"<{code}", high)
    return PageStats(0, *bounds, True, different, nan=nan)


def _extremes(
    values: NDArray[Any],
    pages: PageRows,
    most: Any,
    least: Any,
    smaller: np.ufunc = np.minimum,
    greater: np.ufunc = np.maximum,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Least and greatest of each page; `most` and `least` stand in for nulls."""
    if pages.valid is None:
        return smaller.reduceat(values, pages.starts), greater.reduceat(values, pages.starts)
    lows, highs = np.empty((2, len(pages.starts)), values.dtype)
    most, least = values.dtype.type(most), values.dtype.type(least)
    for index, (start, end) in enumerate(pages.boundaries()):  # page by page, in the processor's cache
        piece, valid = values[start:end], pages.valid[start:end]
        lows[index] = smaller.reduce(np.where(valid, piece, most))
        highs[index] = greater.reduce(np.where(valid, piece, least))
    return lows, highs


def _nulls(valid: NDArray[np.bool_] | None, starts: Rows, ends: Rows) -> Rows:
    """Nulls of each page, shape (n_pages,)."""
    if valid is None:
        return np.zeros(len(starts), np.int64)
    held = [np.count_nonzero(valid[a:b]) for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
    counts: Rows = ends - starts - held
    return counts


def _of_values(array: pa.Array, pages: PageRows) -> list[PageStats]:
    """Of pages each of which has a value. Where none is null, the pages follow one another."""
    kind = array.type
    if is_bytes(kind):
        return _of_bytes(array, pages)
    if pa.types.is_floating(kind):
        return _of_floats(array, pages)
    if bound_width(kind) is None:
        return [PageStats(count, exact=False) for count in pages.nulls.tolist()]
    return _of_integers(array, pages) if pa.types.is_integer(order_type(kind)) else _one_by_one(array, pages)


def _of_dictionary(array: pa.Array) -> PageStats:
    """Of the values that a page uses of its dictionary."""
    used = array.dictionary.take(used_of(array))
    if used.null_count:
        return page_stats(array.dictionary_decode())
    return replace(page_stats(used), null_count=array.null_count)


def _of_integers(array: pa.Array, pages: PageRows) -> list[PageStats]:
    values = numbers_of(array.view(order_type(array.type)))
    lows, highs = _extremes(values, pages, np.iinfo(values.dtype).max, np.iinfo(values.dtype).min)
    counts = [
        1 if low == high else min(different, high - low + 1)
        for different, low, high in zip(
            distinct_numbers(values, pages), lows.tolist(), highs.tolist(), strict=True
        )
    ]
    return _stats_batch(pages.nulls, lows, highs, counts)


def _of_floats(array: pa.Array, pages: PageRows) -> list[PageStats]:
    width = array.type.bit_width // 8
    values = np.frombuffer(array.buffers()[1], f"<f{width}", len(array), width * array.offset)
    lows, highs = _extremes(values, pages, np.inf, -np.inf)  # NaN wins in both
    counts = [
        1 if low == high else different
        for different, low, high in zip(
            distinct_numbers(values.view(f"<u{width}"), pages), lows, highs, strict=True
        )
    ]
    with_nan = np.flatnonzero(np.isnan(lows)).tolist()
    if with_nan:
        lows, highs = _extremes(values, pages, np.nan, np.nan, np.fmin, np.fmax)  # only where nothing else is
    zero = values.dtype.type(0)
    lows[lows == zero] = -zero
    highs[highs == zero] = zero
    stats = _stats_batch(pages.nulls, lows, highs, counts)
    for index in with_nan:
        each = stats[index]
        bounds = (None, None) if np.isnan(lows[index]) else (each.min, each.max)
        stats[index] = PageStats(each.null_count, *bounds, True, each.distinct, nan=True)
    return stats


def _stats_batch(nulls: Rows, lows: NDArray[Any], highs: NDArray[Any], counts: list[int]) -> list[PageStats]:
    width = lows.itemsize
    low, high = lows.tobytes(), highs.tobytes()
    return [
        PageStats(count, low[at : at + width], high[at : at + width], True, different)
        for at, count, different in zip(range(0, len(low), width), nulls.tolist(), counts, strict=True)
    ]


def _one_by_one(array: pa.Array, pages: PageRows) -> list[PageStats]:
    """Booleans, which Arrow reads as bits, and decimals wider than any integer of numpy."""
    width = bound_width(array.type) or 0
    stats = []
    for (start, end), count in zip(pages.boundaries(), pages.nulls.tolist(), strict=True):
        piece = array[start:end]
        bounds = pc.min_max(piece)
        low, high = (_scalar_bytes(bounds[name], width) for name in ("min", "max"))
        different = 1 if low == high else 2 if width == 1 else _distinct_decimals(piece, width)
        stats.append(PageStats(count, low, high, True, different))
    return stats


def _distinct_decimals(piece: pa.Array, width: int) -> int:
    known = piece.drop_null()
    words = np.frombuffer(known.buffers()[1], "<u8", len(known) * width // 8, known.offset * width)
    return distinct_numbers(words[:: width // 8], PageRows.of_one(len(known)))[0]


def _scalar_bytes(scalar: pa.Scalar, width: int) -> bytes:
    return bytes(pa.repeat(scalar, 1).buffers()[1].to_pybytes()[:width])


def _of_bytes(array: pa.Array, pages: PageRows) -> list[PageStats]:
    text = is_text(array.type)
    plain = _as_binary(array)
    counts = zip(pages.nulls.tolist(), _distinct_bytes(plain, pages), strict=True)
    stats = []
    for (start, end), (count, estimate) in zip(pages.boundaries(), counts, strict=True):
        piece, different = plain[start:end], estimate
        if estimate * _FEW < end - start:  # Arrow finds the values quicker than it compares all rows
            piece = pc.unique(piece).drop_null()
            different = len(piece)
        bounds = pc.min_max(piece)
        low, high = bounds["min"].as_py(), bounds["max"].as_py()
        if max(len(low), len(high)) <= STATISTIC_MAX_BYTES:
            stats.append(PageStats(count, low, high, True, different))
        else:
            outward = _round_down(low, text), _round_up(high, text)
            stats.append(PageStats(count, *outward, exact=False, distinct=different))
    return stats


def _as_binary(array: pa.Array) -> pa.Array:
    """Return the same bytes as a binary array, without a copy where possible."""
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return array.view(pa.binary())
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return array.view(pa.large_binary())
    return array.cast(pa.large_binary())


def _distinct_bytes(plain: pa.Array, pages: PageRows) -> list[int]:
    kind, width = (np.int64, 8) if pa.types.is_large_binary(plain.type) else (np.int32, 4)
    ends = np.frombuffer(plain.buffers()[1], kind, len(plain) + 1, width * plain.offset)
    held = plain.buffers()[2]
    data = np.frombuffer(held, np.uint8) if held.size else np.zeros(0, np.uint8)
    return distinct_bytes(data, ends, pages)


def _round_down(value: bytes, text: bool) -> bytes | None:
    if len(value) <= STATISTIC_MAX_BYTES:
        return value
    if not text:
        return value[:STATISTIC_MAX_BYTES]
    prefix = _text_prefix(value)
    return None if prefix is None else prefix.encode()


def _round_up(value: bytes, text: bool) -> bytes | None:
    """Return a short upper bound of `value` that is easy to find; None if there is none."""
    if len(value) <= STATISTIC_MAX_BYTES:
        return value
    if not text:
        kept = value[:STATISTIC_MAX_BYTES].rstrip(b"\xff")
        return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
    prefix = _text_prefix(value)
    while prefix:
        following = ord(prefix[-1]) + 1
        if _SURROGATES[0] <= following <= _SURROGATES[1]:
            following = _SURROGATES[1] + 1
        prefix = prefix[:-1]
        if following <= _LAST_CODE_POINT:
            raised = (prefix + chr(following)).encode()
            if len(raised) <= STATISTIC_MAX_BYTES:
                return raised
    return None


def _text_prefix(value: bytes) -> str | None:
    """As many whole characters as fit; None if the bytes are not UTF-8 after all."""
    end = STATISTIC_MAX_BYTES
    while end > 0 and value[end] & 0xC0 == 0x80:  # inside a character
        end -= 1
    try:
        return value[:end].decode()
    except UnicodeDecodeError:
        return None


# About how many different values each page has, from a sample of its rows. Pure.
#
# The estimate is that of Chao (1984): the values that a sample has once and twice tell how many it lacks. The
# samples of many pages are drawn, sorted and counted together.

SAMPLED_ROWS = 512
"""Pages with no more values than this are counted; of larger ones so many rows at random, a few less."""

_TOGETHER = 64
"""Pages whose samples are sorted together: they stay in the cache of the processor."""

_WORD = 8
_MASKS = np.array([(1 << 8 * length) - 1 for length in range(_WORD + 1)], dtype=np.uint64)
_MIX_FRONT, _MIX_LENGTH = np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0x9FB21C651E98DF25)
_PLACES = np.sort(np.random.default_rng(1).integers(0, 1 << 32, SAMPLED_ROWS, dtype=np.uint64))

Words = NDArray[Any]
Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class PageRows:
    """The rows of pages of one column.

    Attributes
    ----------
    starts, ends, nulls : int64, shape (n_pages,)
        First row of each page and one past its last, and how many of them are null.
    valid : bool, shape (n_rows,), or None
        Which rows are not null; None where all are.
    """

    starts: Rows
    ends: Rows
    nulls: Rows
    valid: NDArray[np.bool_] | None = None

    @classmethod
    def of_one(cls, rows: int) -> PageRows:
        """Create a page of so many rows, none of them null."""
        return cls(np.array([0]), np.array([rows]), np.array([0]))

    def boundaries(self) -> Iterator[tuple[int, int]]:
        """First row of each page and one past its last."""
        return zip(self.starts.tolist(), self.ends.tolist(), strict=True)


def distinct_numbers(values: Words, pages: PageRows) -> list[int]:
    """About how many different numbers each page has; of floats, how many different bits.

    Parameters
    ----------
    values : shape (n_rows,)
        The numbers.

    Notes
    -----
    Right for up to SAMPLED_ROWS values, and about right where values come equally often or only once; too
    low where few values are most of the rows. Some 10 µs a page.
    """
    return _distinct(values.__getitem__, pages)


def distinct_bytes(data: NDArray[np.uint8], ends: NDArray[Any], pages: PageRows) -> list[int]:
    """About how many different pieces of `data` each page has.

    Parameters
    ----------
    data : uint8, shape (n_bytes,)
    ends : integers, shape (n_rows + 1,)
        Row i is ``data[ends[i]:ends[i + 1]]``.

    Notes
    -----
    Looks at the length, the first 8 and the last 8 bytes of each: pieces that differ elsewhere count as one.
    """
    if len(data) < _WORD:
        data = np.concatenate([data, np.zeros(_WORD, np.uint8)])

    def mixed(rows: Rows) -> Words:
        starts, stops = ends[rows], ends[rows + 1]
        lengths = stops - starts
        shorter = np.minimum(lengths, _WORD)
        masks = _MASKS[shorter]
        front, back = (_words(data, places) & masks for places in (starts, stops - shorter))
        found: Words = front * _MIX_FRONT + back + lengths.astype(np.uint64) * _MIX_LENGTH
        return found

    return _distinct(mixed, pages)


def _distinct(words_of: Callable[[Rows], Words], pages: PageRows) -> list[int]:
    """About how many different words each page has; `words_of` gives those of some rows."""
    found: list[int] = []
    for first in range(0, len(pages.starts), _TOGETHER):
        some = slice(first, first + _TOGETHER)
        starts, lengths = pages.starts[some], pages.ends[some] - pages.starts[some]
        rows, sizes = _sampled_rows(starts, lengths)
        if pages.valid is not None:
            held = pages.valid[rows]
            sizes = np.bincount(np.repeat(np.arange(len(sizes)), sizes)[held], minlength=len(sizes))
            rows = rows[held]
        found += _estimates(words_of(rows), sizes, lengths - pages.nulls[some])
    return found


def _sampled_rows(starts: Rows, lengths: Rows) -> tuple[Rows, Rows]:
    """Return the sampled rows of all pages, and the number of samples of each page."""
    if (lengths == lengths[0]).all():
        of_page = _sampled(int(lengths[0]))
        return np.add.outer(starts, of_page).ravel(), np.full(len(starts), len(of_page))
    of_each = [_sampled(length) + start for length, start in zip(lengths.tolist(), starts, strict=True)]
    return np.concatenate(of_each), np.array([len(rows) for rows in of_each])


@lru_cache(256)
def _sampled(count: int) -> Rows:
    """Rows of a sample of the first `count`, increasing; all where they are few."""
    if count <= SAMPLED_ROWS:
        return np.arange(count)
    rows = (_PLACES * np.uint64(count) >> np.uint64(32)).view(np.int64)
    chosen: Rows = rows[np.append(True, rows[1:] > rows[:-1])]
    return chosen


def _words(data: NDArray[np.uint8], places: NDArray[Any]) -> Words:
    """Read the 8 bytes at each offset as a number, with zeros past the end of the data."""
    every: Words = np.ndarray((len(data) - _WORD + 1,), "<u8", data, strides=(1,))
    last = len(data) - _WORD
    if int(places.max(initial=0)) <= last:
        whole: Words = every[places]
        return whole
    inside = np.minimum(places, last)
    found: Words = every[inside] >> np.minimum((places - inside) * 8, 63).astype(np.uint64)
    return found


def _estimates(samples: Words, sizes: Rows, counts: Rows) -> list[int]:
    """Different words of each page.

    Parameters
    ----------
    samples
        Words of the pages, one page behind the other; they are put into order.
    sizes, counts : shape (n_pages,)
        How many words the sample of each page has, and how many the page.
    """
    firsts = sizes.cumsum() - sizes
    if (sizes == sizes[0]).all():
        samples.reshape(len(sizes), -1).sort(axis=1)
    else:
        for first, size in zip(firsts.tolist(), sizes.tolist(), strict=True):
            samples[first : first + size].sort()
    # where a word begins that differs from the one before, or a page does; and three times behind the end
    begins = np.ones(len(samples) + 3, np.bool_)
    np.not_equal(samples[1:], samples[:-1], out=begins[1:-3])
    begins[firsts] = True
    here, following, after = begins[:-2].copy(), begins[1:-1], begins[2:]
    here[-1] = False
    seen = _in_each(here, firsts)
    if np.array_equal(sizes, counts):
        return seen
    once = here & following
    often = _in_each(once, firsts), _in_each((here > once) & after, firsts)
    found = zip(seen, *often, sizes.tolist(), counts.tolist(), strict=True)
    return [_estimate(*of_page) for of_page in found]


def _in_each(which: NDArray[np.bool_], firsts: Rows) -> list[int]:
    """How many there are of each page."""
    counts: list[int] = np.add.reduceat(which, firsts, dtype=np.int64).tolist()
    return counts


def _estimate(seen: int, once: int, twice: int, size: int, count: int) -> int:
    """Different words among `count`, from how many a sample of `size` has at all, once and twice."""
    if size == count:
        return seen
    if not size:
        return 1
    return count if seen == size else min(count, seen + once * (once - 1) // (2 * (twice + 1)))


def bounds_are_valid(values: pa.Array, claimed: PageStats) -> bool:
    """Whether no value lies outside of the claimed bounds, and they are values where they say so.

    Notes
    -----
    Only asked where the bounds are not those that this release would have formed.
    """
    values = plain_values(values)
    known = values.drop_null()
    bounded = claimed.min is not None or claimed.max is not None
    if not len(known):
        return not bounded and not claimed.nan
    found = page_stats(known)
    if claimed.nan and not found.nan:
        return False
    unbounded = found.min is None and found.max is None
    if not bounded:  # `exact` without bounds says that there is nothing but NaN
        return not claimed.exact or (claimed.nan and found.exact and unbounded)
    if unbounded or claimed.nan != found.nan:
        return False
    if is_bytes(values.type):
        plain = pc.min_max(known.cast(pa.large_binary()))
        low, high = plain["min"].as_py(), plain["max"].as_py()
        below = claimed.min is None or claimed.min <= low
        above = claimed.max is None or high <= claimed.max
        return below and above and (not claimed.exact or (claimed.min, claimed.max) == (low, high))
    if claimed.exact:
        return (claimed.min, claimed.max) == (found.min, found.max)
    try:
        return _ordered(values.type, claimed.min, found.min) and _ordered(values.type, found.max, claimed.max)
    except (DamageError, pa.ArrowInvalid):
        return False


def _ordered(kind: pa.DataType, low: bytes | None, high: bytes | None) -> bool:
    if low is None or high is None:
        return True
    return bool(pc.less_equal(decode_bound(kind, low), decode_bound(kind, high)).as_py())
