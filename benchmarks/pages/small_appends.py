"""Appends of one row to a table of 20 columns: objects and bytes of each, and what is left in the end.

Once with the tail swap, as stores have it, and once without (`tail_page_bytes` 0). Then `compact_pages`, a
checkpoint, and vacuum with zero retention, beside one bulk append of the same rows. Counts are exact.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import pyarrow as pa

import spark_pages as sp
from benchmarks.log.report import Row, arguments, log_note, show
from benchmarks.pages.mixed_table import pieces
from spark_pages.storage import DurableLocalStore, MeteredStore
from spark_pages.store import Store


def rows_of(count: int) -> pa.Table:
    """Twenty columns: the ten mixed ones, twice."""
    ten = next(pieces(count))
    names = [f"{name}_{copy}" for copy in (1, 2) for name in ten.column_names]
    return pa.table([*ten.columns, *ten.columns], names)


def stored(folder: Path) -> dict[str, int]:
    """Bytes of the objects of a store, by folder; slots of the log apart."""
    found: dict[str, int] = {}
    for info in DurableLocalStore(folder).list(""):
        kind = info.key.rsplit("/", 1)[0]
        found[kind] = found.get(kind, 0) + info.size_bytes
    return found


def page_bytes(store: Store) -> tuple[int, int, int]:
    """Number of live pages, their payload, and what they take."""
    pages = store.snapshot().table("t").pages()
    return (
        pages.num_rows,
        *(sum(pages[name].to_pylist()) for name in ("actual_len", "alloc_len")),
    )


def appended(folder: Path, rows: pa.Table, swap: bool) -> Row:
    """One commit for each row; then everything is put in order."""
    off = {} if swap else {"tail_page_bytes": "0"}
    sp.create(str(folder), properties=off).close()
    meter = MeteredStore(DurableLocalStore(folder))
    store = Store(meter)
    with store.transaction() as txn:
        txn.create_table("t", rows.schema)
    sizes: list[int] = []
    objects: list[int] = []
    begin = time.perf_counter()
    for index in range(rows.num_rows):
        one = rows.slice(index, 1)
        with store.transaction() as txn:
            txn.append("t", one)
        assert txn.version is not None
        sizes.append((folder / f"_log/{txn.version:020d}.avro").stat().st_size)
        if index % 2000 == 1999:
            log_note(f"{index + 1:,} appends")
    seconds = time.perf_counter() - begin
    store.close()
    written = sum(stored(folder).values())
    live = page_bytes(store)[0]
    quiet = Store(MeteredStore(DurableLocalStore(folder)))
    for _ in range(20):  # beside nothing else: what an append asks of storage
        counted = quiet.object_store
        assert isinstance(counted, MeteredStore)
        with quiet.transaction() as txn:
            before = counted.counts
            txn.append("t", rows.slice(0, 1))
        quiet.close()
        spent = counted.counts - before
        objects.append(spent.creates + spent.puts)
    quiet.compact_pages("t")
    quiet.checkpoint()
    quiet.vacuum(timedelta(0))
    pages, payload, allocated = page_bytes(quiet)
    left = stored(folder)
    return {
        "tail swap": "yes" if swap else "no",
        "appends": rows.num_rows,
        "ms each": seconds / rows.num_rows * 1e3,
        "objects each": statistics.median(objects),
        "commit bytes": statistics.mean(sizes),
        "median": statistics.median(sizes),
        "99 %": sorted(sizes)[len(sizes) * 99 // 100],
        "largest": max(sizes),
        "MB written": written / 1e6,
        "live pages": live,
        "pages after": pages,
        "payload after": payload,
        "allocated after": allocated,
        "page files after": left.get("pages", 0),
    }


def in_bulk(folder: Path, rows: pa.Table) -> Row:
    """All rows in one append."""
    store = sp.create(str(folder))
    with store.transaction() as txn:
        txn.create_table("t", rows.schema)
        txn.append("t", rows)
    store.checkpoint()  # gives inline pages a place
    store.close()
    pages, payload, allocated = page_bytes(store)
    files = stored(folder).get("pages", 0)
    return {"pages": pages, "payload": payload, "allocated": allocated, "files": files}


def measure(appends: int, both: bool) -> list[Row]:
    """With and without the swap, beside a bulk append."""
    rows = rows_of(appends)
    found = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        bulk = in_bulk(Path(folder) / "bulk", pa.concat_tables([rows, *[rows.slice(0, 1)] * 20]))
        for swap in (True, False) if both else (True,):
            row = appended(Path(folder) / f"{swap}", rows, swap)
            row["payload / bulk"] = row["payload after"] / bulk["payload"]
            row["allocated / bulk"] = row["allocated after"] / bulk["allocated"]
            row["files / bulk"] = row["page files after"] / bulk["files"]
            found.append(row)
    return found


def main() -> None:
    """Measure and print."""
    parser = arguments(__doc__)
    parser.add_argument("--appends", type=int, default=10_000)
    parser.add_argument("--both", action="store_true", help="without the tail swap, too: gigabytes")
    options = parser.parse_args()
    show("appends of one row to 20 columns", measure(options.appends, options.both), options.json)


if __name__ == "__main__":
    main()
