"""Streams of a store: the change feed, and the rows of a table, some versions in each micro-batch.

Follow a stream from `ChangeStream.initialOffset` over `latestOffset` and `partitions` to `read`, which tasks
run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from spark_pages.catalog.resolve import find_table, same_table
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
from spark_pages.runtime import Runtime
from spark_pages.spark.arrow_types import to_spark
from spark_pages.spark.feed import Feed, check_granularity, first_changes, split_versions
from spark_pages.spark.options import ViewQuery
from spark_pages.spark.rows import RowsReader
from spark_pages.spark.serialization import objects_of, store_of
from spark_pages.spark.value_feed import ChangedRows
from spark_pages.spark.views import ViewPartition
from spark_pages.spark.worker_boundary import worker_boundary


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
    rows
        Reads changed rows with their values; None for ranges of rows, or pages.
    """

    def __init__(
        self,
        url: str,
        query: ViewQuery,
        schema: StructType,
        max_versions: int | None,
        rows: ChangedRows | None = None,
    ) -> None:
        self._rows = rows
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
        feed = self._rows or Feed(self._url, check_granularity(self._query.granularity), table_id)
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
        for batch in partition.feed.batches(*partition.versions):
            yield to_spark(batch.select(target.names), target)

    def commit(self, end: Offset) -> None:
        """Nothing: the store keeps what retention says."""


@dataclass(frozen=True)
class SnapshotPartition(InputPartition):
    """Rows of a version that one task reads.

    Attributes
    ----------
    reader, rows
        What reads them, and which they are.
    """

    reader: RowsReader
    rows: InputPartition


@worker_boundary
class TableStream(ChangeStream):
    """Reads the rows of a table: first those that there are, then those that later versions insert.

    Notes
    -----
    The first micro-batch reads the newest version as a frame does, however many versions there are. With
    ``startingVersion`` the stream begins with the rows that this version inserts.
    """

    def initialOffset(self) -> Offset:
        """Return the version before the first one to read, or that all rows are to be read."""
        if self._query.starting is not None:
            return super().initialOffset()
        assert self._rows is not None
        table_id = int(self._rows.definition.table_id)
        return {"version": -1, "store": self._log().store_id, "table_id": table_id, "whole": True}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return the last version of the next micro-batch: of the first one, the newest."""
        whole = start.get("whole")
        found = super().latestOffset(start, ReadAllAvailable() if whole else limit)
        return {name: value for name, value in found.items() if name != "whole"} if whole else found

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Split the rows of a version, or the versions, among tasks; see `ChangeStream.partitions`."""
        if not start.get("whole"):
            return super().partitions(start, end)
        self._check_log(end)
        self._check_table(start["table_id"])
        assert self._rows is not None
        snapshot = store_of(self._url).snapshot(end["version"])
        definition = same_table(snapshot.log, self._rows.definition)
        if definition is None:
            return []
        reader = RowsReader(self._url, snapshot.table_of(definition), self._schema)
        return [SnapshotPartition(reader, each) for each in reader.partitions()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        if isinstance(partition, SnapshotPartition):
            yield from partition.reader.read(partition.rows)
        else:
            yield from super().read(partition)
