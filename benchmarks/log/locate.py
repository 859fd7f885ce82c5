"""Locate rows in what is loaded: one row at a time, and a million at once, random and sorted.

Beside them, in the same run, what the parts cost alone: a bisection of the running sums in Python, and a
binary search of the same million rows in numpy.
"""

from __future__ import annotations

import tempfile
import time
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import spark_pages as sp
from benchmarks.log.report import Row, arguments, log_note, show
from benchmarks.log.synthetic import Shape, make_store
from spark_pages.query.directory import PageDirectory

_SINGLE = 500
_SHORT_RUNS = 400
_MANY = 1_000_000


def least_s(work: Callable[[], object], repeats: int = 15) -> float:
    """Seconds of the quickest of some runs: what is in the way of the others is not ours."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return min(times)


def measure(url: str, shape: Shape) -> list[Row]:
    """A chain of pages of equal length and one of varying length."""
    directory = sp.open(url).snapshot().table(shape.table_name(0)).directory
    columns = (("c000", "equal"), ("c001", "varying"))
    return [_measure_chain(directory, column, entries) for column, entries in columns]


def _measure_chain(directory: PageDirectory, column: str, entries: str) -> Row:
    chain = directory.chain(column)
    random = np.random.default_rng(3).integers(0, chain.num_rows, _MANY).astype(np.uint64)
    ordered = np.sort(random)
    directory.locate_rows(column, random)
    some = random[:_SINGLE].tolist()
    sums = np.cumsum(chain.all_pages().numbers("entry_count"), dtype=np.uint64)
    view = sums.data

    def one_by_one() -> None:
        locate = directory.locate_row
        for row in some:
            locate(column, row)

    def bisections() -> None:
        for row in some:
            bisect_right(view, row)

    def many(rows: NDArray[np.uint64]) -> float:
        return least_s(lambda: directory.locate_rows(column, rows)) / _MANY * 1e6

    def alone(rows: NDArray[np.uint64]) -> float:
        return least_s(lambda: np.searchsorted(sums, rows, "right")) / _MANY * 1e6

    return {
        "pages of the chain": chain.num_pages,
        "entries a page": entries,
        "locate_row µs": least_s(one_by_one, _SHORT_RUNS) / _SINGLE * 1e6,
        "bisect µs": least_s(bisections, _SHORT_RUNS) / _SINGLE * 1e6,
        "random µs a row": many(random),
        "numpy random": alone(random),
        "sorted µs a row": many(ordered),
        "numpy sorted": alone(ordered),
    }


def main() -> None:
    """Measure and print."""
    parser = arguments(__doc__)
    parser.add_argument("--chain-pages", type=int, default=1_000_000)
    options = parser.parse_args()
    shape = Shape(options.chain_pages * 2, tables=1, columns=2)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        url = str(Path(folder) / "store")
        make_store(url, shape)
        log_note("made")
        show("locate rows, warm", measure(url, shape), options.json)


if __name__ == "__main__":
    main()
