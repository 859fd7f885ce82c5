"""A table of ten mixed columns into a new store, beside Parquet written by pyarrow, durable both.

Both get the same rows in pieces of `PIECE_ROWS`, one after another, take turns, and sync file and folder.
Parquet is written with LZ4 and without dictionaries, as the nearest to pages; with dictionaries, its default,
for comparison of sizes. It keeps no checksums of its pages here, as is its default; pages always have theirs.
`--batch-rows` cuts what pages get into smaller batches, as a stream from elsewhere has them; Parquet gets its
pieces whole even so, because each batch would be a row group of it. `payload` is header and payload of pages,
`allocated` what they take at 4 KiB places.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import spark_pages as sp
from benchmarks.log.report import Row, arguments, log_note, peak_mb, show
from benchmarks.pages.mixed_table import PIECE_ROWS, SCHEMA, pieces


def batches(tables: list[pa.Table], batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Record batches of the tables, none with more rows than this."""
    for table in tables:
        yield from table.to_batches(max_chunksize=batch_rows)


def into_pages(folder: Path, tables: list[pa.Table], batch_rows: int = PIECE_ROWS) -> Path:
    """A store with the rows, by one transaction that gets a stream."""
    store = sp.create(str(folder / "store"), properties={"checkpoint_commits": "0", "checkpoint_bytes": "0"})
    with store.transaction("ingest") as txn:
        txn.create_table("t", SCHEMA)
        txn.append("t", pa.RecordBatchReader.from_batches(SCHEMA, batches(tables, batch_rows)))
    return folder / "store"


def into_parquet(folder: Path, tables: list[pa.Table], use_dictionary: bool = False) -> Path:
    """A Parquet file with the rows; file and folder are synced."""
    path = folder / f"{use_dictionary}.parquet"
    with pq.ParquetWriter(path, SCHEMA, compression="lz4", use_dictionary=use_dictionary) as writer:
        for table in tables:
            writer.write_table(table)
    for synced in (path, folder):
        descriptor = os.open(synced, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
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


def measure(rows: int, rounds: int, batch_rows: int = PIECE_ROWS) -> list[Row]:
    """Speed and sizes."""
    tables = list(pieces(rows))
    log_note(f"{rows:,} rows, {sum(table.nbytes for table in tables) / 1e6:,.0f} MB in Arrow: made")
    spent: dict[str, list[tuple[float, float]]] = {"pages": [], "parquet": []}
    for number in range(rounds + 1):
        for name, work in (("pages", partial(into_pages, batch_rows=batch_rows)), ("parquet", into_parquet)):
            seconds = timed(work, tables, check=name == "pages" and not number)
            if number:
                spent[name].append(seconds)
        log_note(f"round {number}")
    ours, theirs = (statistics.median(wall for wall, _ in spent[name]) for name in ("pages", "parquet"))
    pairs = list(zip(spent["pages"], spent["parquet"], strict=True))
    row: Row = {
        "rows": rows,
        "rows a batch": batch_rows,
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
    parser.add_argument("--batch-rows", type=int, default=PIECE_ROWS)
    options = parser.parse_args()
    show(
        "ingest of 10 mixed columns", measure(options.rows, options.rounds, options.batch_rows), options.json
    )


if __name__ == "__main__":
    main()
