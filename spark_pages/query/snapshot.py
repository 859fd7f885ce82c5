"""A snapshot: every table of the store as of one version."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

from spark_pages.arguments import check_kind
from spark_pages.boundary import guarded, public_names
from spark_pages.catalog.namespaces import BUILT_INS, Namespace, namespace_of
from spark_pages.catalog.resolve import find_table, same_table, split_name, table_missing_error
from spark_pages.catalog.types import UserType, user_type
from spark_pages.display.cards import snapshot_card
from spark_pages.display.text import count
from spark_pages.errors import InvalidInputError, NotFoundError, ObjectNotFoundError, TableNotFoundError
from spark_pages.io import PageHandler
from spark_pages.log.commit_times import as_datetime, dated
from spark_pages.log.lease import ReaderLease
from spark_pages.log.reopen import reopening
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.model.ids import CATALOG_TABLE, TableId
from spark_pages.model.names import fold_name
from spark_pages.model.table import NAMESPACE_NAMES, TYPE_NAMES, TableDefinition
from spark_pages.query.catalog_rows import CatalogRows
from spark_pages.query.directory import PageDirectory
from spark_pages.query.live_rows import FindDeletion
from spark_pages.query.system_layouts import LAYOUTS
from spark_pages.query.system_tables import SYSTEM_TABLES, SystemTable
from spark_pages.query.table import Table

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from spark_pages.query.dataset import TableDataset

MOST_TABLES_ON_A_CARD = 20

TakeLease: TypeAlias = Callable[["Snapshot", timedelta, bool], ReaderLease["Snapshot"]]


@guarded()
class Snapshot:
    """The store as of one version. Immutable; cheap to open and to keep.

    Attributes
    ----------
    version
        Its version.
    timestamp
        When that version was committed, UTC.
    find_deletion
        Finds who deleted a row of a table; None where the log is not at hand.

    Parameters
    ----------
    log, pages
        Metadata of the version, and the reader of its pages.
    open_snapshot
        Opens another version of the same store by number, or by `timestamp`. Picklable: a pickled snapshot is
        this and a version.
    take_lease
        Writes a lease on a snapshot.
    open_again
        Reads the metadata of a version again after vacuum has removed objects.
    connect_duckdb
        Opens a database with the tables of a snapshot.
    """

    def __init__(
        self,
        log: LogSnapshot,
        pages: PageHandler,
        open_snapshot: Callable[..., Snapshot] | None = None,
        take_lease: TakeLease | None = None,
        open_again: Callable[[int], LogSnapshot] | None = None,
        connect_duckdb: Callable[[Snapshot], DuckDBPyConnection] | None = None,
    ) -> None:
        self.log = log
        self._pages = pages
        self._open_snapshot = open_snapshot
        self._take_lease = take_lease
        self._open_again = open_again
        self._connect_duckdb = connect_duckdb
        self.find_deletion: FindDeletion | None = None
        self._committed = True
        self._system: dict[str, Table] = {}
        self._on_read: Callable[[TableId], object] = _ignore_read

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as the store and the version; opened again where it is unpickled."""
        if self._open_snapshot is None or not self._committed:
            raise InvalidInputError(
                "Cannot pickle this snapshot: it shows what a transaction has not committed.",
                hint="Commit first, and pickle `store.snapshot()`.",
            )
        return (self._open_snapshot, (self.version,))

    def __dir__(self) -> list[str]:
        return public_names(self, _INTERNAL)

    def __repr__(self) -> str:
        time = f"{self.timestamp:%Y-%m-%d %H:%M:%S}"
        return f"Snapshot(version {self.version}, {time}, {count(len(self.tables()), 'table')})"

    def _repr_html_(self) -> str:
        names = self.tables()
        shown = [self.table(name) for name in names[:MOST_TABLES_ON_A_CARD]]
        rows = [(each.name, each.num_rows, len(each.columns)) for each in shown]
        return snapshot_card(self.version, self.timestamp, rows, len(names))

    @property
    def version(self) -> int:
        """Version of the commit that it shows last."""
        return self.log.state.version

    @property
    def timestamp(self) -> datetime:
        """When that commit was made, UTC; at most the last microsecond of the year 9999."""
        state = self.log.state
        return as_datetime(dated(state.properties, state.version, state.timestamp_us))

    def lease(self, duration: timedelta, required: bool = True) -> ReaderLease[Snapshot]:
        """Keep the version readable for this duration, or until the end of the lease's ``with`` block.

        Parameters
        ----------
        duration
            From now on; `ReaderLease.renew` adds to it.
        required
            Whether to fail where the lease cannot be written. Else the snapshot is read without it, and is
            kept as long as retention says: so readers do that may not write.

        Raises
        ------
        SnapshotExpiredError
            If retention has passed the version.
        StorageError, CommitUnknownError
            If the lease could not be written, and is required.

        Notes
        -----
        One commit, and another one at the end.
        """
        if self._take_lease is None:
            raise InvalidInputError(
                "Cannot lease this snapshot: it is not one of a store that can be leased from.",
                hint="Take the lease of `store.snapshot(version)`.",
            )
        return self._take_lease(self, duration, required)

    def reopen(self, missing: ObjectNotFoundError) -> None:
        """Reopen the same version on the retained objects; see `spark_pages.log.reopen`."""
        check_kind(missing, ObjectNotFoundError, "missing", "an ObjectNotFoundError")
        if self._open_again is None:
            raise missing
        self.log = self._open_again(self.version)

    def __getitem__(self, name: str) -> Table:
        """Return a table; see `table`."""
        return self.table(name)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the tables."""
        return iter(self.tables())

    def __contains__(self, name: object) -> bool:
        """Whether there is a table of this name."""
        try:
            return isinstance(name, str) and self.table(name) is not None
        except (TableNotFoundError, InvalidInputError):
            return False

    def dataset(self, name: str) -> TableDataset:
        """Return a table as a dataset for pyarrow, DuckDB and Polars; see `Table.dataset`."""
        return self.table(name).dataset()

    def duckdb(self) -> DuckDBPyConnection:
        """Open a DuckDB database in memory, in which each table is a view.

        Returns
        -------
        duckdb.DuckDBPyConnection
            A connection of your own: join with files and frames, use parameters, SUMMARIZE and PIVOT. Tables
            of the namespace ``ns`` are called ``ns.table``.

        Raises
        ------
        MissingDependencyError
            If DuckDB is not installed.

        Notes
        -----
        Reads no page. Columns, conditions and limits of a query reach the pages; counting rows reads none.
        """
        if self._connect_duckdb is None:
            raise InvalidInputError(
                "Cannot open a DuckDB database of this snapshot: a transaction has not committed it yet.",
                hint="Commit first, and use `store.snapshot()`.",
            )
        return self._connect_duckdb(self)

    @reopening
    def tables(self) -> list[str]:
        """Names of the tables, sorted; the system's own are left out."""
        self._on_read(CATALOG_TABLE)
        return [
            name if namespace == "default" else f"{namespace}.{name}"
            for namespace, name in self.log.table_names()
        ]

    @reopening
    def table(self, name: str) -> Table:
        """Open a table by name.

        Parameters
        ----------
        name
            ``table`` or ``namespace.table``, in any case; of several that differ by case only the one that is
            spelled exactly so. ``system.tables``, ``columns``, ``types``, ``constraints`` and
            ``namespaces`` tell of the catalog, and ``system.catalog`` is the table in which it keeps itself.

        Raises
        ------
        TableNotFoundError
            If there is none; suggests names that look like it.
        """
        namespace, own = map(fold_name, split_name(name))
        if namespace == "system" and own in SYSTEM_TABLES:
            self._on_read(CATALOG_TABLE)
            return self._system_table(own)
        try:
            definition = find_table(self.log, name)
        except NotFoundError:
            self._on_read(CATALOG_TABLE)
            raise
        return self.table_of(definition)

    def namespaces(self) -> list[Namespace]:
        """Return the namespaces, first those of every store."""
        self._on_read(CATALOG_TABLE)
        return [*BUILT_INS, *(namespace_of(each) for each in self.log.tables(NAMESPACE_NAMES))]

    def types(self) -> list[UserType]:
        """Return the user-defined types by name."""
        self._on_read(CATALOG_TABLE)
        return [user_type(each) for each in self.log.tables(TYPE_NAMES)]

    def table_of(self, definition: TableDefinition) -> Table:
        """Open the table of a definition of this version."""
        check_kind(definition, TableDefinition, "definition", "a TableDefinition")
        self._on_read(definition.table_id)

        def directory_as_of(timestamp_us: int) -> PageDirectory:
            assert self._open_snapshot is not None
            then = self._open_snapshot(timestamp=timestamp_us)
            found = same_table(then.log, definition)
            if found is None:
                raise table_missing_error(definition, then.version)
            return then.table_of(found).directory

        as_of = directory_as_of if self._open_snapshot else None
        directory = PageDirectory(self.log, definition, as_of, self._open_again)
        return Table(definition, directory, self._pages, self.log, self.table, self.find_deletion)

    def _system_table(self, name: str) -> Table:
        """One of the tables that tell of the catalog, made once."""
        known = self._system.get(name)
        if known is None:
            zero = self.table_of(find_table(self.log, "system.catalog"))
            rows = CatalogRows(zero, self.log, LAYOUTS[name].kind, on_count=self._on_read)
            known = self._system[name] = SystemTable(name, rows, self._pages, self.table)
        return known

    def watched(self, on_read: Callable[[TableId], object]) -> Snapshot:
        """Return a snapshot that reports each requested table; table 0 stands for the catalog.

        Parameters
        ----------
        on_read
            Told the id of a table before it is handed out, and of each whose rows ``system.tables`` counts.
        """
        shown = Snapshot(self.log, self._pages, self._open_snapshot, self._take_lease, self._open_again)
        shown._on_read, shown.find_deletion = on_read, self.find_deletion
        return shown

    def uncommitted(self, open_again: Callable[[int], LogSnapshot]) -> Snapshot:
        """Return the snapshot with the staged changes of a transaction; it cannot be pickled.

        Parameters
        ----------
        open_again
            Gives the version that the transaction stands on from what is kept now, with what is staged.
        """
        shown = Snapshot(self.log, self._pages, self._open_snapshot, self._take_lease, open_again)
        shown._committed, shown.find_deletion = False, self.find_deletion
        return shown


def _ignore_read(_: TableId) -> None:
    """Nothing."""


_INTERNAL = frozenset(
    (
        "reopen",
        "table_of",
        "uncommitted",
        "watched",
    )
)
"""Methods for the library itself, which `dir` leaves out."""
