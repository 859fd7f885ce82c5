"""A DuckDB connection of the caller's own, in which the tables of a snapshot are views."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from spark_pages.errors import InvalidInputError
from spark_pages.query.snapshot import Snapshot
from spark_pages.query.table import Table
from spark_pages.sql.engine import BATCH_ROWS, RelationDataset, RelationScanner, load_duckdb
from spark_pages.sql.table_relations import TableRelation

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def connect_duckdb(snapshot: Snapshot) -> DuckDBPyConnection:
    """Open a database in memory with a view of each table; see `Snapshot.duckdb`."""
    connection: DuckDBPyConnection = load_duckdb().connect(":memory:")
    connection.execute("SET TimeZone = 'UTC'")
    for name in snapshot.tables():
        _add_view(connection, snapshot.table(name))
    return connection


def _add_view(connection: DuckDBPyConnection, table: Table) -> None:
    """Add a view of a table. Where DuckDB cannot hold its columns, reading the view gives the reason."""
    namespace, bare = table.definition.namespace, table.definition.name
    try:
        dataset = _CountedDataset(table)
        columns = ", ".join(map(_quoted, table.columns))
        connection.from_arrow(dataset).project(columns).create_view(table.name)
    except InvalidInputError as error:
        reason = str(error).replace("'", "''")
        connection.execute(f"CREATE VIEW {_quoted(table.name)} AS SELECT error('{reason}') AS unavailable")
    if table.name != bare:
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {_quoted(namespace)}")
        connection.execute(f"CREATE VIEW {_quoted(namespace)}.{_quoted(bare)} AS FROM {_quoted(table.name)}")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class _CountedDataset(ds.Dataset):  # type: ignore[misc] # pyarrow ships no types
    """A table with one more column, which comes first and is null.

    To count rows, DuckDB reads the first column of a scan. This one needs no page.
    """

    def __init__(self, table: Table) -> None:
        # Dataset.__init__ refuses to be called. DuckDB needs no more than the class, `schema` and `scanner`.
        self._table = table
        self._rows = RelationDataset(TableRelation(table), {name: name for name in table.columns})
        self._counted = "rows" + "_" * max(map(len, table.columns), default=0)
        self._schema = self._rows.schema.insert(0, pa.field(self._counted, pa.null()))

    def __new__(cls, *_: Any) -> _CountedDataset:
        """Create the object without the constructor of pyarrow's class."""
        made: _CountedDataset = ds.Dataset.__new__(cls)
        return made

    @property
    def schema(self) -> pa.Schema:
        """Schema of the table, behind the column that counts."""
        return self._schema

    def scanner(
        self, columns: list[str] | None = None, filter: pc.Expression | None = None, **_: Any
    ) -> RelationScanner:
        """Describe one reading."""
        return RelationScanner(self, self.schema.names if columns is None else columns, filter)

    def batches(self, labels: list[str], filter: pc.Expression | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows that pass the filter."""
        read = [label for label in labels if label != self._counted]
        schema = pa.schema([self.schema.field(label) for label in labels])
        if not read and filter is None:
            for start in range(0, self._table.num_rows, BATCH_ROWS):
                count = min(BATCH_ROWS, self._table.num_rows - start)
                yield pa.RecordBatch.from_arrays([pa.nulls(count)], schema=schema)
            return
        for batch in self._rows.batches(read, filter):
            nulls = pa.nulls(batch.num_rows)
            columns = [nulls if label == self._counted else batch.column(label) for label in labels]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)
