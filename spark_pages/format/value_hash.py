"""Hashes of values: xxh3_64 of the bytes that ``docs/format.md`` ("Bloom filters") gives, many at a time.

xxh3 takes inputs of 1 to 3, 4 to 8, 9 to 16 and 17 to 128 bytes by four formulas of a few multiplications.
They are written here in numpy, for all values of such a length at once. Longer values go one by one to the
`xxhash` library: a page of 64 KiB has no more than 512 of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from numpy.typing import NDArray

from spark_pages.format.bounds import bound_width, is_bytes, plain_values, used_of

Hashes = NDArray[np.uint64]
_Bytes = NDArray[np.uint8]

_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
)
"""The part of the default secret of xxh3 that inputs of up to 128 bytes use."""

_PRIME_1, _PRIME_2, _PRIME_3 = (
    np.uint64(prime) for prime in (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)
)
_PRIME_MX1, _PRIME_MX2 = np.uint64(0x165667919E3779F9), np.uint64(0x9FB21C651E98DF25)
_EMPTY = np.uint64(xxhash.xxh3_64_intdigest(b""))
_LONGEST = 128
_LOW = np.uint64(0xFFFFFFFF)


def hash_values(array: pa.Array) -> Hashes | None:
    """Hash each value of an array, without nulls. Equal values have equal hashes.

    Returns
    -------
    uint64, shape (n_values,), or None
        In no particular order; booleans and values of a dictionary come once. None for types that have no
        bounds.

    Notes
    -----
    About 4 ns a value for numbers of 8 bytes, some 40 ns for text.
    """
    if pa.types.is_dictionary(array.type):
        array = array.dictionary.take(used_of(array))
    array = plain_values(array)
    kind = array.type
    if is_bytes(kind):
        array = array.cast(pa.large_binary()).drop_null()
        ends = np.frombuffer(array.buffers()[1], np.int64, len(array) + 1, 8 * array.offset)
        held = array.buffers()[2]
        data = np.frombuffer(held, np.uint8) if held is not None and held.size else np.zeros(0, np.uint8)
        return xxh3_64(data, ends[:-1], np.diff(ends))
    width = bound_width(kind)
    if width is None:
        return None
    if pa.types.is_boolean(kind):
        array = pc.unique(array).cast(pa.uint8())
    array = array.drop_null()
    if not len(array):
        return np.zeros(0, np.uint64)
    data = np.frombuffer(array.buffers()[1], np.uint8, width * len(array), width * array.offset)
    if pa.types.is_floating(kind):
        data = _canonical(data, width)
    if width == 8:
        return _up_to_8(data.view("<u8"), np.uint64(8))
    if width == 4:
        half = data.view("<u4").astype(np.uint64)
        return _up_to_8(half | half << np.uint64(32), np.uint64(4))
    starts = np.arange(len(array), dtype=np.int64) * width
    return xxh3_64(data, starts, np.full(len(array), width, np.int64))


def xxh3_64(data: _Bytes, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> Hashes:
    """xxh3_64 with seed 0 of many pieces of `data`.

    Parameters
    ----------
    data : uint8, shape (n_bytes,)
    starts, lengths : int64, shape (n,)
        Each piece.

    Returns
    -------
    uint64, shape (n,)
    """
    found = np.full(len(starts), _EMPTY)
    classes = np.searchsorted([0, 3, 8, 16, _LONGEST], lengths)
    for number, formula in enumerate((_up_to_3, _from_4_to_8, _up_to_16, _up_to_128, _one_by_one), start=1):
        chosen = np.flatnonzero(classes == number)
        if len(chosen) == len(found):
            return formula(data, starts, lengths)
        if len(chosen):
            found[chosen] = formula(data, starts[chosen], lengths[chosen])
    return found


def _up_to_3(data: _Bytes, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> Hashes:
    first, middle, last = (data[starts + step].astype(np.uint64) for step in (0, lengths >> 1, lengths - 1))
    size = lengths.astype(np.uint64) << np.uint64(8)
    combined = first << np.uint64(16) | middle << np.uint64(24) | last | size
    value = combined ^ np.uint64(_secret(0) & 0xFFFFFFFF ^ _secret(0) >> 32)
    value = (value ^ value >> np.uint64(33)) * _PRIME_2
    value = (value ^ value >> np.uint64(29)) * _PRIME_3
    return value ^ value >> np.uint64(32)


def _from_4_to_8(data: _Bytes, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> Hashes:
    first = _words(data, starts, "<u4").astype(np.uint64)
    last = _words(data, starts + lengths - 4, "<u4").astype(np.uint64)
    # As the two halves of a number of 8 bytes: what came first is low.
    return _up_to_8(first | last << np.uint64(32), lengths.astype(np.uint64))


def _up_to_8(value: Hashes, length: Any) -> Hashes:
    """Of 4 to 8 bytes: their first four are the low half of `value`, the last four the high half."""
    value = value >> np.uint64(32) | value << np.uint64(32)
    value ^= np.uint64(_secret(8) ^ _secret(16))
    value ^= _rotated(value, 49) ^ _rotated(value, 24)
    value *= _PRIME_MX2
    value ^= (value >> np.uint64(35)) + length
    value *= _PRIME_MX2
    return value ^ value >> np.uint64(28)


def _up_to_16(data: _Bytes, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> Hashes:
    low = _words(data, starts, "<u8") ^ np.uint64(_secret(24) ^ _secret(32))
    high = _words(data, starts + lengths - 8, "<u8") ^ np.uint64(_secret(40) ^ _secret(48))
    return _avalanche(lengths.astype(np.uint64) + low.byteswap() + high + _folded_product(low, high))


def _up_to_128(data: _Bytes, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> Hashes:
    total = lengths.astype(np.uint64) * _PRIME_1
    for step in range(4):
        longer = np.flatnonzero(lengths > 32 * step)
        if not len(longer):
            break
        begins, ends = starts[longer] + 16 * step, (starts + lengths)[longer] - 16 * (step + 1)
        total[longer] += _mixed(data, begins, 32 * step) + _mixed(data, ends, 32 * step + 16)
    return _avalanche(total)


def _one_by_one(data: _Bytes, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> Hashes:
    view, ends = memoryview(data.data), starts + lengths
    pieces = zip(starts.tolist(), ends.tolist(), strict=True)
    return np.array([xxhash.xxh3_64_intdigest(view[start:end]) for start, end in pieces], dtype=np.uint64)


def _mixed(data: _Bytes, places: NDArray[np.int64], secret: int) -> Hashes:
    """Mix the 16 bytes at each offset with those of the secret."""
    low = _words(data, places, "<u8") ^ np.uint64(_secret(secret))
    high = _words(data, places + 8, "<u8") ^ np.uint64(_secret(secret + 8))
    return _folded_product(low, high)


def _folded_product(one: Hashes, two: Hashes) -> Hashes:
    """Multiply to 128 bits, and return the high half xor the low half."""
    half = np.uint64(32)
    one_low, one_high, two_low, two_high = one & _LOW, one >> half, two & _LOW, two >> half
    low, first, second = one_low * two_low, one_high * two_low, one_low * two_high
    carried = (low >> half) + (first & _LOW) + second
    high = one_high * two_high + (first >> half) + (carried >> half)
    folded: Hashes = high ^ (carried << half | low & _LOW)
    return folded


def _avalanche(value: Hashes) -> Hashes:
    value = (value ^ value >> np.uint64(37)) * _PRIME_MX1
    return value ^ value >> np.uint64(32)


def _rotated(value: Hashes, bits: int) -> Hashes:
    return value << np.uint64(bits) | value >> np.uint64(64 - bits)


def _words(data: _Bytes, places: NDArray[np.int64], kind: str) -> Hashes:
    """Numbers at any places, aligned or not."""
    size = np.dtype(kind).itemsize
    every: Hashes = np.ndarray((len(data) - size + 1,), kind, data, strides=(1,))
    return every[places]


def _secret(at: int) -> int:
    return int.from_bytes(_SECRET[at : at + 8], "little")


def _canonical(data: _Bytes, width: int) -> _Bytes:
    """Floats with one zero and one NaN."""
    values = data.view(f"<f{width}")
    values = values + values.dtype.type(0)  # -0.0 + 0.0 is +0.0
    values[np.isnan(values)] = np.nan
    same: _Bytes = values.view(np.uint8)
    return same
