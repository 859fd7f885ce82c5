"""Entries that hold on to no more memory than they need, and entries taken of an array, for every type.

Views of text point into buffers of any number, and views of lists into a child of any length, which an array
keeps whole however few entries it still shows: a slice of a slice holds on to all that it was ever cut from,
whoever joins slices has the buffers of each, and IPC writes them all. So what is taken, kept or written is
brought into memory of its own first.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_pages.model.columns import number_column, numbers_of, valid_of
from spark_pages.model.dictionaries import concatenated
from spark_pages.model.nested import children, null_column, with_children
from spark_pages.model.retyped import retyped, without_views

_TAKE = pc.get_function("array_take")
_UNCHECKED = pc.TakeOptions(boundscheck=False)


def trimmed(array: pa.Array) -> pa.Array:
    """The same entries in a copy: what lists hold inside is what they show. Of views, see `in_own_memory`."""
    return pa.concat_arrays([array, array.slice(0, 0)])


def in_own_memory(array: pa.Array) -> pa.Array:
    """The same entries; of views, at its top and inside of it, no more memory than they need.

    The array itself where its type has no views.
    """
    return _owned(trimmed(array)) if has_views(array.type) else array


def taken(array: pa.Array, indices: pa.Array) -> pa.Array:
    """The entries at the indices (int64, not negative, inside of the array), in their order.

    Raises
    ------
    pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError
        If one array cannot hold them.
    """
    kind = array.type
    if takes(kind):
        return in_own_memory(taken_directly(array, indices))
    bare = without_views(kind)
    if bare != kind:
        return retyped(taken(retyped(array, bare), indices), kind)
    # What Arrow cannot take from, it can join: as slices, one for each stretch of entries in a row.
    places = numbers_of(indices)
    breaks = np.flatnonzero(np.diff(places) != 1) + 1
    bounds = pairwise([0, *breaks.tolist(), len(places)])
    slices = [array.slice(int(places[low]), high - low) for low, high in bounds if low < high]
    return in_own_memory(concatenated(slices, kind)) if slices else array.slice(0, 0)


def taken_directly(array: pa.Array, indices: pa.Array) -> pa.Array:
    """The same, of a type that Arrow `takes`, without a look at its type; of views with all their memory."""
    return _TAKE.call([array, indices], _UNCHECKED)


@lru_cache(256)
def takes(kind: pa.DataType) -> bool:
    """Whether Arrow can take entries of a type."""
    try:
        taken_directly(null_column(kind, 0), null_column(pa.int64(), 0))
    except pa.ArrowNotImplementedError:
        return False
    return True


@lru_cache(256)
def has_views(kind: pa.DataType) -> bool:
    """Whether a type, or one inside of it, is a view, of text, binary or lists."""
    if isinstance(kind, pa.BaseExtensionType):
        return bool(has_views(kind.storage_type))
    if pa.types.is_dictionary(kind):
        return bool(has_views(kind.value_type))
    inside = (kind.field(index).type for index in range(kind.num_fields))
    return _is_list_view(kind) or without_views(kind) != kind or any(map(has_views, inside))


def _is_list_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind))


def _owned(array: pa.Array) -> pa.Array:
    """The same entries; what is inside of lists is no more than they show already."""
    kind = array.type
    if not has_views(kind):
        return array
    if isinstance(array, pa.ExtensionArray):
        return pa.ExtensionArray.from_storage(kind, _owned(array.storage))
    if pa.types.is_dictionary(kind):
        values = in_own_memory(array.dictionary)
        return pa.DictionaryArray.from_arrays(array.indices, values, ordered=kind.ordered)
    if _is_list_view(kind):
        return _with_shown_values(array)
    if not kind.num_fields:
        return retyped(retyped(array, without_views(kind)), kind)
    return with_children(array, kind, [_owned(each) for each in children(array)])


def _with_shown_values(array: pa.Array) -> pa.Array:
    """A list view over the values that its entries show, each as often as before at most."""
    kind, valid = array.type, valid_of(array)
    number = pa.int32() if pa.types.is_list_view(kind) else pa.int64()
    sizes = np.where(valid, numbers_of(array.sizes), 0)
    offsets = np.where(sizes > 0, numbers_of(array.offsets), 0)
    shown = np.flatnonzero(sizes)
    first = int(offsets[shown].min()) if len(shown) else 0
    end = int((offsets + sizes)[shown].max()) if len(shown) else 0
    values, count = array.values, int(sizes.sum())
    if count < end - first:
        begins = np.cumsum(sizes) - sizes
        places = np.arange(count) + np.repeat(offsets - begins, sizes)
        values, offsets = taken(values, number_column(places, pa.int64())), begins
    else:
        values, offsets = values.slice(first, end - first), np.where(sizes > 0, offsets - first, 0)
    own = [number_column(each, number).buffers()[1] for each in (offsets, sizes)]
    bitmap = array.is_valid() if array.null_count else None
    return pa.Array.from_buffers(
        kind, len(array), [None if bitmap is None else bitmap.buffers()[1], *own], array.null_count, 0,
        [in_own_memory(values)],
    )  # fmt: skip
