"""Entries that hold on to no more memory than they need, and entries taken of an array, for every type.

Views of text point into buffers of any number, views of lists and dense unions into children of any length,
which an array keeps whole however few entries it still shows: a slice of a slice holds on to all that it was
ever cut from, whoever joins slices has the buffers of each, and IPC writes them all. So what is taken, kept
or written is brought into memory of its own first.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import chain, pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_pages.arrow.columns import number_column, numbers_of, valid_of
from spark_pages.arrow.dictionaries import concatenated
from spark_pages.arrow.nested import children, has_union, null_column, with_children
from spark_pages.arrow.types import retyped, without_views

_TAKE = pc.get_function("array_take")
_UNCHECKED = pc.TakeOptions(boundscheck=False)


def compacted(array: pa.Array) -> pa.Array:
    """Copy the entries without memory that none of them uses."""
    return _owned(pa.concat_arrays([array, array.slice(0, 0)]))


def referenced_bytes(values: pa.Array | pa.RecordBatch | pa.Table) -> int:
    """Bytes of the buffers that some values show.

    Notes
    -----
    What `nbytes` says. Over a union without entries, for which a message has no buffers, that ends the
    process, so of unions the buffers of a copy are counted.
    """
    if not isinstance(values, pa.Array):
        if not any(map(has_union, values.schema.types)):
            return int(values.nbytes)
        chunks = [each.chunks if isinstance(each, pa.ChunkedArray) else [each] for each in values.columns]
        return sum(map(referenced_bytes, chain.from_iterable(chunks)))
    return int(compacted(values).get_total_buffer_size() if has_union(values.type) else values.nbytes)


def owned_copy(array: pa.Array) -> pa.Array:
    """Return the entries, `compacted` if their type `retains_extra_memory`."""
    return compacted(array) if retains_extra_memory(array.type) else array


def take(array: pa.Array, indices: pa.Array) -> pa.Array:
    """Return the entries at the indices (int64, within the array), in their order.

    Raises
    ------
    pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError
        If one array cannot hold them.
    """
    kind = array.type
    if supports_take(kind):
        return owned_copy(take_unchecked(array, indices))
    bare = without_views(kind)
    if bare != kind:
        return retyped(take(retyped(array, bare), indices), kind)
    # What Arrow cannot take from, it can join: as slices, one for each stretch of entries in a row.
    places = numbers_of(indices)
    breaks = np.flatnonzero(np.diff(places) != 1) + 1
    bounds = pairwise([0, *breaks.tolist(), len(places)])
    slices = [array.slice(int(places[low]), high - low) for low, high in bounds if low < high]
    return owned_copy(concatenated(slices, kind)) if slices else array.slice(0, 0)


def take_unchecked(array: pa.Array, indices: pa.Array) -> pa.Array:
    """Take entries of a type that `supports_take`, without a check of it; views keep all their memory."""
    return _TAKE.call([array, indices], _UNCHECKED)


@lru_cache(256)
def supports_take(kind: pa.DataType) -> bool:
    """Whether Arrow can take entries of a type."""
    try:
        take_unchecked(null_column(kind, 0), null_column(pa.int64(), 0))
    except pa.ArrowNotImplementedError:
        return False
    return True


@lru_cache(256)
def retains_extra_memory(kind: pa.DataType) -> bool:
    """Whether arrays may hold on to more than they show: there is a view or a dense union, perhaps inside."""
    if isinstance(kind, pa.BaseExtensionType):
        return bool(retains_extra_memory(kind.storage_type))
    if pa.types.is_dictionary(kind):
        return bool(retains_extra_memory(kind.value_type))
    if _is_list_view(kind) or _is_dense_union(kind) or without_views(kind) != kind:
        return True
    return any(retains_extra_memory(kind.field(index).type) for index in range(kind.num_fields))


def _is_list_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind))


def _is_dense_union(kind: pa.DataType) -> bool:
    return bool(pa.types.is_union(kind) and kind.mode == "dense")


def _owned(array: pa.Array) -> pa.Array:
    """Return the same entries, whose lists already show no more than they use."""
    kind = array.type
    if not retains_extra_memory(kind):
        return array
    if isinstance(array, pa.ExtensionArray):
        return pa.ExtensionArray.from_storage(kind, _owned(array.storage))
    if pa.types.is_dictionary(kind):
        values = owned_copy(array.dictionary)
        return pa.DictionaryArray.from_arrays(array.indices, values, ordered=kind.ordered)
    if _is_list_view(kind):
        return _with_referenced_values(array)
    if _is_dense_union(kind):
        return _with_used_children(array)
    if not kind.num_fields:
        return retyped(retyped(array, without_views(kind)), kind)
    return with_children(array, kind, [_owned(each) for each in children(array)])


def _with_referenced_values(array: pa.Array) -> pa.Array:
    """Return a list view over the values that its entries show, with no more copies than before."""
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
        values, offsets = take(values, number_column(places, pa.int64())), begins
    else:
        values, offsets = values.slice(first, end - first), np.where(sizes > 0, offsets - first, 0)
    own = [number_column(each, number).buffers()[1] for each in (offsets, sizes)]
    bitmap = array.is_valid() if array.null_count else None
    return pa.Array.from_buffers(
        kind, len(array), [None if bitmap is None else bitmap.buffers()[1], *own], array.null_count, 0,
        [owned_copy(values)],
    )  # fmt: skip


def _with_used_children(array: pa.UnionArray) -> pa.UnionArray:
    """Return a dense union with only the children's entries that it uses, in its order."""
    kind = array.type
    codes, offsets = (
        numbers_of(pa.Array.from_buffers(number, len(array), [None, memory], 0, array.offset))
        for number, memory in zip((pa.int8(), pa.int32()), array.buffers()[1:], strict=False)
    )
    own, inside = np.zeros_like(offsets), []
    for index, code in enumerate(kind.type_codes):
        here = np.flatnonzero(codes == code)
        own[here] = np.arange(len(here))
        inside.append(take(array.field(index), number_column(offsets[here], pa.int64())))
    memory = [None, *(pa.py_buffer(np.ascontiguousarray(each)) for each in (codes, own))]
    return pa.Array.from_buffers(kind, len(array), memory, 0, 0, inside)
