"""``spark.readStream``: the change feed as an endless frame.

An offset is the last version that was told with the token of its commit, by which an older copy at the same
address is known, the id of the store, and, where one table is asked for, the id of that table: another one
may get its name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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

from spark_pages.catalog.resolve import find_table
from spark_pages.changes.feed import find_either
from spark_pages.errors import (
    InvalidInputError,
    StoreReplacedError,
    TableNotFoundError,
    VersionNotFoundError,
)
from spark_pages.log.log import Log
from spark_pages.log.readable_versions import oldest_readable
from spark_pages.model.ids import TableId
from spark_pages.runtime import Runtime
from spark_pages.spark.arrow_types import to_spark
from spark_pages.spark.feed import FEED_SCHEMAS, Feed, check_grain, cut_versions
from spark_pages.spark.options import ViewQuery
from spark_pages.spark.serialization import objects_of, store_of
from spark_pages.spark.views import ViewPartition

Offset: TypeAlias = dict[str, Any]
"""``version``, ``store``, and ``token`` once one was told, and ``table_id`` of a table that was asked for."""


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
        """The version before the first one to tell."""
        if self._query.starting is not None:
            first = self._query.starting - 1
        else:
            first = oldest_readable(store_of(self._url).snapshot().log.state) or -1
        table_id = self._table_at(first)
        offset = {"version": first, "store": self._log().store_id}
        return offset if table_id is None else {**offset, "table_id": table_id}

    def getDefaultReadLimit(self) -> ReadLimit:
        """So many versions; Spark counts files where it means them."""
        return ReadMaxFiles(self._max_versions) if self._max_versions else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """What is committed later belongs to the next run."""
        self._last = self._newest()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """The last version of the next micro-batch; `start` where there is none yet.

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
        """The newest version that there is, for the progress of the query."""
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
        feed = Feed(self._url, check_grain(self._query.grain), table_id)
        return [ViewPartition(versions=each, feed=feed) for each in cut_versions(first, last)]

    def _table_at(self, first: int) -> int | None:
        """The table by the name that it has now, or had where the micro-batch begins; a stream may be asked
        to begin with a version that is yet to come.
        """
        if self._query.table is None:
            return None
        store = store_of(self._url)
        now = store.snapshot()
        then = store.snapshot(first).log if 0 <= first < now.version else None
        return find_either(now.log, then, self._query.table)

    def _check_log(self, offset: Offset) -> None:
        """Nothing, if what was told is what the log still holds: stores are deleted and made again, or put
        back as they once were.
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
                f"Cannot go on with the stream of {log.store.url}: the store that it has read was replaced "
                "by another one. Nothing of that was told.",
                hint="Put back the store that was there; or start a stream with a checkpoint location of its "
                "own.",
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
            f"The stream has told {log.store.url} up to version {version}, commit {token}, but {found} now: "
            "it was made anew, or is an older copy. Nothing of it was told.",
            hint="Put back the store that was there; or start a stream with a checkpoint location of its "
            "own.",
            version=version,
            newest=newest,
        )

    def _check_table(self, followed: int) -> int:
        """The table that the stream follows, renamed or dropped; not where another one has its name."""
        try:
            named = find_table(store_of(self._url).snapshot().log, str(self._query.table)).table_id
        except TableNotFoundError:
            named = TableId(followed)
        if named != followed:
            raise InvalidInputError(
                f"{self._query.table!r} was table {followed} when this stream began, and is the name of "
                f"table {named} now, which was made since. Nothing of either was told.",
                hint="Start a stream with a checkpoint location of its own for the new table.",
            )
        return followed

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """What the versions of one task did."""
        if not isinstance(partition, ViewPartition) or partition.feed is None:
            return
        target = to_arrow_schema(self._schema, timezone="UTC")
        told = partition.feed.read(*partition.versions).cast(FEED_SCHEMAS[partition.feed.grain])
        for batch in told.to_batches():
            yield to_spark(batch.select(target.names), target)

    def commit(self, end: Offset) -> None:
        """Nothing: the store keeps what retention says."""
