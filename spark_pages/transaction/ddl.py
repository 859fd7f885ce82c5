"""The verbs of a transaction that change the catalog: tables, columns, namespaces, types, constraints.

`Transaction` inherits them. Each checks its arguments; `table_ddl.py` and `object_ddl.py` stage the change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from spark_pages.arguments import as_flag, as_str, check_kind, check_texts
from spark_pages.boundary import guarded
from spark_pages.errors import TableExistsError
from spark_pages.transaction import object_ddl, table_ddl
from spark_pages.transaction.object_ddl import ForeignKey
from spark_pages.transaction.schema_sources import as_schema
from spark_pages.transaction.state import TransactionState, verb


@guarded()
class CatalogVerbs:
    """What `Transaction` can do to the catalog. Nobody sees any of it before the commit."""

    _state: TransactionState

    def refresh(self) -> int:
        """Move to what is retained: to the newest version, or the same one where something depends on it.

        Raises
        ------
        CommitConflictError
            If something does, and retention has passed that version.
        """
        self._state.check_open()
        return self._state.refresh()

    # tables

    @verb
    def create_table(
        self,
        name: str,
        schema: Any,
        *,
        properties: Mapping[str, str] | None = None,
        aligned: bool = True,
        if_not_exists: bool = False,
    ) -> None:
        """Create a table without rows.

        Parameters
        ----------
        name
            ``table``, or ``namespace.table``. A table of namespace ``temp`` is seen by this transaction
            alone, where it comes before others of its name, and ends with it; nothing of it reaches storage.
        schema
            Column names and types: a `pyarrow.Schema`, a Polars schema, a data frame, a DuckDB relation, a
            mapping of names to types, or a list of pairs. A type is an Arrow type, a Python type, or SQL
            text, which may name a type of the store. Each column gets an id that is never used again.
        properties
            Free text by key. Some say how pages are written, see `spark_pages.catalog.page_options`.
        aligned
            Whether all columns must hold equally many rows after every commit.
        if_not_exists
            Whether to leave a table of this name as it is, instead of raising TableExistsError.

        Raises
        ------
        TableExistsError, NotFoundError, InvalidInputError
        """
        self._state.check_open()
        schema = as_schema(schema)
        properties = {} if properties is None else properties
        check_texts(properties, "properties")
        if_not_exists = as_flag(if_not_exists, "if_not_exists")
        try:
            table_ddl.create_table(self._state, name, schema, properties, as_flag(aligned, "aligned"))
        except TableExistsError:
            if not if_not_exists:
                raise

    @verb
    def drop_table(self, table: str) -> None:
        """Drop a table. Earlier versions keep it; `undrop_table` restores it.

        Changes of its rows that this transaction has staged are discarded, but for a truncate.

        Raises
        ------
        TableNotFoundError, InvalidInputError
            If there is none, or foreign keys refer to it.
        """
        self._state.check_open()
        table_ddl.drop_table(self._state, table)

    @verb
    def undrop_table(self, table: str) -> None:
        """Restore the table of this name that was dropped last, with its rows.

        Raises
        ------
        TableNotFoundError, TableExistsError, InvalidInputError
            If no table of the name was dropped, there is one by now, or what it needs is gone.
        """
        self._state.check_open()
        table_ddl.undrop_table(self._state, table)

    @verb
    def rename_table(self, table: str, name: str) -> None:
        """Rename a table, or move it to another namespace; no page is rewritten.

        Raises
        ------
        TableNotFoundError, TableExistsError, NotFoundError, InvalidInputError
        """
        self._state.check_open()
        table_ddl.rename_table(self._state, table, name)

    @verb
    def truncate_table(self, table: str) -> None:
        """Remove all rows of a table; rows appended after this call remain."""
        self._state.check_open()
        table_ddl.truncate_table(self._state, table)

    @verb
    def set_table_properties(self, table: str, properties: Mapping[str, str | None]) -> None:
        """Set properties of a table; None removes one."""
        self._state.check_open()
        check_texts(properties, "properties", removable=True)
        table_ddl.set_table_properties(self._state, table, properties)

    @verb
    def set_comment(self, table: str, comment: str | None, column: str | None = None) -> None:
        """Set the comment of a table or of one of its columns; None removes it."""
        self._state.check_open()
        if comment is not None:
            as_str(comment, "comment")
        table_ddl.set_comment(self._state, table, comment, column)

    # columns

    @verb
    def add_column(self, table: str, column: pa.Field, default: Any = None) -> None:
        """Add a column after the others.

        Parameters
        ----------
        column
            Name, type and whether it may be null; or `spark_pages.typed`.
        default
            What the rows have that are there already; null by default.

        Raises
        ------
        InvalidInputError, SchemaMismatchError
            If the name is taken, the default is of another type, or rows would be null that may not be.

        Notes
        -----
        No row is rewritten: the column begins with pages that say one value and a count.
        """
        self._state.check_open()
        check_kind(column, pa.Field, "column", "a pyarrow.Field")
        table_ddl.add_column(self._state, table, column, default)

    @verb
    def drop_column(self, table: str, column: str) -> None:
        """Drop a column. Earlier versions keep it; its id is never used again."""
        self._state.check_open()
        table_ddl.drop_column(self._state, table, column)

    @verb
    def rename_column(self, table: str, column: str, name: str) -> None:
        """Rename a column; no page is rewritten."""
        self._state.check_open()
        table_ddl.rename_column(self._state, table, column, name)

    @verb
    def reorder_columns(self, table: str, columns: Sequence[str]) -> None:
        """Put some columns first, in this order; the others follow in their order."""
        self._state.check_open()
        table_ddl.reorder_columns(self._state, table, columns)

    @verb
    def widen_column(self, table: str, column: str, type: pa.DataType) -> None:
        """Give a column a wider type; no page is rewritten.

        Parameters
        ----------
        type
            A wider integer of the same sign, double for float, a decimal of the same scale with more digits,
            large_string for string, large_binary for binary.

        Raises
        ------
        ColumnNotFoundError, InvalidInputError

        Notes
        -----
        Pages that are there are cast whenever they are read.
        """
        self._state.check_open()
        check_kind(type, pa.DataType, "type", "a pyarrow.DataType")
        table_ddl.widen_column(self._state, table, as_str(column, "column"), type)

    @verb
    def set_nullable(self, table: str, column: str, nullable: bool) -> None:
        """Allow or forbid nulls in a column.

        Raises
        ------
        SchemaMismatchError
            If rows are null; pages of which statistics do not tell are read.
        """
        self._state.check_open()
        table_ddl.set_nullable(self._state, table, column, as_flag(nullable, "nullable"))

    @verb
    def set_column_properties(self, table: str, column: str, properties: Mapping[str, str | None]) -> None:
        """Set properties of a column; None removes one."""
        self._state.check_open()
        check_texts(properties, "properties", removable=True)
        table_ddl.set_column_properties(self._state, table, column, properties)

    # namespaces

    @verb
    def create_namespace(self, name: str, properties: Mapping[str, str] | None = None) -> None:
        """Create a namespace.

        Parameters
        ----------
        properties
            Free text by key. ``page_bytes``, ``codec`` and ``bloom`` hold for tables of it that say nothing
            themselves, ``location`` says in which folder of the store their page files are written, and
            ``retention_seconds`` how long those that are dropped can come back.

        Raises
        ------
        AlreadyExistsError, InvalidInputError
        """
        self._state.check_open()
        properties = {} if properties is None else properties
        check_texts(properties, "properties")
        object_ddl.create_namespace(self._state, name, properties)

    @verb
    def drop_namespace(self, name: str) -> None:
        """Drop a namespace.

        Raises
        ------
        NotFoundError, InvalidInputError
            If there is none, or it holds tables.
        """
        self._state.check_open()
        object_ddl.drop_namespace(self._state, name)

    @verb
    def set_namespace_properties(self, name: str, properties: Mapping[str, str | None]) -> None:
        """Set properties of a namespace; None removes one."""
        self._state.check_open()
        check_texts(properties, "properties", removable=True)
        object_ddl.set_namespace_properties(self._state, name, properties)

    # types

    @verb
    def create_type(
        self, name: str, base: pa.DataType | str, not_null: bool = False, check: str | None = None
    ) -> None:
        """Create a type for columns: a domain if it has a rule, else another name for its base.

        Parameters
        ----------
        base
            An Arrow type, or the name of another type whose rules hold too.
        not_null
            Whether no value may be null.
        check
            SQL text about ``VALUE`` that no value may fail; null passes.

        Raises
        ------
        AlreadyExistsError, NotFoundError, InvalidInputError
        """
        self._state.check_open()
        not_null = as_flag(not_null, "not_null")
        if check is not None:
            as_str(check, "check")
        object_ddl.create_type(self._state, name, base, not_null, check)

    @verb
    def drop_type(self, name: str) -> None:
        """Drop a type.

        Raises
        ------
        NotFoundError, InvalidInputError
            If there is none, or columns or other types are made of it.

        Notes
        -----
        Reads the whole catalog.
        """
        self._state.check_open()
        object_ddl.drop_type(self._state, name)

    # constraints

    @verb
    def add_constraint(
        self,
        table: str,
        name: str,
        *,
        check: str | None = None,
        primary_key: Sequence[str] | None = None,
        foreign_key: ForeignKey | None = None,
    ) -> None:
        """Add a constraint, which all existing rows must keep.

        Parameters
        ----------
        check
            SQL text about columns that no row may fail; a row for which it is unknown passes.
        primary_key
            Columns that are never null, and in no two rows the same.
        foreign_key
            Columns, the other table, and columns there. The other table and its columns cannot be dropped or
            renamed while it is there; rows are not compared.

        Raises
        ------
        ConstraintError, InvalidInputError, ColumnNotFoundError, TableNotFoundError

        Notes
        -----
        A check reads pages whose statistics leave it open; a primary key reads its columns whole.
        """
        self._state.check_open()
        object_ddl.add_constraint(self._state, table, name, check, primary_key, foreign_key)

    @verb
    def drop_constraint(self, table: str, name: str) -> None:
        """Drop a constraint."""
        self._state.check_open()
        object_ddl.drop_constraint(self._state, table, as_str(name, "the name of a constraint"))
