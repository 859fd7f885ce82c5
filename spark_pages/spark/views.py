"""The views of metadata: page descriptors, transactions and tables as rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from spark_pages.model.run import PAGE_SCHEMA
from spark_pages.spark.arrow_types import spark_type, to_spark
from spark_pages.tables.history import history_table
from spark_pages.tables.snapshot import Snapshot
from spark_pages.tables.store import Store
from spark_pages.tables.store import open as open_store


@dataclass(frozen=True, eq=False, slots=True)
class View:
    """A view of metadata.

    Attributes
    ----------
    schema
        Its columns, in Arrow's types.
    show
        Gives the rows of a snapshot of the store, of one table or of all.
    """

    schema: pa.Schema
    show: Callable[[Store, Snapshot, str | None], pa.Table]


@dataclass(frozen=True)
class ViewPartition(InputPartition):
    """What one task shows; `table` is None where that is all tables."""

    table: str | None


class ViewReader(DataSourceReader):
    """Reads a view of metadata at a pinned version.

    Parameters
    ----------
    url, view, version, table, schema
        The store, one of `VIEWS`, the version, the only table to show or None, and the columns in Spark's
        types.
    """

    def __init__(self, url: str, view: str, version: int, table: str | None, schema: StructType) -> None:
        self._url = url
        self._view = view
        self._version = version
        self._table = table
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """One task, or for pages one for each table."""
        if self._view != "pages" or self._table:
            return [ViewPartition(self._table)]
        names = open_store(self._url).snapshot(self._version).tables()
        return [ViewPartition(name) for name in names]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of the view."""
        if not isinstance(partition, ViewPartition):
            return
        store = open_store(self._url)
        view = VIEWS[self._view]
        target = to_arrow_schema(self._schema, timezone="UTC")
        shown = view.show(store, store.snapshot(self._version), partition.table)
        for batch in shown.select(view.schema.names).cast(view.schema).to_batches():
            yield to_spark(batch.select(target.names), target)


_TABLES_SCHEMA = pa.schema(
    [
        ("table", pa.string()),
        ("table_id", pa.int64()),
        ("num_rows", pa.int64()),
        ("num_columns", pa.int32()),
        ("num_pages", pa.int64()),
    ]
)


def _show_pages(_: Store, snapshot: Snapshot, table: str | None) -> pa.Table:
    assert table is not None, "pages are shown table by table"
    pages = snapshot.table(table).pages()
    return pages.add_column(0, "table", pa.repeat(pa.scalar(table), pages.num_rows))


def _show_history(store: Store, snapshot: Snapshot, _: str | None) -> pa.Table:
    history = store.history()
    return history.filter(pc.less_equal(history.column("version"), snapshot.version))


def _show_tables(_: Store, snapshot: Snapshot, table: str | None) -> pa.Table:
    tables = [snapshot.table(name) for name in ([table] if table else snapshot.tables())]
    rows = [
        {
            "table": each.name,
            "table_id": each.definition.table_id,
            "num_rows": each.num_rows,
            "num_columns": len(each.columns),
            "num_pages": sum(each.directory.chain(column).num_pages for column in each.columns),
        }
        for each in tables
    ]
    return pa.Table.from_pylist(rows, schema=_TABLES_SCHEMA)


VIEWS = {
    "pages": View(
        pa.schema(
            [
                ("table", pa.string()),
                ("column", pa.string()),
                ("position", pa.int64()),
                ("first_row", pa.int64()),
                *((f.name, spark_type(f.type)) for f in PAGE_SCHEMA if f.name != "data"),
                ("null_count", pa.int64()),
            ]
        ),
        _show_pages,
    ),
    "history": View(history_table(()).schema, _show_history),
    "tables": View(_TABLES_SCHEMA, _show_tables),
}
"""By name."""
