"""Temporary tables of SQL: rows in memory, known by name to one handle of a store."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any

import pyarrow as pa

from spark_pages.catalog.identifiers import LogicalFieldId
from spark_pages.errors import TableExistsError
from spark_pages.model.ids import FieldId, TableId
from spark_pages.model.names import fold_name
from spark_pages.query.predicates.evaluate import passing
from spark_pages.query.predicates.expression_tree import expression_parts

NAMESPACE = "temp"


class MemoryRelation:
    """Rows in memory as a query sees them; see `spark_pages.sql.relations.Relation`."""

    namespace = NAMESPACE
    hidden: frozenset[str] = frozenset()

    def __init__(self, name: str, rows: pa.Table, number: int) -> None:
        self.name = name
        self.rows = rows
        self.schema: pa.Schema = rows.schema
        self.fields = {
            column: LogicalFieldId(-2, TableId(-1 - number), FieldId(place))
            for place, column in enumerate(rows.column_names)
        }

    @property
    def num_rows(self) -> int:
        """How many rows it has."""
        return int(self.rows.num_rows)

    def scan(self, columns: Sequence[str], filter: Any) -> pa.RecordBatchReader:
        """Stream the rows that pass the filter."""
        kept = self.rows if filter is None else self.passing(self.rows, filter)
        return kept.select(list(columns)).to_reader()

    def passing(self, rows: pa.Table, filter: Any) -> pa.Table:
        """Select the rows that pass a filter."""
        return passing(rows, expression_parts(filter).predicate)


class TemporaryTables:
    """The temporary tables of a handle. Safe to share between threads."""

    def __init__(self) -> None:
        self._tables: dict[str, MemoryRelation] = {}
        self._made = 0
        self._lock = Lock()

    def __reduce__(self) -> tuple[type[TemporaryTables], tuple[()]]:
        """Pickled without its tables, which are of one process."""
        return (TemporaryTables, ())

    def find(self, name: Sequence[str]) -> MemoryRelation | None:
        """Return the table of a name, with ``temp`` before it or without, in any case."""
        if len(name) == 2 and fold_name(name[0]) != NAMESPACE:
            return None
        return self._tables.get(fold_name(name[-1])) if len(name) <= 2 else None

    def create(self, name: str, rows: pa.Table, replace: bool = False) -> None:
        """Add a table.

        Raises
        ------
        TableExistsError
            If there is one of that name, and it is not to be replaced.
        """
        with self._lock:
            if fold_name(name) in self._tables and not replace:
                raise TableExistsError(
                    f"Cannot create temporary table {name!r}: there is one of that name.",
                    hint="Choose another name, or write CREATE OR REPLACE TEMP TABLE.",
                    table=name,
                )
            self._made += 1
            self._tables[fold_name(name)] = MemoryRelation(name, rows, self._made)

    def append(self, table: MemoryRelation, rows: pa.Table) -> None:
        """Add rows to a table."""
        with self._lock:
            found = self._tables.get(fold_name(table.name), table)
            found.rows = pa.concat_tables([found.rows, rows])

    def drop(self, name: Sequence[str]) -> None:
        """Remove a table, if there is one."""
        with self._lock:
            self._tables.pop(fold_name(name[-1]), None)
