"""The types that columns can have, and values of every other type brought to one of them. Pure.

`stored_type` is the one place that says which types there are. Types that lay out the same values in another
way are converted on the way in, which loses nothing:

| given | stored as |
|---|---|
| views of text, binary and lists | large text, large binary, lists |
| dictionaries of values with dictionaries, unions, run ends or extension types inside | these values |

Arrow cannot write dictionaries of dictionaries or of extension types as a schema, and takes such types for
equal although their indices differ.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.arrow.columns import has_dictionary, number_column, numbers_of, valid_of
from spark_pages.arrow.compact import take
from spark_pages.arrow.dictionaries import concatenated
from spark_pages.arrow.nested import (
    children,
    has_run_ends,
    has_union,
    nested_type,
    null_column,
    with_children,
)

# Arrow schemas as the catalog stores them, read back also where a class of an extension type fails. Pure.
#
# Arrow makes extension types while it reads a schema, and gives up the whole schema if one of their classes
# raises, such as another release of a library. `schema_from_bytes` reads such a schema without its extension
# types, then field by field with them. A field that fails becomes an *unavailable column*: it has the type
# that its values are stored as, and its metadata hold the field as it was written and why it cannot be made,
# so that `schema_to_bytes` gives the bytes that were read.

UNAVAILABLE_KEY = b"spark_pages.unavailable"
"""Why the type of a column cannot be constructed in this process; never written."""

WRITTEN_KEY = b"spark_pages.written"
"""The type of that column as it was written, as the schema of a field without a name; never written."""

NAME_KEY = b"ARROW:extension:name"
_ARROW_KEYS = (NAME_KEY, b"ARROW:extension:metadata")
_HIDDEN = b"ARROW:extension\x00name"
"""As long as the key of Arrow, so that it takes its place in the bytes of a schema."""


def schema_to_bytes(schema: pa.Schema) -> bytes:
    """Encode a schema as an Arrow message; unavailable columns keep their bytes."""
    if any(map(unavailable, schema)):
        schema = pa.schema([_as_written(field) for field in schema], metadata=schema.metadata)
    data: bytes = schema.serialize().to_pybytes()
    return data


def schema_from_bytes(data: bytes) -> pa.Schema:
    """Decode a schema. Columns whose types cannot be constructed are unavailable.

    Raises
    ------
    pyarrow.ArrowException, OSError, ValueError
        If these bytes are no schema.
    """
    buffer = pa.py_buffer(data)
    if NAME_KEY not in data:
        return pa.ipc.read_schema(buffer)
    hidden = _without_extensions(data)
    try:
        schema = pa.ipc.read_schema(buffer)
        for made, written in zip(schema, hidden, strict=True):
            _check_classes(made, _names(written))
    except Exception:  # noqa: BLE001, S110 - of a class of somebody else
        pass
    else:
        return schema
    fields = []
    for field in hidden:
        revealed = _revealed(field)
        try:
            made = pa.ipc.read_schema(pa.schema([revealed]).serialize()).field(0)
            _check_classes(made, _names(field))
            fields.append(made)
        except Exception as error:  # noqa: BLE001 - of a class of somebody else
            told = {key: each for key, each in (revealed.metadata or {}).items() if key in _ARROW_KEYS}
            written = pa.schema([pa.field("", revealed.type, metadata=told)]).serialize().to_pybytes()
            fields.append(_bare(field, {UNAVAILABLE_KEY: _reason(field, error), WRITTEN_KEY: written}))
    metadata = {_shown(key): _shown(value) for key, value in (hidden.metadata or {}).items()}
    return pa.schema(fields, metadata=metadata or None)


def unavailable(field: pa.Field) -> str | None:
    """Why the type of a column cannot be constructed in this process; None where it can."""
    reason = (field.metadata or {}).get(UNAVAILABLE_KEY)
    return None if reason is None else reason.decode()


def extension_metadata(kind: pa.DataType) -> dict[bytes, bytes]:
    """Return the schema metadata of an extension type: its name and its parameters."""
    field = _without_extensions(pa.schema([pa.field("", kind)]).serialize().to_pybytes()).field(0)
    return {_shown(key): value for key, value in field.metadata.items()}


def _without_extensions(data: bytes) -> pa.Schema:
    """Decode a schema to storage types, with the names of extension types under an own key."""
    return pa.ipc.read_schema(pa.py_buffer(data.replace(NAME_KEY, _HIDDEN)))


def _as_written(field: pa.Field) -> pa.Field:
    metadata = dict(field.metadata or {})
    if UNAVAILABLE_KEY not in metadata:
        return field
    written = _revealed(_without_extensions(metadata[WRITTEN_KEY]).field(0))
    kept = {key: value for key, value in metadata.items() if key not in (UNAVAILABLE_KEY, WRITTEN_KEY)}
    return pa.field(field.name, written.type, field.nullable, metadata={**(written.metadata or {}), **kept})


def _revealed(field: pa.Field) -> pa.Field:
    """Restore the names of extension types under Arrow's key, also in nested fields."""
    metadata = {_shown(key): _shown(value) for key, value in (field.metadata or {}).items()}
    name = _shown(field.name.encode()).decode()
    return pa.field(name, _with_fields(field.type, _revealed), field.nullable, metadata=metadata or None)


def _bare(field: pa.Field, more: dict[bytes, bytes] | None = None) -> pa.Field:
    """Remove the names of extension types, also from nested fields."""
    metadata = {
        _shown(key): _shown(value)
        for key, value in (field.metadata or {}).items()
        if _shown(key) not in _ARROW_KEYS
    }
    name = _shown(field.name.encode()).decode()
    return pa.field(
        name, _with_fields(field.type, _bare), field.nullable, metadata={**metadata, **(more or {})} or None
    )


def _with_fields(kind: pa.DataType, change: object) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _with_fields(kind.value_type, change), kind.ordered)
    fields = [kind.field(index) for index in range(kind.num_fields)]
    return nested_type(kind, [change(field) for field in fields]) if fields else kind  # type: ignore[operator]


def _shown(text: bytes) -> bytes:
    return text.replace(_HIDDEN, NAME_KEY)


def _reason(field: pa.Field, error: Exception) -> bytes:
    names = sorted(_names(field))
    return f"extension type {', '.join(names)} cannot be constructed: {error!r}".encode()


def _check_classes(made: pa.Field, written: set[str]) -> None:
    """Raise an exception if classes of extension types have made other types, or ones that cannot be used."""
    found = _made_names(made)
    if not written <= found:
        raise TypeError(f"its class makes a type of another name than {', '.join(sorted(written - found))}")


def _made_names(made: pa.Field) -> set[str]:
    """Names of the extension types that a field and what is inside of it have, or have as metadata only."""
    own = (made.metadata or {}).get(NAME_KEY)
    names = {own.decode(errors="replace")} if own is not None else set()
    kind = made.type
    while isinstance(kind, pa.BaseExtensionType):
        told = hash(kind), str(kind)  # which may raise
        if not kind.__eq__(kind):
            raise TypeError(f"its class makes types that do not equal themselves: {told[1]}")
        names.add(kind.extension_name)
        kind = kind.storage_type
    if pa.types.is_dictionary(kind):
        return names | _made_names(pa.field("", kind.value_type))
    return names.union(*(_made_names(kind.field(index)) for index in range(kind.num_fields)))


def _names(field: pa.Field) -> set[str]:
    """Names of the extension types of a field and inside of it."""
    own = (field.metadata or {}).get(_HIDDEN)
    names = {own.decode(errors="replace")} if own is not None else set()
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    return names.union(*(_names(kind.field(index)) for index in range(kind.num_fields)))


MAX_DEPTH = 48
"""Levels of nesting. Arrow reads 64 of a schema, some of which its own messages take."""

MAX_ENTRY_BYTES = 256 << 20
"""Bytes that one entry of a fixed size may take: a null takes as many."""

_LEAVES = frozenset(
    kind.id
    for kind in (
        *(pa.null(), pa.bool_(), pa.float16(), pa.float32(), pa.float64()),
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.decimal32(1), pa.decimal64(1), pa.decimal128(1), pa.decimal256(1)),
        *(pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us"), pa.timestamp("us"), pa.duration("us")),
        pa.month_day_nano_interval(),
        *(pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.binary(1)),
    )
)
_NESTED = frozenset(
    kind.id
    for kind in (
        *(pa.list_(pa.null()), pa.large_list(pa.null()), pa.list_(pa.null(), 1)),
        *(pa.struct([]), pa.map_(pa.int8(), pa.int8()), pa.dense_union([]), pa.sparse_union([])),
    )
)
_VIEWS = {
    pa.string_view().id: pa.large_string(),
    pa.binary_view().id: pa.large_binary(),
}
_LIST_VIEWS = {pa.list_view(pa.null()).id: pa.list_, pa.large_list_view(pa.null()).id: pa.large_list}


class UnsupportedTypeError(ValueError):
    """No column can be of a type; never leaves the package.

    Parameters
    ----------
    reason, remedy
        For the message and the hint of the error that users see.
    """

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.remedy = remedy


def check_depth(kind: pa.DataType) -> None:
    """Raise UnsupportedTypeError if a type is nested too deeply for functions that recurse."""
    level, depth = [kind], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise UnsupportedTypeError(
                f"it is nested more than {MAX_DEPTH} levels deep", "Flatten it, or store it as JSON text."
            )
        inner: list[pa.DataType] = []
        for each in level:
            if isinstance(each, pa.BaseExtensionType):
                inner.append(each.storage_type)
            elif pa.types.is_dictionary(each):
                inner.append(each.value_type)
            else:
                inner += [each.field(index).type for index in range(each.num_fields)]
        level = inner


def stored_type(kind: pa.DataType) -> pa.DataType:
    """Return the column type that stores values of a type: the type itself, or one with the same values.

    Raises
    ------
    UnsupportedTypeError
        If no column can hold them.

    Notes
    -----
    For types that `check_depth` accepts. Not cached: types are equal whatever the metadata of fields inside
    of them say, which a column keeps.
    """
    types = pa.types
    if kind.id in _LEAVES:
        _check_size(kind)
        return kind
    if kind.id in _VIEWS:
        return _VIEWS[kind.id]
    if isinstance(kind, pa.BaseExtensionType):
        return _stored_extension(kind)
    if types.is_dictionary(kind):
        values = stored_type(kind.value_type)
        if any(has(values) for has in (has_dictionary, has_run_ends, has_union, _has_extension)):
            return values
        return kind if values == kind.value_type else pa.dictionary(kind.index_type, values, kind.ordered)
    if types.is_run_end_encoded(kind):
        values = stored_type(kind.value_type)
        if has_dictionary(values) or has_run_ends(values):
            raise UnsupportedTypeError(
                f"Arrow cannot look at run-end encoded values of type {values}", f"Give it the type {values}."
            )
        return kind if values == kind.value_type else pa.run_end_encoded(kind.run_end_type, values)
    if kind.id in _LIST_VIEWS:
        return _LIST_VIEWS[kind.id](_stored_field(kind.value_field))
    if kind.id not in _NESTED:
        raise UnsupportedTypeError("this release has no pages of that type", "Cast it to another type.")
    if types.is_map(kind):  # a schema that is read back has these names, whatever they were
        key, item = _stored_field(kind.key_field), _stored_field(kind.item_field)
        return pa.map_(key.with_name("key"), item.with_name("value"), kind.keys_sorted)
    fields = [kind.field(index) for index in range(kind.num_fields)]
    stored = [_stored_field(field) for field in fields]
    _check_size(kind)
    return nested_type(kind, stored)


def _stored_field(field: pa.Field) -> pa.Field:
    return field.with_type(stored_type(field.type))


def _stored_extension(kind: pa.BaseExtensionType) -> pa.DataType:
    """Return the extension type over its stored storage type, or itself if its class refuses that."""
    stored = stored_type(kind.storage_type)
    if stored == kind.storage_type:
        return kind
    try:  # a schema that is read back makes the type by its class, be that of Python or of C++
        again = pa.schema([pa.field("", stored, metadata=extension_metadata(kind))]).serialize()
        made = pa.ipc.read_schema(again).field(0).type
    except Exception:  # noqa: BLE001 - of a class of somebody else
        return kind
    return made if isinstance(made, pa.BaseExtensionType) and made.storage_type == stored else kind


def _has_extension(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return True
    return any(_has_extension(kind.field(index).type) for index in range(kind.num_fields))


def _check_size(kind: pa.DataType) -> None:
    size = entry_bytes(kind)
    if size > MAX_ENTRY_BYTES:
        raise UnsupportedTypeError(
            f"each entry takes {size} bytes, more than {MAX_ENTRY_BYTES}", "Use a type of variable length."
        )


def entry_bytes(kind: pa.DataType) -> int:
    """Bytes that any entry of a type takes at least, also a null."""
    if isinstance(kind, pa.BaseExtensionType):
        return entry_bytes(kind.storage_type)
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size) * max(1, entry_bytes(kind.value_type))
    if pa.types.is_struct(kind) or pa.types.is_union(kind):
        return sum(entry_bytes(kind.field(index).type) for index in range(kind.num_fields))
    try:
        return int(kind.bit_width) // 8
    except ValueError:
        return 0


def same_type(one: pa.DataType, two: pa.DataType) -> bool:
    """Whether two types are the same; Arrow overlooks indices of dictionaries whose values it cannot name."""
    if one != two:
        return False
    if one.id in _LEAVES:
        return True
    if isinstance(one, pa.BaseExtensionType):
        return same_type(one.storage_type, two.storage_type)
    if pa.types.is_dictionary(one):
        indices = one.index_type == two.index_type and one.ordered == two.ordered
        return indices and same_type(one.value_type, two.value_type)
    if not has_dictionary(one):
        return True
    return all(same_type(one.field(at).type, two.field(at).type) for at in range(one.num_fields))


def stored_values(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert entries to their `stored_type`, without a copy if that is their type.

    Parameters
    ----------
    kind
        That type.

    Raises
    ------
    pyarrow.ArrowInvalid
        If one array cannot hold them.
    """
    if same_type(array.type, kind):
        return array
    if isinstance(array, pa.ExtensionArray):
        return pa.ExtensionArray.from_storage(kind, stored_values(array.storage, kind.storage_type))
    if pa.types.is_dictionary(array.type):
        return _stored_dictionary(array, kind)
    if array.type.id in _VIEWS:
        return array.cast(kind)
    if array.type.id in _LIST_VIEWS:
        return _stored_list(array, kind)
    inside = [stored_values(each, kind.field(index).type) for index, each in enumerate(children(array))]
    return with_children(array, kind, inside)


def _stored_dictionary(array: pa.DictionaryArray, kind: pa.DataType) -> pa.Array:
    stored = stored_type(array.type.value_type)
    values = stored_values(array.dictionary, stored)
    if pa.types.is_dictionary(kind) and kind.value_type == stored:
        return pa.DictionaryArray.from_arrays(array.indices, values, ordered=kind.ordered)
    valid = valid_of(array.indices)
    places = np.where(valid, numbers_of(array.indices).astype(np.int64), len(values))
    return take(concatenated([values, null_column(kind, 1)], kind), number_column(places, pa.int64()))


def _stored_list(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert a list view to a list."""
    valid = valid_of(array)
    sizes = np.where(valid, numbers_of(array.sizes), 0).astype(np.int64)
    begins = np.where(sizes > 0, numbers_of(array.offsets), 0).astype(np.int64)
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    offset_type: type[np.int32] | type[np.int64] = np.int32 if pa.types.is_list(kind) else np.int64
    if ends[-1] > np.iinfo(offset_type).max:
        raise pa.ArrowInvalid(f"{ends[-1]} values of lists, more than one array of {kind} holds")
    values = stored_values(_contiguous_values(array.values, begins, sizes, ends), kind.value_type)
    bitmap = array.is_valid().buffers()[1] if array.null_count else None
    return pa.Array.from_buffers(
        kind, len(array), [bitmap, pa.py_buffer(ends.astype(offset_type))], array.null_count, 0, [values]
    )


def _contiguous_values(
    values: pa.Array, begins: NDArray[np.int64], sizes: NDArray[np.int64], ends: NDArray[np.int64]
) -> pa.Array:
    """Return the values of views one after another; a slice if they already are."""
    filled = np.flatnonzero(sizes)
    first = int(begins[filled[0]]) if len(filled) else 0
    if (begins[filled] - first == ends[:-1][filled]).all():
        return values.slice(first, int(ends[-1]))
    places = np.arange(ends[-1]) + np.repeat(begins - ends[:-1], sizes)
    return take(values, number_column(places, pa.int64()))
