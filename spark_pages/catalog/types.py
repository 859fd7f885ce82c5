"""The registry of types: names that users give to Arrow types, with rules for their values. Pure.

A type is an object of the catalog with one field: its Arrow type, which base type it was made from, and every
check that holds for its values, those of its base types included. A column of the type takes all of that
along, so that whoever has the definition of a table knows the rules of its columns. Types do not change once
they are made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from spark_pages.arguments import as_flag, as_str
from spark_pages.arrow.stored_types import unavailable
from spark_pages.boundary import guard
from spark_pages.catalog.annotations import fact, json_fact, with_fact, with_json_fact
from spark_pages.catalog.resolve import Names
from spark_pages.errors import ColumnUnavailableError, DamageError, InvalidInputError, NotFoundError
from spark_pages.model.ids import TableId
from spark_pages.model.table import CHECKS_KEY, TYPE_KEY, TYPE_NAMES, TableDefinition, with_field_ids

VALUE = "VALUE"
"""What the check of a type calls the value that it tests."""

_FIELD = "value"


_NOT_NULL = pa.struct([])
"""Stands for the type of a column that is not nullable until its name has been looked up."""


@dataclass(frozen=True, slots=True)
class DomainCheck:
    """A condition that values of a type meet.

    Attributes
    ----------
    type_name
        The type that brought it.
    sql
        SQL text about ``VALUE``; a value for which it is unknown, such as null, passes.
    """

    type_name: str
    sql: str


@dataclass(frozen=True, slots=True)
class UserType:
    """A type as of one version.

    Attributes
    ----------
    type_id, name
        Its id is never used twice.
    base
        The name of the type that it was made from, or its Arrow type in words.
    value_type
        The Arrow type under which columns are stored.
    not_null
        Whether no value may be null.
    checks
        All that values meet, those of base types first.
    """

    type_id: int
    name: str
    base: str
    value_type: pa.DataType
    not_null: bool
    checks: tuple[DomainCheck, ...]


@guard
def typed(name: str, type_name: str, nullable: bool = True) -> pa.Field:
    """Create a column of a user-defined type for `Transaction.create_table` or `add_column`.

    Parameters
    ----------
    type_name
        See `Transaction.create_type`; looked up when the table is made.
    nullable
        Whether the column may be null where its type says nothing of that.
    """
    name, type_name = as_str(name, "the name of a column"), as_str(type_name, "the name of a type")
    nullable = as_flag(nullable, "nullable")
    # Arrow refuses columns of type null that are not nullable.
    untold = pa.null() if nullable else _NOT_NULL
    return pa.field(name, untold, nullable, metadata={TYPE_KEY: type_name.encode()})


def new_type(
    object_id: TableId,
    name: str,
    base: pa.DataType | str,
    names: Names,
    not_null: bool,
    check: str | None,
    now_us: int,
) -> TableDefinition:
    """Create the definition of a type.

    Raises
    ------
    NotFoundError, InvalidInputError
        If there is no such base type, or the name cannot be.
    """
    if not name or "." in name or name != name.strip() or not name.isprintable():
        raise InvalidInputError(
            f"Cannot name a type {name!r}: expected printable characters without a dot.",
            hint="Choose a `name` such as 'amount'.",
        )
    if isinstance(base, str) and base == name:
        raise InvalidInputError(
            f"Cannot create type {name!r}: it cannot be made from itself.",
            hint="Pass another `base`, such as `pyarrow.int64()`.",
        )
    field = pa.field(_FIELD, base) if isinstance(base, pa.DataType) else typed(_FIELD, as_str(base, "base"))
    if isinstance(base, pa.DataType) and pa.types.is_null(base):
        raise InvalidInputError(
            f"Cannot create type {name!r}: it cannot be made from the type null.",
            hint="Pass the type of its values as `base`, such as `pyarrow.int64()`.",
        )
    field, _ = resolve_column(field, names)
    if not_null:
        field = field.with_nullable(False)
    if check is not None:
        field = with_checks(field, [*checks_of(field), DomainCheck(name, check)])
    schema = with_field_ids(pa.schema([field]))
    return TableDefinition(object_id, name, schema, 2, TYPE_NAMES, created_at_us=now_us)


def user_type(definition: TableDefinition) -> UserType:
    """Read the type of a definition."""
    field = definition.schema.field(0)
    return UserType(
        definition.table_id,
        definition.name,
        fact(field, TYPE_KEY) or str(field.type),
        field.type,
        not field.nullable,
        checks_of(field),
    )


def checks_of(column: pa.Field) -> tuple[DomainCheck, ...]:
    """Return the checks that the type of a column demands of its values."""
    told = json_fact(column, CHECKS_KEY, [])
    try:
        return tuple(DomainCheck(str(type_name), str(sql)) for type_name, sql in told)
    except (TypeError, ValueError) as error:
        raise DamageError(
            f"Cannot read the checks of column {column.name!r}: the catalog holds {told!r}, which has "
            "another form."
        ) from error


def with_checks(column: pa.Field, checks: Sequence[DomainCheck]) -> pa.Field:
    """Set the checks of a column."""
    return with_json_fact(column, CHECKS_KEY, [[check.type_name, check.sql] for check in checks])


def resolve_column(column: pa.Field, names: Names) -> tuple[pa.Field, list[TableDefinition]]:
    """Resolve the type of a column to its Arrow type, and return the user-defined types it depends on.

    Raises
    ------
    NotFoundError
        If there is no such type.
    DamageError
        If types are made from each other in a circle.
    """
    name = fact(column, TYPE_KEY)
    if name is None:
        return with_checks(column, ()), []
    used = _chain(name, column.name, names)
    told = used[0].schema.field(0)
    reason = unavailable(told)
    if reason is not None:
        raise ColumnUnavailableError(
            f"Cannot make column {column.name!r} of type {name!r}: {reason}.",
            hint=f"Use the release of the library that type {name!r} was made with.",
        )
    if not (pa.types.is_null(column.type) or column.type in (_NOT_NULL, told.type)):
        raise InvalidInputError(
            f"Cannot make column {column.name!r} of type {name!r}: the type stands for {told.type}, "
            f"and not for {column.type}.",
            hint=f"Use `spark_pages.typed({column.name!r}, {name!r})`, which takes the type from the store.",
        )
    resolved = pa.field(column.name, told.type, column.nullable and told.nullable, column.metadata)
    return with_checks(with_fact(resolved, TYPE_KEY, name), checks_of(told)), used


def resolve_schema(schema: pa.Schema, names: Names) -> tuple[pa.Schema, list[TableDefinition]]:
    """`resolve_column` of every column."""
    columns, used = [], []
    for column in schema:
        resolved, types = resolve_column(column, names)
        columns.append(resolved)
        used += types
    return pa.schema(columns, metadata=schema.metadata), used


def uses_type(definition: TableDefinition, name: str) -> bool:
    """Whether a table has a column of a type, or a type is made from it."""
    return any(fact(column, TYPE_KEY) == name for column in definition.schema)


def _chain(name: str, column: str, names: Names) -> list[TableDefinition]:
    """Return the type of this name, its base type, and so on."""
    found: list[TableDefinition] = []
    seen: list[str] = []
    wanted: str | None = name
    while wanted is not None:
        if wanted in seen:
            raise DamageError(
                f"Cannot resolve type {wanted!r}: types are made from each other in a circle: "
                f"{' → '.join([*seen, wanted])}."
            )
        seen.append(wanted)
        definition = names.table((TYPE_NAMES, wanted))
        if definition is None:
            raise NotFoundError(
                f"Cannot make column {column!r} of type {wanted!r}: there is no such type.",
                hint="`transaction.create_type` makes one; `snapshot.types()` lists them.",
                type=wanted,
            )
        found.append(definition)
        wanted = fact(definition.schema.field(0), TYPE_KEY)
    return found
