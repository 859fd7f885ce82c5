"""Bounds of values as ``docs/format.md`` ("Statistics") stores them, and back to values. Pure."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_pages.arrow.columns import flags_of, number_column, numbers_of, valid_of
from spark_pages.errors import DamageError
from spark_pages.model.page_schema import have_nan

_TEXT = (pa.string(), pa.large_string(), pa.string_view())
_BYTES = (*_TEXT, pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(1))
_NUMBERS = (
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float16(), pa.float32(), pa.float64(), pa.decimal128(1), pa.decimal256(1)),
)
_LIKE_INTEGERS = (
    *(pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us"), pa.timestamp("us"), pa.duration("us")),
    *(pa.decimal32(1), pa.decimal64(1)),
)
_TEXT_IDS, _BYTES_IDS, _NUMBER_IDS, _LIKE_INTEGER_IDS = (
    frozenset(kind.id for kind in kinds) for kinds in (_TEXT, _BYTES, _NUMBERS, _LIKE_INTEGERS)
)
"""By id: the questions of `pyarrow.types` one after another take as long as a small page."""

_WIDENED = {
    kind.id: family
    for family in (_NUMBERS[:4], _NUMBERS[4:8], (pa.float32(), pa.float64()))
    for kind in family
}
"""By id: the types between which a column may have changed, whose bounds differ in width."""


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the value type of a column, without dictionary and run-end encoding."""
    encoded = pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind)
    return kind.value_type if encoded else kind


def plain_values(array: pa.Array) -> pa.Array:
    """Decode dictionary and run-end encoded values."""
    if pa.types.is_dictionary(array.type):
        return array.dictionary_decode()
    return pc.run_end_decode(array) if pa.types.is_run_end_encoded(array.type) else array


def used_of(array: pa.Array) -> pa.Array:
    """Numbers of the values of its dictionary that a dictionary array uses, each once."""
    indices = array.indices
    if len(array.dictionary) > len(array):
        return pc.unique(indices).drop_null()
    numbers = numbers_of(indices)
    numbers = numbers[valid_of(indices)] if indices.null_count else numbers
    used = np.bincount(numbers.astype(np.int64, copy=False))
    return number_column(np.flatnonzero(used), pa.int64())


def is_text(kind: pa.DataType) -> bool:
    """Whether bounds of this type are text."""
    return kind.id in _TEXT_IDS


def is_bytes(kind: pa.DataType) -> bool:
    """Whether bounds of this type are bytes of any number, compared bytewise."""
    return kind.id in _BYTES_IDS


def bound_width(kind: pa.DataType) -> int | None:
    """Bytes of a bound of this type; None if it has no bounds of fixed width."""
    if kind.id in _NUMBER_IDS or kind.id in _LIKE_INTEGER_IDS:
        return int(kind.bit_width // 8)
    return 1 if pa.types.is_boolean(kind) else None


def has_bounds(kind: pa.DataType) -> bool:
    """Whether pages of a column of this type have bounds: it has an order."""
    kind = plain_type(kind)
    return is_bytes(kind) or bound_width(kind) is not None


def has_nan(kind: pa.DataType, stats: pa.RecordBatch) -> NDArray[np.bool_]:
    """Which pages say that some of their values are NaN, shape (n_pages,)."""
    if not have_nan(stats) or not pa.types.is_floating(plain_type(kind)):
        return np.zeros(stats.num_rows, dtype=bool)
    return flags_of(stats.column("nan"))


def all_nan(kind: pa.DataType, stats: pa.RecordBatch) -> NDArray[np.bool_]:
    """Which pages say that each of their values is NaN, likewise."""
    found = has_nan(kind, stats)
    if found.any():
        bounded = valid_of(stats.column("min")) | valid_of(stats.column("max"))
        found &= flags_of(stats.column("exact")) & ~bounded
    return found


def decode_bound(kind: pa.DataType, bound: bytes) -> pa.Scalar:
    """Decode one bound of `page_stats`.

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
    kind = plain_type(kind)
    if is_bytes(kind):
        return pa.scalar(bound, pa.large_binary()).cast(
            pa.large_string() if is_text(kind) else pa.large_binary()
        )
    width = bound_width(kind)
    stored = stored_type(kind, len(bound))
    if stored is not None and stored != kind:
        return _under(kind, decode_bound(stored, bound))
    if width is None or len(bound) != width:
        raise DamageError(f"Cannot read a bound of type {kind}: expected {width} bytes, found {len(bound)}.")
    if pa.types.is_boolean(kind):
        return pa.scalar(bound != b"\x00")
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(bound)])[0]


def decode_bounds(kind: pa.DataType, column: pa.Array) -> pa.Array:
    """Decode a column of bounds. Absent bounds are null.

    Parameters
    ----------
    kind
        Type of the column whose pages they bound.
    column
        Binary array: ``min`` or ``max`` of STATS_SCHEMA.

    Returns
    -------
    pyarrow.Array
        Of the type of the values; for text and binary the bytes as they are.

    Raises
    ------
    DamageError
        If they are not of that type, or it has no bounds.

    Notes
    -----
    O(n), no copy where no bound is missing.
    """
    kind = plain_type(kind)
    if is_bytes(kind):
        return column
    width = bound_width(kind)
    filled = column.fill_null(bytes(width or 0))
    if width is None or not pc.all(pc.equal(lengths := pc.binary_length(filled), width)).as_py():
        if width is None or kind.id not in _WIDENED or not len(column):
            raise DamageError(f"Cannot read bounds of type {kind}: expected {width} bytes each.")
        return _mixed_bounds(kind, column, lengths)
    _, offsets, data = filled.buffers()
    first = np.frombuffer(offsets, np.int32)[filled.offset] if len(filled) else 0
    valid = valid_of(column)
    bitmap = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    content = data.slice(int(first)) if data is not None else pa.py_buffer(b"")
    if pa.types.is_boolean(kind):
        flags = np.frombuffer(content, np.uint8, len(filled)) != 0
        content = pa.py_buffer(np.packbits(flags, bitorder="little"))
    return pa.Array.from_buffers(kind, len(filled), [bitmap, content])


def stored_type(kind: pa.DataType, width: int) -> pa.DataType | None:
    """Return the type of this width that a column had when its page was written, current or earlier."""
    family = _WIDENED.get(kind.id, ())
    return next((each for each in family if each.bit_width == 8 * width), None)


def _under(kind: pa.DataType, bounds: Any) -> Any:
    """Bounds under the type of their column.

    Raises
    ------
    DamageError
        If they are none: then the page holds values that are none either.
    """
    try:
        return bounds.cast(kind)
    except pa.ArrowInvalid as error:
        raise DamageError(f"Cannot read bounds of type {bounds.type} as {kind}: {error}") from error


def _mixed_bounds(kind: pa.DataType, column: pa.Array, lengths: pa.Array) -> pa.Array:
    """Bounds of pages of which some were written under another type: each is as wide as its own."""
    places, parts = [], []
    for width in pc.unique(lengths).to_pylist():
        stored = stored_type(kind, width)
        if stored is None:
            raise DamageError(f"Cannot read bounds of type {kind}: found some of {width} bytes.")
        chosen = np.flatnonzero(numbers_of(lengths) == width)
        places.append(chosen)
        parts.append(_under(kind, decode_bounds(stored, column.take(number_column(chosen, pa.int64())))))
    order = np.argsort(np.concatenate(places), kind="stable")
    return pa.concat_arrays(parts).take(number_column(order, pa.int64()))


def comparable(array: pa.Array) -> pa.Array:
    """Cast values to a type that Arrow's kernels compare, in the same order.

    Returns
    -------
    pyarrow.Array
        Times, durations and small decimals as integers, booleans and half floats as the next wider type,
        text and binary as ``large_binary``.
    """
    array = plain_values(array)
    kind = array.type
    if is_bytes(kind):
        return array.cast(pa.large_binary())
    if pa.types.is_boolean(kind):
        return array.cast(pa.uint8())
    if pa.types.is_float16(kind):
        return array.cast(pa.float32())
    return array.view(order_type(kind))


def order_type(kind: pa.DataType) -> pa.DataType:
    """Return a type of the same width and order that Arrow compares; the type itself if it does."""
    if kind.id in _LIKE_INTEGER_IDS:
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    if pa.types.is_decimal(kind) and kind.scale < 0:
        return pa.decimal128(kind.precision) if kind.bit_width == 128 else pa.decimal256(kind.precision)
    return kind


def from_comparable(scalar: pa.Scalar, kind: pa.DataType) -> pa.Scalar:
    """Cast a scalar of `comparable` back to type `kind`."""
    kind = plain_type(kind)
    if not scalar.is_valid:
        return pa.scalar(None, kind)
    one = pa.array([scalar.as_py()], scalar.type)
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        wide = pa.large_string() if is_text(kind) else pa.large_binary()
        return one.cast(wide).cast(kind)[0]
    if is_bytes(kind) or pa.types.is_boolean(kind) or pa.types.is_float16(kind):
        return one.cast(kind)[0]
    return one.view(kind)[0]
