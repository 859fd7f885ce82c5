"""Columns added, dropped, renamed, reordered, widened and described anew. No page is rewritten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from spark_pages.arguments import check_nesting, shortened
from spark_pages.arrow.nested import null_scalar, one_entry
from spark_pages.catalog.constraints import check_column_free, foreign_keys_to, key_columns
from spark_pages.catalog.evolution import (
    with_column,
    with_column_properties,
    with_columns_in_order,
    with_comment,
    with_nullability,
    with_renamed_column,
    with_wider_column,
    without_column,
)
from spark_pages.catalog.facts import fact, without_facts
from spark_pages.catalog.page_options import PageOptions
from spark_pages.catalog.resolve import show_name
from spark_pages.catalog.types import resolve_column
from spark_pages.errors import InvalidInputError, SchemaMismatchError, SparkPagesError
from spark_pages.model.ids import FieldId
from spark_pages.model.table import TYPE_KEY, TYPE_NAMES, TableDefinition
from spark_pages.transaction.column_types import stored_columns
from spark_pages.transaction.constraints import RowTests
from spark_pages.transaction.page_writer import stage_constants
from spark_pages.transaction.placement import StagedSplice
from spark_pages.transaction.read_version import ReadVersion
from spark_pages.transaction.staged import StagedChanges
from spark_pages.transaction.staged_tables import StagedNames, StagedTables
from spark_pages.transaction.table_changes import TableChanges


class ColumnChanges:
    """The columns of the tables of one transaction.

    Parameters
    ----------
    work, names, tables
        What is staged, the names that there are, and the tables.
    standing, staged
        The version that the transaction stands on, and the tables on top of it.
    """

    def __init__(
        self,
        work: StagedChanges,
        names: StagedNames,
        tables: TableChanges,
        standing: ReadVersion,
        staged: StagedTables,
    ) -> None:
        self._work = work
        self._names = names
        self._tables = tables
        self._standing = standing
        self._staged = staged

    def add(self, table: str, column: pa.Field, default: Any) -> None:
        """See `Transaction.add_column`."""
        definition = self._tables.begin(table)
        column, _ = resolve_column(without_facts(column), self._names)
        (column,) = stored_columns(table, [column])
        changed = with_column(definition, column)
        PageOptions.of(changed)
        before, now = self._lengths(definition)
        try:
            check_nesting(default, "default")
            value = null_scalar(column.type) if default is None else pa.scalar(default, column.type)
        except SparkPagesError:
            raise  # also a ValueError
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise SchemaMismatchError(
                f"{shortened(default)} is no value of column {column.name!r} of type {column.type}: {error}"
            ) from error
        if now and not column.nullable and not value.is_valid:
            raise SchemaMismatchError(
                f"Cannot add column {column.name!r} to {table!r}: it is not nullable, and {now} rows have no "
                f"value for it.",
                hint="Give a default.",
            )
        if now or value.is_valid:
            one = pa.table([one_entry(value)], schema=pa.schema([column]))
            RowTests.of(replace(changed, schema=pa.schema([changed.schema.field(column.name)]))).check(one, 0)
        self._names.alter(definition, changed)
        field_id = FieldId(definition.next_field_id)
        if now:
            splice = StagedSplice(
                definition.table_id, field_id, 0, (), 0, stage_constants(value, now), touched=((0, now),)
            )
            self._work.splices.append(splice)
            self._work.definitions[definition.table_id] = changed
        self._work.ddl.new_columns[definition.table_id, field_id] = before
        if value.is_valid or column.nullable:
            self._work.ddl.defaults[definition.table_id, field_id] = value

    def drop(self, table: str, column: str) -> None:
        """See `Transaction.drop_column`."""
        definition = self._tables.begin(table)
        changed = without_column(definition, column)
        check_column_free(definition, column, "drop")
        self._refuse_while_referenced(definition, column, "drop")
        key = (definition.table_id, definition.field_ids[column])
        self._work.splices = [s for s in self._work.splices if (s.table_id, s.field_id) != key]
        self._work.updates.pop((definition.table_id, column), None)
        self._work.ddl.new_columns.pop(key, None)
        self._names.alter(definition, changed)

    def rename(self, table: str, column: str, name: str) -> None:
        """See `Transaction.rename_column`."""
        definition = self._tables.begin(table)
        changed = with_renamed_column(definition, column, name)
        check_column_free(definition, column, "rename", renamed=True)
        self._refuse_while_referenced(definition, column, "rename")
        updates = self._work.updates.pop((definition.table_id, column), None)
        if updates is not None:
            self._work.updates[definition.table_id, name] = updates
        self._names.alter(definition, changed)

    def reorder(self, table: str, columns: Sequence[str]) -> None:
        """See `Transaction.reorder_columns`."""
        definition = self._tables.begin(table)
        self._names.alter(definition, with_columns_in_order(definition, columns))

    def widen(self, table: str, column: str, wider: pa.DataType) -> None:
        """See `Transaction.widen_column`."""
        definition = self._tables.begin(table)
        wider = stored_columns(table, [pa.field(column, wider)])[0].type
        changed = with_wider_column(definition, column, wider)
        updates = self._work.updates.get((definition.table_id, column))
        if updates is not None and changed != definition:
            updates.widen(wider)
        self._names.alter(definition, changed)

    def set_nullable(self, table: str, column: str, nullable: bool) -> None:
        """See `Transaction.set_nullable`."""
        definition = self._tables.begin(table)
        changed = with_nullability(definition, column, nullable)
        field = definition.schema.field(column)
        alias = fact(field, TYPE_KEY)
        told = self._names.table((TYPE_NAMES, alias)) if alias is not None else None
        if nullable and told is not None and not told.schema.field(0).nullable:
            raise InvalidInputError(
                f"Column {column!r} of {table!r} is of type {alias!r}, which is never null."
            )
        if nullable and column in key_columns(definition):
            raise InvalidInputError(f"Column {column!r} of {table!r} is in the primary key, and never null.")
        if not nullable and field.nullable:
            nulls = self._staged.table(show_name(definition)).aggregate(column).null_count
            if nulls:
                raise SchemaMismatchError(
                    f"Column {column!r} of {table!r} holds {nulls} nulls and cannot be declared without.",
                    hint="Update these rows first.",
                )
        self._names.alter(definition, changed)

    def set_comment(self, table: str, comment: str | None, column: str | None) -> None:
        """See `Transaction.set_comment`."""
        definition = self._tables.begin(table)
        self._names.alter(definition, with_comment(definition, comment, column))

    def set_properties(self, table: str, column: str, properties: Mapping[str, str | None]) -> None:
        """See `Transaction.set_column_properties`."""
        definition = self._tables.begin(table)
        self._names.alter(definition, with_column_properties(definition, column, properties))

    def _refuse_while_referenced(self, definition: TableDefinition, column: str, what: str) -> None:
        field_id = definition.field_ids[column]
        for other in [*self._tables.referencing(definition), definition]:
            for key in foreign_keys_to(other, definition.table_id):
                if field_id in key.fields_there:
                    raise InvalidInputError(
                        f"Cannot {what} column {column!r} of {show_name(definition)!r}: foreign key "
                        f"{key.name!r} of {show_name(other)!r} refers to it.",
                        hint="Drop the constraint first.",
                    )

    def _lengths(self, definition: TableDefinition) -> tuple[int, int]:
        """Rows of the table before anything staged, and with what is staged."""
        table_id = definition.table_id
        columns = [*definition.field_ids.values()]
        gone = table_id < 0 or table_id in self._work.ddl.truncated
        grown = self._work.staged_rows(table_id)
        lengths = []
        for field_id in columns[:1] if definition.aligned else columns:
            new = self._work.ddl.new_columns.get((table_id, field_id))
            before = 0 if gone else self._standing.base.num_rows((table_id, field_id)) if new is None else new
            staged = grown.get(field_id, 0) - (new or 0)
            lengths.append((before, before + staged))
        return min(before for before, _ in lengths), min(now for _, now in lengths)
