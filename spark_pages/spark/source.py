"""The data source ``spark_pages``: what Spark's ``format("spark_pages")`` makes of its options.

Start at `SparkPagesDataSource`, which pins a version. Rows are read in `rows`, metadata in `views`, streams
in `stream`; rows are written in `writer`. Options are read in `options`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from spark_pages.catalog.resolve import find_columns
from spark_pages.errors import InvalidInputError
from spark_pages.query.snapshot import Snapshot
from spark_pages.query.table import Table
from spark_pages.query.table_names import spelled
from spark_pages.spark.arrow_types import check_precision, schema_of_rows, spark_schema
from spark_pages.spark.options import SourceOptions, ViewQuery, WriteOptions
from spark_pages.spark.rows import RowsReader, may_be_null
from spark_pages.spark.serialization import store_of
from spark_pages.spark.stream import ChangeStream
from spark_pages.spark.views import VIEWS, ViewReader
from spark_pages.spark.writer import TableStreamWriter, TableWriter
from spark_pages.spark.writing import WritePlan, plan_write


class SparkPagesDataSource(DataSource):
    """``spark.read``, ``df.write``, ``spark.readStream`` and ``df.writeStream`` with
    ``format("spark_pages")``.

    Notes
    -----
    The path is the address of the store; the options are those of `spark_pages.spark.options`. Credentials
    come from the environment of driver and executors, or from a profile that each of them looks up, never
    from options.

    The version is pinned here, by ``load``: Spark makes one source for it. What a reader has planned for one
    query Spark 4.2 may use for all others of that ``load``. So a reader knows nothing of any one of them.
    """

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._given = SourceOptions(self.options)
        self._url = self._given.url()
        self._pinned: Snapshot | None = None
        self._version: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pinned": None}  # the version travels, not what was loaded of it

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "spark_pages"

    def schema(self) -> StructType:
        """Columns of the view, in Spark's types."""
        self._given.check_read()
        query = self._query()
        if query.view != "rows":
            return from_arrow_schema(spark_schema(VIEWS[query.view].schema(query)))
        table = self._table()
        names = find_columns(table.definition, self._given.columns())
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InvalidInputError(
                f"The option columns names {', '.join(map(repr, twice))} of table {table.name!r} more than "
                f"once: expected each column once.",
                hint="Double it in the frame, by select(...).",
            )
        table.filter_columns(self._given.filter())  # refused where the frame is made, not when it runs
        fields = [table.schema.field(name) for name in names]
        if self._given.finds_nullability():
            fields = [each.with_nullable(each.nullable and may_be_null(table, each.name)) for each in fields]
        return _struct_of(spark_schema(pa.schema(fields)), table.name)

    # reading

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the version that was pinned.

        Raises
        ------
        InvalidInputError
            If the frame was given a schema.
        """
        self._no_schema_given()
        if self._given.number("maxVersionsPerTrigger") is not None:
            raise InvalidInputError("maxVersionsPerTrigger is an option of streams: leave it out.")
        query = self._query()
        if query.view == "rows":
            partitions = self._given.number("partitions") or 0
            return RowsReader(self._url, self._table(), schema, partitions, self._given.filter())
        return ViewReader(self._url, query, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A reader of the change feed."""
        self._no_schema_given()
        self._given.check_use("a stream that is read")
        query = self._query()
        if query.view != "changes":
            raise InvalidInputError(
                f"The view {query.view!r} cannot be read as a stream.",
                hint='Ask for .option("view", "changes").',
            )
        return ChangeStream(self._url, query, schema, self._given.number("maxVersionsPerTrigger"))

    def _no_schema_given(self) -> None:
        """Spark asks for the schema, and the version is pinned with it, unless it was given one."""
        if self._version is None:
            raise InvalidInputError(
                "A table has its own schema, and none can be given to read it.",
                hint="Leave schema(...) out; choose and cast columns of the frame by select(...).",
            )

    def _query(self) -> ViewQuery:
        query = self._given.query(self._snapshot().version)
        if query.table is None:
            return query
        return replace(query, table=spelled(self._snapshot(), query.table.split(".")))

    def _snapshot(self) -> Snapshot:
        if self._pinned is None:
            store = store_of(self._url)
            self._pinned = (
                self._given.snapshot(store) if self._version is None else store.snapshot(self._version)
            )
            self._version = self._pinned.version
        return self._pinned

    def _table(self) -> Table:
        name = self._query().table
        if not name:
            raise InvalidInputError(
                "The view 'rows' needs a table.", hint='Name it with .option("table", "…").'
            )
        return self._snapshot().table(name)

    # writing

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A writer into a table as it is now."""
        self._given.check_use("a write")
        options = self._given.write("spark write")
        options.check_pair()
        return TableWriter(self._plan(schema, overwrite, options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """A writer of micro-batches into a table."""
        self._given.check_use("a stream that is written")
        return TableStreamWriter(self._plan(schema, overwrite, self._given.write("spark stream")))

    def _plan(self, schema: StructType, overwrite: bool, options: WriteOptions) -> WritePlan:
        return plan_write(self._url, schema_of_rows(schema), overwrite, options)


def _struct_of(schema: pa.Schema, table: str) -> StructType:
    fields = []
    for field in schema:
        try:
            check_precision(field.type)
            fields += from_arrow_schema(pa.schema([field])).fields
        except (PySparkTypeError, InvalidInputError) as error:
            raise InvalidInputError(
                f"Spark has no type for column {field.name!r} of table {table!r}, which is {field.type}.",
                hint="Name the columns to read by the option columns.",
            ) from error
    return StructType(fields)
