"""The store: opening it, its versions, its transactions, its upkeep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from spark_pages.catalog.bootstrap import first_record
from spark_pages.catalog.resolve import find_table
from spark_pages.errors import InvalidInputError, VersionNotFoundError
from spark_pages.io import CacheStats, PageHandler
from spark_pages.io.paginate import TARGET_PAGE_BYTES
from spark_pages.log.log import Log
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.model.actions import CheckpointRef
from spark_pages.runtime import Runtime
from spark_pages.storage import open_object_store
from spark_pages.storage.store import ObjectStore
from spark_pages.tables.compaction import compact_table
from spark_pages.tables.history import changes_table, history_table
from spark_pages.tables.snapshot import Snapshot
from spark_pages.tables.transaction import Transaction


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
        if tag is not None:
            tags = self._log.refresh().state.tags
            if tag not in tags:
                raise VersionNotFoundError(
                    f"There is no tag {tag!r}.", hint=f"There are {', '.join(sorted(tags)) or 'none'}."
                )
            version = tags[tag]
        timestamp_us = None if timestamp is None else to_microseconds(timestamp)
        return self._wrap(self._log.snapshot(version, timestamp_us))

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
            table that this one writes to.
        """
        return Transaction(
            self._log,
            self.snapshot(),
            self._runtime,
            operation=operation,
            parameters=parameters,
            app_id=app_id,
            app_version=app_version,
            isolation=isolation,
        )

    def history(self, limit: int | None = None) -> pa.Table:
        """A row for each transaction, newest first; `limit` bounds the versions read."""
        head = self._log.refresh().state.version
        start = 0 if limit is None else max(0, head + 1 - limit)
        return history_table(reversed(self._log.commits(start, head + 1)))

    def changes(self, start: int, end: int, table: str | None = None) -> pa.Table:
        """Pages added and removed by the commits after version `start`, up to and with `end`."""
        head = self._log.refresh()
        if not -1 <= start <= end <= head.state.version:
            raise VersionNotFoundError(
                f"Cannot tell changes from {start} to {end}: expected -1 <= start <= end <= "
                f"{head.state.version}."
            )
        table_id = None if table is None else find_table(head, table).table_id
        return changes_table(self._log.commits(start + 1, end + 1), table_id, self._log.load_manifest)

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
        return [
            compact_table(self.transaction("compact pages", parameters={"table": name}), name)
            for name in names
        ]

    def _wrap(self, log: LogSnapshot) -> Snapshot:
        return Snapshot(log, self._pages, lambda timestamp_us: self.snapshot(timestamp=timestamp_us))


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
