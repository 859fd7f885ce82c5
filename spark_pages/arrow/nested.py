"""Arrays of nested types, taken apart and put together, for every type that Arrow has.

Arrow's own ways do not know all of them: run-end encoded fields and unions get a bitmap that they may not
have where the struct around them is null, which ends in an error or ends the process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_pages.arrow.columns import number_column, numbers_of

_LISTS = (
    (pa.types.is_list, pa.list_, 2),
    (pa.types.is_large_list, pa.large_list, 2),
    (pa.types.is_list_view, pa.list_view, 3),
    (pa.types.is_large_list_view, pa.large_list_view, 3),
)
"""How to know a kind of list, how to make one, and how many buffers it has besides those of its values."""


@lru_cache(256)
def has_run_ends(kind: pa.DataType) -> bool:
    """Whether a type, or one inside of it, is run-end encoded."""
    if isinstance(kind, pa.BaseExtensionType):
        return bool(has_run_ends(kind.storage_type))
    if pa.types.is_run_end_encoded(kind):
        return True
    return any(has_run_ends(kind.field(index).type) for index in range(kind.num_fields))


@lru_cache(256)
def has_union(kind: pa.DataType) -> bool:
    """Whether a type, or one inside of it, is a union."""
    if isinstance(kind, pa.BaseExtensionType):
        return bool(has_union(kind.storage_type))
    if pa.types.is_dictionary(kind):
        return bool(has_union(kind.value_type))
    return pa.types.is_union(kind) or any(
        has_union(kind.field(index).type) for index in range(kind.num_fields)
    )


@lru_cache(256)
def has_null_type(kind: pa.DataType) -> bool:
    """Whether a type, or one inside of it, is the type null."""
    return pa.types.is_null(kind) or any(
        has_null_type(kind.field(index).type) for index in range(kind.num_fields)
    )


def list_buffers(kind: pa.DataType) -> int:
    """Buffers of a list, of whichever kind, or map, besides those of its values; 0 of other types."""
    if pa.types.is_map(kind):
        return 2
    if pa.types.is_fixed_size_list(kind):
        return 1
    return next((buffers for is_list, _, buffers in _LISTS if is_list(kind)), 0)


def nested_type(kind: pa.DataType, fields: Sequence[pa.Field]) -> pa.DataType:
    """Return a type like this one with other fields, as many; the type itself if it has none.

    Parameters
    ----------
    fields
        Of a map one, the struct of key and value.
    """
    types = pa.types
    if types.is_struct(kind):
        return pa.struct(fields)
    if types.is_map(kind):
        key, value = fields[0].type
        return pa.map_(key.with_nullable(False), value, kind.keys_sorted)
    if types.is_fixed_size_list(kind):
        return pa.list_(fields[0], kind.list_size)
    if types.is_union(kind):
        return pa.union(fields, kind.mode, kind.type_codes)
    if types.is_run_end_encoded(kind):
        return pa.run_end_encoded(kind.run_end_type, fields[1].type)
    for is_list, make, _ in _LISTS:
        if is_list(kind):
            return make(fields[0])
    return kind


def frame_type(kind: pa.DataType) -> pa.DataType:
    """Return the list of nulls with the same buffers as a list or map, except for the values."""
    nothing = pa.field("item", pa.null())
    return pa.list_(nothing) if pa.types.is_map(kind) else nested_type(kind, [nothing])


def struct_fields(array: pa.StructArray) -> list[pa.Array]:
    """Return the fields of a struct, null where the struct is null."""
    kind = array.type
    bare = [_has_no_bitmap(field.type) for field in kind]
    if not any(bare):
        return list(array.flatten())
    own = [array.field(index) for index in range(kind.num_fields)]
    others = [index for index, is_bare in enumerate(bare) if not is_bare]
    if others and array.null_count:
        fields = [kind.field(index) for index in others]
        rest = pa.StructArray.from_arrays([own[at] for at in others], fields=fields, mask=array.is_null())
        for index, field in zip(others, rest.flatten(), strict=True):
            own[index] = field
    return own


def children(array: pa.Array) -> list[pa.Array]:
    """Return the child arrays, one for each field of the type; none for flat types."""
    kind = array.type
    if pa.types.is_struct(kind):
        return struct_fields(array)
    if pa.types.is_map(kind):
        return [pa.StructArray.from_arrays([array.keys, array.items], fields=list(kind.field(0).type))]
    if pa.types.is_union(kind):
        return [array.field(index) for index in range(kind.num_fields)]
    if pa.types.is_run_end_encoded(kind):
        return [array.run_ends, array.values]
    return [array.values] if list_buffers(kind) else []


def with_children(array: pa.Array, kind: pa.DataType, inside: Sequence[pa.Array]) -> pa.Array:
    """Return the same array around other children of the same lengths.

    Parameters
    ----------
    kind
        Its type then: `nested_type` of theirs.
    """
    if pa.types.is_struct(kind):
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(list(inside), fields=list(kind), mask=mask)
    if pa.types.is_union(kind):
        # `type_codes` and `offsets` would begin where the memory does.
        own = [pa.int8(), pa.int32()] if kind.mode == "dense" else [pa.int8()]
        columns = [
            numbers_of(pa.Array.from_buffers(each, len(array), [None, memory], 0, array.offset))
            for each, memory in zip(own, array.buffers()[1:], strict=False)
        ]
        buffers = [None, *(pa.py_buffer(np.ascontiguousarray(each)) for each in columns)]
        return pa.Array.from_buffers(kind, len(array), buffers, 0, 0, list(inside))
    if pa.types.is_run_end_encoded(kind):
        whole = pa.RunEndEncodedArray.from_arrays(inside[0], inside[1], kind)
        return whole.slice(array.offset, len(array))
    own = array.buffers()[: list_buffers(kind)]
    return pa.Array.from_buffers(kind, len(array), own, array.null_count, array.offset, list(inside))


def null_column(kind: pa.DataType, count: int) -> pa.Array:
    """So many nulls of a type; Arrow's own have run-end encoded values with a bitmap inside of others."""
    if isinstance(kind, pa.BaseExtensionType) and has_run_ends(kind):
        return pa.ExtensionArray.from_storage(kind, null_column(kind.storage_type, count))
    if not has_run_ends(kind):
        return pa.nulls(count, kind)  # other ways to say it import pandas, for some 0.4 s
    if pa.types.is_run_end_encoded(kind):
        ends = number_column(np.array([count] if count else []), kind.run_end_type)
        return pa.RunEndEncodedArray.from_arrays(ends, null_column(kind.value_type, len(ends)), kind)
    if pa.types.is_struct(kind):
        mask = pa.nulls(count).is_null() if count else None  # Arrow would push an empty one into the fields
        inside = [null_column(field.type, count) for field in kind]
        return pa.StructArray.from_arrays(inside, fields=list(kind), mask=mask)
    if pa.types.is_union(kind):
        inside = [null_column(kind.field(index).type, count) for index in range(kind.num_fields)]
        bare = nested_type(kind, [kind.field(index).with_type(pa.null()) for index in range(kind.num_fields)])
        frame = pa.nulls(count, bare)
        return with_children(frame, kind, inside)
    size = kind.list_size if pa.types.is_fixed_size_list(kind) else 0
    frame = pa.nulls(count, frame_type(kind))
    return with_children(frame, kind, [null_column(kind.field(0).type, size * count)])


def null_scalar(kind: pa.DataType) -> pa.Scalar:
    """Create the null of a type, also of types that `pyarrow.scalar` does not support."""
    return null_column(kind, 1)[0]


def one_entry(value: pa.Scalar) -> pa.Array:
    """Create an array of this value."""
    return pa.array([value.as_py()], value.type) if value.is_valid else null_column(value.type, 1)


def _has_no_bitmap(kind: pa.DataType) -> bool:
    inner = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    return bool(pa.types.is_run_end_encoded(inner) or pa.types.is_union(inner))


@lru_cache(256)
def has_required(kind: pa.DataType) -> bool:
    """Whether a field inside of a type is not nullable, other than the keys of a map."""
    if isinstance(kind, pa.BaseExtensionType):
        return bool(has_required(kind.storage_type))
    if pa.types.is_dictionary(kind):
        return bool(has_required(kind.value_type))
    if pa.types.is_map(kind):
        fields = [kind.item_field, kind.key_field.with_nullable(True)]
    else:
        fields = [kind.field(index) for index in range(kind.num_fields)]
    has_own = not (pa.types.is_union(kind) or pa.types.is_run_end_encoded(kind))
    return any((has_own and not field.nullable) or has_required(field.type) for field in fields)


def null_of_required(array: pa.Array) -> str | None:
    """Name of a field inside of an array that is not nullable and has a null; None if there is none.

    Notes
    -----
    What stands below a null of a struct or list does not count. Fields of unions and run ends are not
    looked into.
    """
    if not has_required(array.type):
        return None
    for field, values, is_shown in _parts(array):
        if not field.nullable:
            is_null = values.is_null()
            if pc.any(is_null if is_shown is None else pc.and_(is_null, is_shown), min_count=0).as_py():
                return str(field.name)
        found = null_of_required(values)
        if found is not None:
            return found
    return None


def _parts(array: pa.Array) -> Iterator[tuple[pa.Field, pa.Array, pa.Array | None]]:
    """Iterate over the fields of an array, their values, and which values are visible; None for all."""
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        yield from _parts(array.storage)
    elif pa.types.is_dictionary(kind):
        yield pa.field("value", kind.value_type), array.dictionary, None
    elif pa.types.is_struct(kind):
        is_shown = array.is_valid() if array.null_count else None
        for field, values in zip(kind, struct_fields(array), strict=True):
            yield field, values, is_shown
    elif pa.types.is_map(kind):
        entries = children(array)[0]
        own = array.buffers()[: list_buffers(kind)]
        lists = pa.Array.from_buffers(
            pa.list_(entries.type), len(array), own, array.null_count, array.offset, [entries]
        )
        yield pa.field("entries", entries.type), lists.flatten(), None
    elif list_buffers(kind):
        yield kind.field(0), array.flatten(), None
