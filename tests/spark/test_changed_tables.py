"""Tables that were renamed, emptied, altered, dropped and brought back: Spark sees what local readers see."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

import spark_pages as sp
from spark_pages.spark import reconstruct_snapshot

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string())])


def rows(*numbers: int) -> pa.Table:
    return pa.table({"n": numbers, "s": [str(number) for number in numbers]}, SCHEMA)


def changed_store(url: str) -> sp.Store:
    """Two tables; half of what happened to them is in a checkpoint."""
    store = sp.create(url, properties={"checkpoint_commits": "0"})
    with store.transaction() as txn:
        txn.create_table("a", SCHEMA)
        txn.create_table("b", SCHEMA)
        txn.append("a", rows(1, 2))
        txn.append("b", rows(3))
    with store.transaction() as txn:
        txn.add_column("a", pa.field("x", pa.int32()), default=7)
        txn.truncate_table("b")
        txn.append("b", rows(4, 5))
    store.checkpoint()
    with store.transaction() as txn:
        txn.rename_table("a", "c")
        txn.drop_column("c", "s")
        txn.drop_table("b")
    with store.transaction() as txn:
        txn.undrop_table("b")
        txn.truncate_table("c")
        txn.append("c", pa.table({"n": [6], "x": pa.array([8], pa.int32())}))
    return store


def test_spark_reconstructs_and_reads_changed_tables(spark: SparkSession, tmp_path: Path) -> None:
    store = changed_store(str(tmp_path / "store"))

    results = [reconstruct_snapshot(spark, store.url, version) for version in (2, 3, 4)]
    read = {
        name: spark.read.format("spark_pages").option("table", name).load(store.url).collect()
        for name in ("b", "c")
    }

    assert [result["differences"] for result in results if not result["equal_to_local"]] == []
    assert sorted(tuple(row) for row in read["b"]) == [(4, "4"), (5, "5")]
    assert [tuple(row) for row in read["c"]] == [(6, 8)]
