"""Writes in which Spark starts a second attempt of a task that is slow; a script, submitted to a cluster.

Its arguments are a store with the table ``t`` of a number, and a folder with the Parquet files ``rows``. An
append, an overwrite, a stream and a page compaction have a folder each in there. An attempt of their first
task that has written all that it had to leaves a file, and stands still until another attempt has done so.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType

import spark_pages as sp
from spark_pages.spark import compact
from spark_pages.spark.session import session
from spark_pages.spark.source import SparkPagesDataSource, TableStreamWriter, TableWriter

Made = TypeVar("Made")

url, folder = sys.argv[1:]
TASKS, ROWS, PATIENCE_S = 2, 40_000, 120


def when_two_have_written(name: str, made: Made) -> Made:
    context = TaskContext.get()
    assert context is not None
    if context.partitionId() == 0:
        written, end = Path(folder, name), time.monotonic() + PATIENCE_S
        written.mkdir(exist_ok=True)
        (written / str(context.attemptNumber())).touch()
        while len(list(written.iterdir())) < 2 and time.monotonic() < end:
            time.sleep(0.02)
    return made


class SlowWriter(TableWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        name = "overwrite" if self._plan.overwrite else "append"
        return when_two_have_written(name, super().write(iterator))


class SlowStreamWriter(TableStreamWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return when_two_have_written("stream", TableStreamWriter.write(self, iterator))


class SlowSource(SparkPagesDataSource):
    """The data source under a name of its own, whose tasks stand still when they have written."""

    @classmethod
    def name(cls) -> str:
        return "slow_pages"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return SlowWriter(super().writer(schema, overwrite)._plan)  # type: ignore[attr-defined]

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        return SlowStreamWriter(super().streamWriter(schema, overwrite)._plan)  # type: ignore[attr-defined]


class SlowRewrite:
    """In place of what executors do in a compaction."""

    def __init__(self, *given: Any) -> None:
        self._rewrite = rewrite(*given)

    def __call__(self, partition: Iterable[Any]) -> Iterator[Any]:
        return iter(when_two_have_written("compaction", list(self._rewrite(partition))))


spark = session("speculation", master=None)
spark.dataSource.register(SlowSource)
for mode, first in (("append", 0), ("overwrite", ROWS)):
    numbers = spark.range(first, first + ROWS, 1, TASKS).selectExpr("id AS n")
    numbers.write.format("slow_pages").mode(mode).option("table", "t").save(url)

told = spark.readStream.schema("n long").parquet(f"{folder}/rows")
stream = told.writeStream.format("slow_pages").option("table", "t").trigger(availableNow=True)
stream.option("checkpointLocation", f"{folder}/checkpoint").start(url).awaitTermination()

with sp.open(url).transaction() as txn:
    txn.set_table_properties("t", {"page_bytes": "65536"})
rewrite, compact._Rewrite = compact._Rewrite, SlowRewrite  # type: ignore[assignment,misc]
compact.compact_pages(spark, url, "t")
