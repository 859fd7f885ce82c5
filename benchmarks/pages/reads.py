"""Rows out of a table of ten mixed columns, by this project and its peers, in the same run.

Cold means: the handle knows the layout of the table, but no value is in its memory, nor in the page cache of
the kernel. Warm means the same question, asked before (spark-pages has a cache that holds the table, the
others have the page cache of the kernel). The systems take turns within each round; times are medians over
the rounds. A ratio is the time of the peer by the time of spark-pages: above 1, spark-pages is quicker.

*Bare* is no system but a bound: the pages that spark-pages has to touch, read past the page cache by two
threads and decompressed, with no check, no value put anywhere and no answer.

Each question is answered with its time and with the processor time of all threads, which tells more on a
machine that others use too.

The tables are kept in the folder given and used again. Without one they are made anew in a temporary folder.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.log.report import Row, arguments, log_note, show
from benchmarks.pages.mixed_table import pieces
from benchmarks.pages.read_systems import (
    INSTALL,
    SYSTEMS,
    BareReads,
    ReadSystem,
    drop_page_cache,
    is_installed,
    make,
)

Ask = Callable[[ReadSystem, Any, np.random.Generator], int]


@dataclass(frozen=True, slots=True)
class Task:
    """A question, and how it is asked.

    Attributes
    ----------
    name
        What the table says.
    ask
        Asks a system with an open handle; gives the rows that came, which must be `rows`.
    cold
        Whether no value is in memory when it is asked.
    repeats
        Times that it is asked in a round, each time of other rows.
    opens
        Whether opening is part of what is timed.
    """

    name: str
    ask: Ask
    rows: int
    cold: bool
    repeats: int = 1
    opens: bool = False


def tasks(rows: int) -> list[Task]:
    """The questions for a table of so many rows."""
    many = min(10_000, rows)

    def take(count: int, columns: Sequence[str] | None) -> Ask:
        return lambda system, handle, random: system.take(handle, random.integers(0, rows, count), columns)

    def neighbours(column: str) -> Ask:
        def ask(system: ReadSystem, handle: Any, random: np.random.Generator) -> int:
            start = int(random.integers(0, rows - 8_192))
            return system.read(handle, column, start, start + 8_192)

        return ask

    def scan(columns: Sequence[str] | None) -> Ask:
        return lambda system, handle, _: system.scan(handle, columns)

    found = []
    for cold in (True, False):
        how = "cold" if cold else "warm"
        found += [
            Task(f"take 10,000 rows of 10 columns, {how}", take(many, None), many, cold),
            Task(f"take 10,000 rows of id, {how}", take(many, ["id"]), many, cold),
            Task(f"take 10,000 rows of name, {how}", take(many, ["name"]), many, cold),
            Task(f"take 1 row of id, {how}", take(1, ["id"]), 1, cold, 20),
            Task(f"take 1 row of 10 columns, {how}", take(1, None), 1, cold, 20),
            Task(f"8,192 neighbours of id, {how}", neighbours("id"), 8_192, cold, 20),
            Task(f"8,192 neighbours of name, {how}", neighbours("name"), 8_192, cold, 20),
            Task(f"scan of 10 columns, {how}", scan(None), rows, cold),
            Task(f"scan of 3 columns, {how}", scan(["id", "price", "code"]), rows, cold),
        ]
    found.append(Task("open, take 1 row of id, cold", take(1, ["id"]), 1, True, 5, opens=True))
    return found


def measure(task: Task, systems: Sequence[ReadSystem], root: Path, rounds: int) -> tuple[Row, Row]:
    """Milliseconds of each system and the ratios: by the clock, and of processors."""
    asked = [system for system in systems if not (task.opens and isinstance(system, BareReads))]
    handles = {system.name: system.open(root / system.module) for system in asked}
    times: dict[str, list[float]] = {system.name: [] for system in asked}
    spent: dict[str, list[float]] = {system.name: [] for system in asked}
    for number in range(rounds):
        for system in asked:
            for repeat in range(task.repeats):
                random = np.random.default_rng([number, repeat] if task.cold or task.repeats > 1 else 0)
                handle = handles[system.name]
                if task.cold:
                    if not task.opens:
                        system.take(handle, np.array([0]), None)  # so that it knows the layout
                    system.forget(handle)
                    drop_page_cache(root / system.module)
                elif number == 0 or task.repeats > 1:
                    task.ask(
                        system, handle, np.random.default_rng([number, repeat] if task.repeats > 1 else 0)
                    )
                begin, processors = time.perf_counter(), time.process_time()
                if task.opens:
                    handle = system.open(root / system.module)
                found = task.ask(system, handle, random)
                times[system.name].append(time.perf_counter() - begin)
                spent[system.name].append(time.process_time() - processors)
                if found != task.rows:
                    raise AssertionError(
                        f"{system.name} gave {found} rows for {task.name!r}, not {task.rows}"
                    )
    return _row(task, systems, times), _row(task, systems, spent)


def _row(task: Task, systems: Sequence[ReadSystem], times: dict[str, list[float]]) -> Row:
    medians = {name: statistics.median(each) * 1e3 for name, each in times.items()}
    own = medians[systems[0].name]
    names = [system.name for system in systems]
    row: Row = {"task": task.name} | {f"{name} ms": medians.get(name, "") for name in names}
    return row | {f"x {name}": medians[name] / own if name in medians else "" for name in names[1:]}


def main() -> None:
    """Measure and print."""
    parser = arguments(__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where the tables are kept")
    parser.add_argument("--only", default="", help="tasks whose name contains this")
    options = parser.parse_args()
    systems = [system for system in SYSTEMS if is_installed(system)]
    for system in SYSTEMS:
        if system not in systems:
            log_note(f"{system.name} is left out, it is not installed: {INSTALL}")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        root = (options.folder or Path(scratch)) / str(options.rows)
        root.mkdir(parents=True, exist_ok=True)
        for system in systems:
            make(system, root / system.module, pieces(options.rows))
            log_note(f"{system.name}: {options.rows:,} rows are there")
        rows = []
        for task in tasks(options.rows):
            if options.only in task.name:
                rows.append(measure(task, systems, root, options.rounds))
                log_note(f"{task.name}: done")
    for what, some in zip(("ms", "processor ms"), zip(*rows, strict=True), strict=True):
        show(f"{options.rows:,} rows of ten mixed columns, {what}", some, options.json)


if __name__ == "__main__":
    main()
