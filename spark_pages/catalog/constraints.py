"""Constraints of a table: what its rows meet, and which tables it needs. Pure.

They are kept in the metadata of the table's schema, by ids of columns, so that columns keep them when their
names change. A CHECK is SQL text and names its columns; these cannot be renamed while it is there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa

from spark_pages.arrow.types import same_family
from spark_pages.catalog.annotations import json_fact, with_json_fact
from spark_pages.catalog.resolve import find_columns, show_name
from spark_pages.errors import DamageError, InvalidInputError, SchemaMismatchError
from spark_pages.format.bounds import has_bounds
from spark_pages.model.ids import TableId
from spark_pages.model.immutable import IdentityCache
from spark_pages.model.table import CONSTRAINTS_KEY, TableDefinition

Kind = Literal["check", "primary key", "foreign key"]


@dataclass(frozen=True, slots=True)
class Constraint:
    """One constraint.

    Attributes
    ----------
    name, kind
        Unique in the table; what it asks for.
    fields
        Ids of the columns that it is about.
    sql
        Of a check: a condition that no row may fail; a row for which it is unknown passes.
    table_id, table, fields_there
        Of a foreign key: id and name of the other table, and ids of the columns there.
    """

    name: str
    kind: Kind
    fields: tuple[int, ...]
    sql: str = ""
    table_id: int = 0
    table: str = ""
    fields_there: tuple[int, ...] = ()


def constraints_of(definition: TableDefinition) -> tuple[Constraint, ...]:
    """Return the constraints of a table in the order of their creation."""
    told = json_fact(definition.schema, CONSTRAINTS_KEY, [])
    try:
        return tuple(_from_json(each) for each in told)
    except (KeyError, TypeError, ValueError) as error:
        raise DamageError(
            f"Cannot read the constraints of table {definition.name!r}: the catalog holds some that "
            "have another form."
        ) from error


def with_constraints(definition: TableDefinition, constraints: Sequence[Constraint]) -> TableDefinition:
    """Set the constraints of a table."""
    told = [to_json(each) for each in constraints]
    return replace(definition, schema=with_json_fact(definition.schema, CONSTRAINTS_KEY, told))


def with_constraint(definition: TableDefinition, constraint: Constraint) -> TableDefinition:
    """Add a constraint to a table.

    Raises
    ------
    InvalidInputError
        If the name is taken or empty, or it is a second primary key.
    """
    there = constraints_of(definition)
    if not constraint.name or constraint.name in [each.name for each in there]:
        raise InvalidInputError(
            f"Cannot add constraint {constraint.name!r} to {show_name(definition)!r}: "
            f"{'there is one of that name' if constraint.name else 'the name is empty'}.",
            hint="Pass another `name` than "
            f"{', '.join(repr(each.name) for each in there) or 'an empty text'}.",
        )
    if constraint.kind == "primary key" and any(each.kind == "primary key" for each in there):
        raise InvalidInputError(
            f"Cannot add a primary key to {show_name(definition)!r}: it has one already.",
            hint="Drop the other one first: `transaction.drop_constraint(table, name)`.",
        )
    return with_constraints(definition, [*there, constraint])


def without_constraint(definition: TableDefinition, name: str) -> TableDefinition:
    """Remove a constraint from a table.

    Raises
    ------
    InvalidInputError
        If it has none of that name.
    """
    there = constraints_of(definition)
    left = [each for each in there if each.name != name]
    if len(left) == len(there):
        known = ", ".join(repr(each.name) for each in there) or "none"
        raise InvalidInputError(
            f"Cannot drop constraint {name!r} of {show_name(definition)!r}: it has {known}.",
            hint="Pass one of those as `name`; `spark-pages tables` shows constraints.",
        )
    return with_constraints(definition, left)


def primary_key(definition: TableDefinition, name: str, columns: Sequence[str]) -> Constraint:
    """Create a primary key on columns of the table.

    Raises
    ------
    ColumnNotFoundError, InvalidInputError
        If a column is not there, may be null, or is of a type without an order.
    """
    columns = find_columns(definition, columns)
    if not columns or len(set(columns)) < len(columns):
        raise InvalidInputError(
            f"Cannot add a primary key to {show_name(definition)!r}: it needs columns, and each of "
            "them once.",
            hint="Pass `primary_key` as a list of different columns, such as ['id'].",
        )
    for column in columns:
        field = definition.schema.field(column)
        if field.nullable:
            raise InvalidInputError(
                f"Cannot add a primary key to {show_name(definition)!r}: column {column!r} may be null.",
                hint=f"`transaction.set_nullable({show_name(definition)!r}, {column!r}, False)` first.",
            )
        if not has_bounds(field.type) or pa.types.is_run_end_encoded(field.type):
            raise InvalidInputError(
                f"Cannot add a primary key to {show_name(definition)!r}: values of column {column!r}, "
                f"of type {field.type}, have no order.",
                hint="Use columns of numbers, texts, times or booleans in `primary_key`.",
            )
    return Constraint(name, "primary key", tuple(definition.field_ids[column] for column in columns))


def foreign_key(
    definition: TableDefinition,
    name: str,
    columns: Sequence[str],
    other: TableDefinition,
    there: Sequence[str],
) -> Constraint:
    """Create a foreign key from columns of the table to columns of another.

    Raises
    ------
    ColumnNotFoundError, InvalidInputError, SchemaMismatchError
        If a column is not there, or two of them can never hold the same.
    """
    columns, there = find_columns(definition, columns), find_columns(other, there)
    if not columns or len(columns) != len(there):
        raise InvalidInputError(
            f"Cannot add a foreign key to {show_name(definition)!r}: it names {len(columns)} columns, "
            f"and {len(there)} of {show_name(other)!r}: expected as many, and one at least.",
            hint="Pass `foreign_key` as (['other_id'], 'other', ['id']), for example.",
        )
    for mine, theirs in zip(columns, there, strict=True):
        types = definition.schema.field(mine).type, other.schema.field(theirs).type
        if not same_family(*types):
            raise SchemaMismatchError(
                f"Cannot add a foreign key to {show_name(definition)!r}: column {mine!r} is of type "
                f"{types[0]}, and column {theirs!r} of {show_name(other)!r} of type {types[1]}.",
                hint=f"Refer to a column of type {types[0]}, or add a column of type {types[1]} to "
                f"{show_name(definition)!r}.",
            )
    return Constraint(
        name,
        "foreign key",
        tuple(definition.field_ids[column] for column in columns),
        table_id=other.table_id,
        table=show_name(other),
        fields_there=tuple(other.field_ids[column] for column in there),
    )


def foreign_keys_to(definition: TableDefinition, table_id: int) -> list[Constraint]:
    """Return the foreign keys from one table to another."""
    return [
        each
        for each in constraints_of(definition)
        if each.kind == "foreign key" and each.table_id == table_id
    ]


def check_column_free(definition: TableDefinition, column: str, what: str, *, renamed: bool = False) -> None:
    """Nothing, if a column may go or be renamed as far as the table's own constraints are concerned.

    Raises
    ------
    InvalidInputError
        Names the constraint that is in the way.
    """
    field_id = definition.field_ids[column]
    for constraint in constraints_of(definition):
        if field_id in constraint.fields and (not renamed or constraint.kind == "check"):
            raise InvalidInputError(
                f"Cannot {what} column {column!r} of {show_name(definition)!r}: constraint "
                f"{constraint.name!r} ({constraint.kind}) is about it.",
                hint=f"Drop the constraint first: `transaction.drop_constraint({show_name(definition)!r}, "
                f"{constraint.name!r})`.",
            )


def with_final_ids(definition: TableDefinition, final: Mapping[int, int]) -> TableDefinition:
    """Replace provisional ids by those of a commit: of the table, its namespace and its foreign keys."""
    constraints = constraints_of(definition)
    if any(each.table_id in final for each in constraints):
        renumbered = [replace(each, table_id=final.get(each.table_id, each.table_id)) for each in constraints]
        definition = with_constraints(definition, renumbered)
    table_id = TableId(final.get(definition.table_id, definition.table_id))
    namespace_id = final.get(definition.namespace_id, definition.namespace_id)
    if (table_id, namespace_id) == (definition.table_id, definition.namespace_id):
        return definition
    return replace(definition, table_id=table_id, namespace_id=namespace_id)


def with_own_name(definition: TableDefinition) -> TableDefinition:
    """Name the table itself in foreign keys that refer to it."""
    there = constraints_of(definition)
    own = [each.kind == "foreign key" and each.table_id == definition.table_id for each in there]
    if not any(own):
        return definition
    name = show_name(definition)
    renamed = [replace(each, table=name) if mine else each for each, mine in zip(there, own, strict=True)]
    return with_constraints(definition, renamed)


def key_columns(definition: TableDefinition) -> list[str]:
    """Return the columns of the primary key, or none if there is no key."""
    return list(_key_columns(definition))


@IdentityCache
def _key_columns(definition: TableDefinition) -> list[str]:
    keys = [each for each in constraints_of(definition) if each.kind == "primary key"]
    return column_names(definition, keys[0].fields) if keys else []


def column_names(definition: TableDefinition, fields: Sequence[int]) -> list[str]:
    """Names of columns by their ids."""
    names = {int(field_id): name for name, field_id in definition.field_ids.items()}
    return [names[field_id] for field_id in fields]


def to_json(constraint: Constraint) -> dict[str, Any]:
    """Convert a constraint to plain values."""
    told: dict[str, Any] = {
        "name": constraint.name,
        "kind": constraint.kind,
        "fields": list(constraint.fields),
    }
    if constraint.kind == "check":
        return {**told, "sql": constraint.sql}
    if constraint.kind == "foreign key":
        return {
            **told,
            "table_id": constraint.table_id,
            "table": constraint.table,
            "fields_there": list(constraint.fields_there),
        }
    return told


def _from_json(told: Mapping[str, Any]) -> Constraint:
    kind = told["kind"]
    if kind not in ("check", "primary key", "foreign key"):
        raise ValueError(kind)
    return Constraint(
        str(told["name"]),
        kind,
        tuple(int(each) for each in told["fields"]),
        str(told.get("sql", "")),
        int(told.get("table_id", 0)),
        str(told.get("table", "")),
        tuple(int(each) for each in told.get("fields_there", ())),
    )
