"""The definition of a table: its name, columns and properties at one version."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa

from spark_pages.arrow.stored_types import unavailable
from spark_pages.errors import DamageError, InvalidInputError
from spark_pages.model.ids import LIVENESS, FieldId, TableId
from spark_pages.model.immutable import FrozenDict, freeze

OWN_KEYS = b"spark_pages."
"""Metadata under keys that begin so is the catalog's own; users see it in ``system.columns``."""

FIELD_ID_KEY = b"spark_pages.field_id"
"""Key of the field metadata that holds a column's id, in decimal digits."""

NAMESPACE_KEY = b"spark_pages.namespace"
"""Key of the schema metadata that holds the name of the table's namespace, where that is one of its own."""

COMMENT_KEY = b"spark_pages.comment"
"""A comment, of a column or of a table."""

TYPE_KEY = b"spark_pages.type"
"""The name of the type that a column was given."""

CHECKS_KEY = b"spark_pages.checks"
"""What values of a column meet because of its type: a JSON list of pairs of type and SQL text."""

PROPERTIES_KEY = b"spark_pages.properties"
"""Free text by key, of a column: a JSON object."""

STORED_KEY = b"spark_pages.stored"
"""Types under which pages of the column may hold values beside its own: a JSON list of their names."""

CONSTRAINTS_KEY = b"spark_pages.constraints"
"""Constraints of a table: a JSON list."""

DEFAULT_NAMESPACE = 0
"""The persistent namespace that every store has."""

TEMPORARY_NAMESPACE = 1
"""The namespace of tables that end with their transaction."""

FIRST_NAMESPACE = 2
"""The smallest id of a namespace that users make; it is the id of the object that describes it."""

SYSTEM_NAMESPACE = -1
"""Namespace of table 0; users cannot create tables in it."""

NAMESPACE_NAMES = -2
"""Where names of namespaces are looked up: what lies here describes a namespace, not a table."""

TYPE_NAMES = -3
"""Where names of types are looked up: what lies here describes a type, not a table."""

BUILT_IN = {"default": DEFAULT_NAMESPACE, "temp": TEMPORARY_NAMESPACE, "system": SYSTEM_NAMESPACE}
"""The namespaces that are always there."""

_BUILT_IN_NAMES = {number: name for name, number in BUILT_IN.items()}


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

    def __post_init__(self) -> None:
        freeze(self, "properties")

    @property
    def is_table(self) -> bool:
        """Whether it describes a table, and not a namespace or a type."""
        return self.namespace_id not in (NAMESPACE_NAMES, TYPE_NAMES)

    @property
    def namespace(self) -> str:
        """The name of its namespace; empty for what is no table."""
        if self.namespace_id in _BUILT_IN_NAMES:
            return _BUILT_IN_NAMES[self.namespace_id]
        return str((self.schema.metadata or {}).get(NAMESPACE_KEY, b""), "utf-8")

    @cached_property
    def field_ids(self) -> FrozenDict[str, FieldId]:
        """Column name to field id, in column order."""
        return FrozenDict({column.name: _field_id(column, self.name) for column in self.schema})

    @property
    def may_have_dead_rows(self) -> bool:
        """Whether the table may have a liveness chain."""
        return self.aligned and self.is_table and self.namespace_id != SYSTEM_NAMESPACE

    @cached_property
    def chains(self) -> tuple[tuple[TableId, FieldId], ...]:
        """Keys of all its chains: the columns in order, then the liveness chain, where it may have one."""
        fields = [*self.field_ids.values(), *([LIVENESS] if self.may_have_dead_rows else [])]
        return tuple((self.table_id, field_id) for field_id in fields)

    @cached_property
    def widened_columns(self) -> frozenset[str]:
        """Columns whose pages may hold values under another type than the column's."""
        return frozenset(column.name for column in self.schema if STORED_KEY in (column.metadata or {}))

    @cached_property
    def unavailable(self) -> Mapping[str, str]:
        """Columns whose types cannot be constructed in this process, and why; see `model.schema_bytes`."""
        reasons = {column.name: unavailable(column) for column in self.schema}
        return {name: reason for name, reason in reasons.items() if reason is not None}

    @cached_property
    def checked(self) -> frozenset[str]:
        """Columns whose values meet checks of their type."""
        return frozenset(column.name for column in self.schema if CHECKS_KEY in (column.metadata or {}))

    @cached_property
    def bare_schema(self) -> pa.Schema:
        """The schema as users gave it, without field ids and what else is the catalog's own."""
        metadata = _without_own(self.schema.metadata)
        return pa.schema(
            [column.with_metadata(_without_own(column.metadata)) for column in self.schema], metadata=metadata
        )


def with_field_ids(schema: pa.Schema) -> pa.Schema:
    """Assign consecutive field ids from 1 on.

    Raises
    ------
    InvalidInputError
        If there is no column, or a name is empty or used twice.
    """
    names = schema.names
    if not names:
        raise InvalidInputError(
            "Cannot create a table without columns: expected at least one.",
            hint="Pass a `schema` such as `pyarrow.schema([('id', pyarrow.int64())])`.",
        )
    doubled = sorted(name for name, count in Counter(names).items() if count > 1)
    if doubled or "" in names:
        raise InvalidInputError(
            "Cannot create a table: its columns need names that differ and are not empty, found "
            f"{', '.join(map(repr, doubled)) or 'an empty name'}.",
            hint=f"Rename columns of `schema`: {', '.join(map(repr, doubled)) or repr('')}.",
        )
    fields = [with_field_id(column, 1 + index) for index, column in enumerate(schema)]
    return pa.schema(fields, metadata=schema.metadata)


def with_field_id(column: pa.Field, field_id: int) -> pa.Field:
    """Assign a field id to a column."""
    return column.with_metadata({**(column.metadata or {}), FIELD_ID_KEY: str(field_id).encode()})


def _field_id(column: pa.Field, table: str) -> FieldId:
    try:
        return FieldId(int((column.metadata or {})[FIELD_ID_KEY]))
    except (KeyError, ValueError):
        raise DamageError(
            f"Cannot read table {table!r}: its column {column.name!r} has no field id in the catalog."
        ) from None


def _without_own(metadata: Mapping[bytes, bytes] | None) -> dict[bytes, bytes] | None:
    """Return the metadata that users set, or None if there is none."""
    return {key: value for key, value in (metadata or {}).items() if not key.startswith(OWN_KEYS)} or None
