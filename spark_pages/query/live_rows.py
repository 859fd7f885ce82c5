"""Live rows: which rows of a table are not deleted, read from its liveness chain.

See `docs/format.md` ("Deleted rows"). Row numbers count dead rows too; what a reader returns does not.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.arrow.columns import flags_of, number_column
from spark_pages.arrow.join import join, take_entries
from spark_pages.arrow.nested import null_column
from spark_pages.errors import RowDeletedError, SparkPagesError
from spark_pages.model.ids import LIVENESS
from spark_pages.model.table import TableDefinition, with_field_id
from spark_pages.query.predicates.evaluate import select_rows

Flags = NDArray[np.bool_]

MARK = "live"
"""Name under which the liveness chain is read: its entries are true, or null where the row is dead."""


def marks_of(definition: TableDefinition) -> TableDefinition:
    """Return the liveness chain of a table as a table of one column."""
    schema = pa.schema([with_field_id(pa.field(MARK, pa.bool_()), LIVENESS)])
    return TableDefinition(
        definition.table_id, definition.name, schema, 1, definition.namespace_id, aligned=False
    )


def only_live(table: pa.Table, mask: pa.BooleanArray | None) -> pa.Table:
    """Keep the rows of a table for which a bitmap is true; all of them without one.

    Notes
    -----
    The bitmap goes to Arrow as it is: to unpack and pack it takes as long as to filter a column.
    """
    if mask is None:
        return table
    if not table.num_columns:
        return pa.table({"": pa.nulls(mask.true_count)}).select([])
    rows: NDArray[np.int64] | None = None
    columns = []
    for column in table.columns:
        if _has_filter(column.type):
            columns.append(column.filter(mask))
            continue
        rows = np.flatnonzero(flags_of(mask)).astype(np.int64) if rows is None else rows
        columns.append(select_rows(column, rows))
    return pa.table(columns, schema=table.schema)


def _has_filter(kind: pa.DataType) -> bool:
    """Whether Arrow filters arrays of a type chunk by chunk, of any length."""
    return pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or kind in _TEXT


_TEXT = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())


def with_nulls(table: pa.Table, live: Flags) -> pa.Table:
    """Spread rows with nulls between them, where `live` is false."""
    place = np.cumsum(live) - 1
    columns = []
    for column in table.columns:
        entries = join([*column.chunks, null_column(column.type, 1)], column.type)
        rows = np.where(live, place, len(entries) - 1)
        columns.append(take_entries(entries, number_column(rows, pa.int64())))
    fields = [field.with_nullable(True) for field in table.schema]
    return pa.table(columns, schema=pa.schema(fields, table.schema.metadata))


def row_column(rows: NDArray[np.int64]) -> pa.Array:
    """Row numbers as a column."""
    return number_column(rows, pa.int64()).view(pa.uint64())


class Deletion(Protocol):
    """Who deleted a row; see `spark_pages.versions.blame`."""

    @property
    def version(self) -> int:
        """The version that deleted it, or, unless `exact`, the oldest one known to have done so."""

    @property
    def operation(self) -> str | None:
        """What was done."""

    @property
    def exact(self) -> bool:
        """Whether the log still holds the commit."""


FindDeletion = Callable[[int, int], Deletion | None]
"""Finds who deleted a row, given the id of its table and its number."""


def row_deleted(
    table: str, row: int, newest: int, find: Callable[[], Deletion | None] | None
) -> RowDeletedError:
    """Return the error of a read of a row that was deleted.

    Parameters
    ----------
    newest
        The last version that may have deleted it.
    find
        Finds who did.
    """
    version, how = newest, f"in version {newest} or before"
    with suppress(SparkPagesError):  # what the log fails with would hide what the caller has to know
        found = find() if find is not None else None
        if found is not None and found.exact:
            version, how = found.version, f"in version {found.version} by operation {found.operation!r}"
    return RowDeletedError(
        f"Cannot read row {row} of table {table!r}: it was deleted, {how}.",
        hint="Read an earlier version, or pass `missing='null'` or `missing='skip'`.",
        row=row,
        version=version,
    )
