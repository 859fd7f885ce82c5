"""Statements as values: `sql.statement_parser` creates them from text, `sql.schema_changes` applies them.

Names are as written, of one part or two; which table is meant is found out by whoever carries them out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
from sqlglot import exp

Name = tuple[str, ...]
"""A name, with its namespace before it where one is given."""


@dataclass(frozen=True, slots=True)
class Select:
    """A query."""

    tree: exp.Expr


@dataclass(frozen=True, slots=True)
class Column:
    """A column to be made.

    Attributes
    ----------
    type
        An Arrow type, or the name of a type of the store.
    default
        What rows have that are there already, as written: text, a number, a truth value or None.
    """

    name: str
    type: pa.DataType | str
    nullable: bool = True
    comment: str | None = None
    default: Any = None


@dataclass(frozen=True, slots=True)
class Constraint:
    """A rule for the rows of a table; one of the three is given.

    Attributes
    ----------
    name
        Its name; made up from the table and columns where none is given.
    check
        SQL text.
    primary_key
        Columns.
    foreign_key
        Columns, the other table, and columns there.
    """

    name: str
    check: str | None = None
    primary_key: tuple[str, ...] = ()
    foreign_key: tuple[tuple[str, ...], Name, tuple[str, ...]] | None = None


@dataclass(frozen=True, slots=True)
class CreateTable:
    """``CREATE TABLE``, with columns or with a query that gives them."""

    table: Name
    columns: tuple[Column, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    properties: Mapping[str, str] | None = None
    comment: str | None = None
    if_not_exists: bool = False
    query: exp.Expr | None = None


@dataclass(frozen=True, slots=True)
class CreateTemporary:
    """``CREATE [OR REPLACE] TEMP TABLE``.

    Attributes
    ----------
    statement
        What to create, as a table of the store would be.
    text
        The statement without ``OR REPLACE`` and ``TEMP``.
    replace
        Whether a temporary table of that name is replaced.
    """

    statement: CreateTable
    text: str
    replace: bool


@dataclass(frozen=True, slots=True)
class DropTable:
    """``DROP TABLE``."""

    tables: tuple[Name, ...]
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class UndropTable:
    """``UNDROP TABLE``."""

    tables: tuple[Name, ...]


@dataclass(frozen=True, slots=True)
class TruncateTable:
    """``TRUNCATE``."""

    tables: tuple[Name, ...]


@dataclass(frozen=True, slots=True)
class AddColumn:
    """``ADD COLUMN``."""

    column: Column
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropColumn:
    """``DROP COLUMN``."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """``RENAME COLUMN``."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class RenameTable:
    """``RENAME TO``; with another namespace it moves the table."""

    new: Name


@dataclass(frozen=True, slots=True)
class SetType:
    """``ALTER COLUMN … TYPE``."""

    name: str
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class SetNullable:
    """``SET NOT NULL`` and ``DROP NOT NULL``."""

    name: str
    nullable: bool


@dataclass(frozen=True, slots=True)
class SetProperties:
    """``SET TBLPROPERTIES`` and ``UNSET TBLPROPERTIES``; None takes one away."""

    properties: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class AddConstraint:
    """``ADD CONSTRAINT``."""

    constraint: Constraint


@dataclass(frozen=True, slots=True)
class DropConstraint:
    """``DROP CONSTRAINT``."""

    name: str


Change: TypeAlias = (
    AddColumn
    | DropColumn
    | RenameColumn
    | RenameTable
    | SetType
    | SetNullable
    | SetProperties
    | AddConstraint
    | DropConstraint
)


@dataclass(frozen=True, slots=True)
class AlterTable:
    """``ALTER TABLE``."""

    table: Name
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class SetComment:
    """``COMMENT ON``; no text takes the comment away."""

    table: Name
    column: str | None
    text: str | None


@dataclass(frozen=True, slots=True)
class CreateNamespace:
    """``CREATE NAMESPACE``, or ``SCHEMA``."""

    name: str
    if_not_exists: bool = False
    properties: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class DropNamespace:
    """``DROP NAMESPACE``."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class AlterNamespace:
    """``ALTER NAMESPACE … SET PROPERTIES``."""

    name: str
    properties: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class CreateType:
    """``CREATE TYPE`` and ``CREATE DOMAIN``.

    Attributes
    ----------
    base
        An Arrow type, or the name of a type of the store.
    check
        SQL text about ``VALUE``.
    """

    name: str
    base: pa.DataType | str
    not_null: bool = False
    check: str | None = None


@dataclass(frozen=True, slots=True)
class DropType:
    """``DROP TYPE`` and ``DROP DOMAIN``."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class Insert:
    """``INSERT INTO``.

    Attributes
    ----------
    columns
        The columns that the query gives, in its order; all of the table where none are named.
    """

    table: Name
    columns: tuple[str, ...]
    query: exp.Expr


@dataclass(frozen=True, slots=True)
class Update:
    """``UPDATE``.

    Attributes
    ----------
    table
        The table, perhaps with an alias.
    assignments
        Columns, and the expressions of their new values.
    where
        The clause WHERE.
    with_
        The clause WITH.
    returning
        What is returned of the updated rows.
    """

    table: exp.Table
    assignments: tuple[tuple[str, exp.Expr], ...]
    where: exp.Where | None = None
    with_: exp.With | None = None
    returning: tuple[exp.Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class Delete:
    """``DELETE FROM``; see `Update`."""

    table: exp.Table
    where: exp.Where | None = None
    with_: exp.With | None = None
    returning: tuple[exp.Expr, ...] = ()


Write: TypeAlias = (
    CreateTable
    | DropTable
    | UndropTable
    | TruncateTable
    | AlterTable
    | SetComment
    | CreateNamespace
    | DropNamespace
    | AlterNamespace
    | CreateType
    | DropType
    | Insert
    | Update
    | Delete
)

Statement: TypeAlias = Select | Write
