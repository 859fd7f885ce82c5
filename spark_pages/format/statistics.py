"""Statistics of the values of pages, in the form that ``docs/format.md`` ("Statistics") gives. Pure.

A column comes whole: what numpy can do for all of its pages in one pass is done so (`reduceat`), the rest by
a few kernel calls for each page.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import isnan
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_pages.arrow.columns import nulls_of, numbers_of, valid_of
from spark_pages.format.bounds import bound_width, is_bytes, is_text, order_type, plain_values, used_of
from spark_pages.format.distinct import PageRows, Rows, distinct_bytes, distinct_numbers
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
    """The `page_stats` of every page that `plan_pages` cut `array` into.

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
    """What numpy would find out about a few numbers, in a tenth of the time; None of anything else."""
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
    """The same bytes behind offsets, without a copy where the type has them already."""
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
    """The smallest short value that is not below `value` and easy to find; None if there is none."""
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
