"""The public class of a transaction: changes are staged, and one commit makes all of them visible.

Follow a commit from `Transaction.append` over `staging.py` (rows are encoded into pages of the
`TransactionState`) and `Committer.commit` (pages get their places) to `record.py` (the record on top of a
version, again after each rebase) and `Log.commit_member`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
from numpy.typing import ArrayLike

from spark_pages.arguments import as_flag, as_int, as_list, check_kind, check_texts
from spark_pages.boundary import guarded
from spark_pages.catalog.constraints import key_columns
from spark_pages.catalog.resolve import show_name, split_name
from spark_pages.errors import (
    CommitConflictError,
    ConstraintError,
    InvalidInputError,
    SchemaMismatchError,
    StorageError,
)
from spark_pages.format.features import check_writable
from spark_pages.format.pages.paginate import TARGET_PAGE_BYTES
from spark_pages.log.log import Log
from spark_pages.log.properties import check_store_properties
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.model.actions import Claim
from spark_pages.model.added_pages import NewPage
from spark_pages.model.ids import CATALOG_TABLE, FieldId, TableId
from spark_pages.model.names import fold_name
from spark_pages.model.table import SYSTEM_NAMESPACE, TableDefinition
from spark_pages.query.page_metadata import PageMeta, PageMetadata
from spark_pages.query.snapshot import Snapshot
from spark_pages.query.table import Table
from spark_pages.runtime import Runtime
from spark_pages.storage.store import ObjectStore
from spark_pages.transaction.committer import Committer
from spark_pages.transaction.ingest import NOTHING_BESIDE, misfit
from spark_pages.transaction.page_writer import StagedPage
from spark_pages.transaction.placement import StagedSplice
from spark_pages.transaction.purged_rows import dead_ranges, purge_rows
from spark_pages.transaction.registration import ProvisionalIds, StagedDirectory, check_current
from spark_pages.transaction.row_metadata import with_meta
from spark_pages.transaction.row_sources import as_rows
from spark_pages.transaction.row_verbs import RowVerbs
from spark_pages.transaction.staged_tables import StagedNames, staged_table
from spark_pages.transaction.staging import append_rows, load_lengths, settle
from spark_pages.transaction.state import TransactionOptions, TransactionState, verb
from spark_pages.transaction.written_rows import StagedWrites, WrittenRows

RunSql = Callable[["Transaction", str, "Sequence[Any] | Mapping[str, Any] | None"], pa.Table]
"""Runs statements of SQL in a transaction."""


@guarded()
class Transaction(RowVerbs):
    """Changes that become visible together, or not at all.

    Obtained from `Store.transaction`; a context manager that commits on leaving and rolls back on an
    exception. A transaction that is dropped without either loses its staged changes, and warns
    (`ResourceWarning`).

    Parameters
    ----------
    log, view, runtime
        The log, the reader's view of one of its snapshots, and clock and tokens.
    options
        What the caller requests.
    base
        The version to read; by default the newest one.
    run_sql
        Runs statements of SQL in a transaction.

    Attributes
    ----------
    version
        The committed version; None before the commit. The read version if nothing was staged, unless there is
        a number of an application to remember.
    version_is_exact
        False if its pair of application and number was committed long ago, in `version` or before it: the
        commits with the exact version have been cleaned away.

    Notes
    -----
    A transaction that only appends a few rows makes no request before its commit: it reads the newest version
    that this process knows, and is rebased on what others have committed since. A call that reads, updates,
    creates or writes a page file requests the newest version first.
    """

    def __init__(
        self,
        log: Log,
        view: Callable[[LogSnapshot], Snapshot],
        runtime: Runtime,
        options: TransactionOptions | None = None,
        base: LogSnapshot | None = None,
        run_sql: RunSql | None = None,
    ) -> None:
        options = options or TransactionOptions()
        self.version: int | None = None
        self.version_is_exact = True
        state = self._state = TransactionState.begin(log, view, runtime, options, base)
        self._names = StagedNames(state)
        self._run_sql = run_sql
        self._page_bytes = TARGET_PAGE_BYTES  # tests make pages of fewer
        self._directories: dict[str, StagedDirectory] = {}
        self._provisional_ids: ProvisionalIds | None = None
        self._commit_tried = False
        check_writable(state.base.state.features)
        if state.read_tables is not None:
            state.pin_latest()

    def __del__(self) -> None:
        """Warn of staged changes that are lost, unless a commit failed: its error was raised."""
        state = getattr(self, "_state", None)  # None where the arguments were refused
        if state is None or state.ended or self._commit_tried or state.process != os.getpid():
            return
        if not state.is_empty:
            name = state.info.operation
            shown = "without a name" if name is None else repr(name)
            warnings.warn(
                f"Transaction {shown} was dropped without commit or rollback: what it "
                "staged is lost. Use `with store.transaction() as txn:`, or call `commit`.",
                ResourceWarning,
                source=self,
                stacklevel=2,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and not self._state.ended:
            self.commit()
        else:
            self.rollback()

    def __repr__(self) -> str:
        shown = "ended" if self._state.ended else "open"
        if self.version is not None:
            shown = f"committed as version {self.version}"
        operation = self._state.info.operation or "write"
        return f"Transaction({operation!r}, reads version {self._state.version}, {shown})"

    # reading

    @property
    def snapshot(self) -> Snapshot:
        """The store in the read version, without staged changes.

        Notes
        -----
        Serializable isolation counts each table that is opened as read, each whose rows ``system.tables``
        counts, and the catalog where names are listed or not found. It does not watch other versions (lookups
        as of a time), properties, tags, claims and leases of the store, the history, and the version itself.
        """
        state = self._state
        state.pin_latest()
        state.read_version.is_seen = True
        found = state.snapshot()
        return found if state.read_tables is None else found.watched(state.relies_on)

    @verb
    def table(self, name: str) -> Table:
        """Return a table with the changes that this transaction has staged so far.

        Notes
        -----
        Serializable isolation counts the whole table as read; for a table of ``system``, the catalog. A
        refused call counts as a read of the catalog.
        """
        state = self._state
        state.check_open()
        state.pin_latest()
        of_system = fold_name(split_name(name)[0]) == "system"
        # a temporary table comes first
        found = name if of_system else show_name(self._names.find(name))
        table = staged_table(state, found, on_read=None if state.read_tables is None else state.relies_on)
        state.read_version.is_seen = True
        state.relies_on(CATALOG_TABLE if of_system else table.definition.table_id)
        return table

    @verb
    def directory(self, table: str) -> StagedDirectory:
        """Return which pages hold which rows, with staged changes; it registers pages of other writers.

        See `spark_pages.transaction.registration`. A column may be longer than others until the commit.
        """
        state = self._state
        state.check_open()
        state.pin_latest()
        settle(state)
        definition = self._names.find(table)
        if definition.namespace_id == SYSTEM_NAMESPACE:
            raise InvalidInputError(
                f"Cannot stage pages of {table!r}: that table is the store's own.",
                hint="Stage pages of a table of your own; `snapshot.tables()` lists them.",
            )
        name = show_name(definition)
        known = self._directories.get(name)
        if known is None or known.definition != definition:
            if self._provisional_ids is None:
                self._provisional_ids = ProvisionalIds()
            known = self._directories[name] = StagedDirectory(state, definition, self._provisional_ids)
        check_current(state, definition)
        state.read_version.is_seen = True
        state.relies_on(definition.table_id)
        return known

    # staging

    def append(
        self,
        table: str,
        data: Any,
        *,
        entry_meta: Any = None,
        page_metadata: Mapping[str, PageMetadata] | None = None,
    ) -> None:
        """Append rows to a table.

        Parameters
        ----------
        table
            Its name; may be new in this transaction.
        data
            Anything with ``__arrow_c_stream__`` or ``__arrow_c_array__``: a pyarrow or Polars table, a
            record batch reader, a DuckDB relation. Missing nullable columns are filled with null.
        entry_meta
            What belongs in front of and behind each entry: a table of as many rows, with columns
            ``<column>.prefix_meta`` and ``<column>.suffix_meta`` (binary or text) for some data columns.
        page_metadata
            By data column: keys and values that belong to every page of it which holds these rows. Rows with
            the same ones share pages.

        Raises
        ------
        SchemaMismatchError
            If a column is unknown, missing though not nullable, or of a type that does not fit.

        Notes
        -----
        Rows that fill pages are encoded now, the rest at commit. Pages reach storage at commit, or as soon as
        they take a quarter of `memory_bytes`. A stream is read piece by piece, never as a whole. If an append
        fails, the transaction goes on without any of its rows.
        """
        state = self._state
        state.check_open()
        rows = as_rows(data)
        definition = self._known(table, rows.columns)
        state.relies_on(definition.table_id)
        try:
            metas: Mapping[str, PageMeta] = NOTHING_BESIDE
            check_kind(page_metadata, Mapping | None, "page_metadata", "metadata by column")
            if entry_meta is not None or page_metadata:
                rows, metas = with_meta(definition, rows, entry_meta, page_metadata)
            takes_no_request = rows.is_small and not key_columns(definition)
            first, second, third = state.log.append_lock(takes_no_request)
            with first, second, third:
                append_rows(state, definition, rows, self._page_bytes, metas, settled=bool(self._directories))
        except (SchemaMismatchError, ConstraintError):
            with suppress(CommitConflictError, StorageError):
                state.pin_latest()  # rows may fit the table as it is now
            raise

    @verb
    def _known(self, table: str, columns: Sequence[str]) -> TableDefinition:
        """Return the table, with what an append depends on loaded: a stream is not read twice."""
        state = self._state
        definition = self._names.to_write(table)
        if not state.read_version.is_pinned and misfit(definition, columns) is not None:
            state.pin_latest()  # others may have changed it since
            definition = self._names.to_write(table)
        load_lengths(state, definition)
        return definition

    @verb
    def append_written(self, table: str, written: Sequence[WrittenRows]) -> None:
        """Append rows that other processes have written.

        Parameters
        ----------
        written
            In order; see `spark_pages.transaction.written_rows`. Their pages must have been written for
            the version on which this transaction stands: give it as `read_version`.

        Raises
        ------
        InvalidInputError
            If pages were written for an older version: a vacuum that has taken them would be overlooked.

        Notes
        -----
        Do not append other rows to the same table. Grows with columns and lists, not with pages, unless the
        table has a primary key: the commit compares the keys with each other and with those that are there.
        """
        state, staged = self._state, self._state.staged
        state.check_open()
        given = as_list(written, WrittenRows, "written", "WrittenRows")
        oldest = min((each.read_version for each in given), default=state.version)
        if oldest < state.version:
            raise InvalidInputError(
                f"Cannot append rows to {table!r} that others have written for version {oldest}: this "
                f"transaction stands on version {state.version}, and a vacuum may have passed them.",
                hint=f"Open it with store.transaction(read_version={oldest}).",
            )
        state.read_version.pin()
        definition = self._names.to_write(table)
        settle(state)
        table_id = definition.table_id
        earlier = [of for of in staged.written if of.table_id == table_id]
        before = sum(each.num_rows for of in earlier for each in of.written)
        if table_id >= 0 and table_id not in staged.ddl.truncated:
            before += min(state.base.num_rows((table_id, each)) for each in definition.field_ids.values())
        some = tuple(each for each in given if each.num_rows)
        if some:
            staged.definitions[table_id] = definition
            staged.written.append(StagedWrites(table_id, definition.field_ids, before, some))

    @verb
    def purge_rows(self, table: str, rows: ArrayLike | None = None, *, whole_pages: bool = False) -> int:
        """Blank the values of deleted rows: null takes their place. Return how many pages are replaced.

        What is read of the newest version stays the same. Earlier versions still hold the values, until
        retention lets `Store.vacuum` delete them; `Store.erase` does all of it.

        Parameters
        ----------
        rows
            Only in pages that hold one of these rows, all of which are deleted in the read version; all pages
            by default, and then the pages of the marks of deleted rows are joined, too.
        whole_pages
            Whether to purge only pages of which all rows are deleted. They are not read.

        Raises
        ------
        TableNotFoundError
        InvalidInputError
            If the table is not aligned, or one of the rows is not deleted.

        Notes
        -----
        Reads and rewrites each page with a deleted row, columns that were dropped included. A commit that
        meanwhile replaces one of the pages, or makes one of the rows live again, is a conflict.
        """
        state = self._state
        state.check_open()
        state.pin_latest()
        definition = self._names.to_write(table)
        whole_pages = as_flag(whole_pages, "whole_pages")
        return purge_rows(state, definition, dead_ranges(state, definition, rows), whole_pages=whole_pages)

    def sql(self, text: str, params: Sequence[Any] | Mapping[str, Any] | None = None) -> pa.Table:
        """Run statements of SQL, separated by semicolons, in this transaction.

        Parameters
        ----------
        text
            Queries, ``INSERT``, ``UPDATE``, ``DELETE`` and DDL; see docs/sql.md. They see the staged changes.
        params
            Values for parameters: a list for ``?`` and ``$1``, a mapping for ``$name``. Several statements
            take a mapping.

        Returns
        -------
        pyarrow.Table
            The rows of the last statement, if it is a query or has ``RETURNING``; else a row for each
            statement, with the number of rows that it inserts, updates or deletes.

        Raises
        ------
        InvalidInputError
            If a statement cannot be read, or has a part that is not supported. Earlier statements stay
            staged: leave the ``with`` block by the error, and nothing is committed.
        TableNotFoundError, ColumnNotFoundError, SchemaMismatchError
        """
        self._state.check_open()
        if self._run_sql is None:
            raise InvalidInputError(
                "Cannot run SQL: this transaction was begun without a store.",
                hint="Begin it by `store.transaction()`.",
            )
        return self._run_sql(self, text, params)

    def set_properties(self, properties: Mapping[str, str | None]) -> None:
        """Set properties of the store, or unset those whose value is None; `Store.properties` reads them."""
        self._state.check_open()
        check_texts(properties, "properties", removable=True)
        check_store_properties(properties)
        self._state.staged.properties.update(properties)

    def replace_pages(
        self,
        table_id: TableId,
        field_id: FieldId,
        first_row: int,
        removed: Iterable[int],
        pages: list[NewPage],
    ) -> None:
        """Replace a run of pages by other pages with the same rows (page compaction).

        Parameters
        ----------
        first_row
            Row at which the run begins.
        removed
            Ids of the run, in order.
        pages
            Written pages that hold the same rows.

        Raises
        ------
        InvalidInputError
            If a page does not say how many rows it shows.
        """
        self._state.check_open()
        for what, number in (("table_id", table_id), ("field_id", field_id), ("first_row", first_row)):
            as_int(number, what)
        gone = tuple(as_list(removed, int, "removed", "ids of pages"))
        pages = as_list(pages, NewPage | StagedPage, "pages", "written pages")
        if any(page.entry_count < 0 for page in pages):
            raise InvalidInputError(
                "Cannot replace pages: one of the new pages does not say how many rows it shows.",
                hint="Give every page an entry_count of 0 or more.",
            )
        entries = sum(page.entry_count for page in pages)
        self._state.read_version.pin()  # on a newer version the run might not be there
        self._state.staged.splices.append(
            StagedSplice(table_id, field_id, first_row, gone, entries, pages, data_change=False)
        )

    def claim(self, claim: Claim) -> None:
        """Record that an owner works on some rows or, with expiry 0, that it has finished."""
        self._state.check_open()
        check_kind(claim, Claim, "claim", "a Claim")
        self._state.staged.claims.append(claim)

    @property
    def store(self) -> ObjectStore:
        """Where page files go."""
        return self._state.store

    @verb
    def next_page_file(self, table: str | None = None) -> str:
        """Return the key of the next page file, in the location of the table's namespace.

        Raises
        ------
        CommitConflictError
            If a table that has been written to is another one by now.

        Notes
        -----
        A name bears the version on which the transaction stands, by which vacuum judges the file. So the
        transaction stands on the newest one from then on: one request, the first time.
        """
        state = self._state
        state.check_open()
        state.pin_latest()
        state.read_version.is_seen = True
        return state.next_page_file(None if table is None else self._names.find(table))

    # finishing

    def rollback(self) -> None:
        """Discard all staged changes."""
        self._state.ended = True
        self._release()

    def commit(self) -> int:
        """Commit all staged changes durably, and return the version.

        Raises
        ------
        CommitConflictError, CommitUnknownError, RaggedTableError

        Notes
        -----
        Page files of large transactions are written first, one request each; the commit itself is one more
        where nobody races.
        """
        self._state.check_open()
        self._commit_tried = True
        committer = Committer(self._state)
        applied = committer.applied_version()
        if applied is not None:
            self.rollback()
        else:
            try:
                applied = committer.commit()
            finally:
                if self._state.ended:
                    self._release()
        self.version = self._state.committed = applied.version
        self.version_is_exact = applied.exact
        return applied.version

    def _release(self) -> None:
        """Release all that is staged, however long the caller keeps the transaction."""
        self._state.clear()
        self._directories.clear()

    def applied_version(self) -> int | None:
        """Return the version in which the pair of application and number was committed; None if it was not.

        Raises
        ------
        InvalidInputError
            If the number was skipped: a newer one was committed, and this one never was.

        Notes
        -----
        Searches up to the read version; for a number older than the newest one, reads the commits in between.
        If those have been cleaned away, the number counts as committed, since numbers grow: then a later
        version is returned, and `version_is_exact` is False.
        """
        applied = Committer(self._state).applied_version()
        self.version_is_exact = applied is None or applied.exact
        return None if applied is None else applied.version
