"""Arrays out of arrays, for every type that a column can have: several joined, some entries taken.

Arrow has kernels for both, but not for all types, and a dictionary of small indices or text of more than 2
GiB does not fit one array at all. What is here knows the ways round.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_pages.model.columns import number_column, numbers_of, valid_of

_TAKE = pc.get_function("array_take")
_UNCHECKED = pc.TakeOptions(boundscheck=False)

_DENSE = 8
"""Where less than so many entries stand in the pages for each one wanted, the pages are joined as they are.
"""


class DoesNotFitError(Exception):
    """What was to be joined is too much for one array of its type; never leaves this package."""


@lru_cache(256)
def empty_array(kind: pa.DataType) -> pa.Array:
    """No entries of a type."""
    return pa.chunked_array([], kind).combine_chunks()


def join(arrays: Sequence[pa.Array], kind: pa.DataType) -> pa.Array:
    """The entries of all arrays, one after another.

    Raises
    ------
    DoesNotFitError
        If one array cannot hold them: text or binary of 2 GiB, more dictionary values than the indices count.
    """
    if len(arrays) == 1:
        return arrays[0]
    if not arrays:
        return empty_array(kind)
    if _has_dictionary(kind):
        arrays = [_without_stray_indices(array, kind) for array in arrays]
    try:
        return pa.concat_arrays(arrays)
    except pa.ArrowInvalid as error:
        raise DoesNotFitError(str(error)) from error


def take_entries(array: pa.Array, indices: pa.Array) -> pa.Array:
    """The entries at the indices (int64, not negative, inside of the array), in their order."""
    kind = array.type
    if _takes(kind):
        return _TAKE.call([array, indices], _UNCHECKED)
    wide = _WIDE.get(kind)
    if wide is not None:
        return _TAKE.call([array.cast(wide), indices], _UNCHECKED).cast(kind)
    # What Arrow cannot take from, it can join: as slices, one for each stretch of entries in a row.
    places = numbers_of(indices)
    breaks = np.flatnonzero(np.diff(places) != 1) + 1
    bounds = pairwise([0, *breaks.tolist(), len(places)])
    return join([array.slice(int(places[low]), high - low) for low, high in bounds if low < high], kind)


def gather(
    arrays: Sequence[pa.Array], bounds: NDArray[np.int64], offsets: NDArray[np.int64], kind: pa.DataType
) -> pa.Array:
    """Some entries of each array, one array after another.

    Parameters
    ----------
    bounds : int64, shape (n_arrays + 1,)
        ``offsets[bounds[i]:bounds[i + 1]]`` belong to array i.
    offsets : int64, shape (n_entries,)
        Positions in their arrays.

    Raises
    ------
    DoesNotFitError
        As `join`.
    """
    wanted = number_column(offsets, pa.int64())
    if len(arrays) < 2:
        return take_entries(arrays[0], wanted) if arrays else empty_array(kind)
    lengths = np.array([len(array) for array in arrays])
    if lengths.sum() <= _DENSE * len(offsets):
        shift = np.repeat(np.cumsum(lengths) - lengths, np.diff(bounds))
        return take_entries(join(arrays, kind), number_column(offsets + shift, pa.int64()))
    shares = [each for each in zip(arrays, pairwise(bounds.tolist()), strict=True) if each[1][0] < each[1][1]]
    width = _plain_width(kind)
    if width and not any(array.null_count for array, _ in shares):
        return _gather_plain(shares, offsets, kind, width)
    take = take_entries
    if _takes(kind):  # asked once, because to hash a type takes as long as a take
        take = _take_directly
    return join([take(array, wanted.slice(low, high - low)) for array, (low, high) in shares], kind)


def _take_directly(array: pa.Array, indices: pa.Array) -> pa.Array:
    return _TAKE.call([array, indices], _UNCHECKED)


def _plain_width(kind: pa.DataType) -> int:
    """Bytes of an entry, where it is nothing but these bytes; else 0."""
    if not (pa.types.is_primitive(kind) or pa.types.is_decimal(kind)) or kind.bit_width % 8:
        return 0
    return int(kind.bit_width // 8)


def _gather_plain(
    shares: Sequence[tuple[pa.Array, tuple[int, int]]],
    offsets: NDArray[np.int64],
    kind: pa.DataType,
    width: int,
) -> pa.Array:
    """The entries by numpy: a third of what the same takes by Arrow for a few of each page."""
    plain = np.dtype((np.void, width)) if width > 8 else np.dtype(f"u{width}")
    found = np.empty(len(offsets), plain)
    for array, (low, high) in shares:
        values = np.frombuffer(array.buffers()[1], plain, len(array), array.offset * width)
        found[low:high] = values[offsets[low:high]]
    return pa.Array.from_buffers(kind, len(found), [None, pa.py_buffer(found)], 0)


def gather_in_parts(
    arrays: Sequence[pa.Array],
    bounds: NDArray[np.int64],
    offsets: NDArray[np.int64],
    order: NDArray[np.int64] | None,
    kind: pa.DataType,
) -> pa.ChunkedArray:
    """The same as `gather`, then in another order, in as many arrays as it takes.

    Parameters
    ----------
    order : int64, shape (n_entries,)
        Which of the entries gathered comes first, second, …; None leaves them as they are.
    """
    try:
        found = gather(arrays, bounds, offsets, kind)
        if order is not None:
            found = take_entries(found, number_column(order, pa.int64()))
        return pa.chunked_array([found], kind)
    except DoesNotFitError:
        count = len(offsets)
        if count == 1:
            raise
        which = np.arange(count) if order is None else order
        half = count // 2
        parts = [_some(arrays, bounds, offsets, part, kind) for part in (which[:half], which[half:])]
        return pa.chunked_array([chunk for part in parts for chunk in part.chunks], kind)


def _some(
    arrays: Sequence[pa.Array],
    bounds: NDArray[np.int64],
    offsets: NDArray[np.int64],
    which: NDArray[np.int64],
    kind: pa.DataType,
) -> pa.ChunkedArray:
    """Entries `which` of those that `gather` would give."""
    order = np.argsort(which, kind="stable")
    chosen = which[order]
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    shares = np.searchsorted(chosen, bounds)
    used = np.flatnonzero(np.diff(shares))
    shares = np.append(shares[used], len(chosen))
    return gather_in_parts([arrays[index] for index in used.tolist()], shares, offsets[chosen], back, kind)


_WIDE = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}


@lru_cache(256)
def _takes(kind: pa.DataType) -> bool:
    """Whether Arrow can take entries of a type."""
    try:
        _TAKE.call([empty_array(kind), pa.array([], pa.int64())], _UNCHECKED)
    except pa.ArrowNotImplementedError:
        return False
    return True


@lru_cache(256)
def _has_dictionary(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return True
    if isinstance(kind, pa.BaseExtensionType):
        return _has_dictionary(kind.storage_type)
    if pa.types.is_run_end_encoded(kind):
        return _has_dictionary(kind.value_type)
    return any(_has_dictionary(kind.field(i).type) for i in range(kind.num_fields))


def _without_stray_indices(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same entries; indices at nulls point into the dictionary.

    Notes
    -----
    They may be anything, and Arrow follows them when it brings dictionaries together: it reads outside of its
    memory, and crashes.
    """
    if pa.types.is_struct(
        kind
    ):  # `flatten` makes its fields null where it is null: there is nothing to be seen
        parts = [_without_stray_indices(part, part.type) for part in array.flatten()]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(parts, fields=list(kind.fields), mask=mask)
    if not pa.types.is_dictionary(kind):
        # Inside of other types: a take writes zeros where there is null.
        if not _has_dictionary(kind) or not _takes(kind):
            return array
        return take_entries(array, number_column(np.arange(len(array)), pa.int64()))
    if not array.indices.null_count:
        return array
    if not len(array.dictionary):
        return pa.nulls(len(array), kind)
    valid = valid_of(array.indices)
    indices = number_column(np.where(valid, numbers_of(array.indices), 0), kind.index_type, valid)
    return pa.DictionaryArray.from_arrays(indices, array.dictionary, ordered=kind.ordered)


def as_type(arrays: Iterable[pa.Array], kind: pa.DataType) -> list[pa.Array]:
    """The arrays under one type, of pages that a column had before it got this type; nothing is lost."""
    return [array if array.type == kind else array.cast(kind) for array in arrays]
