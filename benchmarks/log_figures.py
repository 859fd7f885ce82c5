"""Figures of the log: durable commits, cold open and locate, warm locate, memory of descriptors.

Run: ``python benchmarks/log_figures.py [--pages 1000000] [--commits 200]``. Prints one JSON document. The
bare durable put is measured in the same run, so that the ratio holds on any machine.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

import spark_pages as sp
from spark_pages.log.digest import locate
from spark_pages.log.log import Log
from spark_pages.log.names import manifest_key
from spark_pages.log.segment import encode_manifest
from spark_pages.log.state import LogState
from spark_pages.model.actions import ManifestRef, Splice, TransactionRecord
from spark_pages.model.ids import FieldId, TableId
from spark_pages.model.run import PAGE_SCHEMA, STATS_SCHEMA, PageRun, empty_batch, no_stats
from spark_pages.runtime import Runtime
from spark_pages.storage import DurableLocalStore, MeteredStore
from spark_pages.tables.store import Store

COLUMNS = 10
ENTRIES = 8192


def synthetic_pages(count: int) -> pa.RecordBatch:
    """Descriptors of `count` full pages, laid end to end in files of 4,096 pages."""
    random = np.random.default_rng(7)
    actual = random.integers(20_000, 60_000, count).astype(np.int32)
    alloc = (-(-actual // 4096) * 4096).astype(np.int32)
    file = np.arange(count) // 4096
    ends = np.cumsum(alloc, dtype=np.int64)
    starts = ends - alloc
    offset = starts - starts[file * 4096]
    names = pa.array([f"pages/{0:020d}-{i:032x}-0.pages" for i in range(int(file[-1]) + 1)])
    columns = [
        np.arange(count, dtype=np.int64),
        np.full(count, ENTRIES, dtype=np.int64),
        np.full(count, ENTRIES, dtype=np.int64),
        np.zeros(count, dtype=np.int8),
        pa.DictionaryArray.from_arrays(pa.array(file.astype(np.int32)), names),
        offset,
        alloc,
        actual,
        random.integers(-(2**62), 2**62, count),
        pa.nulls(count, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays([pa.array(c) for c in columns], schema=PAGE_SCHEMA)


def fill(url: str, count: int) -> None:
    """A store whose table `big` has `count` page descriptors, and a checkpoint."""
    store = sp.create(url)
    with store.transaction("create") as txn:
        txn.create_table("big", pa.schema([(f"c{i}", pa.int64()) for i in range(COLUMNS)]))
    with store.transaction("create") as txn:
        txn.create_table("small", pa.schema([("a", pa.int64())]))
    pages = synthetic_pages(count)
    objects = store.objects
    runtime = Runtime()
    data = encode_manifest(pages, no_stats(count))
    location = locate(manifest_key(runtime.token()), data)
    objects.put(location.key, data)
    each = count // COLUMNS
    nothing = pages.slice(0, 0)

    def build(_: LogState) -> TransactionRecord:
        return TransactionRecord(
            token=runtime.token(),
            operation="fill",
            read_version=1,
            writer="benchmark",
            pages=nothing,
            stats=empty_batch(STATS_SCHEMA),
            manifests=(ManifestRef(location, 0, count),),
            splices=tuple(
                Splice(
                    TableId(1),
                    FieldId(i + 1),
                    0,
                    (),
                    0,
                    1,
                    i * each,
                    (i + 1) * each,
                    each * ENTRIES,
                    touched=((0, each * ENTRIES),),
                )
                for i in range(COLUMNS)
            ),
        )

    log = Log(objects, runtime)
    log.commit(log.snapshot(), build)
    log.checkpoint()


def median_ms(times: list[float]) -> float:
    """Median in milliseconds."""
    return round(statistics.median(times) * 1000, 3)


def bare_puts(folder: Path, size: int, count: int) -> float:
    """Milliseconds of a durable create of as many bytes as a commit has."""
    objects = DurableLocalStore(str(folder))
    times = []
    for number in range(count):
        begin = time.perf_counter()
        objects.create(f"bare/{number:020d}", bytes(size))
        times.append(time.perf_counter() - begin)
    return median_ms(times)


def commits(url: str, count: int) -> dict[str, float]:
    """One-page commits, one after another."""
    store = sp.open(url)
    row = pa.table({"a": [1]})
    times = []
    for _ in range(count):
        begin = time.perf_counter()
        with store.transaction("append") as txn:
            txn.append("small", row)
        times.append(time.perf_counter() - begin)
    size = len(store.objects.get(f"_log/{store.snapshot().version:020d}.avro"))
    return {"ms": median_ms(times), "per_second": round(1 / statistics.median(times), 1), "bytes": size}


def cold(url: str, rows: int) -> dict[str, float]:
    """Open and locate one row, nothing cached, by name."""
    results = []
    for row in (0, rows // 2, rows - 1):
        objects = MeteredStore(DurableLocalStore(url))
        begin = time.perf_counter()
        Store(objects).snapshot().table("big").directory.locate_row("c5", row)
        spent = time.perf_counter() - begin
        counts = objects.counts
        results.append((spent, counts.requests, counts.bytes_read))
    return {
        "ms": median_ms([r[0] for r in results]),
        "requests": max(r[1] for r in results),
        "bytes": max(r[2] for r in results),
    }


def warm(url: str, rows: int) -> dict[str, float]:
    """`locate_row` and `locate_rows` with everything loaded."""
    directory = sp.open(url).snapshot().table("big").directory
    random = np.random.default_rng(3).integers(0, rows, 1_000_000)
    directory.locate_rows("c5", random)
    some = random[:20_000].tolist()
    begin = time.perf_counter()
    for row in some:
        directory.locate_row("c5", row)
    one = (time.perf_counter() - begin) / len(some)
    begin = time.perf_counter()
    for row in some[:2000]:
        _ = directory.locate_row("c5", row).page
    described = (time.perf_counter() - begin) / 2000
    begin = time.perf_counter()
    directory.locate_rows("c5", random)
    batch = (time.perf_counter() - begin) / len(random)
    return {
        "locate_row_us": round(one * 1e6, 2),
        "locate_row_and_describe_page_us": round(described * 1e6, 2),
        "locate_rows_us_per_row": round(batch * 1e6, 3),
    }


def memory(url: str) -> float:
    """Bytes of Arrow and numpy memory for each descriptor of a loaded chain."""
    gc.collect()
    chain = sp.open(url).snapshot().table("big").directory.chain("c5")
    run: PageRun = chain.all_pages()
    return round((run.pages.nbytes + run.prefix_entries.nbytes) / run.num_pages, 1)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=1_000_000)
    parser.add_argument("--commits", type=int, default=200)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        empty, full = str(root / "empty"), str(root / "full")
        fill(empty, COLUMNS * 10)
        begin = time.perf_counter()
        fill(full, options.pages)
        rows = options.pages // COLUMNS * ENTRIES
        figures = {
            "pages": options.pages,
            "fill_and_checkpoint_s": round(time.perf_counter() - begin, 2),
            "log_bytes_per_page": round(
                sum(f.stat().st_size for f in (Path(full) / "_log" / "segments").iterdir()) / options.pages, 1
            ),
            "cold_open_and_locate": cold(full, rows),
            "warm": warm(full, rows),
            "memory_bytes_per_descriptor": memory(full),
            "commit_empty": commits(empty, options.commits),
            "commit_full": commits(full, options.commits),
        }
        size = int(figures["commit_empty"]["bytes"])  # type: ignore[index]
        figures["bare_durable_put_ms"] = bare_puts(root / "bare", size, options.commits)
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
