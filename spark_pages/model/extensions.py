"""Extension types, which give a name to a type that Arrow has: the entries are the same with it and without.

Whether Arrow knows the name is a matter of the process, and of when `pyarrow.register_extension_type` was
called in it. So pages of one column may hold its values under the extension type or under what it is stored
as, and the definition that a process has in mind may say either.
"""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa

from spark_pages.model.nested import children, nested_type, with_children


@lru_cache(256)
def storage_of(kind: pa.DataType) -> pa.DataType:
    """The type without extension types, at its top and inside of it: what the entries are stored as."""
    if isinstance(kind, pa.BaseExtensionType):
        return storage_of(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, storage_of(kind.value_type), kind.ordered)
    fields = [kind.field(index) for index in range(kind.num_fields)]
    stored = [field.with_type(storage_of(field.type)) for field in fields]
    return nested_type(kind, stored) if stored != fields else kind


def renamed(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same entries under a type that is stored as theirs is; no copy of values.

    Parameters
    ----------
    kind
        One whose `storage_of` is that of the array's type.
    """
    if array.type == kind:
        return array
    if isinstance(array, pa.ExtensionArray):
        return renamed(array.storage, kind)
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, renamed(array, kind.storage_type))
    if pa.types.is_dictionary(kind):
        values = renamed(array.dictionary, kind.value_type)
        return pa.DictionaryArray.from_arrays(array.indices, values, ordered=kind.ordered)
    inside = [renamed(each, kind.field(index).type) for index, each in enumerate(children(array))]
    return with_children(array, kind, inside)
