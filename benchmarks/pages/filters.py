"""Filters: what updates of rows cost until the next checkpoint, and lists of values.

1. A lookup by id, a scan with a filter and an aggregate after 0, 10, 100 and 1,000 rows were updated, with no
   checkpoint in between: rows of another column than the filter's, and rows of the filter's own column.
   *first* is the first question to a snapshot that has just been opened; later ones are told by the processor
   time of the best and the time of the median. *of none* compares processor time, which a busy machine
   changes least.
2. ``IN`` lists of 64, 65 and 10,000 values: pages read, and milliseconds; by the bounds of a column in order,
   and by the bloom filters of one in no order.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

import spark_pages as sp
from benchmarks.log.report import Row, arguments, log_note, show
from spark_pages.io import ReadTrace
from spark_pages.query.table import Table

QUIET = {"checkpoint_commits": "0", "checkpoint_bytes": "0", "log_compaction_commits": "0"}
UPDATES = (0, 10, 100, 1_000)
LENGTHS = (64, 65, 10_000)


def timed(work: Callable[[], object], rounds: int) -> tuple[float, float, float]:
    """Milliseconds of the first call; of the others the least processor time, and the median."""
    times, processor = [], []
    for _ in range(rounds + 1):
        began, began_here = time.perf_counter(), time.process_time()
        work()
        times.append((time.perf_counter() - began) * 1e3)
        processor.append((time.process_time() - began_here) * 1e3)
    return times[0], min(processor[1:]), statistics.median(times[1:])


def after_updates(rows: int, rounds: int, folder: Path, changed: str) -> list[Row]:
    """Questions to a table of which rows of one column were updated."""
    url = str(folder / f"updated-{changed}")
    store = sp.create(url, properties=QUIET)
    with store.transaction() as txn:
        data = pa.table({"id": np.arange(rows), "value": np.arange(rows) % 1_000, "other": np.arange(rows)})
        txn.create_table("t", data.schema)
        txn.append("t", data)
    store.checkpoint()
    found: list[Row] = []
    for count in UPDATES:
        if count:
            places = np.arange(count) * (rows // count)
            with store.transaction() as txn:
                txn.update_rows("t", places, {changed: pa.array(places)})
        wanted = rows // 2 + 7
        questions: dict[str, Callable[[Table], object]] = {
            "lookup": lambda t, id=wanted: t.read(filter=[("id", "==", id)]),
            "scan": lambda t: t.scan(filter="id % 1000 = 7").read_all(),
            "aggregate": lambda t: t.aggregate(changed),
        }
        row: Row = {"updated rows": count}
        for name, question in questions.items():
            with sp.open(url) as again:
                table = again.snapshot().table("t")
                first, best, median = timed(lambda ask=question, t=table: ask(t), rounds)
            row |= {f"{name} first ms": first, f"{name} CPU ms": best, f"{name} median ms": median}
            row[f"{name} of none"] = best / (found[0] if found else row)[f"{name} CPU ms"]
        found.append(row)
    return found


def lists(rows: int, rounds: int, folder: Path) -> list[Row]:
    """Lists of values in a column in order and in one in no order."""
    url = str(folder / "lists")
    generator = np.random.default_rng(1)
    shuffled = generator.permutation(rows)
    store = sp.create(url, properties=QUIET)
    with store.transaction() as txn:
        data = pa.table({"sorted": np.arange(rows), "shuffled": shuffled})
        txn.create_table("t", data.schema, properties={"bloom.shuffled": "0.01"})
        txn.append("t", data)
    store.checkpoint()
    found = []
    for column in ("sorted", "shuffled"):
        for length in LENGTHS:
            values = generator.choice(rows, length, replace=False).tolist()
            with sp.open(url) as again:
                table = again.snapshot().table("t")
                trace = ReadTrace()
                condition = [(column, "in", values)]
                count = table.read([column], filter=condition, trace=trace).num_rows
                assert count == length
                _, best, median = timed(lambda t=table, c=column, f=condition: t.read([c], filter=f), rounds)
                pages = table.directory.chain(column).num_pages
            found.append(
                {
                    "column": column,
                    "values": length,
                    "pages": pages,
                    "pages read": len(trace.page_ids),
                    "CPU ms": best,
                    "median ms": median,
                }
            )
    return found


def main() -> None:
    """Run both and print their tables."""
    parser = arguments(__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for changed, title in (("other", "another column"), ("id", "the filter's own column")):
            log_note(f"updates of {title} …")
            found = after_updates(options.rows, options.rounds, Path(folder), changed)
            show(f"{options.rows:,} rows, after updates of {title}", found, options.json)
        log_note("lists of values …")
        found = lists(options.rows, options.rounds, Path(folder))
        show(f"IN lists over {options.rows:,} rows", found, options.json)


if __name__ == "__main__":
    main()
