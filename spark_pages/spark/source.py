"""The data source ``spark_pages``: what Spark's ``format("spark_pages")`` makes of its options.

Start at `SparkPagesDataSource`, which pins a version. Rows are read in `rows`, metadata in `views`, streams
in `stream`; rows are written in `writer`. Options are read in `options`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import PySparkTypeError
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from spark_pages.catalog.resolve import find_columns
from spark_pages.errors import (
    InvalidInputError,
    SparkPagesError,
)
from spark_pages.query.scan import ROW
from spark_pages.query.snapshot import Snapshot
from spark_pages.query.table import Table
from spark_pages.query.table_names import spelled
from spark_pages.spark.arrow_types import check_precision, schema_of_rows, spark_schema, to_spark
from spark_pages.spark.feed import split_versions, version_range
from spark_pages.spark.options import STREAM_USES, SourceOptions, ViewQuery, WriteOptions
from spark_pages.spark.rows import RowsReader, may_be_null
from spark_pages.spark.serialization import store_of
from spark_pages.spark.streams import ChangeStream, RefusedStream, TableStream
from spark_pages.spark.value_feed import ChangedRows
from spark_pages.spark.views import VIEWS, ViewPartition, ViewReader
from spark_pages.spark.worker_boundary import worker_boundary
from spark_pages.spark.writing import TaskRows, WritePlan, commit_write, plan_write, write_task


@worker_boundary
class SparkPagesDataSource(DataSource):
    """Data source of ``spark.read``, ``df.write``, ``spark.readStream`` and ``df.writeStream``.

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
        """Return the name of the format."""
        return "spark_pages"

    def schema(self) -> StructType:
        """Columns of the view, in Spark's types."""
        self._given.check_read()
        query = self._query()
        if query.values:
            return _struct_of(spark_schema(self._changed_rows().schema), self._table().name)
        if query.view != "rows":
            return from_arrow_schema(spark_schema(VIEWS[query.view].schema(query)))
        table = self._table()
        names = find_columns(table.definition, self._given.columns())
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InvalidInputError(
                f"Cannot read {', '.join(map(repr, twice))} of table {table.name!r} more than once: "
                "expected each column once in the option columns.",
                hint="Double it in the frame, by `select(…)`.",
            )
        table.filter_columns(self._given.filter())  # refused where the frame is made, not when it runs
        fields = [table.schema.field(name) for name in names]
        if self._given.infers_nullability():
            fields = [each.with_nullable(each.nullable and may_be_null(table, each.name)) for each in fields]
        if self._given.numbers_rows():
            fields.append(pa.field(ROW, pa.int64(), nullable=False))
        return _struct_of(spark_schema(pa.schema(fields)), table.name)

    # reading

    def reader(self, schema: StructType) -> DataSourceReader:
        """Create a reader of the pinned version.

        Raises
        ------
        InvalidInputError
            If the frame was given a schema.
        """
        self._no_schema_given()
        query = self._query()
        of_streams = ["maxVersionsPerTrigger"]
        if query.view == "rows":
            of_streams += ["startingVersion", "endingVersion"]
        for option in of_streams:
            if self._given.number(option) is not None:
                raise InvalidInputError(
                    f"Cannot use {option} here: it is an option of streams.",
                    hint=f"Leave {option} out, or use `spark.readStream`.",
                )
        if query.values:
            head = store_of(self._url).snapshot(query.version).log
            versions = version_range(head, query.starting, query.ending)
            return ChangedRowsReader(self._changed_rows(), versions, schema)
        if query.view == "rows":
            partitions = self._given.number("partitions") or 0
            numbered = self._given.numbers_rows()
            return RowsReader(self._url, self._table(), schema, partitions, self._given.filter(), numbered)
        return ViewReader(self._url, query, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Create a reader of the change feed, or of the rows of a table."""
        try:
            self._no_schema_given()
            query = self._query()
            if query.view not in ("changes", "rows"):
                raise InvalidInputError(
                    f"Cannot read the view {query.view!r} as a stream: rows and changes alone can be.",
                    hint='Pass .option("view", "rows") or .option("view", "changes").',
                )
            self._given.check_use(STREAM_USES[query.view])
            most = self._given.number("maxVersionsPerTrigger")
            if query.view == "rows":
                rows = replace(self._changed_rows(), inserted_only=True)
                return TableStream(self._url, query, schema, most, rows)
            if query.values:
                return ChangeStream(self._url, query, schema, most, self._changed_rows())
        except SparkPagesError as error:
            return RefusedStream(error)  # Spark hides what is raised here behind an error of its own
        return ChangeStream(self._url, query, schema, most)

    def _changed_rows(self) -> ChangedRows:
        return ChangedRows(self._url, self._table().definition)

    def _no_schema_given(self) -> None:
        """Spark asks for the schema, and the version is pinned with it, unless it was given one."""
        if self._version is None:
            raise InvalidInputError(
                "Cannot read a table with a schema of the caller: it has its own.",
                hint="Leave `schema(…)` out; choose and cast columns of the frame by `select(…)`.",
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
                "Cannot read the view 'rows': no table was named.",
                hint='Name it with `.option("table", "…")`.',
            )
        return self._snapshot().table(name)

    # writing

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Create a writer into a table as it is now."""
        self._given.check_use("a write")
        options = self._given.write("spark write")
        options.check_pair()
        return TableWriter(self._plan(schema, overwrite, options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Create a writer of micro-batches into a table."""
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
                f"Cannot read column {field.name!r} of table {table!r} in Spark: it has no type for "
                f"{field.type}.",
                hint="Name the columns to read by the option `columns`.",
            ) from error
    return StructType(fields)


_QUERY = "sql.streaming.queryId"


@dataclass
class RowsWritten(WriterCommitMessage):
    """What one task has written.

    Attributes
    ----------
    task
        Where its rows are.
    query
        Id of the streaming query, which stays the same when it is started again from its checkpoint.
    """

    task: TaskRows
    query: str | None = None


def _write(plan: WritePlan, batches: Iterator[pa.RecordBatch]) -> RowsWritten:
    context = TaskContext.get()
    assert context is not None, "Spark writes in tasks"
    return RowsWritten(write_task(plan, context.partitionId(), batches), context.getLocalProperty(_QUERY))


@worker_boundary
class TableWriter(DataSourceArrowWriter):
    """Writes a frame into a table, in one commit."""

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task where nothing names them yet."""
        return _write(self._plan, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All rows are in the table."""
        commit_write([each.task for each in messages if isinstance(each, RowsWritten)], self._plan)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing is in the table. What tasks have written stays for vacuum: a commit may be in doubt."""


def _of_batch(plan: WritePlan, query: str | None, batch: int) -> WritePlan:
    assert query, "Spark tells tasks of a stream which query it is"
    return replace(plan, options=replace(plan.options, app_id=f"spark-stream-{query}", app_version=batch))


@worker_boundary
class TableStreamWriter(DataSourceStreamArrowWriter):
    """Writes each micro-batch into a table, in one commit, exactly once.

    Parameters
    ----------
    plan
        What tasks do. Spark makes one writer where it plans and another where it commits: what counts is the
        plan that the tasks were given.
    """

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task where nothing names them yet."""
        return _write(self._plan, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Commit a batch once: a repeated batch is found in the log by query and number."""
        told = [each for each in messages if isinstance(each, RowsWritten)]
        commit_write(
            [replace(each.task, plan=_of_batch(each.task.plan, each.query, batchId)) for each in told]
        )

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing of the batch is in the table."""


@worker_boundary
class ChangedRowsReader(DataSourceReader):
    """Reads changed rows of a table with their values.

    Parameters
    ----------
    rows, versions, schema
        What reads them, the first and the last version, and the columns in Spark's types.
    """

    def __init__(self, rows: ChangedRows, versions: tuple[int, int], schema: StructType) -> None:
        self._rows = rows
        self._versions = versions
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Split the versions among tasks."""
        return [ViewPartition(versions=each, feed=self._rows) for each in split_versions(*self._versions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the changed rows of one task as Arrow batches."""
        if isinstance(partition, ViewPartition):
            target = to_arrow_schema(self._schema, timezone="UTC")
            for batch in self._rows.batches(*partition.versions):
                yield to_spark(batch.select(target.names), target)
