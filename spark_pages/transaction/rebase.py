"""Columns that came while rows were on their way: on a rebase both get what they lack, as constant pages.

An append that meets a new column brings nulls for it. A new column that meets rows appended meanwhile brings
its default for them. So neither waits for the other, and the columns of a table stay equally long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.arrow.nested import null_scalar
from spark_pages.catalog.alterations import columns_to_fill
from spark_pages.catalog.constraints import key_columns
from spark_pages.catalog.resolve import same_table
from spark_pages.changes.row_changes import ChainTrace, Changes
from spark_pages.errors import CommitConflictError
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.log.state import LogState
from spark_pages.model.actions import Commit, IntentKind, Splice, TransactionRecord
from spark_pages.model.chain_tree import ChainKey
from spark_pages.model.ids import LIVENESS, FieldId, TableId
from spark_pages.model.new_page import NewPage
from spark_pages.model.row_ranges import RowRanges, union
from spark_pages.model.table import TableDefinition
from spark_pages.transaction.page_writer import StagedPage, inline_page, stage_constants
from spark_pages.transaction.placement import StagedSplice
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
        if splice.table_id == table_id and splice.field_id != LIVENESS:
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


class ComparedKeys:
    """The new keys of one transaction, followed from the version on which they were compared.

    Parameters
    ----------
    definitions
        The tables.
    rows_then
        Gives how many rows a chain had in that version.
    """

    def __init__(self, definitions: Iterable[TableDefinition], rows_then: Callable[[ChainKey], int]) -> None:
        self._definitions = {each.table_id: each for each in definitions}
        self.compared(rows_then)

    @property
    def tables(self) -> frozenset[TableId]:
        """Ids of the tables."""
        return frozenset(self._definitions)

    def compared(self, rows_then: Callable[[ChainKey], int]) -> None:
        """They were compared with all keys of a version in which chains have so many rows."""
        self._changes = {table_id: Changes(rows_then, table_id) for table_id in self._definitions}

    def feed(self, commit: Commit) -> bool:
        """Go on by a commit that landed; gives whether the tables are what they were, but for rows."""
        for record in commit.records:
            for intent in record.intents:
                if intent.table_id in self._definitions and intent.kind is not IntentKind.REQUIRE:
                    return False
        for changes in self._changes.values():
            changes.feed(commit)
        return True

    def landed(self) -> Iterator[tuple[TableDefinition, RowRanges]]:
        """The tables in which keys landed since, with their rows."""
        for definition in self._definitions.values():
            changes = self._changes[definition.table_id]
            fields = [definition.field_ids[name] for name in key_columns(definition)]
            traces = [changes.traces[key] for key in changes.traces if key[1] in fields]
            if traces:
                yield definition, union([rows for each in traces for rows in (each.updated, each.inserted)])


def surviving_pages(splice: StagedSplice, gone: set[int]) -> tuple[list[StagedSplice], list[tuple[int, int]]]:
    """What stays of a splice that puts a page in the place of each that it takes out.

    Parameters
    ----------
    gone
        Ids of pages that others have taken out.

    Returns
    -------
    tuple
        The splice cut to runs of pages that are there; and the rows [first, end) of pages that are not.
    """
    if gone.isdisjoint(splice.removed):
        return [splice], []
    is_gone = np.array([page in gone for page in splice.removed])
    entries = [page.entries if isinstance(page, StagedPage) else page.entry_count for page in splice.pages]
    rows = (splice.first_row + np.cumsum([0, *entries])).tolist()
    touched = np.array(splice.touched, np.int64).reshape(-1, 2)
    kept, overtaken = [], []
    for start, stop in pairwise([0, *(np.flatnonzero(np.diff(is_gone)) + 1).tolist(), len(is_gone)]):
        first, end = rows[start], rows[stop]
        if is_gone[start]:
            overtaken.append((first, end))
            continue
        there = touched[(touched[:, 1] > first) & (touched[:, 0] < end)].clip(first, end)
        kept.append(
            StagedSplice(
                splice.table_id,
                splice.field_id,
                first,
                splice.removed[start:stop],
                end - first,
                splice.pages[start:stop],
                touched=tuple(map(tuple, there.tolist())),
            )
        )
    return kept, overtaken


class UpdatedRows:
    """Rows of some chains, followed from the version in which they were read.

    Parameters
    ----------
    rows : arrays of int64 by chain
        Row numbers, increasing in each array, which has at least one.
    rows_then
        Gives how many rows a chain had in that version.
    """

    def __init__(
        self, rows: Mapping[ChainKey, Sequence[NDArray[np.int64]]], rows_then: Callable[[ChainKey], int]
    ) -> None:
        self._rows = rows
        self._traces = {key: ChainTrace(rows_then(key)) for key in rows}
        self._tables = {key[0] for key in rows}

    def outlive(self, record: TransactionRecord) -> bool:
        """Go on by a transaction that landed; gives whether rows and tables are what they were."""
        for intent in record.intents:
            if intent.table_id in self._tables and intent.kind is not IntentKind.REQUIRE:
                return False
        return all(map(self._outlive, record.splices))

    def _outlive(self, splice: Splice) -> bool:
        key = splice.table_id, splice.field_id
        if key not in self._rows:
            return True
        touched = np.array(self._traces[key].splice(splice), np.int64).reshape(-1, 2)
        kept = self._traces[key].kept
        return all(rows[-1] < kept and _are_apart(rows, touched) for rows in self._rows[key])


def _are_apart(rows: NDArray[np.int64], touched: NDArray[np.int64]) -> bool:
    first, end = np.searchsorted(rows, touched).T
    return bool((first == end).all())
