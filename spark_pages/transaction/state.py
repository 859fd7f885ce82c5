"""The state of a transaction: one value that staging, views and the committer are given.

Nothing below `transaction.py` and `committer.py` holds it: each function takes it and returns.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Self

from spark_pages.arguments import MOST_NUMBER, as_choice, as_int, as_str, check_texts
from spark_pages.catalog.namespaces import location_of
from spark_pages.errors import InvalidInputError
from spark_pages.format.names import PageFolders, page_file_key
from spark_pages.log.log import Log
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.model.ids import TableId
from spark_pages.model.table import BUILT_IN, NAMESPACE_NAMES, TableDefinition
from spark_pages.query.snapshot import Snapshot
from spark_pages.runtime import Runtime
from spark_pages.storage.store import ObjectStore
from spark_pages.transaction.page_flush import PageFlusher
from spark_pages.transaction.read_version import ReadVersion
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
