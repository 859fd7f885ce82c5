"""Tables of the latest version, directly from a store."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from spark_pages.boundary import guarded
from spark_pages.query.snapshot import Snapshot
from spark_pages.query.table import Table


@guarded()
class LatestTables:
    """Methods of a store that read its latest version. Each call looks for newer commits first."""

    snapshot: Callable[..., Snapshot]

    @property
    def version(self) -> int:
        """Latest version of the store."""
        return self.snapshot().version

    def tables(self) -> list[str]:
        """List the tables of the latest version; see `Snapshot.tables`."""
        return self.snapshot().tables()

    def table(self, name: str) -> Table:
        """Return a table of the latest version; see `Snapshot.table`.

        Notes
        -----
        For several reads that must agree, open one `snapshot` and read from it.
        """
        return self.snapshot().table(name)

    def __getitem__(self, name: str) -> Table:
        """Return a table of the latest version; see `table`."""
        return self.table(name)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the tables."""
        return iter(self.tables())

    def __contains__(self, name: object) -> bool:
        """Whether the latest version has a table of this name."""
        return name in self.snapshot()
