"""What the catalog keeps beside names and types: comments, properties, domains, earlier types. Pure.

It rides in the metadata of the Arrow schema and of its fields, under keys that begin with ``spark_pages.``,
so that a definition stays one value. Users never see these keys in ``table.schema``; ``system.tables`` and
``system.columns`` show what they hold.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

import pyarrow as pa

from spark_pages.errors import DamageError
from spark_pages.model.table import (
    COMMENT_KEY,
    OWN_KEYS,
    PROPERTIES_KEY,
    TYPE_KEY,
)

Described = TypeVar("Described", pa.Field, pa.Schema)


def fact(described: pa.Field | pa.Schema, key: bytes) -> str | None:
    """What is kept under a key."""
    value = (described.metadata or {}).get(key)
    return None if value is None else value.decode()


def with_fact(described: Described, key: bytes, value: str | None) -> Described:
    """The same with something else under a key; None takes it away."""
    metadata = {name: each for name, each in (described.metadata or {}).items() if name != key}
    if value is not None:
        metadata[key] = value.encode()
    return described.with_metadata(metadata or None)


def json_fact(described: pa.Field | pa.Schema, key: bytes, empty: Any) -> Any:
    """What is kept under a key as JSON; `empty` where there is nothing.

    Raises
    ------
    DamageError
        If it is no JSON of that sort.
    """
    text = fact(described, key)
    if text is None:
        return empty
    try:
        value = json.loads(text)
    except ValueError as error:
        raise DamageError(f"Cannot read {key.decode()} of the catalog: {text[:80]!r} is no JSON.") from error
    if not isinstance(value, type(empty)):
        raise DamageError(
            f"Cannot read {key.decode()} of the catalog: expected a {type(empty).__name__}, found "
            f"{text[:80]!r}."
        )
    return value


def with_json_fact(described: Described, key: bytes, value: Any) -> Described:
    """The same with something else under a key, as JSON; what is empty takes it away."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":")) if value else None
    return with_fact(described, key, text)


def column_properties(column: pa.Field) -> dict[str, str]:
    """The properties of a column."""
    properties: dict[str, str] = json_fact(column, PROPERTIES_KEY, {})
    return properties


def without_facts(column: pa.Field) -> pa.Field:
    """The column as a user means it: of what the catalog keeps, only the type that it was given."""
    kept = {
        key: value
        for key, value in (column.metadata or {}).items()
        if not key.startswith(OWN_KEYS) or key == TYPE_KEY
    }
    return column.with_metadata(kept or None)


def without_own_metadata(schema: pa.Schema) -> pa.Schema:
    """The schema of a new table as a user means it, whatever table it was taken from."""
    metadata = {key: value for key, value in (schema.metadata or {}).items() if not key.startswith(OWN_KEYS)}
    return pa.schema([without_facts(column) for column in schema], metadata=metadata or None)


def column_metadata(column: pa.Field) -> dict[str, Any]:
    """What `ColMeta.metadata` says of a column: its type in words, and what is kept beside it."""
    told: dict[str, Any] = {"type": str(column.type)}
    for name, key in (("comment", COMMENT_KEY), ("alias", TYPE_KEY)):
        value = fact(column, key)
        if value is not None:
            told[name] = value
    properties = column_properties(column)
    return {**told, "properties": properties} if properties else told
