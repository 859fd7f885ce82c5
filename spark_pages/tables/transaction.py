"""A transaction: changes are staged, pages reach storage, one commit makes all of it visible.

Follow a commit from `Transaction.append` (pages are encoded into the `Workspace`) over `commit` (pages get
their places) to `Workspace.record` (what the log is told, formed anew on each rebase) and `Log.commit`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Self

from numpy.typing import ArrayLike

from spark_pages.catalog.alterations import columns_to_fill
from spark_pages.catalog.constraints import key_columns
from spark_pages.catalog.resolve import show_name, split_name
from spark_pages.errors import (
    CommitConflictError,
    InvalidInputError,
    ObjectNotFoundError,
    SnapshotExpiredError,
)
from spark_pages.given import as_list, as_text, as_whole, check_kind, check_texts
from spark_pages.io.pages.paginate import TARGET_PAGE_BYTES
from spark_pages.log.commit.conflict import by_ids
from spark_pages.log.commit.messages import AlreadyLanded, Ready
from spark_pages.log.encoding.commit_codec import EncodedTransaction
from spark_pages.log.features import check_writable
from spark_pages.log.log import Log
from spark_pages.log.properties import check_store_properties
from spark_pages.log.replay import Fold
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.log.state import LogState
from spark_pages.log.who_landed import Meets, with_who_landed
from spark_pages.model.actions import Claim, TransactionRecord
from spark_pages.model.ids import FieldId, TableId
from spark_pages.model.run import NewPage
from spark_pages.model.table import NAMESPACE_NAMES, SYSTEM_NAMESPACE, TableDefinition
from spark_pages.runtime import Runtime
from spark_pages.storage.store import ObjectStore
from spark_pages.tables.arrays.values import as_stream
from spark_pages.tables.checks.key_checks import changed_keys, check_key, written_keys
from spark_pages.tables.checks.update_checks import check_updates
from spark_pages.tables.definitions.catalog_verbs import CatalogVerbs
from spark_pages.tables.reading.expiry import looking_again, moving_on, overtaking
from spark_pages.tables.reading.page_meta import PageMetadata
from spark_pages.tables.registration import StagedDirectory
from spark_pages.tables.snapshot import Snapshot
from spark_pages.tables.staging.late_columns import definition_by_now
from spark_pages.tables.staging.page_file_names import PageFileNames
from spark_pages.tables.staging.staged_rows import StagedRows
from spark_pages.tables.staging.workspace import Heading, Workspace
from spark_pages.tables.table import Table
from spark_pages.tables.versions.exactly_once import landed_in
from spark_pages.tables.writing.page_writer import StagedPage
from spark_pages.tables.writing.placing import (
    Prepared,
    StagedSplice,
    place_in_memory,
    place_splices,
    stays_inline,
)
from spark_pages.tables.writing.written_rows import StagedWrites, WrittenRows, with_written

MEMORY_BYTES = 256 << 20
"""Memory that a transaction takes for pages; what is more is written before the commit."""


class Transaction(CatalogVerbs):
    """Changes that become visible together, or not at all.

    Obtained from `Store.transaction`; a context manager that commits on leaving and rolls back on an
    exception.

    Attributes
    ----------
    version
        The committed version; None before the commit, and the read version if nothing was staged.
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
        operation: str,
        parameters: Mapping[str, str] | None = None,
        app_id: str | None = None,
        app_version: int | None = None,
        isolation: str = "snapshot",
        memory_bytes: int = MEMORY_BYTES,
        base: LogSnapshot | None = None,
    ) -> None:
        as_text(operation, "operation")
        check_texts(parameters or {}, "parameters")
        if app_id is not None and app_version is not None:
            app_id, app_version = as_text(app_id, "app_id"), as_whole(app_version, "app_version")
        if as_whole(memory_bytes, "memory_bytes") < 1:
            raise InvalidInputError(f"memory_bytes is {memory_bytes}: expected at least 1.")
        if isolation not in ("snapshot", "serializable"):
            raise InvalidInputError(f"isolation is {isolation!r}: expected 'snapshot' or 'serializable'.")
        if (app_id is None) != (app_version is None):
            raise InvalidInputError("app_id and app_version go together: give both or neither.")
        self.version: int | None = None
        self.version_is_exact = True
        self._log = log
        self._view = view
        self._now_us = runtime.now_us
        self._heading = Heading(runtime.token(), operation, dict(parameters or {}), app_id, app_version)
        self._page_bytes = TARGET_PAGE_BYTES  # tests make pages of fewer
        self._work = Workspace()
        self._relied_on: set[int] | None = set() if isolation == "serializable" else None
        self._page_files = PageFileNames(self._heading.token, lambda: self._work, lambda: self._base)
        self._directories: dict[str, StagedDirectory] = {}
        self._closed = False
        self._is_settled = self._is_seen = base is not None  # whoever gives one keeps to it
        self._base = base or log.known()
        self._work.since = self._read_version
        self._rows = StagedRows(
            self._work,
            log.store,
            runtime.spawn,
            self._page_files,
            base=lambda: self._base,
            stand_on_newest=self._stand_on_newest,
            memory_bytes=memory_bytes,
        )
        self._begin_catalog(
            self._work,
            self._rows,
            base=lambda: self._base,
            stand_on_newest=self._stand_on_newest,
            table_zero=lambda: self._view(self._base).table("system.catalog"),
            staged=lambda name: self._staged(name, ragged=False),
            now_us=self._now_us,
            store=log.store,
        )
        check_writable(self._base.state.features)
        if isolation == "serializable":
            self._stand_on_newest()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and not self._closed:
            self.commit()
        else:
            self.rollback()

    def __repr__(self) -> str:
        state = f"committed as version {self.version}" if self.version is not None else "open"
        return f"Transaction({self._heading.operation!r}, reads version {self._read_version}, {state})"

    # reading

    @property
    def snapshot(self) -> Snapshot:
        """The store as the transaction found it; what is staged is not in it."""
        self._stand_on_newest()
        self._is_seen = True
        return self._view(self._base)

    @moving_on
    def table(self, name: str) -> Table:
        """A table with what this transaction has staged so far.

        Notes
        -----
        Serializable isolation counts the whole table as read.
        """
        self._check_open()
        self._stand_on_newest()
        if split_name(name)[0] != "system":
            name = show_name(self._tables.find(name))  # a temporary table comes first
        table = self._staged(name, ragged=False)
        self._is_seen = True
        if self._relied_on is not None:
            self._relied_on.add(table.definition.table_id)
        return table

    @moving_on
    def directory(self, table: str) -> StagedDirectory:
        """Which pages hold which rows, with what is staged; takes pages that others have written.

        See `spark_pages.tables.registration`. A column may be ahead of others until the commit.
        """
        self._check_open()
        self._stand_on_newest()
        self._rows.settle()
        definition = self._tables.find(table)
        if definition.namespace_id == SYSTEM_NAMESPACE:
            raise InvalidInputError(f"Cannot stage pages of {table!r}: that table is the store's own.")
        name = show_name(definition)
        known = self._directories.get(name)
        if known is None or known.definition != definition:
            known = self._directories[name] = StagedDirectory(
                self._base,
                definition,
                self._work,
                self._log.store,
                committed=lambda: self._view(self._base).table(name).directory,
                staged=lambda: self._staged(name, ragged=True).directory,
                check_current=lambda: self._check_current(definition),
                is_of_another=self._page_files.is_of_another,
            )
        self._check_current(definition)
        self._is_seen = True
        if self._relied_on is not None:
            self._relied_on.add(definition.table_id)
        return known

    def _check_current(self, definition: TableDefinition) -> None:
        """Nothing, while the transaction is open and the table still the one that a directory is of."""
        self._check_open()
        self._work.ddl.check_not_truncated(definition, "stage pages of")
        if self._tables.find(show_name(definition)) != definition:
            raise InvalidInputError(
                f"This transaction has changed table {definition.name!r} since its directory was asked for.",
                hint="Ask for it again.",
            )

    @moving_on
    def _staged(self, name: str, *, ragged: bool) -> Table:
        """A table with everything that is staged; `ragged` says whether its columns may differ in length."""
        self._rows.settle()
        self._rows.wait()
        pending = replace(self._work, splices=[*self._rewrites(final=False), *self._work.splices])
        pending.check_removed_once()
        if not ragged:
            pending.check_ragged()
        return self._shown(name, pending, place_in_memory(self._log.store, pending.splices))

    def _shown(self, name: str, work: Workspace, prepared: Prepared) -> Table:
        record = work.record(self._heading, prepared, self._read_version, self._base.state, self._show)

        def on(base: LogSnapshot) -> LogSnapshot:
            fold = Fold(base.state, self._log.load_manifest)
            fold.record(record, base.state.version + 1)
            return self._log.bind(fold.state(), base)

        staged = self._view(on(self._base))
        return staged.uncommitted(lambda version: on(self._log.reopen(version))).table(name)

    def _stand_on_newest(self) -> None:
        """Make sure that nothing newer was there when it is asked for first.

        Where a table that has been written to has got another definition meanwhile, which the rows fit, and
        more may be staged, the transaction stays on the version that it knew: its tables are those of one
        version, and the rebase brings what is lacking.

        Raises
        ------
        CommitConflictError
            If a table that has been written to is another one by now, and what was written does not fit it.
        """
        if self._is_settled:
            return
        newest = self._log.refresh()
        stays = False
        for table_id, definition in self._work.definitions.items():
            now = definition_by_now(newest, definition) if table_id >= 0 else definition
            stays |= now != definition and not self._closed
            if now is None or columns_to_fill(definition, now) is None:
                changed = CommitConflictError(
                    f"Table {definition.name!r} was changed between version {self._read_version}, on which "
                    f"this transaction stands, and version {newest.state.version}. Nothing was committed.",
                    hint="Repeat the transaction.",
                )
                raise self._with_who_landed(changed, _changes(table_id))
        if not stays:
            self._base = newest
        self._is_settled = True

    def move_on(self) -> int:
        """It stands on what is kept: on the newest version, or on the same one where something rests on it.

        Raises
        ------
        CommitConflictError
            If something does, and retention has passed that version.
        """
        self._check_open()
        if not self._is_seen and self._work.empty and self._rows.empty:
            self._is_settled = False
        if not self._is_settled:
            self._stand_on_newest()
            return self._read_version
        with overtaking(self._read_version):
            self._base = looking_again(partial(self._log.reopen, self._read_version))
        return self._read_version

    @property
    def _read_version(self) -> int:
        return self._base.state.version

    def _show(self, state: LogState) -> Snapshot:
        return self._view(self._log.bind(state))

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
            By data column: keys and values that belong to every page of it which this append makes.

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
        definition = self._known(table)
        if entry_meta is not None or page_metadata:
            self._rows.append_with_meta(definition, data, entry_meta, page_metadata, self._page_bytes)
        else:
            rows = as_stream(data)
            takes_no_request = rows.is_small and not key_columns(definition)
            with self._log.turn if takes_no_request else nullcontext():
                self._rows.append(definition, rows, self._page_bytes)
        if self._directories:
            self._rows.settle()

    @moving_on
    def _known(self, table: str) -> TableDefinition:
        """The table, of which all is known that an append reads: a stream is not read twice."""
        definition = self._tables.find(table)
        self._rows.learn(definition)
        return definition

    @moving_on
    def append_written(self, table: str, written: Sequence[WrittenRows]) -> None:
        """Rows that other processes have written stand behind those of the table, from this commit on.

        Parameters
        ----------
        written
            In order; see `spark_pages.tables.writing.written_rows`. Their pages must have been written for
            the version on which this transaction stands: give it as `read_version`.

        Notes
        -----
        Do not append other rows to the same table. Grows with columns and lists, not with pages, unless the
        table has a primary key: the commit compares the keys with each other and with those that are there.
        """
        self._check_open()
        self._is_seen = True
        definition = self._tables.find(table)
        self._rows.settle()
        table_id = definition.table_id
        staged = [of for of in self._work.written if of.table_id == table_id]
        before = sum(each.num_rows for of in staged for each in of.written)
        if table_id >= 0 and table_id not in self._work.ddl.truncated:
            before += min(self._base.num_rows((table_id, each)) for each in definition.field_ids.values())
        given = as_list(written, WrittenRows, "written", "WrittenRows")
        some = tuple(each for each in given if each.num_rows)
        if some:
            self._work.definitions[table_id] = definition
            self._work.written.append(StagedWrites(table_id, definition.field_ids, before, some))

    @moving_on
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

        Notes
        -----
        Each page that holds one of the rows is read and rewritten once, at commit, however many updates touch
        it; some 100 pages at a time.
        """
        self._check_open()
        self._stand_on_newest()
        self._rows.update(self._tables.find(table), table, column, rows, values)

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """The store has these properties from this commit on."""
        self._check_open()
        check_texts(properties, "properties")
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
        """
        self._check_open()
        for what, number in (("table_id", table_id), ("field_id", field_id), ("first_row", first_row)):
            as_whole(number, what)
        gone = tuple(as_list(removed, int, "removed", "ids of pages"))
        pages = as_list(pages, NewPage | StagedPage, "pages", "written pages")
        entries = sum(page.entry_count for page in pages)
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

    @moving_on
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
        self._stand_on_newest()
        self._is_seen = True
        return self._page_files.next(None if table is None else self._tables.find(table))

    # finishing

    def rollback(self) -> None:
        """Nothing staged will ever be visible."""
        self._closed = True
        self._work = Workspace()
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
        landed = self.landed()
        if landed is not None:
            self.rollback()
            self.version = landed
            return landed
        try:
            with overtaking(self._read_version):
                self.version = self._commit_or_tell()
        except CommitConflictError as error:
            raise self._with_who_landed(error, _met(error)) from error.__cause__
        return self.version

    def _with_who_landed(self, error: CommitConflictError, meets: Meets) -> CommitConflictError:
        return with_who_landed(error, self._log, self._read_version, meets)

    def _commit_or_tell(self) -> int:
        """Commit; where an object is gone, tell that retention has passed the version, if it has."""
        try:
            return self._commit()
        except ObjectNotFoundError:
            self._log.reopen(self._read_version)
            raise

    def _commit(self) -> int:
        with self._log.turn if self._rows.are_few else nullcontext():
            prepare, is_fixed = self._prepare()
            if prepare is None:
                return self._read_version
            depends = self._work.created or self._work.ddl or self._heading.app_id is not None
            ready = self._ready(prepare) if is_fixed and not depends else None
        try:
            return self._bring_in(prepare, ready)
        finally:
            self._let_go()

    def _ready(self, prepare: Callable[[LogState], Prepared]) -> Ready | None:
        """What the log is told whatever others commit meanwhile, unless that is a change of the catalog."""
        state = self._log.known().state
        if state.catalog_version > self._work.since:
            return None
        record = self._record(prepare, state)
        if record.manifests:
            return None
        return Ready(record, EncodedTransaction.of(record), self._work.since)

    def _prepare(self) -> tuple[Callable[[LogState], Prepared] | None, bool]:
        """What gives, on top of a state, the splices and their pages; and whether on any state the same.

        None where nothing is staged.
        """
        self._rows.forget_temporary()
        keyed = [each for each in self._work.definitions.values() if key_columns(each)]
        if keyed:
            self._rows.settle()
        if self._work.updates:
            self._work.relied |= check_updates(self._work, self._view(self._base).table_of)
        of_many = self._log.shared  # of which only one could swap a page
        swap = None if of_many else self._rows.swap(self._now_us())
        if swap is None:
            self._rows.settle()
        self._work.splices[:0] = self._rewrites(final=True)
        self._work.updates.clear()
        self._work.check_removed_once()
        self._work.check_ragged()
        for definition in keyed:
            changed = changed_keys(definition, self._work.splices)
            if changed is not None:
                check_key(self._staged(show_name(definition), ragged=False), changed)
                self._work.relied.add(definition.table_id)
        self._closed = True
        if swap is not None:
            return swap.on, False
        if self._work.empty:
            return None, True
        if not stays_inline(self._work.splices):
            self._stand_on_newest()  # objects bear the version read, by which vacuum judges them
        manifest = f"{self._read_version:020d}-{self._heading.token}-"
        prepared = place_splices(
            self._log.store, self._work.splices, self._page_files.next_for, f"{manifest}0"
        )
        if self._work.written:
            prepared = with_written(self._log.store, prepared, self._work.written, f"{manifest}1")
        self._rows.wait()
        for definition in keyed:
            appended = written_keys(definition, self._work.written)
            if appended is not None:
                check_key(self._shown(show_name(definition), self._work, prepared), appended)
                self._work.relied.add(definition.table_id)
        return lambda _: prepared, True

    def _bring_in(self, prepare: Callable[[LogState], Prepared], ready: Ready | None) -> int:
        """Commit; once more on the newest version where that may help.

        It does where a conflict may only come from standing on an old one, and where a vacuum has taken away
        what must be read of the version on top of which it is brought in.
        """
        try:
            return self._send(prepare, ready)
        except CommitConflictError:
            if self._is_settled:
                raise
        except (ObjectNotFoundError, SnapshotExpiredError):
            self._log.refresh()
        self._stand_on_newest()
        return self._send(prepare, None)  # it reads a newer version now, and says so

    def _send(self, prepare: Callable[[LogState], Prepared], ready: Ready | None) -> int:
        build = self._build(prepare)
        committed = self._log.commit(self._base, build, self._reads(), ready, self._named)
        if committed.commit is None:
            return self._landed_in(committed.state) or int(committed.version)
        return committed.version

    def _build(
        self, prepare: Callable[[LogState], Prepared]
    ) -> Callable[[LogState], TransactionRecord | AlreadyLanded]:
        def build(state: LogState) -> TransactionRecord | AlreadyLanded:
            landed = self._landed(state)
            if landed is not None:
                return AlreadyLanded(landed)
            return self._record(prepare, state)

        return build

    def _record(self, prepare: Callable[[LogState], Prepared], state: LogState) -> TransactionRecord:
        return self._work.record(self._heading, prepare(state), self._read_version, state, self._show)

    def _named(self, table_id: int, field_id: int | None) -> str:
        """``column 'day' of table 'flights'``, for people; by its id what was not written to."""
        definition = self._work.definitions.get(TableId(table_id))
        if definition is None:
            return by_ids(table_id, field_id)
        table = f"table {show_name(definition)!r}"
        columns = [name for name, each in definition.field_ids.items() if each == field_id]
        return f"column {columns[0]!r} of {table}" if columns else table

    def _reads(self) -> frozenset[int]:
        """Tables whose rows must not change before the commit."""
        needed = frozenset(self._work.relied)
        return needed if self._relied_on is None else needed | self._work.tables() | self._relied_on

    def _check_open(self) -> None:
        if self._closed:
            where = "" if self.version is None else f", at version {self.version}"
            raise InvalidInputError(
                f"The transaction has ended{where}: open another one with store.transaction()."
            )

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
        return self._landed_in(self._base.state)

    def _landed_in(self, state: LogState) -> int | None:
        found = landed_in(self._log, state, self._heading.app_id, self._heading.app_version)
        self.version_is_exact = found is None or found.exact
        return None if found is None else found.version

    def _landed(self, state: LogState) -> int | None:
        """Where the newest number of the application landed, if that one is not smaller: asks nobody."""
        app_id, app_version = self._heading.app_id, self._heading.app_version
        if app_id is None or app_version is None or app_id not in state.apps:
            return None
        newest, version = state.apps[app_id]
        return version if newest >= app_version else None

    def _rewrites(self, *, final: bool) -> list[StagedSplice]:
        """Pages that updates touch, rewritten."""
        return self._rows.rewrite(self._view(self._base).table_of, final=final) if self._work.updates else []


def _met(error: CommitConflictError) -> Meets:
    """What a transaction met that was told of a conflict without being told with whom."""
    table_id = error.context.get("table_id")
    if isinstance(error.__cause__, SnapshotExpiredError):
        return lambda record: record.retention is not None
    if table_id is not None:
        return lambda record: any(splice.table_id == table_id for splice in record.splices)
    return lambda record: any(intent.namespace_id == NAMESPACE_NAMES for intent in record.intents)


def _changes(table_id: int) -> Meets:
    return lambda record: any(intent.table_id == table_id for intent in record.intents)
