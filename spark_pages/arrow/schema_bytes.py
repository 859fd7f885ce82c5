"""Arrow schemas as the catalog stores them, read back also where a class of an extension type fails. Pure.

Arrow makes extension types while it reads a schema, and gives up the whole schema if one of their classes
raises, such as another release of a library. `schema_from_bytes` reads such a schema without its extension
types, then field by field with them. A field that fails becomes an *unavailable column*: it has the type that
its values are stored as, and its metadata hold the field as it was written and why it cannot be made, so that
`schema_to_bytes` gives the bytes that were read.
"""

from __future__ import annotations

import pyarrow as pa

from spark_pages.arrow.nested import nested_type

UNAVAILABLE_KEY = b"spark_pages.unavailable"
"""Why the type of a column cannot be constructed in this process; never written."""

WRITTEN_KEY = b"spark_pages.written"
"""The type of that column as it was written, as the schema of a field without a name; never written."""

NAME_KEY = b"ARROW:extension:name"
_ARROW_KEYS = (NAME_KEY, b"ARROW:extension:metadata")
_HIDDEN = b"ARROW:extension\x00name"
"""As long as the key of Arrow, so that it takes its place in the bytes of a schema."""


def schema_to_bytes(schema: pa.Schema) -> bytes:
    """The schema in the form of an Arrow message, unavailable columns as they were read."""
    if any(map(unavailable, schema)):
        schema = pa.schema([_as_written(field) for field in schema], metadata=schema.metadata)
    data: bytes = schema.serialize().to_pybytes()
    return data


def schema_from_bytes(data: bytes) -> pa.Schema:
    """The schema of such bytes; columns whose types cannot be constructed are unavailable.

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
    """What a field of an extension type says in a schema: its name and its parameters."""
    field = _without_extensions(pa.schema([pa.field("", kind)]).serialize().to_pybytes()).field(0)
    return {_shown(key): value for key, value in field.metadata.items()}


def _without_extensions(data: bytes) -> pa.Schema:
    """The schema with types as they are stored, and names of extension types under a key of ours."""
    return pa.ipc.read_schema(pa.py_buffer(data.replace(NAME_KEY, _HIDDEN)))


def _as_written(field: pa.Field) -> pa.Field:
    metadata = dict(field.metadata or {})
    if UNAVAILABLE_KEY not in metadata:
        return field
    written = _revealed(_without_extensions(metadata[WRITTEN_KEY]).field(0))
    kept = {key: value for key, value in metadata.items() if key not in (UNAVAILABLE_KEY, WRITTEN_KEY)}
    return pa.field(field.name, written.type, field.nullable, metadata={**(written.metadata or {}), **kept})


def _revealed(field: pa.Field) -> pa.Field:
    """The field with names of extension types under the key of Arrow, also inside of it."""
    metadata = {_shown(key): _shown(value) for key, value in (field.metadata or {}).items()}
    name = _shown(field.name.encode()).decode()
    return pa.field(name, _with_fields(field.type, _revealed), field.nullable, metadata=metadata or None)


def _bare(field: pa.Field, more: dict[bytes, bytes] | None = None) -> pa.Field:
    """The field without names of extension types, also inside of it."""
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
