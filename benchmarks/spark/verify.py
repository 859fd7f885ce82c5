"""Verification by Spark, beside one process, and beside a bare read of the same page files.

A table of numbers, text and times in pages of the usual size, some of which older versions alone still have.

python -m benchmarks.spark.verify --rows 20000000
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

import spark_pages as sp
from benchmarks.log.report import Row, arguments, log_note, show
from spark_pages.spark import session
from spark_pages.spark.verify import verify

SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.float64()), ("text", pa.string())])


def prepare(url: str, rows: int) -> None:
    """Appends of a million rows, then an update that replaces pages."""
    store = sp.create(url)
    random = np.random.default_rng(7)
    with store.transaction() as txn:
        txn.create_table("t", SCHEMA)
    for first in range(0, rows, 1_000_000):
        count = min(1_000_000, rows - first)
        ids = np.arange(first, first + count)
        text = pa.array(np.char.add("item ", (ids % 5000).astype("U5")))
        with store.transaction() as txn:
            txn.append("t", pa.table([ids, random.random(count), text], schema=SCHEMA))
    places = np.arange(0, rows, max(1, rows // 1000))
    with store.transaction() as txn:
        txn.update_rows("t", places, {"value": np.zeros(len(places))})
    store.checkpoint()


def bare_seconds(url: str) -> float:
    """Time to read every page file from front to back, not cached."""
    files = [*Path(url, "pages").iterdir()]
    forget(url)
    started = time.perf_counter()
    for path in files:
        with path.open("rb") as file:
            while file.read(1 << 20):
                pass
    return time.perf_counter() - started


def forget(url: str) -> None:
    """The page files are in no cache of the system."""
    for path in Path(url, "pages").iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure(folder: Path, rows: int) -> list[Row]:
    """One row for each way, on the same store."""
    url = str(folder / "store")
    log_note(f"writing {rows:,} rows …")
    prepare(url, rows)
    spark = session("benchmark", source=False)
    prepare(str(folder / "warm"), 100_000)
    verify(spark, str(folder / "warm"), "all")
    forget(url)
    by_spark = verify(spark, url, "all")
    spark.stop()
    forget(url)
    here = verify(None, url, "all")
    bare = bare_seconds(url)
    assert by_spark["ok"]
    assert by_spark["pages_read"] == here["pages_read"]
    return [
        {
            "way": way,
            "pages": told["pages_read"],
            "MB": told["bytes_read"] / 1e6,
            "s": told["seconds"],
            "times as long as Spark": told["seconds"] / by_spark["seconds"],
            "times as long as a bare read": told["seconds"] / bare,
        }
        for way, told in (("Spark, local[2]", by_spark), ("one process", here))
    ]


def main() -> None:
    """Measure and show."""
    parser = arguments(__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="spark_pages-", ignore_cleanup_errors=True) as folder:
        rows = measure(Path(folder), given.rows)
    show("Verification of every page", rows, given.json)


if __name__ == "__main__":
    main()
