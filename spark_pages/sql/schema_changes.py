"""Statements of SQL that change the catalog, said to a transaction in its own verbs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from spark_pages.catalog.identifiers import suggest
from spark_pages.catalog.types import typed
from spark_pages.errors import (
    AlreadyExistsError,
    ColumnNotFoundError,
    InvalidInputError,
    SchemaMismatchError,
    TableExistsError,
)
from spark_pages.model.names import fold_name, match_name
from spark_pages.model.table import NAMESPACE_NAMES, TYPE_NAMES
from spark_pages.query.predicates.literals import value_of_text
from spark_pages.query.snapshot import Snapshot
from spark_pages.query.table import Table
from spark_pages.query.table_names import known_name, name_of_new, table_called
from spark_pages.sql.statements import (
    AddColumn,
    AddConstraint,
    AlterNamespace,
    AlterTable,
    Change,
    Column,
    Constraint,
    CreateNamespace,
    CreateTable,
    CreateType,
    Delete,
    DropColumn,
    DropConstraint,
    DropNamespace,
    DropTable,
    DropType,
    Insert,
    Name,
    RenameColumn,
    RenameTable,
    Select,
    SetComment,
    SetNullable,
    SetProperties,
    SetType,
    Statement,
    TruncateTable,
    UndropTable,
    Update,
)
from spark_pages.transaction.transaction import Transaction

_TITLES: dict[type[Statement], str] = {
    Select: "SELECT",
    CreateTable: "CREATE TABLE",
    DropTable: "DROP TABLE",
    UndropTable: "UNDROP TABLE",
    TruncateTable: "TRUNCATE TABLE",
    AlterTable: "ALTER TABLE",
    SetComment: "COMMENT",
    CreateNamespace: "CREATE NAMESPACE",
    DropNamespace: "DROP NAMESPACE",
    AlterNamespace: "ALTER NAMESPACE",
    CreateType: "CREATE TYPE",
    DropType: "DROP TYPE",
    Insert: "INSERT",
    Update: "UPDATE",
    Delete: "DELETE",
}


def title(statement: Statement) -> str:
    """Return the words that a statement begins with."""
    return _TITLES[type(statement)]


def apply_change(statement: Statement, transaction: Transaction, snapshot: Snapshot) -> None:
    """Stage a statement in the transaction.

    Parameters
    ----------
    snapshot
        Where names are looked up.
    """
    match statement:
        case CreateTable():
            _create_table(statement, transaction, snapshot)
        case DropTable(tables, if_exists):
            for name in tables:
                if not if_exists or known_name(snapshot, name) is not None:
                    transaction.drop_table(_named(snapshot, name))
        case UndropTable(tables):
            for name in tables:
                transaction.undrop_table(name_of_new(snapshot, name))
        case TruncateTable(tables):
            for name in tables:
                transaction.truncate_table(_named(snapshot, name))
        case AlterTable(name, changes):
            _alter(table_called(snapshot, name), changes, transaction, snapshot)
        case SetComment(name, column, text):
            table = table_called(snapshot, name)
            named = None if column is None else _column(column, table.columns, table.name)
            transaction.set_comment(table.name, text, named)
        case _:
            _apply_to_names(statement, transaction, snapshot)


def _apply_to_names(statement: Statement, transaction: Transaction, snapshot: Snapshot) -> None:
    """Stage a statement on a namespace or a type."""
    match statement:
        case CreateNamespace(name, if_not_exists, properties):
            known = _known(name, _namespaces(snapshot))
            if known is None:
                transaction.create_namespace(name, properties or {})
            elif not if_not_exists:
                raise _is_there("namespace", known)
        case DropNamespace(name, if_exists):
            known = _known(name, _namespaces(snapshot))
            if known is not None or not if_exists:
                transaction.drop_namespace(known or name)
        case AlterNamespace(name, properties):
            known = _known(name, _namespaces(snapshot))
            transaction.set_namespace_properties(known or name, properties)
        case CreateType(name, base, not_null, check):
            known = _known(name, _types(snapshot))
            if known is not None:
                raise _is_there("type", known)
            base = base if isinstance(base, pa.DataType) else _type_name(base, snapshot)
            transaction.create_type(name, base, not_null, check)
        case DropType(name, if_exists):
            known = _known(name, _types(snapshot))
            if known is not None or not if_exists:
                transaction.drop_type(known or name)
        case _:
            raise AssertionError(statement)


def new_name(snapshot: Snapshot, name: Name, if_not_exists: bool) -> str | None:
    """Return the name of a table to create; None if it exists and that is allowed.

    Raises
    ------
    TableExistsError
        If there is one whose name differs by case at most: SQL could not tell them apart.
    """
    known = known_name(snapshot, name)
    if known is None:
        new = name_of_new(snapshot, name)
        if new.startswith("temp."):
            raise InvalidInputError(
                f"Cannot create {new!r} by a statement: temporary tables are of one transaction, and "
                "it would be gone at once.",
                hint="Write CREATE TEMP TABLE, or make it with `transaction.create_table` where it is used.",
            )
        return new
    if if_not_exists:
        return None
    raise TableExistsError(
        f"Cannot create table {known!r}: there is one of that name at version {snapshot.version}.",
        hint="Choose another name, or write IF NOT EXISTS.",
        table=known,
    )


def table_schema(statement: CreateTable, snapshot: Snapshot) -> pa.Schema:
    """Return the schema of the columns that a statement declares."""
    return pa.schema([_field(column, snapshot) for column in statement.columns])


def _create_table(statement: CreateTable, transaction: Transaction, snapshot: Snapshot) -> None:
    name = new_name(snapshot, statement.table, statement.if_not_exists)
    if name is None:
        return
    schema = table_schema(statement, snapshot)
    transaction.create_table(name, schema, properties=statement.properties or {})
    if statement.comment is not None:
        transaction.set_comment(name, statement.comment)
    for column in statement.columns:
        if column.comment is not None:
            transaction.set_comment(name, column.comment, column.name)
    for constraint in statement.constraints:
        _add_constraint(name, schema.names, constraint, transaction, snapshot)


def _alter(table: Table, changes: Iterable[Change], transaction: Transaction, snapshot: Snapshot) -> None:
    name, columns = table.name, list(table.columns)
    for change in changes:
        match change:
            case AddColumn(column, if_not_exists):
                known = match_name(column.name, columns)
                if known is not None and if_not_exists:
                    continue
                if known is not None:
                    raise SchemaMismatchError(
                        f"Cannot add column {known!r} to table {name!r}: it has one of that name.",
                        hint="Choose another name, or write ADD COLUMN IF NOT EXISTS.",
                    )
                transaction.add_column(name, _field(column, snapshot), _default(column))
                if column.comment is not None:
                    transaction.set_comment(name, column.comment, column.name)
                columns.append(column.name)
            case DropColumn(column_name, if_exists):
                if if_exists and match_name(column_name, columns) is None:
                    continue
                dropped = _column(column_name, columns, name)
                transaction.drop_column(name, dropped)
                columns.remove(dropped)
            case RenameColumn(old, new):
                renamed = _column(old, columns, name)
                transaction.rename_column(name, renamed, new)
                columns[columns.index(renamed)] = new
            case RenameTable(new_table):
                # As in Spark and DuckDB, a new name without a namespace stays in the old one.
                namespace = (table.definition.namespace,) if len(new_table) == 1 else ()
                new_full = name_of_new(snapshot, (*namespace, *new_table))
                known = known_name(snapshot, (*namespace, *new_table))
                if known not in (None, table.name):
                    raise TableExistsError(
                        f"Cannot rename the table to {known!r}: there is one of that name.",
                        hint=f"Choose another name, or drop that one: DROP TABLE {known}.",
                        table=known,
                    )
                transaction.rename_table(name, new_full)
                name = new_full
            case SetType(column_name, kind):
                transaction.widen_column(name, _column(column_name, columns, name), kind)
            case SetNullable(column_name, nullable):
                transaction.set_nullable(name, _column(column_name, columns, name), nullable)
            case SetProperties(properties):
                transaction.set_table_properties(name, properties)
            case AddConstraint(constraint):
                _add_constraint(name, columns, constraint, transaction, snapshot)
            case DropConstraint(constraint_name):
                transaction.drop_constraint(name, constraint_name)


def _add_constraint(
    table: str, columns: list[str], constraint: Constraint, transaction: Transaction, snapshot: Snapshot
) -> None:
    if constraint.check is not None:
        transaction.add_constraint(table, constraint.name, check=constraint.check)
    elif constraint.primary_key:
        keys = [_column(each, columns, table) for each in constraint.primary_key]
        transaction.add_constraint(table, constraint.name, primary_key=keys)
    elif constraint.foreign_key is not None:
        here, other, there = constraint.foreign_key
        mine = [_column(each, columns, table) for each in here]
        itself = fold_name(name_of_new(snapshot, other)) == fold_name(table)
        target = None if itself else table_called(snapshot, other)
        name, known = (target.name, target.columns) if target else (table, columns)
        theirs = [_column(each, known, name) for each in there]
        transaction.add_constraint(table, constraint.name, foreign_key=(mine, name, theirs))


def _is_there(kind: str, known: str) -> AlreadyExistsError:
    return AlreadyExistsError(
        f"Cannot create {kind} {known!r}: there is one of that name.",
        hint="Choose another name, or write IF NOT EXISTS.",
    )


def _field(column: Column, snapshot: Snapshot) -> pa.Field:
    if isinstance(column.type, pa.DataType):
        return pa.field(column.name, column.type, column.nullable)
    return typed(column.name, _type_name(column.type, snapshot), column.nullable)


def _default(column: Column) -> Any:
    """Convert the default to the column's type; text stands for dates, times and the like."""
    value = column.default
    if value is None or not isinstance(column.type, pa.DataType):
        return value
    try:
        if isinstance(value, str) and pa.types.is_time(column.type):
            return value_of_text(value, column.type).cast(column.type).as_py()
        if isinstance(value, str):
            return pa.scalar(value).cast(column.type).as_py()
        if pa.types.is_floating(column.type):
            return float(value)
        return pa.scalar(value, column.type).as_py()
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise SchemaMismatchError(
            f"Cannot use {value!r} as the default of column {column.name!r} of type {column.type}: {error}",
            hint=f"Write a value of type {column.type}.",
        ) from error


def _named(snapshot: Snapshot, name: Name) -> str:
    return table_called(snapshot, name).name


def _column(name: str, known: list[str], table: str) -> str:
    found = match_name(name, known)
    if found is None:
        hint = suggest(name, known) or f"It has {', '.join(known)}."
        raise ColumnNotFoundError(
            f"Cannot find column {name!r} of table {table!r}: it has none of that name.",
            hint=hint,
            table=table,
            column=name,
        )
    return found


def _known(name: str, known: Iterable[str]) -> str | None:
    return match_name(name, known, "name")


def _type_name(name: str, snapshot: Snapshot) -> str:
    return _known(name, _types(snapshot)) or name


def _namespaces(snapshot: Snapshot) -> list[str]:
    return [each.name for each in snapshot.log.tables(NAMESPACE_NAMES)]


def _types(snapshot: Snapshot) -> list[str]:
    return [each.name for each in snapshot.log.tables(TYPE_NAMES)]
