"""The definition of a table: its name, columns and properties at one version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa

from spark_pages.errors import DamageError, InvalidInputError
from spark_pages.model.ids import FieldId, TableId

FIELD_ID_KEY = b"spark_pages.field_id"
"""Key of the field metadata that holds a column's id, in decimal digits."""

DEFAULT_NAMESPACE = 0
"""The persistent namespace that every store has."""


@dataclass(frozen=True)
class TableDefinition:
    """What the catalog says of one table.

    Attributes
    ----------
    table_id
        Never used twice; negative while the transaction that creates the table is not committed.
    namespace_id, name
        Where names are looked up; a name is unique in its namespace.
    schema
        Arrow schema; each field's metadata holds its id.
    next_field_id
        The id that the next new column gets.
    aligned
        Whether all columns hold equally many rows after every commit.
    properties
        Free text by key.
    created_at_us
        Microseconds since the epoch, of the transaction that created it.
    """

    table_id: TableId
    name: str
    schema: pa.Schema
    next_field_id: int
    namespace_id: int = DEFAULT_NAMESPACE
    aligned: bool = True
    properties: Mapping[str, str] = field(default_factory=dict)
    created_at_us: int = 0

    @cached_property
    def field_ids(self) -> dict[str, FieldId]:
        """Column name to field id, in column order."""
        return {column.name: _field_id(column, self.name) for column in self.schema}

    @cached_property
    def bare_schema(self) -> pa.Schema:
        """The schema as users gave it, without field ids."""
        return pa.schema([_without_id(column) for column in self.schema], metadata=self.schema.metadata)


def with_field_ids(schema: pa.Schema, first: int = 1) -> pa.Schema:
    """The schema with consecutive field ids from `first` on.

    Raises
    ------
    InvalidInputError
        If there is no column, or a name is empty or used twice.
    """
    names = schema.names
    if not names:
        raise InvalidInputError("Cannot create a table without columns: expected at least one.")
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled or "" in names:
        raise InvalidInputError(
            f"Column names must be unique and not empty; found "
            f"{', '.join(map(repr, doubled)) or 'an empty name'}."
        )
    fields = [
        column.with_metadata({**(column.metadata or {}), FIELD_ID_KEY: str(first + index).encode()})
        for index, column in enumerate(schema)
    ]
    return pa.schema(fields, metadata=schema.metadata)


def _field_id(column: pa.Field, table: str) -> FieldId:
    try:
        return FieldId(int((column.metadata or {})[FIELD_ID_KEY]))
    except (KeyError, ValueError):
        raise DamageError(
            f"Column {column.name!r} of table {table!r} has no field id in the catalog."
        ) from None


def _without_id(column: pa.Field) -> pa.Field:
    kept = {key: value for key, value in (column.metadata or {}).items() if key != FIELD_ID_KEY}
    return column.with_metadata(kept or None)
