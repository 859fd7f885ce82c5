"""The data source ``spark_pages``: what Spark's ``format("spark_pages")`` makes of its options.

Start at `SparkPagesDataSource`, which pins a version. Rows are read in `rows`, metadata in `views`, streams
in `stream`; rows are written in `writer`. Options are read in `options`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

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
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from spark_pages.catalog.resolve import find_columns, find_table
from spark_pages.changes.feed import find_table_id
from spark_pages.errors import (
    InvalidInputError,
    SparkPagesError,
    StoreReplacedError,
    TableNotFoundError,
    VersionNotFoundError,
)
from spark_pages.log.log import Log
from spark_pages.model.ids import TableId
from spark_pages.query.snapshot import Snapshot
from spark_pages.query.table import Table
from spark_pages.query.table_names import spelled
from spark_pages.runtime import Runtime
from spark_pages.spark.arrow_types import check_precision, schema_of_rows, spark_schema, to_spark
from spark_pages.spark.feed import FEED_SCHEMAS, Feed, check_granularity, first_changes, split_versions
from spark_pages.spark.options import SourceOptions, ViewQuery, WriteOptions
from spark_pages.spark.rows import RowsReader, may_be_null
from spark_pages.spark.serialization import objects_of, store_of
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
        if self._given.number("maxVersionsPerTrigger") is not None:
            raise InvalidInputError(
                "Cannot use maxVersionsPerTrigger here: it is an option of streams.",
                hint="Leave maxVersionsPerTrigger out, or use `spark.readStream`.",
            )
        query = self._query()
        if query.view == "rows":
            partitions = self._given.number("partitions") or 0
            return RowsReader(self._url, self._table(), schema, partitions, self._given.filter())
        return ViewReader(self._url, query, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Create a reader of the change feed."""
        try:
            self._no_schema_given()
            query = self._query()
            if query.view != "changes":
                raise InvalidInputError(
                    f"Cannot read the view {query.view!r} as a stream: the change feed alone can be.",
                    hint='Name it with .option("view", "changes"), and read the rows of the versions that it '
                    'tells with .option("versionAsOf", …).',
                )
            self._given.check_use("a stream that is read")
        except SparkPagesError as error:
            return RefusedStream(error)  # Spark hides what is raised here behind an error of its own
        return ChangeStream(self._url, query, schema, self._given.number("maxVersionsPerTrigger"))

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
class RefusedStream(DataSourceStreamReader):
    """Raises an error when Spark begins to read.

    Parameters
    ----------
    error
        Why there is no stream.
    """

    def __init__(self, error: SparkPagesError) -> None:
        self._error = error

    def initialOffset(self) -> dict[str, Any]:
        """Raise the error: of a new query."""
        raise self._error

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002
        """Raise the error: of a query that goes on from its checkpoint location."""
        raise self._error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:  # noqa: ARG002
        """Raise the error: of a query that repeats a micro-batch."""
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        """Raise the error; no partition leads here."""
        raise self._error


Offset: TypeAlias = dict[str, Any]
"""``version``, ``store``, and ``token`` once one was told, and ``table_id`` of a table that was asked for."""


@worker_boundary
class ChangeStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the change feed, some versions in each micro-batch.

    Parameters
    ----------
    url, query, schema
        The store, what is asked for, and the columns in Spark's types.
    max_versions
        Of one micro-batch, at most; None for no bound.
    """

    def __init__(self, url: str, query: ViewQuery, schema: StructType, max_versions: int | None) -> None:
        self._url = url
        self._query = query
        self._schema = schema
        self._max_versions = max_versions
        self._last: int | None = None

    def initialOffset(self) -> Offset:
        """Return the version before the first one to report."""
        first = self._query.starting
        if first is None:
            first = first_changes(store_of(self._url).snapshot().log.state)
        first -= 1
        table_id = self._table_at(first)
        offset = {"version": first, "store": self._log().store_id}
        return offset if table_id is None else {**offset, "table_id": table_id}

    def getDefaultReadLimit(self) -> ReadLimit:
        """So many versions; Spark counts files where it means them."""
        return ReadMaxFiles(self._max_versions) if self._max_versions else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Leave later commits to the next run."""
        self._last = self._newest()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return the last version of the next micro-batch; `start` if there is none yet.

        Raises
        ------
        VersionNotFoundError
            If the log at the address is not the one that the stream has read so far.
        """
        newest = self._newest() if self._last is None else self._last
        if isinstance(limit, ReadMaxFiles):
            newest = min(newest, start["version"] + limit.max_files)
        if newest <= start["version"]:
            self._check_log(start)
            return start
        return {**start, "version": newest, "token": self._log().token_of(newest)}

    def reportLatestOffset(self) -> Offset:
        """Return the newest version, for the progress of the query."""
        return {"version": self._newest()}

    def _log(self) -> Log:
        return Log(objects_of(self._url), Runtime())

    def _newest(self) -> int:
        newest = store_of(self._url).snapshot().version
        return newest if self._query.ending is None else min(newest, self._query.ending)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """One task for so many versions.

        Raises
        ------
        SnapshotExpiredError
            If retention has passed the versions that are next; hold them by a tag or a lease.
        InvalidInputError
            If the table was dropped, and another one has its name.
        VersionNotFoundError
            If the log at the address is not the one that the stream has read so far.
        """
        for offset in (start, end):
            self._check_log(offset)
        first, last = start["version"], end["version"]
        followed = start.get("table_id")
        table_id = self._table_at(first) if followed is None else self._check_table(followed)
        feed = Feed(self._url, check_granularity(self._query.granularity), table_id)
        return [ViewPartition(versions=each, feed=feed) for each in split_versions(first + 1, last)]

    def _table_at(self, first: int) -> int | None:
        """Resolve the table by its current name, or by its name at the start of the micro-batch.

        A stream may start with a version that does not exist yet.
        """
        if self._query.table is None:
            return None
        store = store_of(self._url)
        now = store.snapshot()
        then = store.snapshot(first).log if 0 <= first < now.version else None
        return find_table_id(now.log, then, self._query.table)

    def _check_log(self, offset: Offset) -> None:
        """Raise if the log no longer holds what was read.

        Stores are deleted and created again, or restored from a backup.
        """
        version, token = offset["version"], offset.get("token")
        store_id = offset.get("store", "")  # checkpoint locations of earlier releases have none
        if token is None and not store_id:
            return
        log = self._log()
        head = log.refresh().state
        newest = head.version
        if store_id and head.store_id != store_id:
            raise StoreReplacedError(
                f"Cannot go on with the stream of {log.store.url}: the store that it has read was "
                "replaced by another one. Nothing of that was read.",
                hint="Put back the store that was there; or start a stream with another "
                "`checkpointLocation`.",
                url=log.store.url,
            )
        if token is None:  # nothing was told yet
            return
        if version > newest:
            found = f"the newest version there is {newest}"
        elif (now := log.token_of(version)) != token:
            found = f"version {version} there is commit {now}, and {newest} is the newest"
        else:
            return
        raise VersionNotFoundError(
            f"Cannot go on with the stream of {log.store.url}: it has read version {version}, commit "
            f"{token}, and the store has {found} now, so it was made anew, or is an older copy. "
            "Nothing of it was read.",
            hint="Put back the store that was there; or start a stream with another `checkpointLocation`.",
            version=version,
            newest=newest,
        )

    def _check_table(self, followed: int) -> int:
        """Return the table that the stream follows, renamed or dropped.

        Raise if another table has its name.
        """
        try:
            named = find_table(store_of(self._url).snapshot().log, str(self._query.table)).table_id
        except TableNotFoundError:
            named = TableId(followed)
        if named != followed:
            raise InvalidInputError(
                f"Cannot go on with the stream of {self._query.table!r}: a table was made since under "
                "the name of the one that it has read. Nothing of either was read.",
                hint="Start a stream with another `checkpointLocation` for the new table.",
            )
        return followed

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the changes of the versions of one task."""
        if not isinstance(partition, ViewPartition) or partition.feed is None:
            return
        target = to_arrow_schema(self._schema, timezone="UTC")
        told = partition.feed.read(*partition.versions).cast(FEED_SCHEMAS[partition.feed.granularity])
        for batch in told.to_batches():
            yield to_spark(batch.select(target.names), target)

    def commit(self, end: Offset) -> None:
        """Nothing: the store keeps what retention says."""
