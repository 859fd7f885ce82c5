"""From a name to the columns of a table, in catalogs of many tables; and what making one more costs.

``open + resolve`` is timed in a fresh process, imports apart: the folder is opened, and the columns of one
table are told. ``look`` is the same on an open handle, for tables in any order: the first time, again, and
again for the same few.
CPU time is that of all threads, and is what to compare on a busy machine. A system that is not
installed is left out; install it with ``pip install -r benchmarks/requirements.txt duckdb``.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from benchmarks.catalog.systems import SYSTEMS, CatalogSystem, is_there, table_name
from benchmarks.log.report import Row, arguments, in_fresh_process, peak_mb, show

_COLD_RUNS = 3
_CREATED = 10
_FEW = 16


def measure(system: CatalogSystem, folder: Path, tables: int, columns: int, lookups: int) -> Row:
    """One system with so many tables."""
    begin = time.perf_counter()
    if not folder.exists():
        system.make(folder, tables, columns)
    made_s = time.perf_counter() - begin
    cold = [
        in_fresh_process("benchmarks.catalog.lookups", "--probe", system.name, folder, tables // 2 + run)
        for run in range(_COLD_RUNS)
    ]
    requests = system.requests(folder, table_name(tables // 3)) if system.requests else ""
    handle = system.open(folder)
    assert len(system.resolve(handle, table_name(0))) == columns
    drawn = random.Random(0).sample(range(tables), min(lookups, tables))

    def look(number: int) -> None:
        system.resolve(handle, table_name(number))

    first, again = _each(look, drawn), _each(look, drawn)
    few = _each(look, drawn[:_FEW] * 20)[_FEW:]
    begin = time.process_time()
    names = system.names(handle)
    listed_s = time.process_time() - begin
    assert len(names) >= tables
    created: list[float] = []
    if system.create is not None:
        make = system.create
        created = _each(
            lambda number: make(handle, f"more_{number}_{time.time_ns()}", columns), range(_CREATED)
        )
    return {
        "system": system.name,
        "sees others": system.refresh,
        "open + resolve ms": statistics.median(run["ms"] for run in cold),
        "cpu ms": statistics.median(run["cpu"] for run in cold),
        "requests": requests,
        "peak MB": statistics.median(run["mb"] for run in cold),
        "first look cpu µs": statistics.median(first) * 1e6,
        "again cpu µs": statistics.median(again) * 1e6,
        "few tables cpu µs": statistics.median(few) * 1e6,
        "list cpu ms": listed_s * 1e3,
        "create cpu ms": statistics.median(created) * 1e3 if created else "",
        "made in s": made_s,
    }


def _each(work: Callable[[int], object], numbers: Iterable[int]) -> list[float]:
    times = []
    for number in numbers:
        begin = time.process_time()
        work(number)
        times.append(time.process_time() - begin)
    return times


def probe(name: str, folder: Path, number: int) -> Row:
    """Open and resolve in this process, imports apart."""
    (system,) = (each for each in SYSTEMS if each.name == name)
    is_there(system)
    begin, begin_cpu = time.perf_counter(), time.process_time()
    system.resolve(system.open(folder), table_name(number))
    spent, spent_cpu = time.perf_counter() - begin, time.process_time() - begin_cpu
    return {"ms": spent * 1e3, "cpu": spent_cpu * 1e3, "mb": peak_mb()}


def main() -> None:
    """See the module."""
    if sys.argv[1:2] == ["--probe"]:
        print(json.dumps(probe(sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))))
        return
    parser = arguments(__doc__)
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--lookups", type=int, default=500)
    parser.add_argument("--folder", type=Path, help="keep the stores here, and use those that are there")
    parser.add_argument("--only", help="names of systems that begin so")
    given = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(exist_ok=True)
        for system in SYSTEMS:
            if not system.name.startswith(given.only or "") or not is_there(system):
                continue
            place = folder / system.name.split(",")[0].replace(" ", "-")
            rows.append(measure(system, place, given.tables, given.columns, given.lookups))
    show(f"{given.tables:,} tables of {given.columns} columns", rows, given.json)


if __name__ == "__main__":
    main()
