"""Columns that came while rows were on their way: on a rebase both get what they lack, as constant pages.

An append that meets a new column brings nulls for it. A new column that meets rows appended meanwhile brings
its default for them. So neither waits for the other, and the columns of a table stay equally long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa

from spark_pages.arrow.nested import null_scalar
from spark_pages.catalog.alterations import columns_to_fill
from spark_pages.catalog.resolve import same_table
from spark_pages.errors import CommitConflictError
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.log.state import LogState
from spark_pages.model.actions import Splice
from spark_pages.model.chain_tree import ChainKey
from spark_pages.model.ids import FieldId, TableId
from spark_pages.model.new_page import NewPage
from spark_pages.model.table import TableDefinition
from spark_pages.transaction.page_writer import inline_page, stage_constants
from spark_pages.transaction.staged_ddl import StagedDdl

Filling = tuple[list[NewPage], list[Splice]]


def fill_late_columns(
    definitions: Iterable[TableDefinition],
    splices: Sequence[Splice],
    since: int,
    state: LogState,
    show: Callable[[LogState], LogSnapshot],
    first_page: int,
) -> Filling:
    """Nulls for the columns that tables have got since a version, as many as a transaction appends rows.

    Parameters
    ----------
    definitions
        The tables written to, as they were then.
    splices
        What the transaction does to them.
    show
        Gives the snapshot of a state.
    first_page
        Ordinal of the first of these pages.

    Notes
    -----
    Where no table has changed, which the state tells, nothing is looked up.
    """
    pages: list[NewPage] = []
    added: list[Splice] = []
    for definition in definitions:
        table_id = definition.table_id
        if not _may_have_changed(table_id, since, state):
            continue
        log = show(state)
        now = same_table(log, definition)
        for field_id, column in (columns_to_fill(definition, now) or ()) if now is not None else ():
            growth = _growth(splices, table_id)
            if growth > 0:
                rows = log.num_rows((table_id, FieldId(field_id)))
                null = null_scalar(column.type)
                _add(pages, added, (table_id, FieldId(field_id)), rows, null, growth, first_page)
    return pages, added


def extend_new_columns(ddl: StagedDdl, log: LogSnapshot, first_page: int) -> Filling:
    """Defaults of the columns that a transaction adds, for rows that others have appended meanwhile.

    They belong in front of what the transaction itself puts there.

    Raises
    ------
    CommitConflictError
        If rows are gone.
    """
    pages: list[NewPage] = []
    added: list[Splice] = []
    for key, default in ddl.defaults.items():
        table_id = key[0]
        if table_id not in ddl.altered or table_id in ddl.truncated or key not in ddl.new_columns:
            continue
        before = ddl.before[table_id]
        rows = min(log.num_rows((table_id, each)) for each in before.field_ids.values())
        more = rows - ddl.new_columns[key]
        if more < 0:
            columns = ddl.altered[table_id].field_ids.items()
            added_names = [name for name, field_id in columns if field_id == key[1]]
            raise CommitConflictError(
                f"Column {added_names[0]!r} of table {before.name!r} was to be added for "
                f"{ddl.new_columns[key]} rows, but the table has {rows} by now. Nothing was committed.",
                hint="Repeat the transaction.",
                table_id=int(table_id),
            )
        if more:
            _add(pages, added, (table_id, FieldId(key[1])), 0, default, more, first_page)
    return pages, added


def _may_have_changed(table_id: TableId, since: int, state: LogState) -> bool:
    """Whether the table may have another definition than at version `since`."""
    if state.catalog_version <= since:
        return False
    if state.base is not None and state.base.version > since:
        return True
    return state.changed.get(int(table_id), -1) > since


def _growth(splices: Iterable[Splice], table_id: TableId) -> int:
    """Rows by which the columns of a table grow, all alike."""
    growth: dict[int, int] = {}
    for splice in splices:
        if splice.table_id == table_id:
            more = splice.added_entries - splice.removed_entries
            growth[splice.field_id] = growth.get(splice.field_id, 0) + more
    return max(growth.values(), default=0)


def _add(
    pages: list[NewPage],
    splices: list[Splice],
    key: ChainKey,
    first_row: int,
    value: pa.Scalar,
    count: int,
    first_page: int,
) -> None:
    start = first_page + len(pages)
    pages += [inline_page(page) for page in stage_constants(value, count)]
    stop = first_page + len(pages)
    touched = ((first_row, first_row + count),)
    splices.append(
        Splice(TableId(key[0]), FieldId(key[1]), first_row, (), 0, 0, start, stop, count, touched=touched)
    )
