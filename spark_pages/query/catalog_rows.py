"""Rows of table 0 that are true at a version, of one kind, read column by column as they are asked for."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_pages.arrow.stored_types import schema_from_bytes
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.model.ids import TableId
from spark_pages.model.table import BUILT_IN, TableDefinition
from spark_pages.query.table import Table

MOST_TABLES = 1024
"""Rows of other kinds are looked up by the ids of so many tables at most; of more, all are read."""

Pushed = tuple[str, str, Any]
"""A condition on table 0."""

_NAMED = ["table_id", "namespace", "name"]


class CatalogRows:
    """The rows of table 0 of one kind that are true at a version.

    Parameters
    ----------
    zero
        Table 0 as of the version.
    log
        The version.
    kind
        Kind of the rows.
    conditions
        Only rows that meet these; pages of table 0 that they rule out are not read.
    on_count
        Told the id of each table whose rows are counted.
    """

    def __init__(
        self,
        zero: Table,
        log: LogSnapshot,
        kind: str,
        conditions: Sequence[Pushed] = (),
        on_count: Callable[[TableId], object] | None = None,
    ) -> None:
        self._zero = zero
        self.log = log
        self._kind = kind
        self._conditions = tuple(conditions)
        self._on_count = on_count

    def with_conditions(self, conditions: Sequence[Pushed]) -> CatalogRows:
        """Those of them that meet more conditions."""
        return CatalogRows(self._zero, self.log, self._kind, (*self._conditions, *conditions), self._on_count)

    def of(self, kind: str, more: Sequence[int] = ()) -> CatalogRows:
        """Return the rows of another kind at the same version, of the same tables and of some more."""
        if not self._conditions:
            return CatalogRows(self._zero, self.log, kind)
        ids = pc.unique(self.column("table_id")).to_pylist()
        if len(ids) > MOST_TABLES:
            return CatalogRows(self._zero, self.log, kind)
        return CatalogRows(self._zero, self.log, kind, [("table_id", "in", sorted({*ids, *more}))])

    @cached_property
    def numbers(self) -> NDArray[np.int64]:
        """Their row numbers in table 0."""
        known = [("kind", "==", self._kind), ("deleted_by", "is null")]
        found = self._zero.read(["row_id"], filter=[*self._conditions, *known])
        numbers: NDArray[np.int64] = found.column(0).to_numpy()
        return numbers

    def __len__(self) -> int:
        """How many rows that are."""
        return len(self.numbers)

    def num_rows_of(self, table_id: int, fields: Iterable[int]) -> int:
        """Rows of a table by the columns named: those of the shortest of them."""
        if self._on_count is not None:
            self._on_count(TableId(table_id))
        end_row = min(self.log.chain((table_id, field_id)).num_rows for field_id in fields)
        return end_row - self.log.dead_rows(table_id)

    def column(self, name: str) -> pa.Array:
        """Return a column of table 0."""
        return _one(self._zero.take(self.numbers, [name]).column(0))

    @cached_property
    def metadata(self) -> tuple[list[dict[str, Any]], NDArray[np.int64]]:
        """The different values of ``metadata``, and which of them each row has."""
        encoded = self.column("metadata").dictionary_encode()
        return [json.loads(text) for text in encoded.dictionary.to_pylist()], encoded.indices.to_numpy()

    def from_metadata(self, kind: pa.DataType, make: Callable[[dict[str, Any]], Any]) -> pa.Array:
        """Compute a column from ``metadata``, once for each different value."""
        told, indices = self.metadata
        values = pa.array([make(each) for each in told], kind)
        return values.take(pa.array(indices))

    def namespaces(self) -> pa.Array:
        """Names of their namespaces, where they are rows of tables."""
        names = {number: name for name, number in BUILT_IN.items()}
        numbers = self.column("namespace_id").dictionary_encode()
        if not names.keys() >= set(numbers.dictionary.to_pylist()):
            names |= self.log.namespace_names()
        told = pa.array([names.get(number, "") for number in numbers.dictionary.to_pylist()], pa.string())
        return told.take(numbers.indices)

    @cached_property
    def _tables(self) -> pa.Table:
        """Id, namespace and name of their tables."""
        tables = self.of("table")
        return pa.table([tables.column("table_id"), tables.namespaces(), tables.column("name")], _NAMED)

    def of_table(self, what: str) -> pa.Array:
        """Namespace or name of the table of each row."""
        places = pc.index_in(self.column("table_id"), value_set=self._tables.column("table_id"))
        return _one(self._tables.column(what).take(places))


def _one(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def definitions_of(zero: Table, tables: Sequence[int]) -> list[TableDefinition]:
    """Return tables with every column that they ever had, each named by its field id."""
    if not tables:
        return []
    columns = ["table_id", "kind", "namespace_id", "name", "field_id", "arrow_schema"]
    found: dict[int, TableDefinition] = {}
    fields: dict[int, dict[int, pa.Field]] = {table_id: {} for table_id in tables}
    for row in zero.read(columns, filter=[("table_id", "in", list(tables))]).to_pylist():
        if row["kind"] == "column":
            field = schema_from_bytes(row["arrow_schema"]).field(0)
            fields[row["table_id"]][row["field_id"]] = field.with_name(f"c{row['field_id']}")
        elif row["kind"] == "table":
            table_id = TableId(row["table_id"])
            found[table_id] = TableDefinition(table_id, row["name"], pa.schema([]), 1, row["namespace_id"])
    return [
        TableDefinition(
            each.table_id,
            each.name,
            pa.schema([field for _, field in sorted(fields[table_id].items())]),
            max(fields[table_id]) + 1,
            each.namespace_id,
        )
        for table_id, each in found.items()
    ]
