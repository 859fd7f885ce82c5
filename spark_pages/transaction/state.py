"""The state of a transaction and its read version: the value that staging, views and committer are given.

Nothing below `transaction.py` and `committer.py` holds it: each function takes it and returns.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import Concatenate, ParamSpec, Protocol, Self, TypeVar

from spark_pages.arguments import MOST_NUMBER, as_choice, as_int, as_str, check_texts
from spark_pages.catalog.evolution import columns_to_fill
from spark_pages.catalog.namespaces import location_of
from spark_pages.catalog.resolve import same_table
from spark_pages.errors import AlreadyExistsError, CommitConflictError, InvalidInputError, NotFoundError
from spark_pages.format.features import check_writable
from spark_pages.format.names import PageFolders, page_file_key
from spark_pages.log.conflict_error import ConflictTest, attach_conflicting_commit
from spark_pages.log.log import Log
from spark_pages.log.reopen import Refreshable, conflict_if_vacuumed, retry_after_vacuum, retrying
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.model.ids import CATALOG_TABLE, TableId
from spark_pages.model.table import BUILT_IN, NAMESPACE_NAMES, TableDefinition
from spark_pages.query.snapshot import Snapshot
from spark_pages.runtime import Runtime
from spark_pages.storage.store import ObjectStore
from spark_pages.transaction.page_flush import PageFlusher
from spark_pages.transaction.staged import StagedChanges
from spark_pages.transaction.update_buffer import UpdateBuffer

MEMORY_BYTES = 256 << 20
"""Memory that a transaction takes for pages; what is more is written before the commit."""

_AT_ONCE_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class TransactionOptions:
    """What the caller requests of a transaction; see `Store.transaction`.

    Raises
    ------
    InvalidInputError
        If a value is of another type, or `app_id` comes without `app_version`.
    """

    operation: str | None = None
    parameters: Mapping[str, str] | None = None
    app_id: str | None = None
    app_version: int | None = None
    isolation: str = "snapshot"
    memory_bytes: int = MEMORY_BYTES

    def __post_init__(self) -> None:
        checked: dict[str, object] = {}
        if self.operation is not None:
            checked["operation"] = as_str(self.operation, "operation")
        parameters = {} if self.parameters is None else self.parameters
        check_texts(parameters, "parameters")
        checked["parameters"] = dict(parameters)
        if self.app_id is not None:
            checked["app_id"] = as_str(self.app_id, "app_id")
        if self.app_version is not None:
            checked["app_version"] = as_int(
                self.app_version, "app_version", least=-MOST_NUMBER - 1, most=MOST_NUMBER
            )
        checked["memory_bytes"] = as_int(
            self.memory_bytes, "memory_bytes", "a number of bytes", 1, MOST_NUMBER
        )
        checked["isolation"] = as_choice(self.isolation, "isolation", ("snapshot", "serializable"))
        if (self.app_id is None) != (self.app_version is None):
            raise InvalidInputError(
                "Cannot use one of app_id and app_version alone: they go together.",
                hint="Pass both `app_id` and `app_version`, or neither.",
            )
        for name, value in checked.items():
            object.__setattr__(self, name, value)


@dataclass(slots=True)
class TransactionInfo:
    """The header of a transaction. A forked process that continues it gives it another token."""

    token: str
    operation: str | None
    parameters: Mapping[str, str]
    app_id: str | None
    app_version: int | None


class ReadVersion:
    """The version that one transaction reads.

    Parameters
    ----------
    log
        Source of versions.
    base
        The version to keep to. Without one, the newest version that this process knows, until a call depends
        on the newest version that exists.

    Attributes
    ----------
    base
        The snapshot of the version.
    is_pinned
        Whether the version was the newest one when storage was asked.
    is_seen
        Whether the caller has seen something of this version, so that no other one will do.
    """

    def __init__(self, log: Log, base: LogSnapshot | None) -> None:
        self._log = log
        self.is_pinned = self.is_seen = base is not None
        self.base = base or log.known()

    @property
    def version(self) -> int:
        """Number of the version."""
        return self.base.state.version

    def pin_latest(self, written: Mapping[TableId, TableDefinition], is_final: bool) -> None:
        """Move to the newest version, the first time.

        Where a table that has been written to has got another definition meanwhile, which the rows fit, and
        more may be staged, the transaction stays on the version that it knew: its tables are those of one
        version, and the rebase adds what is missing.

        Parameters
        ----------
        written
            Tables that the transaction writes to, by id.
        is_final
            Whether nothing more will be staged.

        Raises
        ------
        CommitConflictError
            If a table that has been written to was changed, and the staged rows do not fit it.
        UnsupportedFormatError
            If the newest version requires a feature of writers that this release does not know.
        """
        if self.is_pinned:
            return
        newest = self._log.refresh_to_write()
        check_writable(newest.state.features)  # before any page file is written for it
        stays = False
        for table_id, definition in written.items():
            now = same_table(newest, definition) if table_id >= 0 else definition
            stays |= now != definition and not is_final
            if now is None or columns_to_fill(definition, now) is None:
                changed = CommitConflictError(
                    f"Cannot commit to table {definition.name!r}: it was changed between version "
                    f"{self.version}, which this transaction reads, and version "
                    f"{newest.state.version}. Nothing was committed.",
                    hint="Repeat it from the start: `store.transaction()` reads the newest version.",
                )
                raise attach_conflicting_commit(changed, self._log, self.version, _changes(table_id))
        if not stays:
            self.base = newest
        self.is_pinned = True

    def pin(self) -> None:
        """Keep this version, whatever has been committed since and is compared at the commit."""
        self.is_pinned = self.is_seen = True

    def refresh(self, written: Mapping[TableId, TableDefinition], is_used: bool) -> int:
        """Move to the newest version, or reopen the same one where something depends on it.

        Parameters
        ----------
        written
            Tables that the transaction writes to, by id.
        is_used
            Whether anything is staged.

        Raises
        ------
        CommitConflictError
            If something depends on it, and retention has passed that version.
        """
        if not self.is_seen and not is_used:
            self.is_pinned = False
        if not self.is_pinned:
            self.pin_latest(written, is_final=False)
            return self.version
        with conflict_if_vacuumed(self.version):
            self.base = retry_after_vacuum(partial(self._log.reopen, self.version))
        return self.version


def _changes(table_id: int) -> ConflictTest:
    return lambda record: any(intent.table_id == table_id for intent in record.intents)


@dataclass(eq=False, slots=True)
class TransactionState:
    """The state of one transaction.

    Attributes
    ----------
    log, view, runtime
        The log, the reader's view of one of its snapshots, and clock and tokens.
    info
        The header.
    read_version
        The version that the transaction reads.
    staged
        Staged changes.
    updates
        Row updates that are not pages yet.
    memory_bytes
        Memory that pages may take.
    read_tables
        Tables that a serializable transaction has read; None under snapshot isolation.
    page_files
        Number of page file names that were given.
    held_bytes
        Bytes of staged pages in memory.
    flusher
        Writes pages before the commit; None until it must.
    ended
        Whether nothing more will be staged.
    committed
        The committed version.
    process
        The process that the transaction belongs to.
    """

    log: Log
    view: Callable[[LogSnapshot], Snapshot]
    runtime: Runtime
    info: TransactionInfo
    read_version: ReadVersion
    staged: StagedChanges
    updates: UpdateBuffer
    memory_bytes: int
    read_tables: set[int] | None
    page_files: int = 0
    held_bytes: int = 0
    flusher: PageFlusher | None = None
    ended: bool = False
    committed: int | None = None
    process: int = field(default_factory=os.getpid)

    @classmethod
    def begin(
        cls,
        log: Log,
        view: Callable[[LogSnapshot], Snapshot],
        runtime: Runtime,
        options: TransactionOptions,
        base: LogSnapshot | None,
    ) -> Self:
        """Return the state of a new transaction that keeps to `base`, or reads the newest version."""
        info = TransactionInfo(
            runtime.token(),
            options.operation,
            options.parameters or {},
            options.app_id,
            options.app_version,
        )
        read_version = ReadVersion(log, base)
        return cls(
            log,
            view,
            runtime,
            info,
            read_version,
            StagedChanges(since=read_version.version),
            UpdateBuffer(options.memory_bytes // 16),
            options.memory_bytes,
            set() if options.isolation == "serializable" else None,
        )

    @property
    def store(self) -> ObjectStore:
        """Where pages are."""
        return self.log.store

    @property
    def base(self) -> LogSnapshot:
        """Snapshot of the read version."""
        return self.read_version.base

    @property
    def version(self) -> int:
        """Number of the read version."""
        return self.read_version.version

    @property
    def is_empty(self) -> bool:
        """Whether nothing is staged."""
        return self.staged.empty and not self.updates

    @property
    def at_once_bytes(self) -> int:
        """Bytes of rows that are worked on together."""
        return max(1, min(_AT_ONCE_BYTES, self.memory_bytes // 8))

    def snapshot(self) -> Snapshot:
        """Return the read version as readers see it, without staged changes."""
        return self.view(self.base)

    def pin_latest(self) -> None:
        """Move to the newest version, the first time; see `ReadVersion.pin_latest`."""
        self.read_version.pin_latest(self.staged.definitions, self.ended)

    def refresh(self) -> int:
        """Move to what is retained now; see `ReadVersion.refresh`."""
        return self.read_version.refresh(self.staged.definitions, not self.is_empty)

    def relies_on(self, table_id: TableId) -> None:
        """Make serializable isolation require that a table stays as it is."""
        if self.read_tables is not None:
            if table_id < self.base.state.next_table_id:  # else it is new in this transaction
                self.read_tables.add(table_id)
            self.read_version.is_seen = True

    def forget(self, table_id: TableId) -> None:
        """Drop all that is staged for the rows of a table."""
        self.staged.forget(table_id)
        self.updates.forget_table(table_id)

    def clear(self) -> None:
        """Release all that is staged, however long the caller keeps the transaction."""
        self.staged.clear()
        self.updates.clear()

    def check_open(self) -> None:
        """Raise InvalidInputError if the transaction has ended, or cannot continue in this forked process."""
        if self.ended:
            where = "" if self.committed is None else f", at version {self.committed}"
            raise InvalidInputError(
                f"Cannot use the transaction: it has ended{where}.",
                hint="Open another one with `store.transaction()`.",
            )
        if self.process != os.getpid():
            self._continue_in_child()

    def _continue_in_child(self) -> None:
        """Become a transaction of this forked process: both may commit what was staged before the fork."""
        if self.page_files:  # the parent goes on writing files of these names
            raise InvalidInputError(
                f"Cannot use the transaction {self.info.operation!r} in process {os.getpid()}: process "
                f"{self.process}, from which it was forked, has written page files for it.",
                hint="Begin another `store.transaction()` in the forked process; the store can be used in "
                "both.",
            )
        self.info.token, self.process = self.runtime.token(), os.getpid()

    # names of page files: they bear the read version, by which vacuum judges them

    def next_page_file(self, definition: TableDefinition | None) -> str:
        """Return the key of the next page file, in the location of the table's namespace."""
        number, self.page_files = self.page_files, self.page_files + 1
        folder = location_of(None if definition is None else self.namespace_of(definition))
        return self._page_file(number, folder)

    def next_page_file_of(self, table_id: TableId) -> str:
        """Return the key of the next page file for a table that is written to."""
        return self.next_page_file(self.staged.definitions.get(table_id))

    def is_page_file_of_another(self, key: str) -> bool:
        """Return whether the key is that of a page file of another transaction, which vacuum may delete."""
        properties = {name: value for name, value in self.staged.properties.items() if value is not None}
        folders = PageFolders.of({**self.base.state.properties, **properties})
        folder = key.rpartition("/")[0]
        own = any(key == self._page_file(number, folder) for number in range(self.page_files))
        return folders.epoch_of(key) is not None and not own

    def namespace_of(self, definition: TableDefinition) -> TableDefinition | None:
        """Return the definition of a table's namespace; None for a built-in one."""
        if definition.namespace_id in BUILT_IN.values():
            return None
        name = (NAMESPACE_NAMES, definition.namespace)
        staged = self.staged
        return staged.created.get(name) or staged.ddl.find(name) or self.base.table(name)

    def _page_file(self, number: int, folder: str) -> str:
        return page_file_key(self.version, self.info.token, number, folder)


class _HasState(Refreshable, Protocol):
    _state: TransactionState


Verbs = TypeVar("Verbs", bound=_HasState)
Given = ParamSpec("Given")
Answer = TypeVar("Answer")


def verb(act: Callable[Concatenate[Verbs, Given], Answer]) -> Callable[Concatenate[Verbs, Given], Answer]:
    """Retry a verb after a vacuum, see `retrying`, and count a refusal as a read of the catalog.

    The caller knows from it that a name exists or does not, and serializable isolation keeps it so.
    """
    acting = retrying(act)

    @wraps(act)
    def acted(txn: Verbs, /, *args: Given.args, **kwargs: Given.kwargs) -> Answer:
        try:
            return acting(txn, *args, **kwargs)
        except (NotFoundError, AlreadyExistsError, InvalidInputError):
            txn._state.relies_on(CATALOG_TABLE)
            raise

    return acted
