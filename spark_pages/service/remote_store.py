"""What `spark_pages.connect` gives: snapshots whose metadata comes from a service (seed 004, "CN")."""

from __future__ import annotations

import builtins
import os
import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NoReturn, Self

import pyarrow as pa

from spark_pages.arguments import (
    MOST_NUMBER,
    Moment,
    as_flag,
    as_int,
    as_microseconds,
    as_path,
    as_seconds,
    as_str,
    check_kind,
)
from spark_pages.boundary import guard, guarded
from spark_pages.catalog.resolve import split_name, table_missing_error
from spark_pages.errors import (
    DamageError,
    InvalidInputError,
    ObjectNotFoundError,
    StoreReplacedError,
    TableNotFoundError,
)
from spark_pages.io import CacheConfig, CacheStats, PageHandler
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.log.state import LogState, TableName
from spark_pages.model.chain import ColumnChain
from spark_pages.model.chain_tree import ChainKey
from spark_pages.model.ids import CATALOG_TABLE
from spark_pages.model.names import fold_name
from spark_pages.model.run import PageRun
from spark_pages.model.table import BUILT_IN, NAMESPACE_NAMES, TYPE_NAMES, TableDefinition
from spark_pages.query.directory import PageDirectory
from spark_pages.query.snapshot import Snapshot
from spark_pages.query.system_tables import SYSTEM_TABLES
from spark_pages.query.table import Table
from spark_pages.runtime import Runtime
from spark_pages.service.client import ServiceClient, Token
from spark_pages.service.metadata import version_or_time
from spark_pages.service.remote_history import LogVerbs
from spark_pages.service.remote_objects import NamedTable, PageIndex, RemoteObjects
from spark_pages.service.requests import piece_to_plain
from spark_pages.service.responses import (
    PieceName,
    Redo,
    SegmentLocation,
    TableMetaChanges,
    TableMetaSnapshot,
    piece_names,
)
from spark_pages.service.table_view import TableView, apply_changes
from spark_pages.service.wire import (
    changes_of_frame,
    location_from_plain,
    object_from_plain,
    rows_of,
    snapshot_of_frame,
)
from spark_pages.storage import open_object_store
from spark_pages.storage.store import ObjectStore

_MOST_TABLES = 4096
_MOST_CERTIFICATE = 1 << 20
_SHORTEST_S = 1e-3


@guarded()
class StoreClient(LogVerbs):
    """A store behind a service, to be read. Obtained from `spark_pages.connect`.

    Parameters
    ----------
    calls
        Asks the service.
    objects
        Where pages are read directly; None reads them through the service.
    cache
        See `CacheConfig`.

    Notes
    -----
    Safe to share between threads. What it has loaded of a table it takes along to newer versions.
    """

    def __init__(self, calls: ServiceClient, objects: ObjectStore | None, cache: CacheConfig | None) -> None:
        self._calls = calls
        self._learned: PageIndex[NamedTable] = PageIndex()
        self._pages = PageHandler(objects or RemoteObjects(calls, self._learned), cache)
        self._lock = threading.Lock()
        self._store_id = ""
        self._newest: dict[tuple[str, str], TableView] = {}

    def __repr__(self) -> str:
        return f"StoreClient({self.url!r})"

    def __reduce__(self) -> NoReturn:
        raise InvalidInputError(
            "Cannot pickle a connected store: it holds a token.", hint="Call `connect` where it is needed."
        )

    @property
    def url(self) -> str:
        """Address of the service."""
        return self._calls.url

    @property
    def cache_stats(self) -> CacheStats:
        """Hits, misses, requests and bytes of the page caches since the store was connected."""
        return self._pages.stats()

    def clear_caches(self) -> None:
        """Empty the caches of pages and bloom filters in memory; see `Store.clear_caches`."""
        self._pages.clear()

    def snapshot(
        self,
        version: int | None = None,
        timestamp: Moment | None = None,
        tag: str | None = None,
    ) -> RemoteSnapshot:
        """Open the store at a version, a time, a tag, or now; as `Store.snapshot`.

        Raises
        ------
        VersionNotFoundError, SnapshotExpiredError, InvalidInputError, AccessDeniedError, StorageError
        StoreReplacedError
            If the service serves another store by now.

        Notes
        -----
        One call. The newest version may be as old as the service's bound of staleness says.
        """
        version = None if version is None else _version(version)
        timestamp_us = None if timestamp is None else as_microseconds(timestamp)
        tag = None if tag is None else as_str(tag, "the name of a tag")
        told = self._calls.request("version", version=version, timestamp_us=timestamp_us, tag=tag)
        try:
            found, time_us = int(told["version"]), int(told["timestamp_us"])
            store_id = str(told.get("store", ""))  # services of earlier releases do not tell it
        except (LookupError, TypeError, ValueError):
            raise DamageError(
                f"Cannot use the answer of the service at {self.url}: it has no version."
            ) from None
        self._store_id = self._store_id or store_id
        self._pages.bind_store(self._store_id)
        if store_id not in ("", self._store_id):
            raise StoreReplacedError(
                f"Cannot read from the service at {self.url}: it serves another store than the one that was "
                "connected.",
                hint="Call `connect` again, and look at what it serves now.",
                url=self.url,
            )
        return RemoteSnapshot(self, RemoteLog(self, found, time_us))

    def tables(self, version: int) -> dict[int, tuple[str, str]]:
        """Namespace and name, by table id, of the tables of a version that may be read."""
        told = self._calls.request("tables", version=_version(version))
        try:
            return {int(table_id): (str(db), str(name)) for db, name, table_id in told["tables"]}
        except (LookupError, TypeError, ValueError):
            raise DamageError(
                f"Cannot use the answer of the service at {self.url}: it has no tables."
            ) from None

    def namespaces_and_types(self, version: int) -> list[TableDefinition]:
        """Read the definitions of the readable namespaces, and of types, at a version."""
        told = self._calls.request("objects", version=_version(version))
        try:
            return [object_from_plain(each) for each in told["objects"]]
        except (LookupError, TypeError, ValueError):
            raise DamageError(
                f"Cannot use the answer of the service at {self.url}: it has no namespaces and types."
            ) from None

    def sql(
        self,
        text: str,
        params: Sequence[Any] | Mapping[str, Any] | None = None,
        *,
        version: int | None = None,
        timestamp: Moment | None = None,
        tag: str | None = None,
        limit: int | None = None,
    ) -> pa.Table:
        """Run a query; as `Store.sql`, for statements that change nothing.

        Raises
        ------
        InvalidInputError
            If it is no query, beside what `Store.sql` raises.
        """
        from spark_pages.sql.execution import run_sql  # noqa: PLC0415 - sqlglot takes 0.1 s to import

        return run_sql(text, self.snapshot, _refuse_to_write, version, timestamp, tag, params, limit)

    def table_at(self, db: str, table: str, version: int, afresh: bool = False) -> TableView:
        """Open a table at a version, reusing what is known of an earlier one.

        Parameters
        ----------
        afresh
            Whether to take over nothing: where what was known turned out to be gone.

        Notes
        -----
        No call where it is known, else one; two where it went on to another checkpoint.
        """
        db, table = as_str(db, "the name of a namespace"), as_str(table, "the name of a table")
        version, afresh = _version(version), as_flag(afresh, "afresh")
        known = None if afresh else self._newest.get((db, table))
        if known is not None and known.state.version == version:
            return known
        found = self._apply_changes(known, db, table, version) if known is not None else None
        found = found or self._request(db, table, version)
        with self._lock:
            newest = self._newest.get((db, table))
            if newest is None or newest.state.version < version or afresh:
                if len(self._newest) >= _MOST_TABLES and (db, table) not in self._newest:
                    self._newest.clear()
                self._newest[db, table] = found
        return found

    def _request(self, db: str, table: str, version: int) -> TableView:
        answer, pieces = self._snapshot_of(db, table, version=version)
        if answer.version != version:
            raise DamageError(
                f"Cannot use the answer of the service: expected version {version} of a table, found "
                f"{answer.version}."
            )
        return TableView(answer, pieces)

    def _snapshot_of(
        self, db: str, table: str, **which: int | None
    ) -> tuple[TableMetaSnapshot, RemotePieces]:
        pieces = RemotePieces(self._calls, self._learned, db, table)
        header, batches = self._calls.get("get_table_meta_snapshot", db=db, table=table, **which)
        answer = snapshot_of_frame(header, batches, pieces.stats)
        pieces.index_redo(answer.version, answer.redo)
        return answer, pieces

    def _changes_of(
        self, db: str, table: str, from_: int, to: int | None, pieces: RemotePieces
    ) -> TableMetaChanges:
        fields = {"from": from_, "to": to}
        header, batches = self._calls.get("collect_table_meta_changes_in_range", db=db, table=table, **fields)
        return changes_of_frame(header, batches, pieces.stats)

    def _apply_changes(self, known: TableView, db: str, table: str, version: int) -> TableView | None:
        if known.state.version > version:
            return None
        pieces = known.pieces
        assert isinstance(pieces, RemotePieces)
        changes = self._changes_of(db, table, known.state.version + 1, version, pieces)
        answer = apply_changes(known.answer, changes)
        if answer is None:
            return None
        pieces.index_redo(changes.to, changes.hot_redo)
        return TableView(answer, pieces, known)

    def get_table_meta_snapshot(
        self, db: str, table: str, ss: int | Moment | None = None
    ) -> TableMetaSnapshot:
        """Locate the checkpoint segments of a table, and return the splices committed since (seed 004).

        Parameters
        ----------
        db, table
            Namespace and name of the table in that version.
        ss
            The version, a whole number; or a time, for the last version not later than it, where it is any
            other `Moment`. The newest version by default.

        Raises
        ------
        TableNotFoundError, VersionNotFoundError, SnapshotExpiredError, AccessDeniedError, InvalidInputError

        Notes
        -----
        One call. Pages that a splice lists in a page manifest are asked for when they are needed.
        """
        db, table = as_str(db, "the name of a namespace"), as_str(table, "the name of a table")
        version, timestamp_us = version_or_time(ss)
        return self._snapshot_of(db, table, version=version, timestamp_us=timestamp_us)[0]

    def collect_table_meta_changes_in_range(
        self, db: str, table: str, from_: int, to: int | None = None
    ) -> TableMetaChanges:
        """Collect what the commits from version `from_` to `to`, both included, did to a table (seed 004).

        Parameters
        ----------
        db, table
            Namespace and name of the table at `to`.
        from_, to
            Versions; `to` is the newest one by default. The range is empty where `from_` is one above `to`.

        Raises
        ------
        TableNotFoundError, VersionNotFoundError, SnapshotExpiredError, AccessDeniedError, InvalidInputError

        Notes
        -----
        One call.
        """
        db, table = as_str(db, "the name of a namespace"), as_str(table, "the name of a table")
        from_, to = as_int(from_, "from_", least=0, most=MOST_NUMBER), None if to is None else _version(to)
        pieces = RemotePieces(self._calls, self._learned, db, table)
        changes = self._changes_of(db, table, from_, to, pieces)
        pieces.index_redo(changes.to, changes.hot_redo)
        return changes

    @property
    def pages(self) -> PageHandler:
        """What fetches and caches pages."""
        return self._pages

    def close(self) -> None:
        """Close the channel and the caches; the store may be used again."""
        self._pages.close()
        self._calls.close()

    def __enter__(self) -> Self:
        """Return the store, which closes at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """See `close`."""
        self.close()


@guarded()
class RemoteSnapshot(Snapshot):
    """A version of a store behind a service; read like any other snapshot."""

    log: RemoteLog

    def __init__(self, store: StoreClient, log: RemoteLog) -> None:
        super().__init__(log, store.pages)
        self._served = store

    def __reduce__(self) -> NoReturn:
        raise InvalidInputError(
            "Cannot pickle a snapshot of a connected store: it holds a token.",
            hint="Call `connect` and `snapshot` where it is needed.",
        )

    def table(self, name: str) -> Table:
        """Open a table by name; see `Snapshot.table`.

        Raises
        ------
        TableNotFoundError
            If there is none.
        AccessDeniedError
            If the token does not allow its namespace.
        """
        namespace, table = split_name(name)
        db = namespace or "default"
        if fold_name(db) == "system" and fold_name(table) in SYSTEM_TABLES:
            return self._system_table(fold_name(table))
        store, version = self._served, self.version

        def as_of(timestamp_us: int) -> PageDirectory:
            then = store.snapshot(timestamp=timestamp_us)
            at = then.log.names.get(found.definition.table_id)
            if at is None:
                raise table_missing_error(found.definition, then.version)
            return then.table(".".join(at)).directory

        def open_again(_: int) -> LogSnapshot:
            return store.table_at(db, table, version, afresh=True)

        found = store.table_at(db, table, version)
        directory = PageDirectory(found, found.definition, as_of, open_again)
        return Table(found.definition, directory, store.pages, self.log, self.table)

    def reopen(self, missing: ObjectNotFoundError) -> None:
        """Nothing to open again: what it knows comes table by table."""
        check_kind(missing, ObjectNotFoundError, "missing", "an ObjectNotFoundError")
        raise missing


def _version(version: int) -> int:
    return as_int(version, "version", least=0, most=MOST_NUMBER)


def _refuse_to_write(_: str) -> NoReturn:
    raise InvalidInputError(
        "Cannot change a connected store: it is only read.",
        hint="Open the store itself to change it: `spark_pages.open(url)`.",
    )


@guard
def connect(
    url: str,
    token: Token | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    storage_url: str | None = None,
    certificate: str | os.PathLike[str] | bytes | None = None,
    cache: CacheConfig | None = None,
    timeout_s: float = 30.0,
    retry_s: float = 15.0,
) -> StoreClient:
    """Open a store through a service.

    Parameters
    ----------
    url
        ``grpc+tls://host:port``; ``grpc://host:port`` without a token, for tests.
    token
        A bearer token, or a function that gives one: it is asked before each call, so that it can renew it.
    storage_options
        If given, also as an empty dict: pages are read from storage directly, with these options, as `open`
        takes them. Else through the service.
    storage_url
        Where storage is, if it is elsewhere for this client than for the service.
    certificate
        Of the authority that signed the service's certificate, in PEM: a path, or its bytes. By default those
        of the system.
    cache
        See `CacheConfig`.
    timeout_s
        A call that takes longer fails.
    retry_s
        So long a service that cannot be reached, or is busy, is tried again.

    Raises
    ------
    AccessDeniedError
        If the token is not valid.
    StorageError
        If the service cannot be reached.
    InvalidInputError
        If the address is none, or a token would be sent in the clear.
    """
    pem = _read_certificate(certificate)
    as_str(url, "the address of a service")
    check_kind(cache, CacheConfig | None, "cache", "a CacheConfig")
    timeout_s, retry_s = as_seconds(timeout_s, "timeout_s", _SHORTEST_S), as_seconds(retry_s, "retry_s")
    calls = ServiceClient(url, token, pem, timeout_s, retry_s, Runtime())
    told = calls.handshake()
    objects = None
    if storage_options is not None or storage_url is not None:
        objects = open_object_store(told["url"] if storage_url is None else storage_url, storage_options)
    return StoreClient(calls, objects, cache)


def _read_certificate(certificate: str | os.PathLike[str] | bytes | None) -> bytes | None:
    if certificate is None or isinstance(certificate, bytes):
        return certificate
    path = as_path(certificate, "certificate")
    try:
        with builtins.open(path, "rb") as file:
            return file.read(_MOST_CERTIFICATE)
    except OSError as error:
        raise InvalidInputError(
            f"Cannot read the certificate {path!r}: {error.strerror}.",
            hint="Pass `certificate` as the path of a file in PEM, or as its bytes.",
        ) from error


class RemotePieces:
    """Pieces of one table on one checkpoint, from the service.

    Attributes
    ----------
    names
        Namespace, table, and the newest version of it on that checkpoint that this client has seen: the one
        by which pieces are asked for, because it is kept longest.
    """

    def __init__(self, calls: ServiceClient, learned: PageIndex[NamedTable], db: str, table: str) -> None:
        self._calls = calls
        self._learned = learned
        self._named = (db, table)
        self._version = -1

    @property
    def names(self) -> tuple[str, str, int]:
        """See the class."""
        return (*self._named, self._version)

    def index_redo(self, version: int, redo: Redo) -> None:
        """Index the pages of the redo of a version."""
        self._version = max(self._version, version)
        for field_id, edits in redo.items():
            for name, edit in zip(piece_names(field_id, edits), edits, strict=True):
                if isinstance(edit.added, PageRun) and edit.added.num_pages:
                    self._learned.add(self, name, edit.added, blooms=True)

    def pages(self, name: PieceName, has_stats: bool) -> PageRun:
        """See `spark_pages.service.table_view.Pieces`."""
        _, batches = self._get("piece", name)
        run = PageRun(rows_of(batches)[0], (lambda: self.stats(name).stats) if has_stats else None)
        self._learned.add(self, name, run, blooms=False)
        return run

    def stats(self, name: PieceName) -> PageRun:
        """Load the statistics of the same pages."""
        _, batches = self._get("stats", name)
        pages, stats = rows_of(batches)
        run = PageRun(pages, lambda: stats)
        self._learned.add(self, name, run, blooms=True)
        return run

    def part(self, name: PieceName) -> tuple[SegmentLocation, ...]:
        """See `spark_pages.service.table_view.Pieces`."""
        header, _ = self._get("part", name)
        try:
            return tuple(map(location_from_plain, header["places"]))
        except (LookupError, TypeError, ValueError) as error:
            raise DamageError(
                "Cannot use the answer of the service: it holds places that are not understood."
            ) from error

    def _get(self, what: str, name: PieceName) -> tuple[dict[str, Any], list[Any]]:
        db, table, version = self.names
        return self._calls.get(what, db=db, table=table, version=version, piece=piece_to_plain(name))


class RemoteLog(LogSnapshot):
    """A version of which nothing is known before it is asked for, table by table.

    For what looks at several tables by their ids, such as ``system.tables``.
    """

    def __init__(self, store: StoreClient, version: int, timestamp_us: int) -> None:
        super().__init__(LogState(version=version, timestamp_us=timestamp_us), None)
        self._store = store

    @cached_property
    def names(self) -> dict[int, tuple[str, str]]:
        """Namespace and name of each table that may be read, by its id."""
        return self._store.tables(self.state.version)

    def chain(self, key: ChainKey) -> ColumnChain:
        """See `LogSnapshot.chain`."""
        db, name = ("system", "catalog") if key[0] == CATALOG_TABLE else self.names.get(key[0], ("", ""))
        if not name:
            return ColumnChain()
        return self._store.table_at(db, name, self.state.version).chain(key)

    @cached_property
    def _objects(self) -> list[TableDefinition]:
        """What tells of namespaces and types."""
        return self._store.namespaces_and_types(self.state.version)

    def alike(self, name: TableName) -> list[str]:
        """See `LogSnapshot.alike`; of those that may be read."""
        if name[0] in (NAMESPACE_NAMES, TYPE_NAMES):
            known = [each.name for each in self.tables(name[0])]
        else:
            of = {number: each for each, number in BUILT_IN.items()} | self.namespace_names()
            known = [table for db, table in self.names.values() if db == of.get(name[0])]
        return sorted(each for each in known if fold_name(each) == fold_name(name[1]))

    def table(self, name: TableName) -> TableDefinition | None:
        """See `LogSnapshot.table`."""
        if name[0] in (NAMESPACE_NAMES, TYPE_NAMES):
            return next((each for each in self.tables(name[0]) if each.name == name[1]), None)
        of = {number: each for each, number in BUILT_IN.items()}
        if name[0] not in of:
            of |= self.namespace_names()
        if name[0] not in of:
            return None
        try:
            return self._store.table_at(of[name[0]], name[1], self.state.version).definition
        except TableNotFoundError:
            return None

    def tables(self, namespace_id: int | None = None) -> list[TableDefinition]:
        """See `LogSnapshot.tables`; one call for each table, and one for all that is none."""
        if namespace_id in (NAMESPACE_NAMES, TYPE_NAMES):
            return [each for each in self._objects if each.namespace_id == namespace_id]
        found = [self._store.table_at(*name, self.state.version).definition for name in self.names.values()]
        return [each for each in found if namespace_id is None or each.namespace_id == namespace_id]

    def table_names(self) -> list[tuple[str, str]]:
        """See `LogSnapshot.table_names`; of those that may be read."""
        ids = {"default": 0}
        if any(db != "default" for db, _ in self.names.values()):
            ids |= {name: number for number, name in self.namespace_names().items()}
        return sorted(self.names.values(), key=lambda each: (ids.get(each[0], 0), each[1]))

    def ids_of_name(self, name: str) -> list[int]:
        """See `LogSnapshot.ids_of_name`."""
        own = [int(CATALOG_TABLE)] if name == "catalog" else []
        return own + [table_id for table_id, (_, known) in self.names.items() if known == name]
