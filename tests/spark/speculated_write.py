"""Writes in which Spark starts a second attempt of a task that is slow; a script, submitted to a cluster.

Its arguments are a store with the table ``t`` of a number, and a folder. An append, an overwrite, a stream
and a page compaction have a folder each in there, where an attempt of a task leaves a file when it has handed
over all that it made. The first attempt of the first task then stands still until another has done so, too.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import DataFrame

import spark_pages as sp
from spark_pages.spark import compact
from spark_pages.spark.session import session

url, folder = sys.argv[1:]
TASKS, ROWS = 4, 400_000


def hand_over(name: str, made: Iterable[Any]) -> Iterator[Any]:
    yield from made
    context = TaskContext.get()
    assert context is not None
    task, attempt = context.partitionId(), context.attemptNumber()
    Path(folder, name, f"{task}-{attempt}").touch()
    while (task, attempt) == (0, 0) and not Path(folder, name, "0-1").exists():
        time.sleep(0.05)


class SlowRewrite:
    """In place of what executors do in a compaction: the same, and then `hand_over`."""

    def __init__(self, *given: Any) -> None:
        self._rewrite = rewrite(*given)

    def __call__(self, partition: Iterable[Any]) -> Iterator[Any]:
        return hand_over("compact", self._rewrite(partition))


def slow(name: str, rows: DataFrame) -> DataFrame:
    Path(folder, name).mkdir()
    return rows.mapInArrow(partial(hand_over, name), rows.schema)


spark = session("speculation", master=None)
numbers = spark.range(0, ROWS, 1, TASKS)
first, second = (numbers.selectExpr(f"id + {start} AS n") for start in (0, ROWS))
for mode, rows in (("append", first), ("overwrite", second)):
    slow(mode, rows).write.format("spark_pages").mode(mode).option("table", "t").save(url)

numbers.selectExpr("id AS n").write.parquet(f"{folder}/rows")
told = spark.readStream.schema("n long").parquet(f"{folder}/rows").repartition(TASKS)
stream = slow("stream", told).writeStream.format("spark_pages").option("table", "t")
stream = stream.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
stream.start(url).awaitTermination()

with sp.open(url).transaction() as txn:
    txn.set_table_properties("t", {"page_bytes": "65536"})
rewrite, compact._Rewrite = compact._Rewrite, SlowRewrite  # type: ignore[assignment,misc]
Path(folder, "compact").mkdir()
compact.compact_pages(spark, url, "t")
