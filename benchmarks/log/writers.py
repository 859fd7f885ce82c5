"""Many writers on one store: commits a second, how fairly they are shared, and how long one takes.

    python -m benchmarks.log.writers --processes 8 --latency 0.02
    python -m benchmarks.log.writers --threads 64 --latency 0.02

Beside it, in the same run, bare put-if-absent by as many writers: each tries slot after slot.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa

import spark_pages as sp
from benchmarks.log.delayed import DelayedStore
from spark_pages.log.fairness import COMMIT_TURNS
from spark_pages.storage import open_object_store
from spark_pages.storage.store import Created
from spark_pages.store import Store


def commit_until(url: str, latency_s: float, ends: float) -> list[float]:
    """Seconds that each commit of one row took."""
    store = Store(DelayedStore(open_object_store(url), latency_s))
    store.snapshot()
    row = _row()
    took = []
    while time.time() < ends:
        began = time.perf_counter()
        with store.transaction() as txn:
            txn.append("t", row)
        took.append(time.perf_counter() - began)
    return took


def create_until(url: str, latency_s: float, ends: float) -> list[float]:
    """Seconds that each bare put-if-absent took, with all the slots that were lost before."""
    store = DelayedStore(open_object_store(url), latency_s)
    data = bytes(2500)
    slot = 0
    took = []
    while time.time() < ends:
        began = time.perf_counter()
        while not isinstance(store.create(f"bare/{slot:020d}", data), Created):
            slot += 1
        slot += 1
        took.append(time.perf_counter() - began)
    return took


def _row() -> pa.Table:
    """One row. The first call takes seconds where pandas is installed, for pyarrow imports it then."""
    return pa.table({"n": [1]})


Work = Callable[[str, float, float], list[float]]


def _in_process(work: Work, url: str, latency_s: float, seconds: float, start: Any, results: Any) -> None:
    _row()
    start.wait()
    results.put(work(url, latency_s, time.time() + seconds))


def by_processes(work: Work, url: str, count: int, latency_s: float, seconds: float) -> list[list[float]]:
    """What each process did."""
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    start = context.Barrier(count)
    processes = [
        context.Process(target=_in_process, args=(work, url, latency_s, seconds, start, results))
        for _ in range(count)
    ]
    for process in processes:
        process.start()
    done = [results.get() for _ in processes]
    for process in processes:
        process.join()
    return done


def by_threads(url: str, count: int, latency_s: float, seconds: float) -> list[list[float]]:
    """What each thread of one process did, on one store."""
    store = Store(DelayedStore(open_object_store(url), latency_s))
    store.snapshot()
    row = _row()
    done: list[list[float]] = []

    def work() -> None:
        took = []
        while time.time() < ends:
            began = time.perf_counter()
            with store.transaction() as txn:
                txn.append("t", row)
            took.append(time.perf_counter() - began)
        done.append(took)

    ends = time.time() + seconds
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return done


def summary(done: list[list[float]], seconds: float) -> dict[str, float]:
    """Rate, shares and times of what was done."""
    took = sorted(each for writer in done for each in writer)
    shares = sorted(len(writer) for writer in done)
    return {
        "per_second": round(len(took) / seconds, 1),
        "smallest_share": shares[0],
        "largest_share": shares[-1],
        "median_ms": round(took[len(took) // 2] * 1e3, 1),
        "p99_ms": round(took[int(len(took) * 0.99)] * 1e3, 1),
        "slowest_ms": round(took[-1] * 1e3, 1),
    }


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=0)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--latency", type=float, default=0.02)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--fair", action="store_true", help="with the property commit_turns = fair")
    parser.add_argument("--bare", action=argparse.BooleanOptionalAction, default=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(
        dir="/dev/shm" if args.latency else None,  # noqa: S108
        ignore_cleanup_errors=True,
    ) as folder:
        url = f"file://{folder}/store"
        with sp.create(url).transaction() as txn:
            txn.create_table("t", pa.schema([("n", pa.int64())]))
            if args.fair:
                txn.set_properties({COMMIT_TURNS: "fair"})
        found: dict[str, Any] = {"latency_s": args.latency}
        if args.threads:
            found["threads"] = summary(
                by_threads(url, args.threads, args.latency, args.seconds), args.seconds
            )
        if args.processes:
            if args.bare:
                done = by_processes(create_until, url, args.processes, args.latency, args.seconds)
                found["bare"] = summary(done, args.seconds)
            done = by_processes(commit_until, url, args.processes, args.latency, args.seconds)
            found["processes"] = summary(done, args.seconds)
        table = sp.open(url).snapshot().table("t")
        found["rows"] = table.num_rows
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
