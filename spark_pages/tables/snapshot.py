"""A snapshot: every table of the store as of one version."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from spark_pages.catalog.resolve import find_table, show_name
from spark_pages.catalog.table_zero import SYSTEM_NAMESPACE
from spark_pages.io import PageHandler
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.model.table import TableDefinition
from spark_pages.tables.directory import PageDirectory
from spark_pages.tables.table import Table


class Snapshot:
    """The store as of one version. Immutable; cheap to open and to keep.

    Attributes
    ----------
    version
        Its version.
    timestamp
        When that version was committed, UTC.
    """

    def __init__(
        self, log: LogSnapshot, pages: PageHandler, as_of: Callable[[int], Snapshot] | None = None
    ) -> None:
        self.log = log
        self._pages = pages
        self._as_of = as_of

    def __repr__(self) -> str:
        time = f"{self.timestamp:%Y-%m-%d %H:%M:%S}"
        return f"Snapshot(version {self.version}, {time}, {len(self.tables())} tables)"

    def _repr_html_(self) -> str:
        rows = "".join(f"<li>{self.table(name)!r}</li>" for name in self.tables())
        return f"<b>version {self.version}</b> · {self.timestamp:%Y-%m-%d %H:%M:%S} UTC<ul>{rows}</ul>"

    @property
    def version(self) -> int:
        """Version of the commit that it shows last."""
        return self.log.state.version

    @property
    def timestamp(self) -> datetime:
        """When that commit was made, UTC."""
        return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=self.log.state.timestamp_us)

    def tables(self) -> list[str]:
        """Names of the tables, sorted; the system's own are left out."""
        return [show_name(d) for d in self.log.tables() if d.namespace_id != SYSTEM_NAMESPACE]

    def table(self, name: str) -> Table:
        """A table by name.

        Parameters
        ----------
        name
            ``table`` or ``namespace.table``; ``system.catalog`` is the catalog's own table.

        Raises
        ------
        TableNotFoundError
            If there is none; suggests names that look like it.
        """
        return self.table_of(find_table(self.log, name))

    def table_of(self, definition: TableDefinition) -> Table:
        """The table that a definition of this version describes."""

        def directory_as_of(timestamp_us: int) -> PageDirectory:
            assert self._as_of is not None
            return self._as_of(timestamp_us).table(show_name(definition)).directory

        as_of = directory_as_of if self._as_of else None
        return Table(definition, PageDirectory(self.log, definition, as_of), self._pages)
