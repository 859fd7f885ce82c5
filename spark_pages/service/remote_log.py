"""A version of a store behind a service, asked for table by table."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from spark_pages.errors import TableNotFoundError
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.log.state import LogState, TableName
from spark_pages.model.chain import ColumnChain
from spark_pages.model.chain_tree import ChainKey
from spark_pages.model.ids import CATALOG_TABLE
from spark_pages.model.table import BUILT_IN, NAMESPACE_NAMES, TYPE_NAMES, TableDefinition

if TYPE_CHECKING:
    from spark_pages.service.remote_store import ServedStore


class ServedLog(LogSnapshot):
    """A version of which nothing is known before it is asked for, table by table.

    For what looks at several tables by their ids, such as ``system.tables``.
    """

    def __init__(self, store: ServedStore, version: int, timestamp_us: int) -> None:
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
