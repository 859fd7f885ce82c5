"""The verbs of a transaction that change rows: update, delete and overwrite. `Transaction` inherits them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from spark_pages.arguments import as_flag, as_str
from spark_pages.boundary import guarded
from spark_pages.catalog.resolve import show_name
from spark_pages.errors import InvalidInputError
from spark_pages.model.row_ranges import sorted_rows
from spark_pages.model.table import TableDefinition
from spark_pages.query.predicates.filters import Filter
from spark_pages.query.table import Table
from spark_pages.transaction.assignments import (
    assigned_values,
    changed_rows,
    check_aligned,
    last_of_each,
)
from spark_pages.transaction.ddl import CatalogVerbs
from spark_pages.transaction.given_rows import row_numbers, values_by_column
from spark_pages.transaction.row_sources import as_rows
from spark_pages.transaction.staged_tables import StagedNames, staged_table
from spark_pages.transaction.staging import delete_rows, update_rows
from spark_pages.transaction.state import verb


@guarded()
class RowVerbs(CatalogVerbs):
    """What `Transaction` can do to the rows of a table."""

    _names: StagedNames

    def append(self, table: str, data: Any) -> None:
        """Append rows to a table; see `Transaction.append`."""
        raise NotImplementedError

    @verb
    def update(
        self,
        table: str,
        assignments: Mapping[str, Any],
        rows: ArrayLike | slice | None = None,
        *,
        where: Filter | bool | None = None,
    ) -> int:
        """Give other values to the rows that a condition selects, and return how many it selects.

        Parameters
        ----------
        table
            Its name; the table must be aligned.
        assignments
            New values by column: one value of Python or Arrow for all rows, or `spark_pages.expr`, an
            expression of SQL that DuckDB computes from the old values of each row.
        rows
            Rows by number, as for `update_rows`.
        where
            A condition, as `Table.read` takes it for `filter`; True selects all rows. Give `rows` or `where`.

        Raises
        ------
        TableNotFoundError, ColumnNotFoundError, RowOutOfRangeError, RowDeletedError
        SchemaMismatchError
            If a column cannot hold a value without loss; round or cast it in the expression.
        InvalidInputError
            If neither or both of `rows` and `where` are given, the table is not aligned, or a row was
            appended by this transaction.

        Notes
        -----
        Rows whose values are equal already are not written; where nothing changes, nothing is committed.
        Reads the columns of the condition, those that are assigned, and those of the expressions. See
        `update_rows` for the cost of the commit, and for conflicts.
        """
        state = self._state
        state.check_open()
        table = _selected(table, rows, where, "update")
        state.pin_latest()
        definition = self._names.to_write(table)
        check_aligned(definition, table, "update")
        state.relies_on(definition.table_id)
        state.staged.ddl.check_not_truncated(definition, "update rows of")
        shown = self._shown(table, definition)
        if rows is None:
            numbers = shown.row_numbers(None if where is True else where).astype(np.int64)
            self._check_committed(table, definition, numbers)
        else:
            numbers = sorted_rows(row_numbers(state.snapshot().table_of(definition), table, rows)[0])
        changed, values = assigned_values(shown, numbers, assignments)
        update_rows(state, definition, table, changed, values)
        return len(numbers)

    @verb
    def update_rows(
        self, table: str, rows: ArrayLike | slice, values: Any, *, only_changed: bool = False
    ) -> int:
        """Give rows other values by their numbers, and return how many numbers were given.

        Parameters
        ----------
        rows
            Row numbers from 0, in any order, of rows that the snapshot read by the transaction has; one
            number; a mask with a flag for each row number; or a slice, which selects the live rows in it.
        values
            New values by column: a mapping, a table or a record batch. As many values as rows, in the same
            order, or one value for all rows. The last one wins where a row is named twice.
        only_changed
            Whether to leave out rows whose values are equal already, which are read to find them.

        Raises
        ------
        RowOutOfRangeError, RowDeletedError, ColumnNotFoundError, SchemaMismatchError, InvalidInputError
            Nothing of this update is staged.
        StorageError
            If the values exceed their part of `memory_bytes`, and the folder for temporary files has no room
            for them. Nothing of this update is staged.

        Notes
        -----
        Each page that holds one of the rows is read and rewritten once, at commit, however many updates touch
        it; some 100 pages at a time. Others who move the rows to other pages meanwhile, or change other rows
        of these pages, cost that work once more; where they touch one of the rows, that is a conflict.
        """
        state = self._state
        state.check_open()
        state.pin_latest()
        definition = self._names.to_write(table)
        state.relies_on(definition.table_id)
        if not as_flag(only_changed, "only_changed"):
            return update_rows(state, definition, table, rows, values)
        numbers, _ = row_numbers(state.snapshot().table_of(definition), table, rows)
        given = values_by_column(definition, len(numbers), values)
        kinds = definition.bare_schema
        whole = {
            name: pa.chunked_array(each, kinds.field(name).type).combine_chunks()
            for name, each in given.items()
        }
        last = last_of_each(numbers, whole)
        changed, new = changed_rows(self._shown(table, definition), *last)
        update_rows(state, definition, table, changed, new)
        return len(numbers)

    @verb
    def delete(
        self, table: str, rows: ArrayLike | slice | None = None, *, where: Filter | bool | None = None
    ) -> int:
        """Delete rows, and return how many were live until now.

        The other rows keep their numbers. Values of deleted rows stay in storage until their pages are
        rewritten, and earlier versions still show the rows.

        Parameters
        ----------
        table
            Its name; the table must be aligned.
        rows
            Row numbers from 0, in any order, of rows that the snapshot read by the transaction has; one
            number, a mask or a slice, as for `update_rows`. Rows that are deleted already are left out.
        where
            A condition, as `Table.read` takes it for `filter`; True deletes all rows. Give `rows` or `where`.

        Raises
        ------
        TableNotFoundError, RowOutOfRangeError
        InvalidInputError
            If neither or both are given, the table is not aligned, or a row was appended by this transaction.

        Notes
        -----
        Writes a mark for each row, as pages of 65,536 marks; the columns are left alone. Reads the columns of
        the condition, as a scan does. A commit that meanwhile updates one of the rows is a conflict; one that
        deletes or appends rows is none.
        """
        state = self._state
        state.check_open()
        table = _selected(table, rows, where, "delete")
        state.pin_latest()
        definition = self._names.to_write(table)
        state.relies_on(definition.table_id)
        if where is not None:
            rows = self._shown(table, definition).row_numbers(None if where is True else where)
        assert rows is not None
        return delete_rows(state, definition, table, rows)

    @verb
    def overwrite(self, table: str, data: Any) -> int:
        """Replace all rows of a table, and return how many rows replace them.

        The rows that the transaction reads are deleted and the new ones are appended, in one commit. The
        numbering goes on. Rows that others append meanwhile stay.

        Parameters
        ----------
        table
            Its name; the table must be aligned.
        data
            The new rows, as for `append`.

        Raises
        ------
        TableNotFoundError, SchemaMismatchError
        InvalidInputError
            If the table is not aligned, or this transaction has appended rows to it.

        Notes
        -----
        Under ``serializable`` isolation rows that others append or change meanwhile are a conflict. Earlier
        versions still show the old rows. `truncate_table` begins at row 0 again, and conflicts with appends.
        """
        state = self._state
        state.check_open()
        state.pin_latest()
        rows = as_rows(data)
        definition = self._names.to_write(table)
        check_aligned(definition, table, "overwrite")
        state.relies_on(definition.table_id)
        before = state.snapshot().table_of(definition) if definition.table_id >= 0 else None
        if self._appended_rows(definition):
            raise InvalidInputError(
                f"Cannot overwrite rows of table {show_name(definition)!r}: this transaction "
                "has appended some.",
                hint="Commit first, and overwrite in another `store.transaction()`.",
            )
        self.append(table, rows)
        if before is not None and definition.table_id < state.base.state.next_table_id:
            delete_rows(state, definition, table, before.row_numbers())
        return self._appended_rows(definition)

    def _appended_rows(self, definition: TableDefinition) -> int:
        staged, table_id = self._state.staged, definition.table_id
        waiting = staged.appends.get(table_id)
        settled = max(staged.staged_rows(table_id).values(), default=0)
        return settled + (0 if waiting is None else waiting.num_rows)

    def _shown(self, table: str, definition: TableDefinition) -> Table:
        """Return a table with what is staged."""
        state = self._state
        changed = definition.table_id in state.staged.definitions
        return staged_table(state, table) if changed else state.snapshot().table_of(definition)

    def _check_committed(
        self, table: str, definition: TableDefinition, numbers: np.ndarray[Any, np.dtype[np.int64]]
    ) -> None:
        end = self._state.snapshot().table_of(definition).end_row
        if len(numbers) and numbers[-1] >= end:
            row = int(numbers[numbers >= end][0])
            raise InvalidInputError(
                f"Cannot update row {row} of table {table!r}: this transaction appended it.",
                hint="Commit first, and update the row in another `store.transaction()`.",
            )


def _selected(table: str, rows: Any, where: Any, verb_name: str) -> str:
    """Return the name of a table of which rows are selected in one way.

    Raises
    ------
    InvalidInputError
        If neither or both of `rows` and `where` are given.
    """
    name = as_str(table, "the name of a table")
    if (rows is None) == (where is None) or where is False:
        raise InvalidInputError(
            f"Cannot {verb_name} rows of table {name!r}: give rows or where, and one of them only.",
            hint=f"`where=True` {verb_name}s all rows.",
        )
    return name
