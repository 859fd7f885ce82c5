"""Page compaction by Spark, beside the raw rate at which the disk reads and writes as many bytes.

A table of many small pages, and one column whose pages are full: it must not be rewritten.

python -m benchmarks.spark.compact --rows 20000000
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

import spark_pages as sp
from benchmarks.log.report import Row, arguments, log_note, show
from spark_pages.spark import compact_pages, session
from spark_pages.spark.compact import plan_compact_pages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BLOCK = 1 << 20


def prepare(url: str, rows: int, page_bytes: int = 4096) -> None:
    """Pages smaller than they could be, in appends of a million rows."""
    store = sp.create(url, properties={"tail_page_bytes": "0"})
    random = np.random.default_rng(7)
    schema = pa.schema([("id", pa.int64()), ("value", pa.float64()), ("full", pa.int64())])
    with store.transaction() as txn:
        txn.create_table("t", schema, properties={"page_bytes": str(page_bytes), "page_bytes.full": "65536"})
    for first in range(0, rows, 1_000_000):
        count = min(1_000_000, rows - first)
        ids = np.arange(first, first + count)
        with store.transaction() as txn:
            txn.append("t", pa.table({"id": ids, "value": random.random(count), "full": ids}, schema))
    with store.transaction() as txn:
        txn.set_table_properties("t", {"page_bytes": "65536"})


def raw_seconds(folder: Path, size_bytes: int) -> float:
    """Time to read so many bytes that are not cached, and to write as many durably."""
    source, target = folder / "source", folder / "target"
    block = os.urandom(_BLOCK)
    with source.open("wb") as file:
        for _ in range(size_bytes // _BLOCK + 1):
            file.write(block)
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    started = time.perf_counter()
    with source.open("rb") as read, target.open("xb") as write:
        while data := read.read(_BLOCK):
            write.write(data)
        os.fsync(write.fileno())
    seconds = time.perf_counter() - started
    for path in (source, target):  # here, or emptying the old target is timed in the next round
        path.unlink()
    return seconds


def measure(folder: Path, rows: int, page_bytes: int, rounds: int) -> list[Row]:
    """Compactions of stores of their own, in a session that has compacted before; medians."""
    spark = session("benchmark")
    prepare(str(folder / "warm"), 100_000, page_bytes)
    compact_pages(spark, str(folder / "warm"), "t")
    told = []
    for number in range(rounds):
        store = folder / f"store-{number}"
        log_note(f"writing {rows:,} rows in small pages …")
        prepare(str(store), rows, page_bytes)
        told.append(_round(spark, folder, str(store)))
        shutil.rmtree(store)
    spark.stop()
    return [{name: statistics.median(each[name] for each in told) for name in told[0]}]


def _round(spark: SparkSession, folder: Path, url: str) -> dict[str, float]:
    """One compaction, and the raw copy."""
    moved = plan_compact_pages(url, "t")["bytes_before"]
    before = sp.open(url).snapshot().table("t")
    full = set(before.pages("full")["page_id"].to_pylist())
    done = compact_pages(spark, url, "t")
    after = sp.open(url).snapshot().table("t")
    raw = raw_seconds(folder, moved)
    return {
        "pages before": done["pages_before"],
        "pages after": done["pages_after"],
        "full pages rewritten": len(full - set(after.pages("full")["page_id"].to_pylist())),
        "MB": moved / 1e6,
        "s": done["seconds"],
        "raw copy, s": raw,
        "share of the raw rate": raw / done["seconds"],
    }


def main() -> None:
    """Measure and show."""
    parser = arguments(__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--page-bytes", type=int, default=4096, help="of small pages; full ones have 65,536")
    parser.add_argument("--rounds", type=int, default=1, help="medians of so many")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="spark_pages-", ignore_cleanup_errors=True) as folder:
        rows = measure(Path(folder), given.rows, given.page_bytes, given.rounds)
    show("Page compaction by Spark, local[2]", rows, given.json)


if __name__ == "__main__":
    main()
