"""Purges: which pages of a table still hold values of deleted rows, and their blank successors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from spark_pages.catalog.resolve import show_name
from spark_pages.errors import InvalidInputError
from spark_pages.model.ids import FieldId
from spark_pages.model.row_index import row_out_of_range
from spark_pages.model.row_ranges import RowRanges
from spark_pages.model.table import TableDefinition
from spark_pages.query.catalog_rows import definitions_of
from spark_pages.query.snapshot import Snapshot
from spark_pages.query.table import Table
from spark_pages.transaction.blanked_rows import blank_column
from spark_pages.transaction.deleted_rows import dead_rows, joined_marks
from spark_pages.transaction.given_rows import checked_rows
from spark_pages.transaction.staging import held_by, stay_in_budget
from spark_pages.transaction.state import TransactionState


def dead_ranges(
    state: TransactionState, definition: TableDefinition, rows: ArrayLike | None
) -> RowRanges | None:
    """Return rows that a caller gives as ranges, None as it is.

    Raises
    ------
    InvalidInputError
        If the table is not aligned, or one of the rows is live.
    RowOutOfRangeError
    """
    name = show_name(definition)
    if not definition.aligned:
        raise InvalidInputError(
            f"Cannot purge rows of table {name!r}: it is not aligned, so its columns do not share rows.",
            hint="Create the table with `aligned=True`.",
        )
    state.staged.ddl.check_not_truncated(definition, "purge rows of")
    if rows is None:
        return None
    numbers, highest = checked_rows(name, rows)
    table = state.snapshot().table_of(definition)
    if highest >= table.end_row:
        raise row_out_of_range(highest, table.end_row, f"table {name!r}")
    live = table.are_live(numbers)
    if live.any():
        raise InvalidInputError(
            f"Cannot purge row {int(numbers[live][0])} of table {name!r}: it is not deleted.",
            hint="Delete the rows first, with `transaction.delete`, and commit.",
        )
    return RowRanges.joined(np.stack([numbers, numbers + 1], axis=1))


def purge_rows(
    state: TransactionState, definition: TableDefinition, rows: RowRanges | None, *, whole_pages: bool
) -> int:
    """Blank values of dead rows, and return how many pages give way; see `Transaction.purge_rows`."""
    staged, shown = state.staged, state.snapshot()
    table = shown.table_of(definition)
    dead = dead_rows(table)
    if not dead.num_rows:
        return 0
    staged.definitions[definition.table_id] = definition
    before = len(staged.splices)
    if rows is None:
        staged.splices += joined_marks(table, dead)
    for of in (table, *([] if whole_pages else dropped_columns(shown, definition))):
        for column in of.columns:
            if column in of.definition.unavailable:
                continue
            for splice in blank_column(of, column, dead, rows, whole_pages=whole_pages):
                staged.splices.append(splice)
                state.held_bytes += held_by(splice)
                stay_in_budget(state)
    replaced = sum(len(splice.removed) for splice in staged.splices[before:])
    if replaced:
        state.read_version.pin()  # on a newer version the pages might not be there
    return replaced


def dropped_columns(shown: Snapshot, definition: TableDefinition) -> list[Table]:
    """Return a table of the columns that were dropped from a table and still have pages; none without any."""
    ids = set(definition.field_ids.values())
    log, table_id = shown.log, definition.table_id
    others = [each for each in range(1, definition.next_field_id) if each not in ids]
    left = {each for each in others if log.num_rows((table_id, FieldId(each)))}
    if not left:
        return []
    (whole,) = definitions_of(shown.table("system.catalog"), [table_id])
    fields = [field for field in whole.schema if whole.field_ids[field.name] in left]
    return [shown.table_of(replace(whole, schema=pa.schema(fields)))]
