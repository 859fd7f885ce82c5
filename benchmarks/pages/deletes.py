# ruff: noqa: PLC0415, D102 - imports are late so that a system may be missing; `DeleteSystem` says what each method does
"""Deletes beside Lance and delta-rs in one run, scans with dead rows, and processes that write at once.

Each system holds the same table. Times are medians over fresh keys; bytes are those by which the folder grew
with the first. Processor time stands beside the time of the clock, which a busy machine stretches.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import spark_pages as sp

INSTALL = "pip install -r benchmarks/requirements.txt"
QUIET = {"checkpoint_commits": "0", "checkpoint_bytes": "0", "log_compaction_commits": "0"}
LATENCY_S = 0.02


class DeleteSystem(Protocol):
    """What is asked of each; `folder` is where it keeps its one table."""

    name: str
    modules: tuple[str, ...]

    def make(self, folder: Path, table: pa.Table) -> Any:
        """Store the rows; gives a handle."""
        ...

    def delete(self, handle: Any, column: str, keys: NDArray[np.int64]) -> Any:
        """Delete the rows whose column is one of the keys; gives the handle to go on with."""
        ...

    def scan(self, handle: Any, column: str) -> None:
        """Read a column whole."""
        ...


class SparkPages:
    """This project, by a condition."""

    name, modules = "spark-pages", ("spark_pages",)

    def make(self, folder: Path, table: pa.Table) -> Any:
        store = sp.create(str(folder), properties=QUIET)
        store.append("t", table, create=True)
        return store

    def delete(self, handle: Any, column: str, keys: NDArray[np.int64]) -> Any:
        with handle.transaction() as txn:
            txn.delete("t", where=[(column, "in", keys.tolist())])
        return handle

    def scan(self, handle: Any, column: str) -> None:
        for _ in handle.snapshot().table("t").scan([column]):
            pass


class SparkPagesByRow(SparkPages):
    """This project, by row number: the keys of the tables here are row numbers."""

    name = "spark-pages by row"

    def delete(self, handle: Any, column: str, keys: NDArray[np.int64]) -> Any:  # noqa: ARG002
        with handle.transaction() as txn:
            txn.delete("t", keys)
        return handle


class Lance:
    """Lance, by a condition."""

    name, modules = "Lance", ("lance",)

    def make(self, folder: Path, table: pa.Table) -> Any:
        import lance

        return lance.write_dataset(table, str(folder))

    def delete(self, handle: Any, column: str, keys: NDArray[np.int64]) -> Any:
        handle.delete(_condition(column, keys))
        return handle

    def scan(self, handle: Any, column: str) -> None:
        for _ in handle.to_batches(columns=[column]):
            pass


class DeltaRs:
    """delta-rs, by a condition."""

    name, modules = "delta-rs", ("deltalake",)

    def make(self, folder: Path, table: pa.Table) -> Any:
        from deltalake import DeltaTable, write_deltalake

        write_deltalake(str(folder), table)
        return DeltaTable(str(folder))

    def delete(self, handle: Any, column: str, keys: NDArray[np.int64]) -> Any:
        handle.delete(_condition(column, keys))
        return handle

    def scan(self, handle: Any, column: str) -> None:
        handle.to_pyarrow_table(columns=[column])


SYSTEMS: tuple[DeleteSystem, ...] = (SparkPages(), SparkPagesByRow(), Lance(), DeltaRs())


def _condition(column: str, keys: NDArray[np.int64]) -> str:
    return f"{column} IN ({', '.join(map(str, keys.tolist()))})"


def folder_bytes(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def measured(work: Callable[[], object]) -> tuple[float, float]:
    """Milliseconds of the clock and of the processor."""
    begin, cpu = time.perf_counter(), time.process_time()
    work()
    return (time.perf_counter() - begin) * 1e3, (time.process_time() - cpu) * 1e3


def deletes(system: DeleteSystem, folder: Path, table: pa.Table, keys: list[NDArray[np.int64]]) -> str:
    """Delete the rows of each set of keys, one after the other, on one table."""
    handle = system.make(folder, table)
    times, sizes = [], []
    for some in keys:
        before = folder_bytes(folder)

        def work(some: NDArray[np.int64] = some) -> None:
            nonlocal handle
            handle = system.delete(handle, "k", some)

        times.append(measured(work))
        sizes.append(folder_bytes(folder) - before)
    clock, processor = (statistics.median(each) for each in zip(*times, strict=True))
    return f"{clock:.1f} ms, {processor:.1f} ms processor, first {times[0][0]:.1f} ms; {sizes[0]:,} bytes"


def wide_table(rows: int, columns: int, rng: np.random.Generator) -> pa.Table:
    """Make a key and columns of small numbers."""
    more = {f"c{number}": rng.integers(0, 1000, rows) for number in range(columns - 1)}
    return pa.table({"k": np.arange(rows), **more})


def tasks(scale: float) -> Iterator[tuple[str, pa.Table, list[NDArray[np.int64]]]]:
    """What is deleted from which table."""
    rng = np.random.default_rng(1)
    rows = int(336_776 * scale)
    yield f"1 row of {rows:,} x 20", wide_table(rows, 20, rng), [rng.choice(rows, 1) for _ in range(9)]
    rows = int(4_000_000 * scale)
    keys = [np.sort(rng.choice(rows, 1000, replace=False)) for _ in range(5)]
    yield f"1,000 keys of {rows:,}", wide_table(rows, 2, rng), keys
    rows = int(10_000_000 * scale)
    yield (
        f"1 % of {rows:,}",
        wide_table(rows, 1, rng),
        [np.sort(rng.choice(rows, rows // 100, replace=False))],
    )


def scans(folder: Path, scale: float, rounds: int) -> Iterator[str]:
    """Compare scans, `take` and `locate_row` of a table with 1 % dead rows with the same table without."""
    rng, rows = np.random.default_rng(2), int(4_000_000 * scale)
    text = np.char.add("name ", rng.integers(0, 10**6, rows).astype(str))
    table = pa.table({"a": rng.random(rows), "b": rng.integers(0, 1 << 40, rows), "s": text.astype(object)})
    store = sp.create(str(folder), properties=QUIET)
    for name in ("clean", "dead"):
        store.append(name, table, create=True)
    dead = rng.choice(rows, rows // 100, replace=False)
    with store.transaction() as txn:
        txn.delete("dead", dead)
    some = np.setdiff1d(rng.choice(rows, 10_000), dead)
    tables = {name: store.snapshot().table(name) for name in ("clean", "dead")}
    works: dict[str, Callable[[sp.Table], object]] = {
        "scan of doubles": lambda t: list(t.scan(["a"], prefetch=False)),
        "scan of text": lambda t: list(t.scan(["s"], prefetch=False)),
        "scan of all columns": lambda t: list(t.scan(prefetch=False)),
        "take of 10,000 rows": lambda t: t.take(some, ["a"]),
        "locate_row x 1,000": lambda t: [t.directory.locate_row("a", row) for row in range(1000)],
    }
    for what, work in works.items():
        best = dict.fromkeys(tables, float("inf"))
        for _ in range(rounds):
            for name, each in tables.items():
                best[name] = min(best[name], measured(lambda work=work, each=each: work(each))[1])
        yield f"{what}: {best['dead'] / best['clean']:.2f} x (processor, best of {rounds}: {best})"


def _write(url: str, kind: str, number: int, rows: int, commits: int, ready: Any, results: Any) -> None:
    """Delete and update own rows, or append, as one of several processes."""
    store = sp.open(url)
    store._objects = _slow(store.object_store)
    store = sp.Store(store._objects)
    own = np.random.default_rng(number).permutation(np.arange(number, rows, PROCESSES))
    ready.wait()
    begin, failed = time.perf_counter(), 0
    for turn in range(commits):
        try:
            with store.transaction() as txn:
                if kind == "append":
                    txn.append("t", {"k": [turn], "v": [number]})
                elif turn % 2:
                    txn.delete("t", own[turn : turn + 1])
                else:
                    txn.update_rows("t", own[turn : turn + 1], {"v": [turn]})
        except sp.SparkPagesError:
            failed += 1
    results.put((time.perf_counter() - begin, failed))


PROCESSES = 8


def _slow(objects: Any) -> Any:
    from benchmarks.log.slow_store import SlowStore

    return SlowStore(objects, LATENCY_S)


def writers(folder: Path, commits: int) -> Iterator[str]:
    """Let eight processes delete and update other rows of one table, and the same number append."""
    rates = {}
    context = multiprocessing.get_context("spawn")
    for kind in ("append", "delete and update"):
        url, rows = str(folder / kind.replace(" ", "-")), 1_000_000
        sp.create(url, properties=QUIET).append(
            "t", pa.table({"k": np.arange(rows), "v": np.zeros(rows, np.int64)}), create=True
        )
        ready, results = context.Barrier(PROCESSES), context.Queue()
        started = [
            context.Process(target=_write, args=(url, kind, number, rows, commits, ready, results))
            for number in range(PROCESSES)
        ]
        for each in started:
            each.start()
        told = [results.get(timeout=600) for _ in started]
        for each in started:
            each.join()
        rates[kind] = PROCESSES * commits / max(seconds for seconds, _ in told)
        failures = sum(failed for _, failed in told)
        where = f"{PROCESSES} processes, {LATENCY_S * 1e3:.0f} ms"
        yield f"{where}: {kind}: {rates[kind]:.1f} commits/s, {failures} failures"
    yield f"deletes and updates relative to appends: {rates['delete and update'] / rates['append']:.0%}"


def main() -> None:
    """Print each figure as it is measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the rows")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--commits", type=int, default=20, help="of each process")
    parser.add_argument("--only", choices=("deletes", "scans", "writers"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as made:
        folder = Path(made)
        if given.only in (None, "deletes"):
            for number, (what, table, keys) in enumerate(tasks(given.scale)):
                for system in SYSTEMS:
                    try:
                        [importlib.import_module(module) for module in system.modules]
                    except ImportError:
                        print(f"{system.name} is not installed: {INSTALL}", flush=True)
                        continue
                    place = folder / f"{number}-{system.name.replace(' ', '-')}"
                    print(f"delete {what}: {system.name}: {deletes(system, place, table, keys)}", flush=True)
        if given.only in (None, "scans"):
            for line in scans(folder / "scans", given.scale, given.rounds):
                print(line, flush=True)
        if given.only in (None, "writers"):
            for line in writers(folder, given.commits):
                print(line, flush=True)


if __name__ == "__main__":
    main()
