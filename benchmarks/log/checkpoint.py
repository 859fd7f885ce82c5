"""Bytes that a checkpoint writes, after changes of several kinds to one store, beside those of a full one.

Everything is counted that the checkpoint puts: segments, statistics, parts, catalog files, root and hint.
The full one is what all the objects of the first checkpoint take, which has no statistics. In the last row a
page is appended to every chain before each of many checkpoints: what merging costs in the long run.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.log.records import append, replace_page, set_property
from benchmarks.log.report import Row, arguments, log_note, show
from benchmarks.log.synthetic import Shape, make_store
from spark_pages.log.log import Log
from spark_pages.runtime import Runtime
from spark_pages.storage import DurableLocalStore, MeteredStore


def full_bytes(url: str) -> int:
    """Bytes of all the objects of a store's only checkpoint."""
    store = DurableLocalStore(url)
    folders = ("segments", "parts", "catalog", "checkpoints")
    return sum(info.size_bytes for folder in folders for info in store.list(f"_log/{folder}/"))


def measure(url: str, shape: Shape, rounds: int) -> list[Row]:
    """A checkpoint after each sort of change."""
    keys = [shape.key(table, column) for table in range(shape.tables) for column in range(shape.columns)]
    ten = keys[:: max(1, len(keys) // 10)][:10]
    full = full_bytes(url)
    store = MeteredStore(DurableLocalStore(url))
    log = Log(store, Runtime())
    rows: list[Row] = []

    def row(what: str, change: Callable[[], None], promised: float | None, times: int = 1) -> None:
        written, seconds, puts, most = 0, 0.0, 0, 0
        for _ in range(times):
            change()
            before, begin = store.counts, time.perf_counter()
            log.checkpoint()
            counts = store.counts - before
            seconds += time.perf_counter() - begin
            written, puts = written + counts.bytes_written, puts + counts.puts
            most = max(most, counts.bytes_written)
        checkpoint = log.snapshot().checkpoint
        assert checkpoint is not None
        rows.append(
            {
                "before the checkpoint": what,
                "bytes": written // times,
                "of a full one %": 100 * written / times / full,
                "largest %": 100 * most / full,
                "promised %": promised if promised is not None else "",
                "puts": puts // times,
                "ms": seconds / times * 1e3,
                "tail runs": max(checkpoint.levels()),
            }
        )

    rows.append(
        {
            "before the checkpoint": "(full)",
            "bytes": full,
            "of a full one %": 100.0,
            "largest %": 100.0,
            "promised %": "",
            "puts": "",
            "ms": "",
            "tail runs": 0,
        }
    )
    row("no page changed", lambda: set_property(log), None)
    row(f"a page appended to 10 of {len(keys):,} chains", lambda: append(log, ten), 3.0)
    row(f"a page appended to each of {len(keys):,} chains", lambda: append(log, keys), 5.0)
    row("a page replaced in 10 chains", lambda: replace_page(log, ten), None)
    row(f"the same appends, {rounds} times: average", lambda: append(log, keys), 5.0, times=rounds)
    return rows


def main() -> None:
    """Measure and print."""
    parser = arguments(__doc__)
    parser.add_argument("--pages", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    shape = Shape(options.pages, tables=100, columns=10)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        url = str(Path(folder) / "store")
        make_store(url, shape)
        log_note("made")
        title = f"checkpoints of a store with {shape.pages_of_chain * shape.chains:,} descriptors"
        show(title, measure(url, shape, options.rounds), options.json)


if __name__ == "__main__":
    main()
