"""Nulls in fields inside of a type that are not nullable, which Arrow does not look for. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from spark_pages.arrow.nested import children, list_buffers, struct_fields


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
    """The fields inside of an array, their values, and which of them are shown; None for all."""
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
