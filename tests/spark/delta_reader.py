"""A session with delta-spark that reads published tables; a script, with the folder of a store.

For each line on stdin, a Delta version and a folder, it writes what it finds at that version
(``rows.parquet``, put together as docs/delta-tables.md says), and ``history.parquet`` and
``changes.parquet`` as
they are now. Then it says so on stdout.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from spark_pages.spark.publish import CHANGES, HISTORY, PARTS, ROOTS, SEGMENTS
from spark_pages.spark.session import session

store = sys.argv[1]
spark = session("delta reader", "local[2]", delta=True)
spark.conf.set("spark.databricks.delta.snapshotPartitions", "1")
spark.conf.set("spark.sql.shuffle.partitions", "1")


def at(root: str, version: str) -> DataFrame:
    return spark.read.format("delta").option("versionAsOf", version).load(f"{store}/{root}")


def numbered(frame: DataFrame) -> DataFrame:
    """The rows of its files, with the name of the file and the row's number there; Delta does not tell it."""
    name = f.regexp_replace("_metadata.file_name", ".parquet", "")
    files = spark.read.parquet(*frame.inputFiles())
    return files.select("*", name.alias("file"), f.col("_metadata.row_index").alias("row"))


def rows(version: str) -> DataFrame:
    pages = at(SEGMENTS.root, version)
    places = numbered(pages).select("page_id", "file", f.col("row").alias("c"))
    parts = numbered(at(PARTS.root, version)).select(
        f.col("file").alias("part"), f.col("digest").alias("file"), f.col("row").alias("b")
    )
    roots = numbered(at(ROOTS.root, version)).select(f.col("digest").alias("part"), f.col("row").alias("a"))
    placed = pages.join(places, "page_id").join(parts, "file").join(roots, "part")
    chain = Window.partitionBy("table_id", "field_id").orderBy("a", "b", "c")
    before = f.sum("entry_count").over(chain.rowsBetween(Window.unboundedPreceding, -1))
    found = placed.withColumn("first_row", f.coalesce(before, f.lit(0)))
    return found.orderBy("table_id", "field_id", "a", "b", "c").select(
        "table_id", "field_id", "first_row", "page_id", "entry_count", "actual_len", "checksum"
    )


for line in sys.stdin:
    version, _, output = line.strip().partition(" ")
    pq.write_table(rows(version).toArrow(), Path(output, "rows.parquet"))
    for each in (HISTORY, CHANGES):
        whole = spark.read.format("delta").load(f"{store}/{each.root}")
        pq.write_table(whole.toArrow(), Path(output, f"{each.name}.parquet"))
    sys.stdout.write(f"read {version}\n")
    sys.stdout.flush()
