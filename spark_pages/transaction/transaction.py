"""A transaction: changes are staged, pages reach storage, one commit makes all of it visible.

Follow a commit from `Transaction.append` (pages are encoded into the `StagedChanges`) over `Committer.commit`
(pages get their places) to `StagedChanges.record` (what the log is told, formed anew on each
rebase) and `Log.commit`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from numpy.typing import ArrayLike

from spark_pages.arguments import MOST_NUMBER, as_choice, as_int, as_list, as_str, check_kind, check_texts
from spark_pages.boundary import guarded
from spark_pages.catalog.constraints import key_columns
from spark_pages.catalog.resolve import not_there, same_table, show_name, split_name
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
from spark_pages.model.ids import CATALOG_TABLE, FieldId, TableId
from spark_pages.model.new_page import NewPage
from spark_pages.model.table import SYSTEM_NAMESPACE, TableDefinition
from spark_pages.query.directory import PageDirectory
from spark_pages.query.page_metadata import PageMeta, PageMetadata
from spark_pages.query.snapshot import Snapshot
from spark_pages.query.table import Table
from spark_pages.runtime import Runtime
from spark_pages.storage.store import ObjectStore
from spark_pages.transaction.committer import Committer
from spark_pages.transaction.ddl import CatalogVerbs, verb
from spark_pages.transaction.ingest import NOTHING_BESIDE, misfit
from spark_pages.transaction.page_file_names import PageFileNames
from spark_pages.transaction.page_writer import StagedPage
from spark_pages.transaction.placement import (
    StagedSplice,
)
from spark_pages.transaction.provisional_ids import ProvisionalIds
from spark_pages.transaction.read_version import ReadVersion
from spark_pages.transaction.registration import StagedDirectory
from spark_pages.transaction.row_metadata import with_meta
from spark_pages.transaction.row_sources import as_rows
from spark_pages.transaction.staged import StagedChanges, TransactionInfo
from spark_pages.transaction.staged_rows import StagedRows
from spark_pages.transaction.staged_tables import StagedTables
from spark_pages.transaction.written_rows import StagedWrites, WrittenRows

MEMORY_BYTES = 256 << 20
"""Memory that a transaction takes for pages; what is more is written before the commit."""


@guarded()
class Transaction(CatalogVerbs):
    """Changes that become visible together, or not at all.

    Obtained from `Store.transaction`; a context manager that commits on leaving and rolls back on an
    exception. One that is dropped without either loses what it has staged, and warns (`ResourceWarning`).

    Attributes
    ----------
    version
        The committed version; None before the commit. The read version if nothing was staged, unless there is
        a number of an application to remember.
    version_is_exact
        False where its pair of application and number had landed long ago, in `version` or before it: the
        commits that would tell have been cleaned away.

    Notes
    -----
    A transaction that only appends a few rows asks storage for nothing before its commit: it stands on the
    newest version that this process knows, and is put behind what others have committed since. Whatever
    reads, updates, creates or writes a page file asks for the newest version first.
    """

    def __init__(
        self,
        log: Log,
        view: Callable[[LogSnapshot], Snapshot],
        runtime: Runtime,
        *,
        operation: str | None,
        parameters: Mapping[str, str] | None = None,
        app_id: str | None = None,
        app_version: int | None = None,
        isolation: str = "snapshot",
        memory_bytes: int = MEMORY_BYTES,
        base: LogSnapshot | None = None,
    ) -> None:
        operation = None if operation is None else as_str(operation, "operation")
        parameters = {} if parameters is None else parameters
        check_texts(parameters, "parameters")
        if app_id is not None:
            app_id = as_str(app_id, "app_id")
        if app_version is not None:
            app_version = as_int(app_version, "app_version", least=-MOST_NUMBER - 1, most=MOST_NUMBER)
        memory_bytes = as_int(memory_bytes, "memory_bytes", "a number of bytes", 1, MOST_NUMBER)
        isolation = as_choice(isolation, "isolation", ("snapshot", "serializable"))
        if (app_id is None) != (app_version is None):
            raise InvalidInputError("app_id and app_version go together: give both or neither.")
        self.version: int | None = None
        self.version_is_exact = True
        self._log = log
        self._new_token = runtime.token
        self._heading = TransactionInfo(runtime.token(), operation, dict(parameters), app_id, app_version)
        self._page_bytes = TARGET_PAGE_BYTES  # tests make pages of fewer
        self._relied_on: set[int] | None = set() if isolation == "serializable" else None
        self._directories: dict[str, StagedDirectory] = {}
        self._provisional_ids = ProvisionalIds()
        self._commit_tried = False
        self._process = os.getpid()
        work = self._work = StagedChanges()
        standing = self._standing = ReadVersion(log, work, base)
        work.since = standing.version
        names = self._page_files = PageFileNames(self._heading, work, standing)
        rows = self._rows = StagedRows(work, log.store, runtime.spawn, names, standing, memory_bytes)
        staged = self._staged = StagedTables(log, view, self._heading, work, rows, standing)
        self._landing = Committer(
            log, runtime.now_us, self._heading, work, rows, staged, standing, names, self._relied_on
        )
        self._begin_catalog(work, rows, standing, staged, runtime.now_us, log.store)
        check_writable(standing.base.state.features)
        if isolation == "serializable":
            standing.pin_latest()

    def __del__(self) -> None:
        """Warn of staged changes that are lost. Where a commit was tried, its error has told."""
        standing = getattr(self, "_standing", None)  # None where the arguments were refused
        if standing is None or standing.ended or self._commit_tried or self._process != os.getpid():
            return
        if not (self._work.empty and self._rows.empty):
            name = self._heading.operation
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
        if kind is None and not self._standing.ended:
            self.commit()
        else:
            self.rollback()

    def __repr__(self) -> str:
        state = "ended" if self._standing.ended else "open"
        if self.version is not None:
            state = f"committed as version {self.version}"
        operation = self._heading.operation or "write"
        return f"Transaction({operation!r}, reads version {self._standing.version}, {state})"

    # reading

    @property
    def snapshot(self) -> Snapshot:
        """The store as the transaction found it; what is staged is not in it.

        Notes
        -----
        Serializable isolation counts each table that is asked for as read, each whose rows are counted by
        ``system.tables``, and the catalog where names are listed or looked for in vain. Not watched is what
        other versions hold (lookups as of a time), and what is no row or definition: properties, tags,
        claims and leases of the store, the history, and the version itself.
        """
        self._standing.pin_latest()
        self._standing.is_seen = True
        found = self._staged.snapshot()
        return found if self._relied_on is None else found.watched(self._relies_on)

    @verb
    def table(self, name: str) -> Table:
        """A table with what this transaction has staged so far.

        Notes
        -----
        Serializable isolation counts the whole table as read; the catalog, where it is one of the tables of
        ``system``. Whatever a transaction is refused counts as a look at the catalog.
        """
        self._check_open()
        self._standing.pin_latest()
        of_system = split_name(name)[0] == "system"
        # a temporary table comes first
        found = name if of_system else show_name(self._tables.find(name))
        table = self._staged.table(found, on_read=None if self._relied_on is None else self._relies_on)
        self._standing.is_seen = True
        self._relies_on(CATALOG_TABLE if of_system else table.definition.table_id)
        return table

    def _relies_on(self, table_id: TableId) -> None:
        """What serializable isolation must find as it was."""
        if self._relied_on is not None:
            if table_id < self._standing.base.state.next_table_id:  # else it is new in this transaction
                self._relied_on.add(table_id)
            self._standing.is_seen = True

    @verb
    def directory(self, table: str) -> StagedDirectory:
        """Which pages hold which rows, with what is staged; takes pages that others have written.

        See `spark_pages.transaction.registration`. A column may be ahead of others until the commit.
        """
        self._check_open()
        self._standing.pin_latest()
        self._rows.settle()
        definition = self._tables.find(table)
        if definition.namespace_id == SYSTEM_NAMESPACE:
            raise InvalidInputError(f"Cannot stage pages of {table!r}: that table is the store's own.")
        name = show_name(definition)
        known = self._directories.get(name)
        if known is None or known.definition != definition:
            known = self._directories[name] = StagedDirectory(
                self._standing.base,
                definition,
                self._work,
                self._log.store,
                committed=lambda: self._committed(definition),
                staged=lambda: self._staged.directory(name),
                check_current=lambda: self._check_current(definition),
                is_of_another=self._page_files.is_of_another,
                ids=self._provisional_ids,
            )
        self._check_current(definition)
        self._standing.is_seen = True
        self._relies_on(definition.table_id)
        return known

    def _committed(self, definition: TableDefinition) -> PageDirectory:
        """The directory of a table as the transaction found it, whatever it has renamed since."""
        found = same_table(self._standing.base, definition)
        if found is None:
            raise not_there(definition, self._standing.version)
        return self._staged.snapshot().table_of(found).directory

    def _check_current(self, definition: TableDefinition) -> None:
        """Nothing, while the transaction is open and the table still the one that a directory is of."""
        self._check_open()
        self._work.ddl.check_not_truncated(definition, "stage pages of")
        if self._tables.find(show_name(definition)) != definition:
            raise InvalidInputError(
                f"This transaction has changed table {definition.name!r} since its directory was asked for.",
                hint="Ask for it again.",
            )

    def move_on(self) -> int:
        """It stands on what is kept: on the newest version, or on the same one where something rests on it.

        Raises
        ------
        CommitConflictError
            If something does, and retention has passed that version.
        """
        self._check_open()
        return self._staged.move_on()

    # staging

    def append(
        self,
        table: str,
        data: Any,
        *,
        entry_meta: Any = None,
        page_metadata: Mapping[str, PageMetadata] | None = None,
    ) -> None:
        """The rows stand behind the rows that the table has, from this commit on.

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
        self._check_open()
        rows = as_rows(data)
        definition = self._known(table, rows.columns)
        self._relies_on(definition.table_id)
        try:
            metas: Mapping[str, PageMeta] = NOTHING_BESIDE
            check_kind(page_metadata, Mapping | None, "page_metadata", "metadata by column")
            if entry_meta is not None or page_metadata:
                rows, metas = with_meta(definition, rows, entry_meta, page_metadata)
            takes_no_request = rows.is_small and not key_columns(definition)
            first, second, third = self._log.turn(takes_no_request)
            with first, second, third:
                self._rows.append(definition, rows, self._page_bytes, metas, settled=bool(self._directories))
        except (SchemaMismatchError, ConstraintError):
            with suppress(CommitConflictError, StorageError):
                self._standing.pin_latest()  # which may take what this one does not
            raise

    @verb
    def _known(self, table: str, columns: Sequence[str]) -> TableDefinition:
        """The table, of which all is known that an append reads: a stream is not read twice."""
        definition = self._tables.to_write(table)
        if not self._standing.is_pinned and misfit(definition, columns) is not None:
            self._standing.pin_latest()  # others may have changed it since
            definition = self._tables.to_write(table)
        self._rows.learn(definition)
        return definition

    @verb
    def append_written(self, table: str, written: Sequence[WrittenRows]) -> None:
        """Rows that other processes have written stand behind those of the table, from this commit on.

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
        self._check_open()
        given = as_list(written, WrittenRows, "written", "WrittenRows")
        oldest = min((each.read_version for each in given), default=self._standing.version)
        if oldest < self._standing.version:
            raise InvalidInputError(
                f"Cannot append rows to {table!r} that others have written for version {oldest}: this "
                f"transaction stands on version {self._standing.version}, and a vacuum may have passed them.",
                hint=f"Open it with store.transaction(read_version={oldest}).",
            )
        self._standing.stay()
        definition = self._tables.to_write(table)
        self._rows.settle()
        table_id = definition.table_id
        staged = [of for of in self._work.written if of.table_id == table_id]
        before = sum(each.num_rows for of in staged for each in of.written)
        if table_id >= 0 and table_id not in self._work.ddl.truncated:
            before += min(
                self._standing.base.num_rows((table_id, each)) for each in definition.field_ids.values()
            )
        some = tuple(each for each in given if each.num_rows)
        if some:
            self._work.definitions[table_id] = definition
            self._work.written.append(StagedWrites(table_id, definition.field_ids, before, some))

    @verb
    def update(self, table: str, column: str | None = None, rows: ArrayLike = (), values: Any = None) -> None:
        """The rows hold other values from this commit on.

        Parameters
        ----------
        column
            The column; without one, `values` tells which columns get other values.
        rows
            Row numbers from 0, in any order, of rows that the snapshot read by the transaction has.
        values
            As many values, in the same order. The last one wins where a row is named twice. Of several
            columns: a table, a record batch, or a mapping from column to values.

        Raises
        ------
        RowOutOfRangeError, ColumnNotFoundError, SchemaMismatchError, InvalidInputError
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
        self._check_open()
        self._standing.pin_latest()
        definition = self._tables.to_write(table)
        self._relies_on(definition.table_id)
        self._rows.update(definition, table, column, rows, values)

    def set_properties(self, properties: Mapping[str, str | None]) -> None:
        """Set properties of the store, or unset those whose value is None; `Store.properties` reads them."""
        self._check_open()
        check_texts(properties, "properties", removable=True)
        check_store_properties(properties)
        self._work.properties.update(properties)

    def replace_pages(
        self,
        table_id: TableId,
        field_id: FieldId,
        first_row: int,
        removed: Iterable[int],
        pages: list[NewPage],
    ) -> None:
        """A run of pages gives way to other pages with the same rows (page compaction).

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
        self._check_open()
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
        self._standing.stay()  # on a newer version the run might not be there
        self._work.splices.append(
            StagedSplice(table_id, field_id, first_row, gone, entries, pages, data_change=False)
        )

    def claim(self, claim: Claim) -> None:
        """An owner says that it works on some rows, or (with expiry 0) that it has finished."""
        self._check_open()
        check_kind(claim, Claim, "claim", "a Claim")
        self._work.claims.append(claim)

    @property
    def store(self) -> ObjectStore:
        """Where page files go."""
        return self._log.store

    @verb
    def next_page_file(self, table: str | None = None) -> str:
        """Key of the next page file of this transaction; where the namespace of a table has its files.

        Raises
        ------
        CommitConflictError
            If a table that has been written to is another one by now.

        Notes
        -----
        A name bears the version on which the transaction stands, by which vacuum judges the file. So the
        transaction stands on the newest one from then on: one request, the first time.
        """
        self._check_open()
        self._standing.pin_latest()
        self._standing.is_seen = True
        return self._page_files.next(None if table is None else self._tables.find(table))

    # finishing

    def rollback(self) -> None:
        """Nothing staged will ever be visible."""
        self._standing.ended = True
        self._let_go()

    def commit(self) -> int:
        """All that was staged is in the log, durably; gives the version.

        Raises
        ------
        CommitConflictError, CommitUnknownError, RaggedTableError

        Notes
        -----
        Page files of large transactions are written first, one request each; the commit itself is one more
        where nobody races.
        """
        self._check_open()
        self._commit_tried = True
        landed = self._landing.landed()
        if landed is not None:
            self.rollback()
        else:
            try:
                landed = self._landing.commit()
            finally:
                if self._standing.ended:
                    self._let_go()
        self.version, self.version_is_exact = landed.version, landed.exact
        return landed.version

    def _let_go(self) -> None:
        """What was staged is not held any more, however long somebody keeps the transaction."""
        self._work.clear()
        self._rows.clear()
        self._directories.clear()

    def _check_open(self) -> None:
        if self._standing.ended:
            where = "" if self.version is None else f", at version {self.version}"
            raise InvalidInputError(
                f"The transaction has ended{where}: open another one with store.transaction()."
            )
        if self._process != os.getpid():
            self._go_on_in_child()

    def _go_on_in_child(self) -> None:
        """Become a transaction of this forked process: both may commit what was staged before the fork.

        Raises
        ------
        InvalidInputError
            If page files were written: the parent goes on writing files of these names.
        """
        if self._page_files.count:
            raise InvalidInputError(
                f"Cannot use the transaction {self._heading.operation!r} in process {os.getpid()}: process "
                f"{self._process}, from which it was forked, has written page files for it.",
                hint="Begin another transaction in the forked process; the store can be used in both.",
            )
        self._heading.token, self._process = self._new_token(), os.getpid()

    def landed(self) -> int | None:
        """The version where the pair of application and number has landed already; None where it has not.

        Raises
        ------
        InvalidInputError
            If the number was passed over: a newer one has landed, and this one never did.

        Notes
        -----
        Where only commits that have been cleaned away could tell, it is taken for one that landed, since
        numbers grow: then it is a version that came later, and `version_is_exact` is False.
        Looks at the version on which the transaction stands. For a number older than the newest one, reads
        the commits in between.
        """
        landed = self._landing.landed()
        self.version_is_exact = landed is None or landed.exact
        return None if landed is None else landed.version
