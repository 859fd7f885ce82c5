"""The store: opening it, its versions, its transactions, its upkeep."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import pyarrow as pa

from spark_pages.catalog.bootstrap import first_record
from spark_pages.catalog.resolve import check_columns, find_table, parse_name
from spark_pages.errors import CommitUnknownError, InvalidInputError, TableNotFoundError
from spark_pages.io import CacheStats, PageHandler
from spark_pages.io.paginate import TARGET_PAGE_BYTES
from spark_pages.log.log import Log
from spark_pages.log.readable import check_version, oldest_readable
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.model.actions import CheckpointRef, Commit
from spark_pages.runtime import Runtime
from spark_pages.storage import open_object_store
from spark_pages.storage.store import ObjectStore
from spark_pages.tables.blame import Blame, blame_row
from spark_pages.tables.changes import row_changes
from spark_pages.tables.compaction import compact_table
from spark_pages.tables.history import history_table
from spark_pages.tables.page_changes import page_changes
from spark_pages.tables.restore import restore
from spark_pages.tables.snapshot import Snapshot
from spark_pages.tables.tags import delete_tag, set_tag, tagged_version
from spark_pages.tables.transaction import Transaction

_COMMITS_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class CacheConfig:
    """Budgets of the two page caches, in bytes.

    Attributes
    ----------
    upc_bytes
        Uncompressed pages.
    cpc_bytes
        Compressed pages.
    """

    upc_bytes: int = 256 << 20
    cpc_bytes: int = 256 << 20


class Store:
    """One store: a log of commits and the pages that it names.

    Obtained from `spark_pages.create` or `spark_pages.open`. Safe to share between threads.
    """

    def __init__(
        self, objects: ObjectStore, runtime: Runtime | None = None, cache: CacheConfig | None = None
    ) -> None:
        cache = cache or CacheConfig()
        self._runtime = runtime or Runtime()
        self._objects = objects
        self._log = Log(objects, self._runtime)
        self._pages = PageHandler(objects, upc_bytes=cache.upc_bytes, cpc_bytes=cache.cpc_bytes)

    def __repr__(self) -> str:
        return f"Store({self.url!r})"

    @property
    def url(self) -> str:
        """Where the store is, without secrets."""
        return self._objects.url

    @property
    def objects(self) -> ObjectStore:
        """The objects that the store is made of."""
        return self._objects

    @property
    def cache_stats(self) -> CacheStats:
        """Hits, misses, requests and bytes of the page caches since the store was opened."""
        return self._pages.stats()

    def snapshot(
        self,
        version: int | None = None,
        timestamp: datetime | str | int | None = None,
        tag: str | None = None,
    ) -> Snapshot:
        """The store as of a version, a time, a tag, or now.

        Parameters
        ----------
        version
            A version.
        timestamp
            The last version committed not later than this: a datetime (naive means UTC), ISO 8601 text,
            or microseconds since the epoch.
        tag
            The version that the tag names.

        Raises
        ------
        VersionNotFoundError, SnapshotExpiredError, InvalidInputError
        """
        if sum(each is not None for each in (version, timestamp, tag)) > 1:
            raise InvalidInputError("Give a version, a timestamp or a tag, not several of them.")
        asked = ""
        if tag is not None:
            version, asked = tagged_version(self._log.refresh().state, tag), f"tag {tag!r}"
        timestamp_us = None if timestamp is None else to_microseconds(timestamp)
        if timestamp_us is not None:
            asked = f"as of {timestamp}"
        return self._wrap(self._log.snapshot(version, timestamp_us, asked))

    def transaction(
        self,
        operation: str = "write",
        app_id: str | None = None,
        app_version: int | None = None,
        isolation: str = "snapshot",
        parameters: Mapping[str, str] | None = None,
    ) -> Transaction:
        """A transaction on the newest version; commits on leaving its ``with`` block.

        Parameters
        ----------
        operation, parameters
            What is done, for the history.
        app_id, app_version
            Exactly once: where the log holds this pair, or a newer version of the same application,
            the commit is a no-op and ``txn.version`` is the version where it landed.
        isolation
            ``"snapshot"``, or ``"serializable"``: conflicts too when another commit changed rows of a
            table that this one writes to, or has read by `Transaction.table`.
        """
        return Transaction(
            self._log,
            self._wrap,
            self._runtime,
            operation=operation,
            parameters=parameters,
            app_id=app_id,
            app_version=app_version,
            isolation=isolation,
        )

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
            If another commit holds its place: it is not in the log, nor will ever be.
        CommitUnknownError
            If storage still gives no clear answer.
        """
        known = error.context
        if not {"version", "token", "data"} <= known.keys():
            raise InvalidInputError(
                "The error does not carry the commit that is in doubt: look for it in the history."
            )
        return self._log.resume(known["version"], known["token"], known["data"])

    def tag(self, name: str, version: int | None = None, replace: bool = False) -> int:
        """The tag names the version, by default the newest one; gives the version.

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
        return set_tag(self._log, self._runtime, name, version, replace)

    def delete_tag(self, name: str) -> int:
        """There is no such tag any more; gives the version that it named.

        Raises
        ------
        VersionNotFoundError
            If there is no such tag.
        """
        return delete_tag(self._log, self._runtime, name)

    def tags(self) -> dict[str, int]:
        """The tags and the versions that they name, sorted by name."""
        return dict(sorted(self._log.refresh().state.tags.items()))

    def restore(
        self,
        version: int | None = None,
        timestamp: datetime | str | int | None = None,
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
        named = {"version": version, "timestamp": timestamp, "tag": tag}
        given = {key: str(value) for key, value in named.items() if value is not None}
        if len(given) != 1:
            raise InvalidInputError("Give exactly one of version, timestamp and tag.")
        then = self.snapshot(version, timestamp, tag).log
        parameters = {**given, "version": str(then.state.version)}
        return restore(self._log, self._pages, self._runtime, then, parameters)

    def history(self, limit: int | None = None) -> pa.Table:
        """A row for each transaction, newest first; `limit` bounds the versions read.

        Notes
        -----
        Maintenance is a transaction like any other, where it changes what can be read: page compaction,
        restore, vacuum. A checkpoint is none; `checkpoint` is the version of the newest one that was there at
        each commit. Versions that cannot be read any more are left out.
        """
        head = self._log.refresh().state
        start = max(oldest_readable(head), 0 if limit is None else head.version + 1 - limit)
        return history_table(reversed(self._log.commits_left(start, head.version + 1)))

    def changes(
        self, start: int, end: int, table: str | None = None, grain: Literal["pages", "rows"] = "pages"
    ) -> pa.Table:
        """What the commits after version `start`, up to and with `end`, did.

        Parameters
        ----------
        start, end
            Versions; a `start` of -1 is before the store was created.
        table
            Of this table only, by its name at `end`, or at `start` where it is gone since.
        grain
            ``"pages"``: a row for each page added, replaced or removed, or given another entry count, commit
            by commit. ``"rows"``: the ranges of rows inserted, updated and removed between the two versions,
            by column; compaction changes none.

        Raises
        ------
        VersionNotFoundError, SnapshotExpiredError, TableNotFoundError, InvalidInputError

        Notes
        -----
        Reads the commits, and lengths of the chains that they touch. Memory follows the result.
        """
        if grain not in ("pages", "rows"):
            raise InvalidInputError(f"grain is {grain!r}: expected 'pages' or 'rows'.")
        if not -1 <= start <= end:
            raise InvalidInputError(
                f"Cannot tell changes from {start} to {end}: expected -1 <= start <= end."
            )
        now = self._log.snapshot(end, asked="the end of the changes")
        then = None if start < 0 else self._log.snapshot(start, asked="the start of the changes")
        if then is None:
            check_version(self._log.refresh().state, 0, "where the changes begin")
        table_id = None if table is None else _find_either(now, then, table)
        commits = self._commits(start + 1, end + 1)
        if grain == "pages":
            return page_changes(commits, then, table_id, self._log.load_manifest)
        return row_changes(commits, then, now, table_id)

    def blame(self, table: str, column: str, row: int) -> Blame:
        """The commit that last wrote a row of a column.

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
        Compaction does not count. Usually reads one commit; see `spark_pages.tables.blame`.
        """
        head = self._log.refresh()
        definition = find_table(head, table)
        check_columns(definition, [column])
        return blame_row(self._log, head, (definition.table_id, definition.field_ids[column]), row)

    def _commits(self, start: int, stop: int) -> Iterator[Commit]:
        """Commits [start, stop), read a few at a time."""
        for first in range(start, stop, _COMMITS_AT_ONCE):
            yield from self._log.commits(first, min(first + _COMMITS_AT_ONCE, stop))

    def checkpoint(self) -> CheckpointRef:
        """The newest version can be opened without the commits before it."""
        return self._log.checkpoint()

    def compact_pages(self, table: str | None = None) -> list[dict[str, Any]]:
        """Runs of small pages are rewritten as full ones; rows stay what they are.

        Returns
        -------
        list of dict
            For each table: its name, pages before and after, and the version (None where nothing was
            to do).
        """
        snapshot = self.snapshot()
        names = [table] if table else snapshot.tables()

        def begin_on(name: str) -> Callable[[str], Transaction]:
            return lambda operation: self.transaction(operation, parameters={"table": name})

        return [compact_table(begin_on(name), name, self._runtime) for name in names]

    def _wrap(self, log: LogSnapshot) -> Snapshot:
        return Snapshot(log, self._pages, lambda timestamp_us: self.snapshot(timestamp=timestamp_us))


def _find_either(now: LogSnapshot, then: LogSnapshot | None, table: str) -> int:
    """Id of a table by its name in the newer snapshot, or else in the older one."""
    try:
        return find_table(now, table).table_id
    except TableNotFoundError:
        if then is None:
            raise
        found = then.table(parse_name(table))
        if found is None:
            raise
        return found.table_id


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
        Properties of the store, free text by key.

    Raises
    ------
    StoreExistsError
        If there is one already.
    """
    runtime = Runtime()
    objects = open_object_store(url, storage_options)
    store = Store(objects, runtime, cache)
    record = first_record(runtime, properties or {})
    store._log.create(lambda _: record)
    return store


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
    Reads the head of the log: the hint, the root of the newest checkpoint, and the commits after it.
    """
    store = Store(open_object_store(url, storage_options), cache=cache)
    store._log.refresh()
    return store


def to_microseconds(timestamp: datetime | str | int) -> int:
    """Microseconds since the epoch of what a caller gives as a time."""
    if isinstance(timestamp, int):
        return timestamp
    try:
        moment = datetime.fromisoformat(timestamp) if isinstance(timestamp, str) else timestamp
    except ValueError:
        raise InvalidInputError(f"{timestamp!r} is not a time: expected ISO 8601.") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    delta = moment - datetime.fromtimestamp(0, UTC)
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


__all__ = ["TARGET_PAGE_BYTES", "CacheConfig", "Store", "create", "open", "to_microseconds"]
