"""Stage the rows that a transaction appends and updates: from what the caller gives to splices.

`append_rows` splits rows into pages and encodes full ones; `update_rows` buffers updates. `settle` and
`rewrite_updates` turn what waits into splices. Memory is bounded: see `PageFlusher` and `UpdateBuffer`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spark_pages.catalog.constraints import key_columns
from spark_pages.catalog.page_options import PageOptions
from spark_pages.catalog.resolve import show_name
from spark_pages.errors import InvalidInputError, RowDeletedError
from spark_pages.format.values import RowStream
from spark_pages.model.ids import is_temporary
from spark_pages.model.row_index import row_out_of_range
from spark_pages.model.row_ranges import sorted_rows
from spark_pages.model.table import TableDefinition
from spark_pages.query.page_metadata import PageMeta
from spark_pages.query.table import Table
from spark_pages.transaction.deleted_rows import mark_dead, shorten_marks
from spark_pages.transaction.given_rows import GivenRows, row_numbers, values_by_column
from spark_pages.transaction.ingest import NOTHING_BESIDE, TableIngest, spelled_columns
from spark_pages.transaction.page_flush import PageFlusher
from spark_pages.transaction.page_writer import INLINE_PAGE_BYTES, StagedPage
from spark_pages.transaction.placement import StagedSplice
from spark_pages.transaction.rewritten_pages import rewrite_pages
from spark_pages.transaction.state import TransactionState
from spark_pages.transaction.update_buffer import SortedUpdates, UpdateKey

_PIECE_BYTES = 16 << 20


def load_lengths(state: TransactionState, definition: TableDefinition) -> None:
    """Load what an append to the table depends on, before any of its rows are read."""
    if definition.table_id not in state.staged.appends:
        _rows_before(state, definition)
        state.namespace_of(definition)


def append_rows(
    state: TransactionState,
    definition: TableDefinition,
    rows: RowStream,
    page_bytes: int,
    metas: Mapping[str, PageMeta] = NOTHING_BESIDE,
    settled: bool = False,
) -> None:
    """Append rows to a table; see `Transaction.append`.

    Parameters
    ----------
    metas
        Metadata of the rows, by column.
    settled
        Whether to put them into splices at once; rows of unaligned tables always are.
    """
    if not definition.field_ids.keys() >= set(rows.columns):
        names = spelled_columns(definition, rows.columns)
        metas = {spelled_columns(definition, [name])[0]: meta for name, meta in metas.items()}
        rows = rows.renamed(names)
    if not settled and definition.aligned:
        _append(state, definition, rows, page_bytes, metas)
        return
    with _all_or_nothing(state):
        _append(state, definition, rows, page_bytes, metas)
        settle(state)


def _append(
    state: TransactionState,
    definition: TableDefinition,
    rows: RowStream,
    page_bytes: int,
    metas: Mapping[str, PageMeta],
) -> None:
    staged, table_id = state.staged, definition.table_id
    before = staged.definitions.get(table_id)
    ingest = staged.appends.get(table_id)
    if ingest is None or not definition.aligned:
        ingest = _begin_ingest(state, definition, rows.columns, page_bytes)
    marks = ingest.mark()
    try:
        ingest.check(rows)
        first = 0
        for piece in rows.pieces(max(1, min(_PIECE_BYTES, state.memory_bytes // 8))):
            end = first + piece.num_rows
            beside = {name: meta.slice(first, end) for name, meta in metas.items()}
            state.held_bytes += ingest.add(piece, beside)
            stay_in_budget(state)
            first = end
        ingest.own()
    except BaseException:
        ingest.rewind(marks)
        if before is None:  # nothing of the table is written to
            del staged.appends[table_id], staged.definitions[table_id]
        raise


@contextmanager
def _all_or_nothing(state: TransactionState) -> Iterator[None]:
    """Restore splices and appends if the block fails."""
    staged = state.staged
    ingests, splices = dict(staged.appends), list(staged.splices)
    marks = {table_id: ingest.mark() for table_id, ingest in ingests.items()}
    try:
        yield
    except BaseException:
        staged.appends, staged.splices = ingests, splices
        for table_id, ingest in ingests.items():
            ingest.rewind(marks[table_id])
        raise


def _begin_ingest(
    state: TransactionState, definition: TableDefinition, columns: Iterable[str], page_bytes: int
) -> TableIngest:
    """Begin an append to every column; of an unaligned table, to the given columns."""
    staged, table_id = state.staged, definition.table_id
    if key_columns(definition):  # compared with the rows that exist, by their numbers
        staged.definitions[table_id] = definition
        state.pin_latest()
    given = set(columns)
    before = _rows_before(state, definition)
    splices = [
        StagedSplice(table_id, field_id, before[field_id], (), 0, [])
        for column, field_id in definition.field_ids.items()
        if definition.aligned or column in given
    ]
    namespace = state.namespace_of(definition)
    inherited = namespace.properties if namespace is not None else {}
    ingest = TableIngest(definition, PageOptions.of(definition, page_bytes, inherited), splices)
    staged.appends[table_id] = ingest
    staged.definitions[table_id] = definition
    return ingest


def _rows_before(state: TransactionState, definition: TableDefinition) -> Mapping[int, int]:
    """Return the rows of each chain of a table with staged changes."""
    table_id = definition.table_id
    grown = state.staged.staged_rows(table_id)
    if table_id < 0 or table_id in state.staged.ddl.truncated:
        return {field_id: grown.get(field_id, 0) for field_id in definition.field_ids.values()}
    base = state.base
    return {
        field_id: grown.get(field_id, 0) + base.num_rows((table_id, field_id))
        for field_id in definition.field_ids.values()
    }


def are_few_rows(state: TransactionState) -> bool:
    """Return whether all that is staged are a few waiting rows: to prepare them takes no request."""
    staged = state.staged
    columns = [column for ingest in staged.appends.values() for column in ingest.columns]
    if state.updates or staged.deleted or staged.splices or any(each.splice.pages for each in columns):
        return False
    if any(key_columns(ingest.definition) for ingest in staged.appends.values()):
        return False
    return sum([column.waiting_bytes for column in columns]) <= INLINE_PAGE_BYTES


def update_rows(
    state: TransactionState, definition: TableDefinition, table: str, rows: GivenRows, values: Any
) -> int:
    """Give rows of a table other values, and return how many; see `Transaction.update_rows`."""
    staged, table_id = state.staged, definition.table_id
    staged.ddl.check_not_truncated(definition, "update rows of")
    numbers, highest = row_numbers(state.snapshot().table_of(definition), table, rows)
    given = values_by_column(definition, len(numbers), values)
    for name in given:
        there = state.base.num_rows((table_id, definition.field_ids[name]))
        if highest >= there:
            beyond = int(numbers[numbers >= there][0])
            if beyond < state.snapshot().table_of(definition).end_row:
                raise InvalidInputError(
                    f"Cannot update column {name!r} of table {table!r}: this transaction added the column.",
                    hint="Commit first, and update it in another `store.transaction()`.",
                )
            if beyond < there + max(staged.staged_rows(table_id).values(), default=0):
                raise InvalidInputError(
                    f"Cannot update row {beyond} of table {table!r}: this transaction appended it.",
                    hint="Commit first, and update the row in another `store.transaction()`.",
                )
            raise row_out_of_range(beyond, there, f"column {name!r} of table {table!r}")
    if not len(numbers):
        return 0
    _check_live(state, definition, numbers)
    before = staged.definitions.get(table_id)
    try:
        staged.definitions[table_id] = definition
        state.updates.add(table_id, numbers, given)
    except BaseException:
        if before is None:
            staged.definitions.pop(table_id, None)
        raise
    return len(numbers)


def _check_live(state: TransactionState, definition: TableDefinition, numbers: NDArray[np.int64]) -> None:
    """Raise RowDeletedError if a row is dead. Takes no memory where no row of the table is."""
    shown = state.snapshot().table_of(definition)
    deleted = state.staged.deleted.get(definition.table_id, np.zeros(0, np.int64))
    if shown.num_rows == shown.end_row and not len(deleted):
        return
    live = shown.are_live(numbers) & ~np.isin(numbers, deleted)
    if not live.all():
        row = int(numbers[~live][0])
        raise RowDeletedError(
            f"Cannot update row {row} of table {show_name(definition)!r}: it was deleted.",
            hint="Update live rows only; `Table.row_numbers` gives their numbers.",
            row=row,
        )


def delete_rows(state: TransactionState, definition: TableDefinition, table: str, rows: GivenRows) -> int:
    """Delete rows of a table by number, and return how many were live; see `Transaction.delete`."""
    staged, table_id = state.staged, definition.table_id
    if not definition.aligned:
        raise InvalidInputError(
            f"Cannot delete rows of table {table!r}: it is not aligned, so its columns do not share rows.",
            hint="Create the table with `aligned=True`.",
        )
    staged.ddl.check_not_truncated(definition, "delete rows of")
    before = state.snapshot().table_of(definition)
    numbers, highest = row_numbers(before, table, rows)
    if highest >= before.end_row:
        appended = staged.staged_rows(table_id)
        if highest < before.end_row + max(appended.values(), default=0):
            raise InvalidInputError(
                f"Cannot delete row {highest} of table {table!r}: this transaction appended it.",
                hint="Commit first, and delete the row in another `store.transaction()`.",
            )
        raise row_out_of_range(int(numbers[numbers >= before.end_row][0]), before.end_row, f"table {table!r}")
    deleted = staged.deleted.get(table_id, np.zeros(0, np.int64))
    numbers = sorted_rows(numbers)
    if len(deleted):
        numbers = np.setdiff1d(numbers, deleted, assume_unique=True)
    numbers = numbers[before.are_live(numbers)]
    if len(numbers):
        staged.definitions[table_id] = definition
        staged.deleted[table_id] = sorted_rows(np.concatenate([deleted, numbers]))
    return len(numbers)


def settle(state: TransactionState) -> None:
    """Put all appended rows into splices; rows that cannot be encoded wait as before."""
    staged = state.staged
    for table_id, ingest in list(staged.appends.items()):
        state.held_bytes += ingest.finish()
        del staged.appends[table_id]
        staged.splices += ingest.splices()
    stay_in_budget(state)


def rewrite_updates(
    state: TransactionState,
    updates: Mapping[UpdateKey, SortedUpdates],
    table_of: Callable[[TableDefinition], Table],
    within: Mapping[UpdateKey, NDArray[np.int64]] | None = None,
) -> list[StagedSplice]:
    """Return splices with the pages that updates touch, rewritten; flushed where they exceed the memory.

    Parameters
    ----------
    updates
        By table and column.
    table_of
        Gives the table as of the version whose pages are replaced.
    within
        Ranges of rows by table and column, where only their pages are rewritten; see `rewrite_pages`.
    """
    rewritten: list[StagedSplice] = []
    for table_id, column in updates if within is None else within:
        table = table_of(state.staged.definitions[table_id])
        ranges = None if within is None else within[table_id, column]
        for splice in rewrite_pages(table, column, updates[table_id, column], state.at_once_bytes, ranges):
            rewritten.append(splice)
            state.held_bytes += held_by(splice)
            stay_in_budget(state, rewritten)
    return rewritten


def rewrite_pending(state: TransactionState) -> list[StagedSplice]:
    """Return splices with the pages of the read version that staged updates and deletes touch, rewritten."""
    table_of = state.snapshot().table_of
    rewritten = rewrite_updates(state, state.updates.sorted(), table_of) if state.updates else []
    return [*rewritten, *rewrite_marks(state, table_of)]


def rewrite_marks(
    state: TransactionState, table_of: Callable[[TableDefinition], Table]
) -> list[StagedSplice]:
    """Return splices of the liveness chains for deleted rows, and for tables that become shorter.

    Parameters
    ----------
    table_of
        Gives the table as of the version whose pages are replaced.

    Raises
    ------
    InvalidInputError
        If one table loses rows at its end and other rows too.
    """
    staged, splices = state.staged, []
    for table_id, rows in staged.deleted.items():
        table = table_of(staged.definitions[table_id])
        splices += mark_dead(table, rows[table.are_live(rows)])
    for table_id, definition in staged.definitions.items():
        end_row = staged.end_of_kept_rows(table_id)
        if end_row is None or not definition.may_have_dead_rows:
            continue
        if table_id in staged.deleted:
            raise InvalidInputError(
                f"Cannot delete rows of table {show_name(definition)!r}: it becomes shorter in this "
                "transaction.",
                hint="Do one of them in another `store.transaction()`.",
            )
        splices += shorten_marks(table_of(definition), end_row)
    state.held_bytes += sum(map(held_by, splices))
    return splices


def release(state: TransactionState, rewritten: Iterable[StagedSplice]) -> None:
    """Take splices that are not for the commit out of the memory budget."""
    state.held_bytes -= sum(map(held_by, rewritten))


def stay_in_budget(state: TransactionState, more: Sequence[StagedSplice] = ()) -> None:
    """Flush pages that take a quarter of the memory: to write them takes two quarters more."""
    if state.held_bytes * 4 <= state.memory_bytes:
        return
    state.pin_latest()  # page files bear the read version, by which vacuum judges them
    staged = state.staged
    open_splices = [column.splice for ingest in staged.appends.values() for column in ingest.columns]
    splices = [*more, *staged.splices, *open_splices]
    if state.flusher is None:
        state.flusher = PageFlusher(state.store, state.runtime.spawn)
    lasting = [splice for splice in splices if not is_temporary(splice.table_id)]
    state.flusher.write(lasting, state.next_page_file_of)
    state.held_bytes = 0


def wait_for_flushed(state: TransactionState) -> None:
    """Wait until flushed pages are durable."""
    if state.flusher is not None:
        state.flusher.wait()


def held_by(splice: StagedSplice) -> int:
    """Return the bytes of its pages that have no place yet."""
    return sum(page.encoded.actual_len for page in splice.pages if isinstance(page, StagedPage))
