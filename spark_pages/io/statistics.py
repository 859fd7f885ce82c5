"""Bounds of the values of a page, in the bytes that ``docs/format.md`` ("Statistics") gives."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_pages.errors import DamageError
from spark_pages.model.page import STATISTIC_MAX_BYTES, PageStats

_LAST_CODE_POINT = 0x10FFFF
_SURROGATES = (0xD800, 0xDFFF)


def page_stats(array: pa.Array) -> PageStats:
    """Null count and bounds of `array`.

    Returns
    -------
    PageStats
        For numbers, booleans, dates, times, durations and decimals the bounds are the value as Arrow
        keeps it, little-endian; a boolean is one byte, 0 or 1. For text and binary they are the bytes,
        cut to ``STATISTIC_MAX_BYTES`` and rounded outward, so that text stays text; a maximum that cannot
        be rounded up is None. Bounds are None where there is no value, where a float is NaN (so that
        a filter never skips it), and for nested types. The lower bound of a float is never +0.0, the upper
        never -0.0.

    Notes
    -----
    O(n) in Arrow kernels; about 20 µs for a page of 64 KiB.
    """
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    elif pa.types.is_run_end_encoded(array.type):
        array = pc.run_end_decode(array)
    kind, nulls = array.type, array.null_count
    if nulls == len(array):
        return PageStats(nulls)
    if _is_bytes(kind):
        return _bytes_stats(array, nulls)
    if pa.types.is_floating(kind):
        return _float_stats(array, nulls)
    if _width(kind) is None:
        return PageStats(nulls, exact=False)
    if pa.types.is_duration(kind) or (pa.types.is_decimal(kind) and kind.bit_width <= 64):
        array = array.view(_signed(kind))  # no kernel of their own, and as integers they sort the same
    bounds = pc.min_max(array)
    return PageStats(nulls, _scalar_bytes(bounds["min"]), _scalar_bytes(bounds["max"]))


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
    Integers and times without nulls take one numpy pass over all pages; the rest a kernel per page.
    """
    starts = np.asarray(boundaries, dtype=np.int64)
    if len(starts) < 2:
        return []
    kind = array.type
    numeric = pa.types.is_integer(kind) or pa.types.is_temporal(kind)
    if numeric and not pa.types.is_interval(kind) and not array.null_count and (np.diff(starts) > 0).all():
        plain = _signed(kind) if pa.types.is_temporal(kind) else kind
        values = array.view(plain).to_numpy()
        low, high = (f.reduceat(values, starts[:-1]) for f in (np.minimum, np.maximum))
        width = values.itemsize
        lows, highs = low.tobytes(), high.tobytes()
        cuts = range(0, len(lows), width)
        return [PageStats(0, lows[at : at + width], highs[at : at + width]) for at in cuts]
    return [page_stats(array[start:end]) for start, end in pairwise(starts)]


def decode_bound(kind: pa.DataType, bound: bytes) -> pa.Scalar:
    """The Arrow value that a bound of `page_stats` stands for.

    Parameters
    ----------
    kind
        Type of the column; of a dictionary column the type of its values.
    bound
        ``PageStats.min`` or ``PageStats.max``.

    Raises
    ------
    DamageError
        If the bytes are no value of that type.

    Notes
    -----
    Text comes back as ``large_string`` and binary as ``large_binary``: a bound need not be a value of
    the column.
    """
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if _is_bytes(kind):
        text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
        return pa.scalar(bound, pa.large_binary()).cast(pa.large_string() if text else pa.large_binary())
    width = _width(kind)
    if width is None or len(bound) != width:
        raise DamageError(f"Cannot read a bound of type {kind}: expected {width} bytes, found {len(bound)}.")
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(bound)])[0]


def _is_bytes(kind: pa.DataType) -> bool:
    types = pa.types
    text = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
    return bool(text or types.is_fixed_size_binary(kind)) or bool(
        types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind)
    )


def _width(kind: pa.DataType) -> int | None:
    """Bytes of a bound of this type; None if it has no bounds of fixed width."""
    types = pa.types
    if types.is_boolean(kind):
        return 1
    numeric = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    temporal = types.is_temporal(kind) and not types.is_interval(kind)
    return kind.bit_width // 8 if numeric or temporal else None


def _signed(kind: pa.DataType) -> pa.DataType:
    return pa.int32() if kind.bit_width == 32 else pa.int64()


def _scalar_bytes(scalar: pa.Scalar) -> bytes:
    width = _width(scalar.type) or 0
    return bytes(pa.repeat(scalar, 1).buffers()[1].to_pybytes()[:width])


def _float_stats(array: pa.Array, nulls: int) -> PageStats:
    values = array.drop_null().to_numpy(zero_copy_only=False)
    low, high = values.min(), values.max()  # NaN wins in both
    if np.isnan(low):
        return PageStats(nulls, exact=False)
    zero = values.dtype.type(0)
    low = -zero if low == 0 else low
    high = zero if high == 0 else high
    return PageStats(nulls, low.tobytes(), high.tobytes())


def _bytes_stats(array: pa.Array, nulls: int) -> PageStats:
    kind = array.type
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    bounds = pc.min_max(array.cast(pa.large_binary()))
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    if max(len(low), len(high)) <= STATISTIC_MAX_BYTES:
        return PageStats(nulls, low, high)
    return PageStats(nulls, _round_down(low, text), _round_up(high, text), exact=False)


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
