"""The tables of a store as SQL statements name them: by case or not, and at which version."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa

from spark_pages.catalog.identifiers import LogicalFieldId, match_name
from spark_pages.catalog.resolve import parse_name
from spark_pages.catalog.table_zero import CATALOG_NAME
from spark_pages.errors import InvalidInputError, NotFoundError
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.model.table import BUILT_IN, NAMESPACE_NAMES, SYSTEM_NAMESPACE
from spark_pages.sql.relations import AsOf
from spark_pages.tables.expiry import reopening
from spark_pages.tables.snapshot import Snapshot
from spark_pages.tables.system_tables import SYSTEM_TABLES
from spark_pages.tables.table import Table


class TableRelation:
    """A table at one version, as a query sees it.

    Parameters
    ----------
    table
        The table.
    """

    def __init__(self, table: Table) -> None:
        definition = table.definition
        self._table = table
        self.name: str = definition.name
        self.namespace: str = definition.namespace
        self.schema: pa.Schema = table.schema
        self.fields = {
            name: LogicalFieldId(definition.namespace_id, definition.table_id, field_id)
            for name, field_id in definition.field_ids.items()
        }

    @property
    def num_rows(self) -> int:
        """How many rows it has."""
        return self._table.num_rows

    def scan(self, columns: Sequence[str], filter: Any) -> pa.RecordBatchReader:
        """Rows that pass the filter, as a stream."""
        return self._table.scan(columns, filter=filter)


class StoreRelations:
    """The tables that one statement may name, all of them at one version but where it says otherwise.

    Parameters
    ----------
    base
        What is read where a table says no version.
    open_version
        Opens another one: by version, timestamp or tag.
    """

    def __init__(self, base: Snapshot, open_version: Callable[..., Snapshot]) -> None:
        self.base = base
        self._open = open_version
        self._opened: dict[AsOf, Snapshot] = {}

    def find(self, parts: Sequence[str], as_of: AsOf | None) -> TableRelation:
        """See `spark_pages.sql.relations.Relations`."""
        snapshot = self.base if as_of is None else self._opened.get(as_of)
        if snapshot is None:
            assert as_of is not None
            snapshot = self._open(as_of.version, as_of.timestamp, as_of.tag)
            self._opened[as_of] = snapshot
        return TableRelation(find_table(snapshot, parts))


def find_table(snapshot: Snapshot, parts: Sequence[str]) -> Table:
    """The table of a name of one part or two: spelled exactly so, else without regard to case.

    Raises
    ------
    TableNotFoundError
        If there is none.
    InvalidInputError
        If several differ by case only.

    Notes
    -----
    A name that is spelled exactly costs a look-up; another one reads the names of its namespace, once for
    each version.
    """
    if len(parts) > 2:
        raise InvalidInputError(f"{'.'.join(parts)!r} has more parts than namespace.table.")
    name = ".".join(parts)
    known = name if _is_there(snapshot, name) else known_name(snapshot, parts)
    return snapshot.table(known or name)  # which tells what looks like it


@reopening
def known_name(snapshot: Snapshot, parts: Sequence[str]) -> str | None:
    """The name of a table that there is, whatever its case; None where there is none.

    Raises
    ------
    InvalidInputError
        If several differ by case only, and none is spelled exactly so.
    """
    *given, name = parts
    namespace = given[0] if given else "default"
    alike = [
        f"{known}.{table}"
        for known, number in _namespaces(snapshot.log).items()
        if known.lower() == namespace.lower()
        for table in _names(snapshot.log, known, number).get(name.lower(), ())
    ]
    found = match_name(f"{namespace}.{name}", alike, "table")
    return None if found is None else found.removeprefix("default.")


@reopening
def _is_there(snapshot: Snapshot, name: str) -> bool:
    try:
        return snapshot.log.table(parse_name(name, snapshot.log)) is not None
    except NotFoundError:
        return False


def _namespaces(log: LogSnapshot) -> dict[str, int]:
    """Ids of namespaces, by name."""
    return {**BUILT_IN, **{each.name: each.table_id for each in log.tables(NAMESPACE_NAMES)}}


_known: WeakKeyDictionary[LogSnapshot, dict[int, dict[str, list[str]]]] = WeakKeyDictionary()


def _names(log: LogSnapshot, namespace: str, namespace_id: int) -> dict[str, list[str]]:
    """Names of the tables of a namespace, by the name without its case; kept as long as the version is."""
    kept = _known.setdefault(log, {})
    if namespace_id not in kept:
        names: dict[str, list[str]] = {}
        own = (*SYSTEM_TABLES, CATALOG_NAME) if namespace_id == SYSTEM_NAMESPACE else ()
        for name in (*(name for of, name in log.table_names() if of == namespace), *own):
            names.setdefault(name.lower(), []).append(name)
        kept[namespace_id] = names
    return kept[namespace_id]
