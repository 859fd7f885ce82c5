"""Durable commits of one process, one after another, beside bare durable puts of as many bytes.

One row: a transaction that takes an Arrow table of one row, makes a page of it and commits that. One page,
and a thousand: descriptors of pages that are in storage already, as a bulk writer registers them; what other
systems call a commit of one entry, and what is promised. Stores of all sizes and the bare put take turns, so
that all meet the same machine.
"""

from __future__ import annotations

import cProfile
import pstats
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

import spark_pages as sp
from benchmarks.log.records import ENTRIES, append, pages_in_a_file
from benchmarks.log.report import Row, arguments, log_note, show
from benchmarks.log.synthetic import Shape, make_store
from spark_pages.log.log import Log
from spark_pages.runtime import Runtime
from spark_pages.storage import DurableLocalStore
from spark_pages.store import Store

ROW = pa.table({"a": [1]})
SMALL = (1, 1)


def one_row(store: Store) -> None:
    """A transaction of one row, in a page that rides in the commit."""
    with store.transaction("append") as txn:
        txn.append("small", ROW)


def seconds(work: Callable[[], object]) -> float:
    """How long it takes once."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def take_turns(works: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median milliseconds of each, all of them in every round."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for number in range(rounds + 5):
        for name, work in works.items():
            spent = seconds(work)
            if number >= 5:
                times[name].append(spent)
    return {name: statistics.median(each) * 1e3 for name, each in times.items()}


def newest_slot_bytes(url: str) -> int:
    """Bytes of the newest commit."""
    return max(DurableLocalStore(url).list("_log/0"), key=lambda info: info.key).size_bytes


def bare_put(folder: Path, size_bytes: int) -> Callable[[], object]:
    """Creates objects of so many bytes, each under a new name."""
    objects, numbers = DurableLocalStore(folder), iter(range(1 << 30))
    data = bytes(size_bytes)
    return lambda: objects.create(f"_log/{next(numbers):020d}.avro", data)


def measure(folder: Path, sizes: list[int], rounds: int) -> list[Row]:
    """One page and a thousand, on stores of these sizes."""
    urls = {size: str(folder / f"of-{size}") for size in sizes}
    for size, url in urls.items():
        make_store(url, Shape(size))
        log_note(f"{size:,} descriptors: made")
    stores = {size: sp.open(url) for size, url in urls.items()}
    logs = {size: Log(DurableLocalStore(url), Runtime()) for size, url in urls.items()}
    known = {count: pages_in_a_file([ENTRIES] * count, "pages/written-before") for count in (1, 1_000)}
    rows: list[Row] = []
    for what, commit, promised in (
        ("1 row", {s: (lambda s=s: one_row(stores[s])) for s in sizes}, ""),
        ("1 page", {s: (lambda s=s: append(logs[s], [SMALL], 1, known[1])) for s in sizes}, 2.0),
        ("1,000 pages", {s: (lambda s=s: append(logs[s], [SMALL], 1_000, known[1_000])) for s in sizes}, 3.0),
    ):
        commit[sizes[0]]()
        size_bytes = newest_slot_bytes(urls[sizes[0]])
        works: dict[str, Callable[[], object]] = {"bare": bare_put(folder / f"bare {what}", size_bytes)}
        works |= {f"{size}": commit[size] for size in sizes}
        found = take_turns(works, rounds)
        rows += [
            {
                "commit of": what,
                "descriptors in the store": size,
                "bytes": size_bytes,
                "ms": found[f"{size}"],
                "bare put ms": found["bare"],
                "times bare": found[f"{size}"] / found["bare"],
                "promised": promised,
                "times smallest store": found[f"{size}"] / found[f"{sizes[0]}"],
            }
            for size in sizes
        ]
    return rows


def profile(folder: Path, commits: int) -> None:
    """Where the time of one-row commits goes."""
    url = str(folder / "profiled")
    make_store(url, Shape(0))
    store = sp.open(url)
    one_row(store)
    profiler = cProfile.Profile()
    profiler.enable()
    for _ in range(commits):
        one_row(store)
    profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(30)


def main() -> None:
    """Measure and print."""
    parser = arguments(__doc__)
    parser.add_argument("--pages", type=int, nargs="+", default=[0, 100_000, 10_000_000])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--profile", action="store_true", help="show where the time goes instead")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        if options.profile:
            profile(Path(folder), options.rounds)
        else:
            rows = measure(Path(folder), options.pages, options.rounds)
            show("durable commits", rows, options.json)


if __name__ == "__main__":
    main()
