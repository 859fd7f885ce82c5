"""Rows that updates change, against the checks of their table: with what the other columns hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.arrow.join import join, take_entries, widened
from spark_pages.arrow.nested import null_scalar
from spark_pages.model.ids import TableId
from spark_pages.model.table import TableDefinition
from spark_pages.query.table import Table
from spark_pages.transaction.constraints import RowTests
from spark_pages.transaction.staged import StagedChanges
from spark_pages.transaction.update_buffer import Batch, SortedUpdates, stretches


def check_updates(
    work: StagedChanges,
    updates: Mapping[tuple[TableId, str], SortedUpdates],
    table_of: Callable[[TableDefinition], Table],
    memory_bytes: int,
) -> set[TableId]:
    """Nothing, if no updated row breaks a check; gives the tables of which rows were read for that.

    Parameters
    ----------
    work, updates
        What is staged, and the updates of it.
    table_of
        Gives the table as of the version that the transaction stands on.
    memory_bytes
        Rows are tested together that have updates of so many bytes.

    Raises
    ------
    ConstraintError

    Notes
    -----
    Reads the pages that hold these rows of columns that are tested and not updated.
    """
    relied: set[TableId] = set()
    for table_id in {table_id for table_id, _ in updates}:
        definition = work.definitions[table_id]
        updated = {column: each for (of, column), each in updates.items() if of == table_id}
        tests = RowTests.of(definition).about(set(updated))
        tested = {column: updated[column] for column in tests.columns if column in updated}
        added = [
            name for name in tests.columns if (table_id, definition.field_ids[name]) in work.ddl.new_columns
        ]
        if not tests.tests:
            continue
        if len(tested) + len(added) < len(tests.columns):
            relied.add(table_id)
        table, before = table_of(definition), 0
        for bounds in stretches(list(tested.values()), memory_bytes):
            changes = {name: each.between(bounds) for name, each in tested.items()}
            rows = np.unique(np.concatenate([numbers for numbers, _ in changes.values()]))
            columns = {}
            for column in sorted(tests.columns):
                if column in added:  # of which no row can be updated yet
                    columns[column] = _added(work, definition, column, len(rows))
                else:
                    columns[column] = _after(table, column, rows, changes.get(column))
            tests.check(pa.table(columns), before)
            before += len(rows)
    return relied


def _added(work: StagedChanges, definition: TableDefinition, column: str, count: int) -> pa.Array:
    """What so many rows hold in a column that the transaction has added."""
    nothing = null_scalar(definition.bare_schema.field(column).type)
    place = definition.table_id, definition.field_ids[column]
    return pa.repeat(work.ddl.defaults.get(place, nothing), count)


def _after(
    table: Table, column: str, rows: NDArray[np.int64], change: Batch | None
) -> pa.Array | pa.ChunkedArray:
    """What the rows hold in a column once the updates are done."""
    if change is not None and len(change[0]) == len(rows):
        return change[1]
    before = table.take(rows, [column]).column(column)
    if change is None:
        return before
    chunks = [widened(each) for each in before.chunks]
    numbers, values = change
    order = np.arange(len(rows))
    order[np.searchsorted(rows, numbers)] = len(rows) + np.arange(len(values))
    return take_entries(join([*chunks, values], values.type), pa.array(order))
