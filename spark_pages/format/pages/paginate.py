"""Where to cut a column into pages."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.arrow.columns import has_dictionary
from spark_pages.arrow.compact import compacted, referenced_bytes
from spark_pages.arrow.nested import children
from spark_pages.errors import InvalidInputError
from spark_pages.format.pages.ipc_layout import FlatColumn

TARGET_PAGE_BYTES = 65_536
"""Uncompressed Arrow bytes that a page aims at."""

_SLACK = 32
"""Of text, pages have as many entries as the one before while no more than this part of the room is left."""


def plan_pages(array: pa.Array, target_bytes: int = TARGET_PAGE_BYTES) -> NDArray[np.int64]:
    """Row offsets at which `array` is cut, so that a page holds about `target_bytes`.

    Parameters
    ----------
    array
        The column to cut; a slice counts as what it shows.
    target_bytes
        Bytes of uncompressed Arrow buffers per page, at least 1.

    Returns
    -------
    numpy.ndarray
        int64, strictly increasing, from 0 to ``len(array)``: page ``i`` holds the rows ``[b[i],
        b[i + 1])``. ``[0]`` for an empty array: no page.

    Raises
    ------
    InvalidInputError
        If `target_bytes` is not positive.

    Notes
    -----
    Text and binary are cut by their offsets, so that skewed values split well and a value above the
    target has a page of its own. Neighbours have as many entries each where that leaves little room:
    they are opened together. All else is cut by (average) width, in multiples of 8 entries.
    O(pages · log rows).
    """
    if target_bytes < 1:
        raise InvalidInputError(
            f"Cannot plan pages of {target_bytes} bytes: expected at least 1.",
            hint="Pass `target_bytes` of 1 at least, such as 65536.",
        )
    if len(array) == 0:
        return np.zeros(1, dtype=np.int64)
    column = FlatColumn.of(array.type)
    if column is not None and column.offset_bytes:
        return _split_by_size(array, column.offset_bytes, target_bytes)
    entries = max(1, int(target_bytes / _entry_bytes(array, target_bytes)))
    if entries >= 8:
        entries -= entries % 8
    if len(array) <= entries:
        return np.array([0, len(array)], np.int64)
    return np.append(np.arange(0, len(array), entries, dtype=np.int64), np.int64(len(array)))


def _split_by_size(array: pa.Array, width: int, target_bytes: int) -> NDArray[np.int64]:
    first, last = array.offset, len(array)
    raw = memoryview(array.buffers()[1])[width * first : width * (first + last + 1)]
    ends = raw.cast("i" if width == 4 else "q")

    def bytes_before(entry: int) -> int:
        return ends[entry] + width * entry

    cuts = [0]
    count = 0
    while cuts[-1] < last:
        start = cuts[-1]
        room = range(start, min(last, start + target_bytes // width) + 1)
        most = bisect_right(room, bytes_before(start) + target_bytes, key=bytes_before) - 1
        if not max(most - most // _SLACK, 1) <= count <= most:
            count = max(most - most // (2 * _SLACK), 1)
        cuts.append(start + count if start + most < last else last)
    return np.array(cuts, dtype=np.int64)


def _entry_bytes(array: pa.Array, target_bytes: int) -> float:
    """Bytes of one entry: exact where the width is fixed, else the average; at least a bit."""
    kind = array.type
    if pa.types.is_null(kind):
        return 1 / 8
    if pa.types.is_dictionary(kind):
        index_bytes = kind.index_type.bit_width / 8
        shared = referenced_bytes(array.dictionary)
        if shared > target_bytes / 2:  # a page keeps the values that it uses, up to one per entry
            return float(index_bytes + shared / len(array.dictionary))
        return float(index_bytes * target_bytes / (target_bytes - shared))
    if pa.types.is_primitive(kind) or pa.types.is_fixed_size_binary(kind):
        return max(float(kind.bit_width) / 8, 1 / 8)
    size = (
        _dictionary_share(compacted(array), target_bytes)
        if has_dictionary(kind)
        else float(referenced_bytes(array))
    )
    return max(size / len(array), 1 / 8)


def _dictionary_share(array: pa.Array, target_bytes: int) -> float:
    """Bytes of all entries, about, where those of a dictionary inside of them count by the use of them."""
    if not len(array) or not has_dictionary(array.type):
        return float(referenced_bytes(array))
    if isinstance(array, pa.ExtensionArray):
        return _dictionary_share(array.storage, target_bytes)
    if pa.types.is_dictionary(array.type):
        return len(array) * _entry_bytes(array, target_bytes)
    return 4.0 * len(array) + sum(_dictionary_share(each, target_bytes) for each in children(array))
