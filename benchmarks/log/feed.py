"""Read intervals of a long, compacted log as the change feed does: objects, requests, bytes and time.

A store in a folder gets so many commits of one row, and log compaction. A fresh reader, which has opened the
store, reads the commits of some intervals, oldest first; nothing is done with them.
"""

from __future__ import annotations

import tempfile
import time

import pyarrow as pa

import spark_pages as sp
from benchmarks.log.report import Row, arguments, log_note, show
from spark_pages.changes.feed import iterate_commits
from spark_pages.log.log import Log
from spark_pages.runtime import Runtime
from spark_pages.storage import DurableLocalStore, MeteredStore

QUIET = {"checkpoint_commits": "0", "checkpoint_bytes": "0", "log_compaction_commits": "0"}


def make(folder: str, commits: int) -> None:
    """A store of so many versions, compacted and with a checkpoint."""
    store = sp.create(folder, properties=QUIET)
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("n", pa.int64())]))
    row = pa.table({"n": [1]})
    for _ in range(commits - 2):
        with store.transaction() as txn:
            txn.append("t", row)
    store.compact_log()
    store.checkpoint()


def measure(folder: str, start: int, stop: int) -> Row:
    """Commits [start, stop)."""
    objects = MeteredStore(DurableLocalStore(folder))
    log = Log(objects, Runtime())
    log.snapshot()
    opening, bytes_of_opening = objects.counts.requests, objects.counts.bytes_read
    begin = time.perf_counter()
    found = sum(1 for _ in iterate_commits(log, start, stop))
    spent = time.perf_counter() - begin
    keys = objects.counts.keys[opening:]
    return {
        "commits": found,
        "from": start,
        "ranges": len({key for key in keys if "-" in key}),
        "slots": len({key for key in keys if "-" not in key}),
        "requests": len(keys),
        "KiB": (objects.counts.bytes_read - bytes_of_opening) / 1024,
        "ms": spent * 1e3,
    }


def main() -> None:
    """Measure and print."""
    parser = arguments(__doc__)
    parser.add_argument("--commits", type=int, default=20_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        begin = time.perf_counter()
        make(folder, options.commits)
        log_note(f"{options.commits:,} commits: made in {time.perf_counter() - begin:.0f} s")
        lengths = [length for length in (100, 1_000, 4_000, 10_000) if 2 * length <= options.commits]
        intervals = [(length // 2 + 37, length // 2 + 37 + length) for length in lengths]
        rows = [measure(folder, *each) for each in [*intervals, (0, options.commits)]]
    show("read commits of an interval", rows, options.json)


if __name__ == "__main__":
    main()
