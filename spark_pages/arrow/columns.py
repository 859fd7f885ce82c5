"""Columns between Arrow, numpy and Python values, by way of their buffers.

`pyarrow.array` and `to_numpy` import pandas wherever it is installed: 0.4 s and 50 MB on the first
call of a fresh process. Whoever opens a store to find one row shall not pay for that.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_TYPE_CODES = {8: "b", 16: "h", 32: "i", 64: "q"}
_FEW = 64
_WITHOUT_BITMAP = frozenset(
    kind.id for kind in (pa.dense_union([]), pa.sparse_union([]), pa.run_end_encoded(pa.int16(), pa.null()))
)


def numbers_of(column: pa.Array) -> NDArray[Any]:
    """Return the values of a numeric column without a copy. Values at nulls are arbitrary.

    Parameters
    ----------
    column
        Array of a signed or unsigned integer type.
    """
    width = column.type.bit_width // 8
    kind = "u" if pa.types.is_unsigned_integer(column.type) else "i"
    if not len(column):
        return np.zeros(0, dtype=f"{kind}{width}")
    return np.frombuffer(column.buffers()[1], f"{kind}{width}", len(column), column.offset * width)


def ends_of(column: pa.Array) -> NDArray[np.int32]:
    """Where each entry of a binary or string column ends in its memory, behind where the first one begins."""
    return np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, 4 * column.offset)


@lru_cache(256)
def has_dictionary(kind: pa.DataType) -> bool:
    """Whether a type, or one inside of it, is dictionary-encoded."""
    if pa.types.is_dictionary(kind):
        return True
    if isinstance(kind, pa.BaseExtensionType):
        return bool(has_dictionary(kind.storage_type))
    return any(has_dictionary(kind.field(index).type) for index in range(kind.num_fields))


def nulls_of(column: pa.Array) -> int:
    """Null entries; of unions and encoded columns, which have no bitmap, those that stand for a null."""
    if column.type.id in _WITHOUT_BITMAP:
        return int(column.is_null().true_count)
    return int(column.null_count)


def valid_of(column: pa.Array) -> NDArray[np.bool_]:
    """Which entries of a column are not null, as `nulls_of` counts them, shape (n,)."""
    if column.type.id in _WITHOUT_BITMAP:
        given = column.is_valid()
        return _bits(given.buffers()[1], given.offset, len(given))
    if not column.null_count:
        return np.ones(len(column), dtype=bool)
    bitmap = column.buffers()[0]
    if bitmap is None:  # of the type null
        return np.zeros(len(column), dtype=bool)
    return _bits(bitmap, column.offset, len(column))


def number_column(
    values: NDArray[Any], kind: pa.DataType, valid: NDArray[np.bool_] | None = None
) -> pa.Array:
    """Create a numeric column over a numpy array; copies only if the width differs.

    Parameters
    ----------
    valid
        Which entries are not null; None where all are.
    """
    width = kind.bit_width // 8
    data = np.ascontiguousarray(values, dtype=f"{'u' if pa.types.is_unsigned_integer(kind) else 'i'}{width}")
    return pa.Array.from_buffers(kind, len(data), [_bitmap(valid), pa.py_buffer(data)])


def optional_numbers(values: Sequence[int | None], kind: pa.DataType) -> pa.Array:
    """Create a column of Python numbers.

    Raises
    ------
    OverflowError
        If a number does not fit the type.
    """
    code = _TYPE_CODES[kind.bit_width]
    if None not in values:
        return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(array(code, values))])  # type: ignore[type-var]
    data = array(code, [0 if value is None else value for value in values])
    return pa.Array.from_buffers(kind, len(values), [_given(values), pa.py_buffer(data)])


def optional_flags(values: Sequence[bool | None]) -> pa.Array:
    """Create a boolean column of Python values."""
    return pa.Array.from_buffers(pa.bool_(), len(values), [_given(values), _pack([bool(v) for v in values])])


def true_flags(values: Sequence[object]) -> pa.Array:
    """Create a boolean column that is true at values and null elsewhere."""
    if not any(values):
        return no_numbers(len(values), pa.bool_())
    return optional_flags([True if value else None for value in values])


def flags_of(column: pa.BooleanArray | pa.ChunkedArray) -> NDArray[np.bool_]:
    """Convert booleans to numpy; null is False."""
    if isinstance(column, pa.ChunkedArray):
        return np.concatenate([np.zeros(0, np.bool_), *map(flags_of, column.chunks)])
    if not len(column):
        return np.zeros(0, np.bool_)
    flags = _bits(column.buffers()[1], column.offset, len(column))  # `to_numpy` takes five times as long
    return flags & valid_of(column) if column.null_count else flags


def optional_bytes(values: Sequence[bytes | None], kind: pa.DataType | None = None) -> pa.Array:
    """Create a binary column, or another with 32-bit offsets, of Python bytes.

    Raises
    ------
    OverflowError
        If they are 2 GiB or more together.
    """
    given = None
    if None in values:
        given = _given(values)
        values = [b"" if value is None else value for value in values]
    ends = array("i", accumulate(map(len, values), initial=0))  # type: ignore[arg-type]
    data = b"".join(values)  # type: ignore[arg-type]
    buffers = [given, pa.py_buffer(ends), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind or pa.binary(), len(values), buffers)


def optional_text(values: Sequence[str | None]) -> pa.Array:
    """Create a string column of Python text."""
    return optional_bytes([None if value is None else value.encode() for value in values], pa.string())


def no_bytes(count: int) -> pa.Array:
    """Create a binary column of nulls. All such columns share the memory of the longest."""
    zeros = _zeros(max(1 << 13, count).bit_length())
    return pa.Array.from_buffers(pa.binary(), count, [zeros, zeros, pa.py_buffer(b"")], null_count=count)


def no_numbers(count: int, kind: pa.DataType) -> pa.Array:
    """Create a column of null numbers or booleans. All such columns share the memory of the longest."""
    zeros = _zeros(max(1 << 13, 2 * count).bit_length())
    return pa.Array.from_buffers(kind, count, [zeros, zeros], null_count=count)


@cache
def _zeros(bits: int) -> pa.Buffer:
    return pa.py_buffer(bytes(4 * ((1 << bits) + 1)))


def _bitmap(valid: NDArray[np.bool_] | None) -> pa.Buffer | None:
    if valid is None or valid.all():
        return None
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def _given(values: Sequence[object | None]) -> pa.Buffer | None:
    """Return the validity bitmap of Python values."""
    return _pack([value is not None for value in values])


def _pack(flags: list[bool]) -> pa.Buffer:
    """Bits, the first lowest. A commit of a few pages has a handful, for which numpy takes long to begin."""
    if len(flags) > _FEW:
        return pa.py_buffer(np.packbits(np.array(flags, dtype=bool), bitorder="little"))
    number = sum(1 << index for index, flag in enumerate(flags) if flag)
    return pa.py_buffer(number.to_bytes((len(flags) + 7) // 8, "little"))


def _bits(bitmap: pa.Buffer, offset: int, count: int) -> NDArray[np.bool_]:
    first = offset // 8
    some = np.frombuffer(bitmap, np.uint8, (offset + count + 7) // 8 - first, first)
    skip = offset - first * 8
    return np.unpackbits(some, bitorder="little")[skip : skip + count].view(np.bool_)
