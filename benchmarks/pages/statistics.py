"""What statistics of pages and bloom filters cost, and what they save.

1. Statistics: CPU time for each MB of Arrow that comes in, beside the encoding of the same pages; and their
   share of an ingest of ten mixed columns, that of the estimates of different values apart.
2. Estimates of different values beside their number.
3. Aggregates of a column beside Arrow over the rows in memory, statistics of Parquet row groups, and a
   scan of the store.
4. Bloom filters: false positives asked for and found, bytes, and pages read to find a key in no order.

Times are medians; the parts of one table run in turns, so that another's load meets all of them.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import spark_pages as sp
from benchmarks.log.report import Row, arguments, log_note, show
from benchmarks.pages.mixed_table import SCHEMA, pieces
from spark_pages.format import statistics as page_statistics
from spark_pages.format.bloom import Blooms, build_bloom
from spark_pages.format.value_hash import hash_values
from spark_pages.io import ReadTrace, encode_page, page_stats, plan_pages, stats_of_pages
from spark_pages.io.bloom_reader import has_bloom
from spark_pages.model.page import PageStats
from spark_pages.query.table import Table
from spark_pages.transaction import ingest

QUIET = {"checkpoint_commits": "0", "checkpoint_bytes": "0", "log_compaction_commits": "0"}
RATES = (0.1, 0.01, 0.001)


def in_turns(parts: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median CPU seconds of each part."""
    times: dict[str, list[float]] = {name: [] for name in parts}
    for _ in range(rounds):
        for name, part in parts.items():
            began = time.thread_time()
            part()
            times[name].append(time.thread_time() - began)
    return {name: statistics.median(each) for name, each in times.items()}


def columns(pages: int) -> dict[str, pa.Array]:
    """Columns of about so many pages each."""
    generator = np.random.default_rng(1)
    n = 8192 * pages
    wide = generator.integers(-(10**12), 10**12, n)
    names = [f"customer-{number:08d}" for number in generator.integers(0, 10**8, n // 4)]
    return {
        "int64, wide": pa.array(wide),
        "int64, 1,000 values": pa.array(generator.integers(0, 1_000, n)),
        "int64, a tenth null": pa.array(wide, mask=generator.random(n) < 0.1),
        "float64": pa.array(generator.normal(size=n)),
        "timestamp": pa.array(np.cumsum(generator.integers(0, 10**6, n)), pa.timestamp("us")),
        "text, 17 bytes": pa.array(names),
        "text, 2 bytes": pa.array(generator.choice(["AA", "UA", "DL", "WN"], n)),
        "dictionary": pa.array(generator.choice(["AA", "UA", "DL", "WN"], n)).dictionary_encode(),
        "decimal128": pa.array(wide[: n // 2]).cast(pa.decimal128(22, 2)),
        "boolean": pa.array(generator.random(8 * n) < 0.5),
    }


def cost(name: str, array: pa.Array, rounds: int) -> Row:
    """A row of the first table."""
    bounds = plan_pages(array)
    cuts = list(pairwise(bounds.tolist()))
    times = in_turns(
        {
            "whole": lambda: stats_of_pages(array, bounds),
            "each": lambda: [page_stats(array[start:end]) for start, end in cuts],
            "encode": lambda: [encode_page(array[start:end]) for start, end in cuts],
            "bloom": lambda: [build_bloom(array[start:end], 0.01) for start, end in cuts],
        },
        rounds,
    )
    size_mb = array.nbytes / 1e6
    return {
        "column": name,
        "pages": len(cuts),
        "statistics ms/MB": times["whole"] / size_mb * 1e3,
        "page by page": times["each"] / size_mb * 1e3,
        "encode ms/MB": times["encode"] / size_mb * 1e3,
        "of encode": f"{times['whole'] / times['encode']:.0%}",
        "bloom ms/MB": times["bloom"] / size_mb * 1e3,
    }


def share_of_ingest(rows: int, rounds: int, folder: Path) -> list[Row]:
    """CPU time of an ingest without statistics, with all but the estimates, and with all."""
    tables = list(pieces(rows))
    whole = (page_statistics.distinct_numbers, page_statistics.distinct_bytes, ingest.stats_of_pages)
    nothing = PageStats(0, None, None, False)
    kinds: dict[str, tuple[Callable[..., object], ...]] = {
        "no statistics": (*whole[:2], lambda _, bounds: [nothing] * (len(bounds) - 1)),
        "without estimates": (
            lambda _, pages: [2] * len(pages.starts),
            lambda *of: [1 << 30] * len(of[-1].starts),
            whole[2],
        ),
        "all": whole,
    }
    times: dict[str, list[float]] = {name: [] for name in kinds}
    for number in range(rounds + 1):
        for name, kind in kinds.items():
            page_statistics.distinct_numbers, page_statistics.distinct_bytes, ingest.stats_of_pages = kind  # type: ignore[assignment]
            began = time.process_time()
            store = sp.create(str(folder / f"{name}-{number}"), properties=QUIET)
            with store.transaction() as txn:
                txn.create_table("t", SCHEMA)
                for table in tables:
                    txn.append("t", table)
            if number:
                times[name].append(time.process_time() - began)
    page_statistics.distinct_numbers, page_statistics.distinct_bytes, ingest.stats_of_pages = whole
    size_mb = sum(table.nbytes for table in tables) / 1e6
    rests = times["no statistics"]
    return [
        {
            "ingest": name,
            "CPU ms/MB": statistics.median(each) / size_mb * 1e3,
            "of none": statistics.median(a / b for a, b in zip(each, rests, strict=True)),
        }
        for name, each in times.items()
    ]


def estimates(pages: int) -> list[Row]:
    """The estimate of different values for pages of several sorts, beside the number."""
    generator = np.random.default_rng(2)
    sorts: dict[str, Callable[[], np.ndarray]] = {
        "all different": lambda: generator.permutation(10**6)[:8192],
        "4,000 values alike": lambda: generator.integers(0, 4_000, 8192),
        "1,000 values alike": lambda: generator.integers(0, 1_000, 8192),
        "50 values alike": lambda: generator.integers(0, 50, 8192),
        "runs of 3": lambda: np.repeat(generator.integers(0, 1 << 40, 2731), 3)[:8192],
        "Zipf, 1.5": lambda: generator.zipf(1.5, 8192),
        "one value mostly": lambda: np.where(
            generator.random(8192) < 0.9, 0, generator.integers(0, 8192, 8192)
        ),
    }
    rows = []
    for name, make in sorts.items():
        made = [make() for _ in range(pages)]
        true = np.array([len(np.unique(values)) for values in made])
        found = np.array([page_stats(pa.array(values)).distinct or 0 for values in made])
        ratio = np.sort(found / true)
        rows.append(
            {
                "page of 8,192": name,
                "different": int(np.median(true)),
                "estimate": int(np.median(found)),
                "least / true": float(ratio[0]),
                "most / true": float(ratio[-1]),
            }
        )
    return rows


def aggregates(rows: int, rounds: int, folder: Path) -> list[Row]:
    """Least and greatest value of a column, by several ways."""
    generator = np.random.default_rng(3)
    values = pa.table({"n": generator.integers(-(10**12), 10**12, rows)})
    store = sp.create(str(folder / "store"), properties=QUIET)
    with store.transaction() as txn:
        txn.create_table("t", values.schema)
        txn.append("t", values)
    store.checkpoint()
    pq.write_table(values, folder / "t.parquet", compression="lz4", use_dictionary=False)
    table = store.snapshot().table("t")
    table.aggregate("n")
    start, stop = rows // 10 + 5, rows - rows // 10 - 5

    def cold() -> object:
        with sp.open(str(folder / "store")) as again:
            return again.snapshot().table("t").aggregate("n")

    def parquet_statistics() -> object:
        meta = pq.ParquetFile(folder / "t.parquet").metadata
        groups = [meta.row_group(index).column(0).statistics for index in range(meta.num_row_groups)]
        return min(group.min for group in groups), max(group.max for group in groups)

    def scan() -> object:
        return [pc.min_max(batch.column(0)) for batch in table.scan(["n"])]

    ways: dict[str, Callable[[], object]] = {
        "aggregate, whole column": lambda: table.aggregate("n"),
        "aggregate, rows [10 %, 90 %)": lambda: table.aggregate("n", start, stop),
        "open the store, then aggregate": cold,
        "scan of the store, then Arrow": scan,
        "Arrow over rows in memory": lambda: pc.min_max(values.column("n")),
        "Parquet, statistics of row groups": parquet_statistics,
        "Parquet, read, then Arrow": lambda: pc.min_max(pq.read_table(folder / "t.parquet").column("n")),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            began = time.perf_counter()
            way()
            times[name].append(time.perf_counter() - began)
    pages = {
        "aggregate, whole column": table.aggregate("n").pages_read,
        "aggregate, rows [10 %, 90 %)": table.aggregate("n", start, stop).pages_read,
        "scan of the store, then Arrow": table.pages("n").num_rows,
    }
    return [
        {
            "way": name,
            "ms": statistics.median(each) * 1e3,
            "best ms": min(each) * 1e3,
            "pages read": pages.get(name, ""),
        }
        for name, each in times.items()
    ]


def false_positives(pages: int) -> list[Row]:
    """How often a filter says "maybe" of a value that is not in the page."""
    generator = np.random.default_rng(4)
    strangers = hash_values(pa.array(np.arange(1 << 41, (1 << 41) + 20_000)))
    assert strangers is not None
    rows = []
    for rate in RATES:
        made = [
            build_bloom(pa.array(generator.integers(0, 1 << 40, 8192)), rate) or b"" for _ in range(pages)
        ]
        blooms = Blooms.of(made)
        maybe = sum(int(blooms.may_contain(strangers[i : i + 1]).sum()) for i in range(len(strangers)))
        rows.append(
            {
                "asked": f"{rate:.1%}",
                "found": f"{maybe / len(strangers) / pages:.3%}",
                "bits a value": len(made[0]) * 8 / 8192,
                "KiB a page": len(made[0]) / 1024,
            }
        )
    return rows


def lookups(rows: int, folder: Path) -> list[Row]:
    """A key in no order, among as many as the table has rows, by `==`; with filters and without."""
    keys = np.random.default_rng(5).permutation(2 * rows)
    there, absent = keys[:rows], keys[rows:]
    table = pa.table({"key": there, "plain": there})
    store = sp.create(str(folder / "lookup"), properties=QUIET)
    with store.transaction() as txn:
        txn.create_table("t", table.schema, properties={"bloom.key": "0.01"})
        txn.append("t", table)
    found = []
    for column in ("plain", "key"):
        for what, asked in (("there", there), ("not there", absent)):
            with sp.open(str(folder / "lookup")) as again:
                found.append(_lookup(again.snapshot().table("t"), column, what, asked[:: len(asked) // 20]))
    return found


def _lookup(table: Table, column: str, what: str, asked: np.ndarray) -> Row:
    traces, times = [], []
    for key in asked.tolist():
        trace = ReadTrace()
        began = time.perf_counter()
        table.read([column], filter=[(column, "==", key)], trace=trace)
        times.append(time.perf_counter() - began)
        traces.append(len(trace.page_ids))
    run = table.directory.chain(column).all_pages()
    blooms = run.stats.column("bloom_length")
    return {
        "bloom": "yes" if has_bloom(run).any() else "no",
        "key": what,
        "pages": run.num_pages,
        "pages read": statistics.mean(traces),
        "first ms": times[0] * 1e3,
        "then ms": statistics.median(times[1:]) * 1e3,
        "filters / pages bytes": f"{(pc.sum(blooms).as_py() or 0) / run.numbers('actual_len').sum():.0%}",
    }


def main() -> None:
    """Run all four and print their tables."""
    parser = arguments(__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--pages", type=int, default=64, help="of each column whose statistics are timed")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    log_note("statistics …")
    rows = [cost(name, array, options.rounds) for name, array in columns(options.pages).items()]
    show("Statistics of pages, CPU time for each MB of Arrow", rows, options.json)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        found = share_of_ingest(min(options.rows, 1_000_000), options.rounds, Path(folder))
        show("Statistics as a part of an ingest of 10 mixed columns", found, options.json)
    show("Estimates of different values", estimates(max(4, options.pages // 2)), options.json)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        log_note(f"aggregates over {options.rows:,} rows …")
        title = f"Least and greatest of {options.rows:,} int64"
        show(title, aggregates(options.rows, options.rounds, Path(folder)), options.json)
        log_note("bloom filters …")
        show("False positives of bloom filters, pages of 8,192", false_positives(8), options.json)
        title = f"A key among {options.rows:,} in no order, by =="
        show(title, lookups(options.rows, Path(folder)), options.json)


if __name__ == "__main__":
    main()
