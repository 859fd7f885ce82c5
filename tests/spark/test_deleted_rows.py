"""Deletes as Spark sees them: rows of tasks, views, the feed and the reconstruction."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import spark_pages as sp
from spark_pages.spark import reconstruct_snapshot
from spark_pages.store import Store

ROWS = 200_000
DEAD = [0, 1, 70_000, 131_071, 131_072, 199_999]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Six dead rows, four of them in the checkpoint."""
    store = sp.create(str(tmp_path / "store"))
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("n", pa.int64()), ("s", pa.string())]))
        txn.append("t", pa.table({"n": np.arange(ROWS), "s": [str(n % 7) for n in range(ROWS)]}))
    with store.transaction() as txn:
        txn.delete("t", DEAD[:4])
    store.checkpoint()
    with store.transaction() as txn:
        txn.delete("t", DEAD[4:])
    return store


def test_tasks_leave_out_dead_rows(spark: SparkSession, store: Store) -> None:
    found = spark.read.format("spark_pages").options(table="t", partitions=7).load(store.url)

    assert found.count() == ROWS - len(DEAD)
    assert found.agg({"n": "sum"}).first()[0] == sum(range(ROWS)) - sum(DEAD)
    assert [row.n for row in found.where("n < 4 OR n > 199996").orderBy("n").collect()] == [
        2,
        3,
        199_997,
        199_998,
    ]


def test_the_reconstruction_has_the_marks_of_dead_rows(spark: SparkSession, store: Store) -> None:
    result = reconstruct_snapshot(spark, store.url)

    assert result["equal_to_local"], result["differences"]


def test_the_feed_says_which_rows_were_removed(spark: SparkSession, store: Store) -> None:
    found = (
        spark.read.format("spark_pages")
        .options(view="changes", startingVersion=2, endingVersion=3)
        .load(store.url)
    )

    told = found.where("column = 'n'").orderBy("version", "first_row").collect()
    assert [(row.version, row.change, row.first_row, row.end_row) for row in told] == [
        (2, "removed", 0, 2),
        (2, "removed", 70_000, 70_001),
        (2, "removed", 131_071, 131_072),
        (3, "removed", 131_072, 131_073),
        (3, "removed", 199_999, 200_000),
    ]
