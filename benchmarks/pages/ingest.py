"""A table of ten mixed columns into a new store, beside Parquet written by pyarrow, durable both.

Both get the same record batches one after another, take turns, and sync what they have written. Parquet is
written with LZ4 and without dictionaries, as the nearest to pages; with dictionaries, its default, for
comparison of sizes. `payload` is header and payload of pages, `allocated` what they take at 4 KiB places.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import spark_pages as sp
from benchmarks.log.report import Row, arguments, log_note, peak_mb, show
from benchmarks.pages.mixed_table import SCHEMA, pieces

BATCH_ROWS = 1 << 17


def batches(tables: list[pa.Table]) -> Iterator[pa.RecordBatch]:
    """Record batches of the tables."""
    for table in tables:
        yield from table.to_batches(max_chunksize=BATCH_ROWS)


def into_pages(folder: Path, tables: list[pa.Table]) -> Path:
    """A store with the rows, by one transaction that gets a stream."""
    store = sp.create(str(folder / "store"), properties={"checkpoint_commits": "0", "checkpoint_bytes": "0"})
    with store.transaction("ingest") as txn:
        txn.create_table("t", SCHEMA)
        txn.append("t", pa.RecordBatchReader.from_batches(SCHEMA, batches(tables)))
    return folder / "store"


def into_parquet(folder: Path, tables: list[pa.Table], use_dictionary: bool = False) -> Path:
    """A Parquet file with the rows, synced."""
    path = folder / f"{use_dictionary}.parquet"
    with pq.ParquetWriter(path, SCHEMA, compression="lz4", use_dictionary=use_dictionary) as writer:
        for table in tables:
            writer.write_table(table)
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return path


def timed(
    work: Callable[[Path, list[pa.Table]], Path], tables: list[pa.Table], check: bool
) -> tuple[float, float]:
    """Seconds that it takes, and seconds of processors, in a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        begin, cpu = time.perf_counter(), time.process_time()
        work(Path(folder), tables)
        spent = time.perf_counter() - begin, time.process_time() - cpu
        if check:
            found = sp.open(f"{folder}/store").snapshot().table("t")
            assert found.read(start=0, stop=1_000).equals(tables[0].slice(0, 1_000).cast(SCHEMA))
            assert found.num_rows == sum(table.num_rows for table in tables)
        return spent


def sizes(tables: list[pa.Table]) -> dict[str, float]:
    """Megabytes of each form."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        store = sp.open(str(into_pages(Path(folder), tables)))
        pages = store.snapshot().table("t").pages()
        plain = into_parquet(Path(folder), tables).stat().st_size
        default = into_parquet(Path(folder), tables, use_dictionary=True).stat().st_size
        payload, allocated = (sum(pages[name].to_pylist()) for name in ("actual_len", "alloc_len"))
        return {
            "pages": pages.num_rows,
            "payload MB": payload / 1e6,
            "allocated MB": allocated / 1e6,
            "Parquet MB": plain / 1e6,
            "with dictionary MB": default / 1e6,
            "payload / Parquet": payload / plain,
            "allocated / Parquet": allocated / plain,
        }


def measure(rows: int, rounds: int) -> list[Row]:
    """Speed and sizes."""
    tables = list(pieces(rows))
    log_note(f"{rows:,} rows, {sum(table.nbytes for table in tables) / 1e6:,.0f} MB in Arrow: made")
    spent: dict[str, list[tuple[float, float]]] = {"pages": [], "parquet": []}
    for number in range(rounds + 1):
        for name, work in (("pages", into_pages), ("parquet", into_parquet)):
            seconds = timed(work, tables, check=name == "pages" and not number)
            if number:
                spent[name].append(seconds)
        log_note(f"round {number}")
    ours, theirs = (statistics.median(wall for wall, _ in spent[name]) for name in ("pages", "parquet"))
    pairs = list(zip(spent["pages"], spent["parquet"], strict=True))
    row: Row = {
        "rows": rows,
        "pages s": ours,
        "Parquet s": theirs,
        "time / Parquet": statistics.median(one[0] / other[0] for one, other in pairs),
        "CPU / Parquet": statistics.median(one[1] / other[1] for one, other in pairs),
    }
    return [{**row, **sizes(tables), "peak MB, source included": peak_mb()}]


def main() -> None:
    """Measure and print."""
    parser = arguments(__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    show("ingest of 10 mixed columns", measure(options.rows, options.rounds), options.json)


if __name__ == "__main__":
    main()
