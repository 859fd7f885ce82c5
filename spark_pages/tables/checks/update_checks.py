"""Rows that updates change, against the checks of their table: with what the other columns hold."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.model.ids import TableId
from spark_pages.model.nested import null_scalar
from spark_pages.model.table import TableDefinition
from spark_pages.tables.arrays.joining import join, take_entries, widened
from spark_pages.tables.checks.constraint_tests import RowTests
from spark_pages.tables.staging.updates import last_wins
from spark_pages.tables.staging.workspace import Workspace
from spark_pages.tables.table import Table


def check_updates(work: Workspace, table_of: Callable[[TableDefinition], Table]) -> set[TableId]:
    """Nothing, if no updated row breaks a check; gives the tables of which rows were read for that.

    Parameters
    ----------
    table_of
        Gives the table as of the version that the transaction stands on.

    Raises
    ------
    ConstraintError

    Notes
    -----
    Reads the pages that hold these rows of columns that are tested and not updated.
    """
    relied: set[TableId] = set()
    for table_id in {table_id for table_id, _ in work.updates}:
        definition = work.definitions[table_id]
        updated = {column: each for (of, column), each in work.updates.items() if of == table_id}
        tests = RowTests.of(definition).about(set(updated))
        if not tests.tests:
            continue
        changes = {column: last_wins(updated[column]) for column in tests.columns if column in updated}
        rows = np.unique(np.concatenate([numbers for numbers, _ in changes.values()]))
        table = table_of(definition)
        columns = {}
        for column in sorted(tests.columns):
            place = table_id, definition.field_ids[column]
            if place in work.ddl.new_columns:  # of which no row can be updated yet
                nothing = null_scalar(definition.bare_schema.field(column).type)
                columns[column] = pa.repeat(work.ddl.defaults.get(place, nothing), len(rows))
                continue
            if column not in changes:
                relied.add(table_id)
            columns[column] = _after(table, column, rows, changes.get(column))
        tests.check(pa.table(columns), 0)
    return relied


def _after(
    table: Table, column: str, rows: NDArray[np.int64], change: tuple[NDArray[np.int64], pa.Array] | None
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
