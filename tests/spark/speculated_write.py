"""A write in which Spark starts a second attempt of a task that is slow; a script, submitted to a cluster.

Its arguments are a store with the table ``t`` of a number, and a folder in which each attempt of a task
leaves a file when it has handed over all of its rows. The first attempt of the last task then stands still
until another attempt has done so, too.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext

from spark_pages.spark.session import session

url, folder = sys.argv[1:]
TASKS, ROWS = 4, 400_000


def hand_over(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
    context = TaskContext.get()
    assert context is not None
    partition, attempt = context.partitionId(), context.attemptNumber()
    Path(folder, f"{partition}-{attempt}").touch()
    while (partition, attempt) == (TASKS - 1, 0) and not Path(folder, f"{partition}-1").exists():
        time.sleep(0.05)


spark = session("speculation", master=None)
rows = spark.range(0, ROWS, 1, TASKS).selectExpr("id AS n")
slow = rows.mapInArrow(hand_over, rows.schema)
slow.write.format("spark_pages").mode("append").option("table", "t").save(url)
