"""Types that say the same in another way, and arrays brought from one to the other.

**Extension types** give a name to a type that Arrow has. Whether Arrow knows the name is a matter of the
process, and of when `pyarrow.register_extension_type` was called in it. So pages of one column may hold its
values under the extension type or under what it is stored as, and the definition that a process has in mind
may say either.

**Views** of text and binary are large text and binary with more freedom, of which Arrow takes no entries.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from spark_pages.arrow.nested import children, nested_type, with_children

Change: TypeAlias = Callable[[pa.DataType], pa.DataType]


@lru_cache(256)
def storage_of(kind: pa.DataType) -> pa.DataType:
    """Return the storage type, without extension types at any level."""
    if isinstance(kind, pa.BaseExtensionType):
        return storage_of(kind.storage_type)
    return _with(storage_of, kind)


@lru_cache(256)
def without_views(kind: pa.DataType) -> pa.DataType:
    """Replace views by large text and binary, at any level.

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
    """Apply a change to the nested types of a type."""
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, change(kind.value_type), kind.ordered)
    fields = [kind.field(index) for index in range(kind.num_fields)]
    changed = [field.with_type(change(field.type)) for field in fields]
    return nested_type(kind, changed) if changed != fields else kind


def retyped(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the same entries under a type that differs in extension types and views, without copying others.

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


_SIGNED = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_UNSIGNED = (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
_FLOATS = (pa.float32(), pa.float64())
_TEXT = (pa.string(), pa.large_string())
_BYTES = (pa.binary(), pa.large_binary())
_FAMILIES = (_SIGNED, _UNSIGNED, _FLOATS, _TEXT, _BYTES)
_DECIMAL = re.compile(r"decimal(128|256)\(([0-9]+), (-?[0-9]+)\)")


def holds_all(wider: pa.DataType, narrow: pa.DataType) -> bool:
    """Whether each value of the second type is one of the first."""
    return wider == narrow or (same_family(narrow, wider) and _rank(narrow) < _rank(wider))


def same_family(one: pa.DataType, two: pa.DataType) -> bool:
    """Whether values of both types mean the same, so that one of them can become the other."""
    if one == two or any(one in family and two in family for family in _FAMILIES):
        return True
    decimals = pa.types.is_decimal(one) and one.id == two.id
    return bool(decimals and one.scale == two.scale)


def can_hold(column: pa.DataType, page: pa.DataType) -> bool:
    """Whether values of a page may be values of a column, which may have got its type or its name since."""
    return same_family(storage_of(column), storage_of(page))


def cast_to_column(values: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """Cast the values of a page to the type of their column; None if one value does not fit.

    Parameters
    ----------
    values
        Of one of the types under which pages of the column may hold values.
    """
    if holds_all(kind, values.type):
        return values.cast(kind)
    try:
        cast = values.cast(kind)
    except pa.ArrowInvalid:
        return None
    if pa.types.is_floating(kind):  # which Arrow rounds
        back = cast.cast(values.type)
        kept = pc.or_(pc.equal(back, values), pc.and_(pc.is_nan(back), pc.is_nan(values)))
        return cast if pc.all(kept, min_count=0).as_py() else None
    return cast


def _rank(kind: pa.DataType) -> int:
    for family in _FAMILIES:
        if kind in family:
            return family.index(kind)
    return int(kind.precision)


def named_type(name: str) -> pa.DataType | None:
    """Return the type of a family that has this name; None if no family has it."""
    for kind in (each for family in _FAMILIES for each in family):
        if str(kind) == name:
            return kind
    found = _DECIMAL.fullmatch(name)
    if found is None:
        return None
    make = pa.decimal128 if found[1] == "128" else pa.decimal256
    return make(int(found[2]), int(found[3]))
