"""Names of the page files of one transaction: by table, in the place that its namespace says."""

from __future__ import annotations

from spark_pages.catalog.namespaces import location_of
from spark_pages.format.names import page_file_key
from spark_pages.format.page_folders import PageFolders
from spark_pages.log.state import TableName
from spark_pages.model.ids import TableId
from spark_pages.model.table import BUILT_IN, NAMESPACE_NAMES, TableDefinition
from spark_pages.transaction.read_version import ReadVersion
from spark_pages.transaction.staged import StagedChanges, TransactionInfo


class PageFileNames:
    """The page files of one transaction.

    Parameters
    ----------
    heading
        Of the transaction; names bear its token.
    work, standing
        What is staged, and on which version. Names bear its number, by which vacuum judges them.
    """

    def __init__(self, heading: TransactionInfo, work: StagedChanges, standing: ReadVersion) -> None:
        self._heading = heading
        self._work = work
        self._standing = standing
        self._count = 0

    @property
    def count(self) -> int:
        """Number of names given so far."""
        return self._count

    def next(self, definition: TableDefinition | None) -> str:
        """Key of the next page file, for pages of a table or of any."""
        self._count += 1
        folder = location_of(None if definition is None else self.namespace(definition))
        return self._name(self._count - 1, folder)

    def next_for(self, table_id: TableId) -> str:
        """Key of the next page file for a table that is written to."""
        return self.next(self._work.definitions.get(table_id))

    def is_of_another(self, key: str) -> bool:
        """Whether the key is that of a page file of another transaction, which vacuum may delete."""
        folders = PageFolders.of(
            {
                **self._standing.base.state.properties,
                **{name: value for name, value in self._work.properties.items() if value is not None},
            }
        )
        folder = key.rpartition("/")[0]
        own = any(key == self._name(number, folder) for number in range(self._count))
        return folders.epoch_of(key) is not None and not own

    def namespace(self, definition: TableDefinition) -> TableDefinition | None:
        """What tells of the namespace of a table, where users made that."""
        if definition.namespace_id in BUILT_IN.values():
            return None
        work = self._work
        name: TableName = (NAMESPACE_NAMES, definition.namespace)
        return work.created.get(name) or work.ddl.find(name) or self._standing.base.table(name)

    def _name(self, number: int, folder: str) -> str:
        return page_file_key(self._standing.version, self._heading.token, number, folder)
