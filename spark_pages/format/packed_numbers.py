"""Packed numbers: lists of integers in commits. See `docs/format.md` ("Splices")."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from spark_pages.errors import DamageError

_WIDTHS = (1, 2, 4, 8)
_HEAD_BYTES = 9
"""The width of a difference, and the first number."""


def pack_numbers(numbers: Sequence[int] | NDArray[np.int64]) -> bytes:
    """Encode signed 64-bit numbers: the first, and the difference of each later one from the one before."""
    if not len(numbers):
        return b""
    values = np.asarray(numbers, np.int64)
    steps = np.diff(values)  # modulo 2^64, as the sums of the reader
    least, most = (int(steps.min()), int(steps.max())) if len(steps) else (0, 0)
    width = next(each for each in _WIDTHS if -(1 << 8 * each - 1) <= least and most < 1 << 8 * each - 1)
    return bytes([width]) + values[:1].astype("<i8").tobytes() + steps.astype(f"<i{width}").tobytes()


def unpack_numbers(data: bytes) -> NDArray[np.int64]:
    """Decode what `pack_numbers` gives.

    Raises
    ------
    DamageError
        If the bytes are not of that form.
    """
    if not data:
        return np.zeros(0, np.int64)
    width = data[0]
    if width not in _WIDTHS or len(data) < _HEAD_BYTES or (len(data) - _HEAD_BYTES) % width:
        raise DamageError(f"Cannot decode packed numbers of {len(data)} bytes: their width is {width}.")
    steps = np.frombuffer(data, f"<i{width}", offset=_HEAD_BYTES)
    values = np.empty(1 + len(steps), np.int64)
    values[0] = np.frombuffer(data, "<i8", 1, offset=1)[0]
    values[1:] = steps
    return np.cumsum(values)
