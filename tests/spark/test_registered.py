"""Pages of other writers, and pages that show another number of rows: Spark sees what local readers see."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import spark_pages as sp
from spark_pages.spark import compact_pages, reconstruct_snapshot
from tests.transaction.foreign import pending, write_file

KEY = "imports/a.pages"


@pytest.fixture
def store(tmp_path: Path) -> sp.Store:
    """Registered, replaced, empty, shortened and lengthened pages, before and after a checkpoint."""
    store = sp.create(str(tmp_path / "store"))
    pages = write_file(
        store.object_store, KEY, *(pa.array(range(10 * n, 10 * n + n), pa.int64()) for n in range(5))
    )
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("n", pa.int64())]))
        txn.append("t", pa.table({"n": range(4)}))
    with store.transaction() as txn:
        txn.directory("t").register_batch([pending("n", KEY, pages, index) for index in (4, 0, 3)])
    with store.transaction() as txn:
        txn.directory("t").register_batch([pending("n", KEY, pages, 2, rows=5, replace_last=True)])
    store.checkpoint()
    with store.transaction() as txn:
        txn.directory("t").update_latest_entry_count("n", 1)
    with store.transaction() as txn:
        txn.directory("t").register_batch([pending("n", KEY, pages, 3, rows=1)])
    with store.transaction() as txn:
        txn.directory("t").update_latest_entry_count("n", 4)
    return store


def test_spark_reconstructs_and_reads_registered_and_resized_pages(
    spark: SparkSession, store: sp.Store
) -> None:
    rows = store.snapshot().table("t").read().column("n").to_pylist()
    assert rows == [0, 1, 2, 3, 40, 41, 42, 43, 20, 30, 31, 32, None]

    for version in range(1, store.snapshot().version + 1):
        result = reconstruct_snapshot(spark, store.url, version)
        assert result["equal_to_local"], (version, result["differences"])
    read = spark.read.format("spark_pages").option("table", "t").load(store.url)

    assert sorted(row.n for row in read.collect() if row.n is not None) == sorted(rows[:-1])
    assert read.count() == len(rows)


def test_page_compaction_by_spark_keeps_the_rows_that_are_shown(spark: SparkSession, store: sp.Store) -> None:
    rows = store.snapshot().table("t").read()

    compact_pages(spark, store.url, "t")

    assert store.snapshot().table("t").read().equals(rows)
    assert store.snapshot().table("t").pages().num_rows < 5
