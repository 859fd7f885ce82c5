"""What stands under the nulls of a page: no part of it, and perhaps what somebody wanted to hide. Pure."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.arrow.columns import valid_of
from spark_pages.format.pages.ipc_layout import FlatColumn


def zero_nulls(array: pa.Array) -> pa.Array:
    """The same entries of a flat type, with nothing of what stood under nulls.

    Notes
    -----
    O(n). Under a null number stands the one before it, which costs the fewest bytes; under null text nothing.
    What a list or struct has under its nulls, and a boolean, stays.
    """
    column = FlatColumn.of(array.type) if array.null_count else None
    if column is None:
        return array
    if column.offset_bytes:
        return array.take(pa.array(np.arange(len(array)))) if hides(array) else array
    if column.bits % 8:
        return array
    width = column.bits // 8
    numbers = np.frombuffer(array.buffers()[1], np.uint8, len(array) * width, width * array.offset)
    valid = valid_of(array)[None]
    shown = fill_nulls(numbers[None], valid)
    bitmap = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(array.type, len(array), [bitmap, pa.py_buffer(shown)], array.null_count)


def hides(array: pa.Array) -> bool:
    """Whether there are bytes under nulls of text or binary values."""
    column = FlatColumn.of(array.type) if array.null_count else None
    if column is None:
        return False
    width = column.offset_bytes
    ends = np.frombuffer(array.buffers()[1], f"<i{width}", len(array) + 1, width * array.offset)
    return bool((ends[1:] != ends[:-1])[~valid_of(array)].any())


def fill_nulls(numbers: NDArray[np.uint8], valid: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Under each null of several pages the number before it; where there is none, the first; else zeros.

    Parameters
    ----------
    numbers : shape (n_pages, n_bytes)
    valid : shape (n_pages, n_rows)
    """
    count, rows = valid.shape
    values: NDArray[Any] = numbers.view(f"V{numbers.shape[1] // rows}")
    before = np.where(valid, np.arange(rows), valid.argmax(axis=1)[:, None])
    np.maximum.accumulate(before, axis=1, out=before)
    before += rows * np.arange(count)[:, None]
    shown = np.take(values.reshape(-1), before).view(np.uint8)
    shown[~valid.any(axis=1)] = 0
    return shown
