"""Updates of rows that lie scattered over a column, and of all of them, beside Parquet that is written anew.

After each update another reader opens the store and locates a row, without a checkpoint in between, and
`verify` looks at everything but the values of pages. Parquet has no rows to update: its column is read whole,
changed and written, with LZ4 and without dictionary, and synced.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

import spark_pages as sp
from benchmarks.log.report import Row, arguments, log_note, show

QUIET = {"checkpoint_commits": "0", "checkpoint_bytes": "0"}


def seconds(work: Callable[[], object]) -> float:
    """How long it takes once."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def updated(url: str, rows: NDArray[np.int64]) -> None:
    """Each of these rows holds its number, negative."""
    with sp.open(url).transaction("update") as txn:
        txn.update_rows("t", rows, {"v": -rows})


def located(url: str, last_row: int) -> None:
    """A reader who has seen nothing yet asks for one row."""
    sp.open(url).snapshot().table("t").directory.locate_row("v", last_row)


def parquet_updated(path: Path, rows: NDArray[np.int64]) -> None:
    """The same rows of a Parquet file, which is written anew."""
    column = pq.read_table(path)["v"].to_numpy().copy()
    column[rows] = -rows
    write_parquet(path, pa.table({"v": column}))


def write_parquet(path: Path, table: pa.Table) -> None:
    """One file, durable."""
    pq.write_table(table, path, compression="lz4", use_dictionary=False)
    with path.open("rb") as file:
        os.fsync(file.fileno())


def one_update(folder: Path, values: pa.Table, count: int, page_bytes: int) -> Row:
    """Some rows, as far from each other as can be, of a store of their own."""
    url, parquet = str(folder / f"{count}"), folder / f"{count}.parquet"
    write_parquet(parquet, values)
    with sp.create(url, properties=QUIET).transaction() as txn:
        txn.create_table("t", values.schema, properties={"page_bytes": str(page_bytes)})
        txn.append("t", values)
    total = values.num_rows
    rows = np.arange(count) * (total // count)
    row: Row = {
        "rows": count,
        "of": total,
        "pages": sp.open(url).snapshot().table("t").pages().num_rows,
        "update s": seconds(lambda: updated(url, rows)),
        "open and locate s": seconds(lambda: located(url, total - 1)),
        "verify s": seconds(lambda: sp.open(url).verify("none")),
        "Parquet anew s": seconds(lambda: parquet_updated(parquet, rows)),
    }
    found = sp.open(url).snapshot().table("t").read()["v"].to_numpy()
    assert np.array_equal(found, pq.read_table(parquet)["v"].to_numpy())
    log_note(f"{count:,} rows: done")
    return {**row, "update / Parquet": row["update s"] / row["Parquet anew s"]}


def measure(folder: Path, total: int, page_bytes: int, counts: list[int]) -> list[Row]:
    """An update of each number of rows."""
    values = pa.table({"v": np.random.default_rng(7).integers(0, 1 << 40, total)})
    return [one_update(folder, values, count, page_bytes) for count in counts]


def main() -> None:
    """Measure and print."""
    parser = arguments(__doc__)
    parser.add_argument("--total", type=int, default=10_000_000)
    parser.add_argument("--page-bytes", type=int, default=4096)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 1_000, 8_000, 10_000_000])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        rows = measure(Path(folder), options.total, options.page_bytes, options.rows)
        show("updates of a column", rows, options.json)


if __name__ == "__main__":
    main()
