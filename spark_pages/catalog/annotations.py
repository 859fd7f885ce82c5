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
    """Return the annotation under a key."""
    value = (described.metadata or {}).get(key)
    return None if value is None else value.decode()


def with_fact(described: Described, key: bytes, value: str | None) -> Described:
    """Set the annotation under a key; None removes it."""
    metadata = {name: each for name, each in (described.metadata or {}).items() if name != key}
    if value is not None:
        metadata[key] = value.encode()
    return described.with_metadata(metadata or None)


def json_fact(described: pa.Field | pa.Schema, key: bytes, empty: Any) -> Any:
    """Return the JSON annotation under a key, or `empty`.

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
    """Set the JSON annotation under a key; an empty value removes it."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":")) if value else None
    return with_fact(described, key, text)


def column_properties(column: pa.Field) -> dict[str, str]:
    """Return the properties of a column."""
    properties: dict[str, str] = json_fact(column, PROPERTIES_KEY, {})
    return properties


def without_facts(column: pa.Field) -> pa.Field:
    """Remove the catalog's annotations from a column, except the type that it was given."""
    kept = {
        key: value
        for key, value in (column.metadata or {}).items()
        if not key.startswith(OWN_KEYS) or key == TYPE_KEY
    }
    return column.with_metadata(kept or None)


def without_own_metadata(schema: pa.Schema) -> pa.Schema:
    """Remove the catalog's metadata from a schema, which may come from another table."""
    metadata = {key: value for key, value in (schema.metadata or {}).items() if not key.startswith(OWN_KEYS)}
    return pa.schema([without_facts(column) for column in schema], metadata=metadata or None)


def column_metadata(column: pa.Field) -> dict[str, Any]:
    """Return the content of `ColMeta.metadata`: the type in words, and the annotations."""
    told: dict[str, Any] = {"type": str(column.type)}
    for name, key in (("comment", COMMENT_KEY), ("alias", TYPE_KEY)):
        value = fact(column, key)
        if value is not None:
            told[name] = value
    properties = column_properties(column)
    return {**told, "properties": properties} if properties else told
