"""The tables of a store as SQL statements name them: by case or not, and at which version."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from spark_pages.catalog.resolve import logical_fields
from spark_pages.query.predicates.evaluate import passing
from spark_pages.query.predicates.expression_tree import expression_parts
from spark_pages.query.snapshot import Snapshot
from spark_pages.query.table import Table
from spark_pages.query.table_names import table_called
from spark_pages.sql.relations import AsOf


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
        self.fields = logical_fields(definition)

    @property
    def num_rows(self) -> int:
        """How many rows it has."""
        return self._table.num_rows

    def scan(self, columns: Sequence[str], filter: Any) -> pa.RecordBatchReader:
        """Rows that pass the filter, as a stream."""
        return self._table.scan(columns, filter=filter)

    def passing(self, rows: pa.Table, filter: Any) -> pa.Table:
        """Those of some rows that pass a filter."""
        return passing(rows, expression_parts(filter).predicate)


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
        return TableRelation(table_called(snapshot, parts))
