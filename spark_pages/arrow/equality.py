"""Equality of entries, for every type that Arrow has, without a loop over entries."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_pages.arrow.columns import flags_of, number_column, numbers_of, valid_of
from spark_pages.arrow.join import take_entries
from spark_pages.arrow.nested import children, list_buffers
from spark_pages.arrow.types import retyped, without_views

Flags = NDArray[np.bool_]
Places = NDArray[np.int64]

_FLOAT_BITS = {pa.float16(): pa.int16(), pa.float32(): pa.int32(), pa.float64(): pa.int64()}
_INTERVAL_BYTES = 16


def equal_entries(one: pa.Array, other: pa.Array) -> Flags:
    """Compare two arrays of one type and length, entry by entry.

    Returns
    -------
    bool, shape (n_entries,)
        Nulls are equal to nulls. Floating point numbers are equal if their bits are: NaN is equal to itself,
        and 0.0 differs from -0.0.
    """
    kind = one.type
    if isinstance(kind, pa.BaseExtensionType):
        return equal_entries(one.storage, other.storage)
    if pa.types.is_null(kind):
        return np.ones(len(one), bool)
    if pa.types.is_dictionary(kind):
        return equal_entries(*(_decoded(each) for each in (one, other)))
    if pa.types.is_run_end_encoded(kind):
        return equal_entries(pc.run_end_decode(one), pc.run_end_decode(other))
    if pa.types.is_union(kind):
        return _equal_unions(one, other)
    valid = valid_of(one)
    both = valid & valid_of(other)
    equal: Flags = valid == valid_of(other)
    if pa.types.is_struct(kind):
        for left, right in zip(children(one), children(other), strict=True):
            equal &= equal_entries(left, right) | ~both
    elif list_buffers(kind):
        equal[both] = _equal_lists(one, other, np.flatnonzero(both))
    else:
        equal &= flags_of(pc.fill_null(pc.equal(_comparable(one), _comparable(other)), True))
    return equal


def _decoded(array: pa.DictionaryArray) -> pa.Array:
    return take_entries(array.dictionary, array.indices)


def _comparable(array: pa.Array) -> pa.Array:
    """Return values of a flat type as those of a type that Arrow compares bit by bit."""
    kind = array.type
    if kind in _FLOAT_BITS:
        return array.view(_FLOAT_BITS[kind])
    if pa.types.is_interval(kind):
        buffers = array.buffers()
        return pa.Array.from_buffers(
            pa.binary(_INTERVAL_BYTES), len(array), buffers, array.null_count, array.offset
        )
    return retyped(array, without_views(kind))


def _equal_lists(one: pa.Array, other: pa.Array, rows: Places) -> Flags:
    """Compare the lists of some rows, none of which is null."""
    (starts, counts), (other_starts, other_counts) = (_bounds(each) for each in (one, other))
    equal: Flags = counts[rows] == other_counts[rows]
    alike = rows[equal]
    lengths = counts[alike]
    inside = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    places = (np.repeat(each[alike], lengths) + inside for each in (starts, other_starts))
    left, right = (
        take_entries(children(array)[0], number_column(where, pa.int64()))
        for array, where in zip((one, other), places, strict=True)
    )
    list_of_entry = np.repeat(np.arange(len(alike)), lengths)
    unequal = list_of_entry[~equal_entries(left, right)]
    equal[np.flatnonzero(equal)[unequal]] = False
    return equal


def _bounds(array: pa.Array) -> tuple[Places, Places]:
    """Return where each list begins among the values, and how many it has."""
    kind = array.type
    if pa.types.is_fixed_size_list(kind):
        counts = np.full(len(array), kind.list_size, np.int64)
        return (np.arange(len(array)) + array.offset) * kind.list_size, counts
    offsets = numbers_of(array.offsets).astype(np.int64)
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        return offsets, numbers_of(array.sizes).astype(np.int64)
    return offsets[:-1], np.diff(offsets)


def _equal_unions(one: pa.UnionArray, other: pa.UnionArray) -> Flags:
    codes, other_codes = _codes(one), _codes(other)
    equal: Flags = codes == other_codes
    dense = one.type.mode == "dense"
    for index, code in enumerate(one.type.type_codes):
        rows = np.flatnonzero(equal & (codes == code))
        places = (_offsets(each)[rows] if dense else rows for each in (one, other))
        left, right = (
            take_entries(array.field(index), number_column(where.astype(np.int64), pa.int64()))
            for array, where in zip((one, other), places, strict=True)
        )
        equal[rows] = equal_entries(left, right)
    return equal


def _codes(array: pa.UnionArray) -> NDArray[np.int8]:
    codes: NDArray[np.int8] = np.frombuffer(array.buffers()[1], np.int8, len(array), array.offset)
    return codes


def _offsets(array: pa.UnionArray) -> NDArray[np.int32]:
    offsets: NDArray[np.int32] = np.frombuffer(array.buffers()[2], np.int32, len(array), array.offset * 4)
    return offsets
