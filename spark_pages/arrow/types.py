"""Types that say the same in another way, and arrays brought from one to the other.

**Extension types** give a name to a type that Arrow has. Whether Arrow knows the name is a matter of the
process, and of when `pyarrow.register_extension_type` was called in it. So pages of one column may hold its
values under the extension type or under what it is stored as, and the definition that a process has in mind
may say either.

**Views** of text and binary are large text and binary with more freedom, of which Arrow takes no entries.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

import pyarrow as pa

from spark_pages.arrow.nested import children, nested_type, with_children

Change: TypeAlias = Callable[[pa.DataType], pa.DataType]


@lru_cache(256)
def storage_of(kind: pa.DataType) -> pa.DataType:
    """The type without extension types, at its top and inside of it: what the entries are stored as."""
    if isinstance(kind, pa.BaseExtensionType):
        return storage_of(kind.storage_type)
    return _with(storage_of, kind)


@lru_cache(256)
def without_views(kind: pa.DataType) -> pa.DataType:
    """The type with large text and binary in place of views, at its top and inside of it.

    Notes
    -----
    Where there are views, it is without extension types, too.
    """
    if isinstance(kind, pa.BaseExtensionType):
        stored = without_views(kind.storage_type)
        return kind if stored == kind.storage_type else stored
    if pa.types.is_string_view(kind):
        return pa.large_string()
    return pa.large_binary() if pa.types.is_binary_view(kind) else _with(without_views, kind)


def _with(change: Change, kind: pa.DataType) -> pa.DataType:
    """The type with others inside of it."""
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, change(kind.value_type), kind.ordered)
    fields = [kind.field(index) for index in range(kind.num_fields)]
    changed = [field.with_type(change(field.type)) for field in fields]
    return nested_type(kind, changed) if changed != fields else kind


def retyped(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same entries under a type that differs in extension types and views; other values are not copied.

    Parameters
    ----------
    kind
        One that has `storage_of` or `without_views` in common with the array's.
    """
    if array.type == kind:
        return array
    if isinstance(array, pa.ExtensionArray):
        return retyped(array.storage, kind)
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, retyped(array, kind.storage_type))
    if pa.types.is_dictionary(kind):
        values = retyped(array.dictionary, kind.value_type)
        return pa.DictionaryArray.from_arrays(array.indices, values, ordered=kind.ordered)
    if not kind.num_fields:
        return array.cast(kind)
    inside = [retyped(each, kind.field(index).type) for index, each in enumerate(children(array))]
    return with_children(array, kind, inside)
