"""The store: opening it, its versions, its transactions, its upkeep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self, overload

import pyarrow as pa

from spark_pages.arguments import (
    Moment,
    as_flag,
    as_int,
    as_microseconds,
    as_seconds,
    as_str,
    check_kind,
    check_texts,
)
from spark_pages.boundary import deferred_damage, guard, guarded, public_names
from spark_pages.catalog.table_zero import TABLE_ZERO_NAME, first_record, stored_table_zero
from spark_pages.changes.feed import read_changes
from spark_pages.changes.history import RowCounts, history_table
from spark_pages.display.cards import store_card
from spark_pages.display.text import moment
from spark_pages.errors import CommitUnknownError, InvalidInputError, SparkPagesError
from spark_pages.io import CacheConfig, CacheStats, PageHandler
from spark_pages.io.cache_config import budgets_of
from spark_pages.log.commit.protocol_types import Unknown
from spark_pages.log.compaction.writer import LogCompaction
from spark_pages.log.log import Log
from spark_pages.log.retention import oldest_readable
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.maintenance.claims import ClaimVerbs
from spark_pages.maintenance.store_info import InfoVerbs
from spark_pages.maintenance.verbs import MaintenanceVerbs
from spark_pages.model.actions import CheckpointRef
from spark_pages.query.latest_tables import LatestTables
from spark_pages.query.snapshot import Snapshot
from spark_pages.query.value_feed import read_changed_values
from spark_pages.runtime import Runtime
from spark_pages.storage import open_object_store
from spark_pages.storage.disk_reserve import keep_reserve
from spark_pages.storage.store import ObjectStore
from spark_pages.transaction.loading import LoadVerbs
from spark_pages.transaction.state import MEMORY_BYTES, TransactionOptions
from spark_pages.transaction.transaction import Transaction
from spark_pages.versions.blame import Blame, blame, find_deletion
from spark_pages.versions.clock_reset import reset_clock
from spark_pages.versions.diff import DiffVerbs
from spark_pages.versions.leases import Leases
from spark_pages.versions.restore import restore
from spark_pages.versions.tags import delete_tag, set_tag, tagged_version

if TYPE_CHECKING:
    from spark_pages.sql.temporary import TemporaryTables

_EPOCH = datetime.fromtimestamp(0, UTC)


@guarded()
class Store(LatestTables, DiffVerbs, LoadVerbs, MaintenanceVerbs, InfoVerbs, ClaimVerbs):
    """One store: a log of commits and the pages that it names.

    Obtained from `spark_pages.create` or `spark_pages.open`. Safe to share between threads.
    """

    def __init__(
        self, objects: ObjectStore, runtime: Runtime | None = None, cache: CacheConfig | None = None
    ) -> None:
        check_kind(objects, ObjectStore, "objects", "an ObjectStore")
        check_kind(cache, CacheConfig | None, "cache", "a CacheConfig")
        self._runtime = Runtime() if runtime is None else runtime
        self._objects = objects
        self._pages = PageHandler(objects, cache)
        self._temporary: TemporaryTables | None = None
        self._log = Log(objects, self._runtime, budgets=budgets_of(self._pages.config))
        self._told: tuple[object, ...] = ()

    def __dir__(self) -> list[str]:
        return public_names(self)

    def __repr__(self) -> str:
        return f"Store({self.url!r})"

    def _repr_html_(self) -> str:
        try:
            snapshot = self.snapshot()
            read = self.cache_stats
            cache = read.card if read.hits + read.misses else ""
            return store_card(self.url, snapshot._repr_html_(), snapshot.log.state.tags, cache)
        except SparkPagesError as error:  # a notebook shows as much as it can, and does not fail
            return store_card(self.url, f"cannot be read now: {error}")

    def __reduce__(self) -> tuple[type[Store], tuple[ObjectStore, None, CacheConfig]]:
        """Pickled as its address and cache settings; a store whose address may hold secrets refuses."""
        return (Store, (self._objects, None, self._pages.config))

    @property
    def url(self) -> str:
        """Where the store is, without secrets."""
        return self._objects.url

    @property
    def object_store(self) -> ObjectStore:
        """The objects that the store is made of."""
        return self._objects

    @property
    def cache_stats(self) -> CacheStats:
        """Hits, misses and requests since the store was opened, and the bytes that each cache holds."""
        nodes = self._log.nodes
        return replace(
            self._pages.stats(), statistics_bytes=nodes.statistics_bytes, node_bytes=nodes.node_bytes
        )

    def clear_caches(self) -> None:
        """Empty all caches in memory: pages, bloom filters, statistics and log nodes.

        Notes
        -----
        Pinned pages stay, and the counters go on. The disk cache and caches of other stores stay as they are.
        """
        self._pages.clear()
        self._log.nodes.clear()

    def snapshot(
        self,
        version: int | None = None,
        timestamp: Moment | None = None,
        tag: str | None = None,
    ) -> Snapshot:
        """Open the store at a version, a time, a tag, or now.

        Parameters
        ----------
        version
            A version.
        timestamp
            The last version committed not later than this: a datetime (naive means UTC), also of pandas,
            numpy or pyarrow, such as `history` returns; ISO 8601 text; or microseconds since 1970.
        tag
            The version that the tag names.

        Raises
        ------
        VersionNotFoundError, SnapshotExpiredError, InvalidInputError
        """
        if sum(each is not None for each in (version, timestamp, tag)) > 1:
            raise InvalidInputError(
                "Cannot choose a version: more than one of version, timestamp and tag were given.",
                hint="Pass one of `version`, `timestamp` and `tag`.",
            )
        version = None if version is None else as_int(version, "version")
        asked = ""
        if tag is not None:
            version, asked = tagged_version(self._log.refresh().state, tag), f"tag {tag!r}"
        timestamp_us = None if timestamp is None else as_microseconds(timestamp)
        if timestamp_us is not None:
            asked = f"as of {moment(timestamp_us, precise=True)} UTC"
        return self._wrap(self._log.snapshot(version, timestamp_us, asked))

    def transaction(
        self,
        operation: str | None = None,
        app_id: str | None = None,
        app_version: int | None = None,
        isolation: str = "snapshot",
        parameters: Mapping[str, str] | None = None,
        memory_bytes: int = MEMORY_BYTES,
        read_version: int | None = None,
    ) -> Transaction:
        """Begin a transaction on the newest version, which commits at the end of its ``with`` block.

        Parameters
        ----------
        operation, parameters
            What is done, for the history. By default ``write``, or the name of the one kind of change of the
            catalog that it makes; which changes those are is told in any case.
        app_id, app_version
            Exactly once: where the log holds this pair, the commit is a no-op and ``txn.version`` is the
            version where it landed. Numbers of an application must grow: one that was passed over is refused.
        isolation
            ``"snapshot"``, or ``"serializable"``: conflicts too when another commit changed rows of a
            table that this one writes to, or has read by `Transaction.table`.
        memory_bytes
            Memory that its pages take before some of them are written early. A sixteenth of it, between 64
            KiB and 64 MiB, take the values of its updates before they go to a temporary file.
        read_version
            The version on which it stands, whatever has been committed since and is compared at the commit;
            for rows that others have written, see `Transaction.append_written`.
        """
        options = TransactionOptions(operation, parameters, app_id, app_version, isolation, memory_bytes)
        base = None if read_version is None else self._log.snapshot(as_int(read_version, "read_version"))
        return Transaction(self._log, self._wrap, self._runtime, options, base, self._run_sql)

    def resume(self, error: CommitUnknownError) -> int:
        """Find out what became of a commit whose outcome was unknown, and bring it in if it can be.

        Parameters
        ----------
        error
            What the commit raised, in this process or another (it survives pickling).

        Returns
        -------
        int
            The version: the commit is in the log, exactly once.

        Raises
        ------
        CommitConflictError
            If another commit holds its place: it is not in the log, nor will ever be. Of a commit of several
            transactions, `read_version` is the oldest that one of them read.
        CommitUnknownError
            If storage still gives no clear answer.
        """
        check_kind(error, CommitUnknownError, "error", "a CommitUnknownError")
        return self._log.resume(Unknown.from_error(error))

    def tag(self, name: str, version: int | None = None, replace: bool = False) -> int:
        """Set a tag on a version, by default the newest, and return the version.

        Parameters
        ----------
        name
            1 to 200 letters, digits, ``.``, ``_``, ``/`` and ``-``, the first a letter or digit.
        replace
            Whether a tag that names another version is moved.

        Raises
        ------
        InvalidInputError, AlreadyExistsError, VersionNotFoundError, SnapshotExpiredError

        Notes
        -----
        One commit, or none if nothing changes. Retention keeps what a tag names.
        """
        return set_tag(self._log, self._runtime, name, version, as_flag(replace, "replace"))

    def delete_tag(self, name: str) -> int:
        """There is no such tag any more; gives the version that it named.

        Raises
        ------
        VersionNotFoundError
            If there is no such tag.
        """
        return delete_tag(self._log, self._runtime, name)

    def tags(self) -> dict[str, int]:
        """Return the tags and the versions that they name, sorted by name."""
        return dict(sorted(self._log.refresh().state.tags.items()))

    def restore(
        self,
        version: int | None = None,
        timestamp: Moment | None = None,
        tag: str | None = None,
    ) -> int:
        """Rows, tables and properties are what they were; gives the version of the new commit.

        Parameters
        ----------
        version, timestamp, tag
            Exactly one of them, as in `snapshot`.

        Returns
        -------
        int
            The newest version, without a new commit, if nothing differs.

        Raises
        ------
        VersionNotFoundError, SnapshotExpiredError, InvalidInputError, CommitConflictError

        Notes
        -----
        The history stays: what is undone can be read at its version, and restored. Commits that land while
        the restore is made are undone too. Tags, leases and the exactly-once pairs of applications stay as
        they are. Grows with what differs.
        """
        if sum(each is not None for each in (version, timestamp, tag)) != 1:
            raise InvalidInputError(
                "Cannot restore: expected exactly one of version, timestamp and tag.",
                hint="Pass one of `version`, `timestamp` and `tag`, such as version=7.",
            )
        named = {} if tag is None else {"tag": as_str(tag, "the name of a tag")}
        if timestamp is not None:
            named["timestamp"] = str(_EPOCH + timedelta(microseconds=as_microseconds(timestamp)))
        then = self.snapshot(version, timestamp, tag).version
        return restore(self._log, self._pages, self._runtime, then, {**named, "version": str(then)})

    def reset_clock(self) -> int:
        """Date versions by the clock of now again, after a commit of a clock that was far ahead.

        Returns
        -------
        int
            The version of the new commit; the newest version, without a commit, if that is not far ahead.

        Raises
        ------
        CommitError
            If the clock of this machine is far ahead of the storage's own.

        Notes
        -----
        See docs/versions.md. Versions of the wrong clock are dated to the last microseconds before the reset.
        """
        return reset_clock(self._log, self._runtime)

    def sql(
        self,
        text: str,
        params: Sequence[Any] | Mapping[str, Any] | None = None,
        *,
        version: int | None = None,
        timestamp: Moment | None = None,
        tag: str | None = None,
        limit: int | None = None,
        files: bool = False,
    ) -> pa.Table:
        """Run one SQL statement: gives rows of a query, or statement, version and rows of a change.

        Parameters
        ----------
        text
            A query over tables and ``system.*``, or INSERT, UPDATE, DELETE, or DDL; see docs/sql.md.
        params
            Values for its parameters: a list for ``?`` and ``$1``, a mapping for ``$name``.
        version, timestamp, tag
            What a query reads, as in `snapshot`; a table followed by ``VERSION AS OF`` is read as of that.
        limit
            Rows of a query, from the first; no more of them are computed.
        files
            Whether the statement may read files, as ``FROM 'x.csv'``, and write one, as ``COPY t TO
            'x.csv'``.

        Raises
        ------
        InvalidInputError
            If it cannot be read, a name is ambiguous, or it says something that is not supported.
        TableNotFoundError, ColumnNotFoundError, VersionNotFoundError
            If a name means nothing; suggests names that look like it.
        MissingDependencyError
            If it is a query and DuckDB is not installed.

        Notes
        -----
        A query reads the columns that it names, and of pages those that its conditions do not rule out. A
        change is one transaction.
        """
        from spark_pages.sql.execution import run_sql  # noqa: PLC0415 - sqlglot takes 0.1 s to import
        from spark_pages.sql.temporary import TemporaryTables  # noqa: PLC0415 - as above

        if self._temporary is None:
            self._temporary = TemporaryTables()
        known = self.snapshot, self.transaction
        return run_sql(text, *known, version, timestamp, tag, params, limit, files, self._temporary)

    def _run_sql(
        self, txn: Transaction, text: str, params: Sequence[Any] | Mapping[str, Any] | None
    ) -> pa.Table:
        from spark_pages.sql.execution import run_in_transaction  # noqa: PLC0415 - sqlglot takes 0.1 s to import

        return run_in_transaction(txn, text, self.snapshot, params)

    def history(self, limit: int | None = None) -> pa.Table:
        """List transactions and upkeep of the log, newest first.

        Parameters
        ----------
        limit
            Number of rows at most; None lists all. A version has a row for each of its transactions.

        Notes
        -----
        Reads at most `limit` commits. Transactions that share a version are listed newest first too.
        Maintenance is a transaction like any other, where it changes what can be read: page compaction,
        restore, vacuum. Checkpoints, log compaction and what a vacuum deleted in fact (`delete objects`)
        are none: their rows have no `transaction`, and the version that first tells of them, the newest
        ones none. `checkpoint` is the newest one that was there at each commit. Versions that cannot be
        read any more are left out.
        """
        if limit is not None:
            limit = as_int(limit, "limit", "a number of rows, 0 or more", 0)
        head = self._log.refresh().state
        first = 0 if limit is None else head.version + 1 - limit
        start = max(oldest_readable(head), first)
        counts = RowCounts.before(self._log, start)
        commits = self._log.commits_left(start, head.version + 1)
        return history_table(commits, counts, head.upkeep, newest_first=True).slice(0, limit)

    @overload
    def changes(
        self,
        start: int,
        end: int,
        table: str | None = None,
        granularity: Literal["pages", "rows"] = "pages",
        *,
        values: Literal[False] = False,
    ) -> pa.Table: ...

    @overload
    def changes(
        self,
        start: int,
        end: int,
        table: str | None = None,
        granularity: Literal["pages", "rows"] = "pages",
        *,
        values: Literal[True],
    ) -> pa.RecordBatchReader: ...

    def changes(
        self,
        start: int,
        end: int,
        table: str | None = None,
        granularity: Literal["pages", "rows"] = "pages",
        *,
        values: bool = False,
    ) -> pa.Table | pa.RecordBatchReader:
        """Read what the commits from version `start` to `end` changed, both included.

        Parameters
        ----------
        start, end
            Versions: ``changes(5, 5)`` is commit 5, and commit 0 created the store. An `end` one below
            `start` is an empty range.
        table
            Of this table only, by its name at `end`, or before `start` where it is gone since.
        granularity
            ``"pages"``: a row for each page added, replaced or removed, or given another entry count, commit
            by commit. ``"rows"``: the ranges of rows inserted, updated and removed between the version
            before `start` and `end`, by column; compaction changes none. Without effect on `values`.
        values
            Whether to stream the changed rows of one table instead, as a `pyarrow.RecordBatchReader`, in the
            order of their numbers: ``_change`` (``insert``, ``update_before``, ``update_after`` or
            ``delete``), ``_row`` (uint64), ``_version`` and ``_timestamp`` of the last commit that changed
            the row, and the columns that the table has at `end`. ``update_before`` and ``delete`` have the
            values of the version before `start`, the others those of `end`. Rows that are equal in both
            versions are left out, whatever happened in between.

        Raises
        ------
        VersionNotFoundError, SnapshotExpiredError, TableNotFoundError, InvalidInputError

        Notes
        -----
        Reads the commits, and lengths of the chains that they touch. Memory follows the result. The version
        before `start` must be readable, because the changes are compared with it. With `values`, memory
        follows the ranges of touched rows and two windows of 32 MiB for each version; the pages that hold
        touched rows are read when the stream gets there.
        """
        if as_flag(values, "values"):
            return read_changed_values(self._log, self._wrap, start, end, table)
        return read_changes(self._log, self._pages, start, end, table, granularity)

    def blame(self, table: str, column: str, row: int) -> Blame:
        """Find the commit that last wrote a row of a column.

        Returns
        -------
        Blame
            Version, time, operation and writer; where the log is cleaned and no longer tells, a version at or
            before which the row was written, and `exact` false.

        Raises
        ------
        TableNotFoundError, ColumnNotFoundError, RowOutOfRangeError

        Notes
        -----
        Compaction does not count. Usually reads one commit; see `spark_pages.versions.blame`.
        """
        return blame(self._log, self._pages, table, column, row)

    def checkpoint(self) -> CheckpointRef:
        """Write a checkpoint, so that the newest version opens without earlier commits."""
        return self._log.checkpoint()

    def compact_log(self) -> LogCompaction:
        """Long stretches of the log can be read in few requests; tells what was written for it.

        Notes
        -----
        Commits are bundled beside their slots, so nothing that was there changes. May be stopped at any
        point, repeated, and run twice at once. Processes that commit do it by themselves every 16 versions.
        """
        return self._log.compact()

    def close(self, timeout_s: float | None = 60.0) -> None:
        """Finish background maintenance of this process, and stop it.

        Parameters
        ----------
        timeout_s
            Wait so long at most; what is cut off does no harm. None waits to the end.

        Notes
        -----
        The store can still be used, but from now on nothing is done beside commits.
        """
        self._log.close(None if timeout_s is None else as_seconds(timeout_s, "timeout_s"))

    def __enter__(self) -> Self:
        """Return the store, which closes at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """See `close`."""
        self.close()

    def _wrap(self, log: LogSnapshot) -> Snapshot:
        told = (log.state.base, log.state.changed.get(TABLE_ZERO_NAME))
        if told != self._told:  # what the catalog says of itself, once for each time that it may have changed
            stored_table_zero(log)
            self._pages.bind_store(log.state.store_id)
            self._told = told
        leases = Leases(self._log, self._runtime)
        shown = Snapshot(log, self._pages, self.snapshot, leases.take, leases.open_again, _connect_duckdb)
        shown.find_deletion = partial(find_deletion, self._log, self._pages, log)
        return shown


def _connect_duckdb(snapshot: Snapshot) -> Any:
    from spark_pages.sql.duckdb_connection import connect_duckdb  # noqa: PLC0415 - sqlglot takes 0.1 s to import

    return connect_duckdb(snapshot)


@guard
def create(
    url: str,
    storage_options: Mapping[str, Any] | None = None,
    properties: Mapping[str, str] | None = None,
    cache: CacheConfig | None = None,
) -> Store:
    """Make a store and open it.

    Parameters
    ----------
    url
        A folder, ``file://``, ``s3://``, ``gs://``, ``az://`` or ``memory://name``.
    storage_options
        For the object store, under obstore's names.
    properties
        Properties of the store, free text by key. Some are looked at, most as decimal numbers:
        ``checkpoint_commits`` (64) and ``checkpoint_bytes`` (16 MiB), after how much a process that commits
        makes a checkpoint, and ``log_compaction_commits`` (16), after how many commits it compacts the
        log; 0 turns one off. ``tail_page_bytes`` (8192) is how large pages of small appends grow
        before they stay as they are, see docs/writing.md. ``commit_turns`` = ``fair`` has processes that
        write at once commit one after the other, see docs/performance.md.

    Raises
    ------
    StoreExistsError
        If there is one already.
    InvalidInputError
        If one of these properties has a value that it cannot have, or belongs to tables.
    """
    properties = {} if properties is None else properties
    check_texts(properties, "properties")
    runtime = Runtime()
    objects = open_object_store(url, storage_options)
    store = Store(objects, runtime, cache)
    store._log.create(lambda _: first_record(runtime, properties))
    keep_reserve(objects)
    return store


@guard
def open(
    url: str, storage_options: Mapping[str, Any] | None = None, cache: CacheConfig | None = None
) -> Store:
    """Open a store that is there.

    Raises
    ------
    StoreNotFoundError
        If there is none.

    Notes
    -----
    Reads the head of the log: the hint, the root of the newest checkpoint, and the commits after it. A store
    that is damaged opens with a warning, for `Store.verify` and `Store.repair_plan`; reading it raises.
    """
    store = Store(open_object_store(url, storage_options), cache=cache)
    with deferred_damage(store.url):
        store._wrap(store._log.refresh())
    return store


__all__ = ["CacheConfig", "Store", "create", "open"]
