"""Single rows of pages that the operating system caches: as they are read, buffered, and past its cache.

Three handles without caches of their own take turns. *Buffered* opens files without O_DIRECT; *direct* never
looks into the operating system's cache, as releases before did. Processor time, medians of the rounds.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from unittest import mock

import numpy as np

import spark_pages as sp
from benchmarks.log.report import Row, arguments, show
from benchmarks.pages.mixed_table import pieces
from benchmarks.pages.read_systems import SparkPages, make
from spark_pages.io import local_file

NO_CACHES = sp.CacheConfig(decoded_bytes=0, compressed_bytes=0)


def open_table(folder: Path, flag: int = local_file.O_DIRECT) -> sp.Table:
    """The table, its files opened with this flag."""
    with mock.patch.object(local_file, "O_DIRECT", flag):
        table = sp.open(str(folder), cache=NO_CACHES).snapshot().table("t")
        table.take([0])
    return table


def past_the_cache() -> AbstractContextManager[object]:
    """The system tells of no page that it caches it."""
    return mock.patch.object(local_file, "cached_bytes", return_value=0)


def rows_of(folder: Path, rows: int, rounds: int, reads: int) -> list[Row]:
    """The table: one row for each way."""
    for file in folder.rglob("*.pages"):
        file.read_bytes()
    chance = np.random.default_rng(1)
    ways = (
        ("buffered", open_table(folder, 0), nullcontext),
        ("as it is", open_table(folder), nullcontext),
        ("direct", open_table(folder), past_the_cache),
    )
    spent: dict[str, list[float]] = {name: [] for name, _, _ in ways}
    for _ in range(rounds):
        wanted = chance.integers(0, rows, reads).tolist()
        for name, table, how in ways:
            with how():
                begin = time.process_time()
                for row in wanted:
                    table.take([row], ["id"])
                spent[name].append((time.process_time() - begin) / reads)
    medians = {name: statistics.median(each) * 1e6 for name, each in spent.items()}
    return [
        {"": name, "processor us a row": found, "x buffered": found / medians["buffered"]}
        for name, found in medians.items()
    ]


def main() -> None:
    """Print the table."""
    parser = arguments(__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--reads", type=int, default=200)
    parser.add_argument("--folder", type=Path, help="where the table is kept")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        folder = (options.folder or Path(scratch)) / str(options.rows) / SparkPages.module
        folder.parent.mkdir(parents=True, exist_ok=True)
        make(SparkPages(), folder, pieces(options.rows))
        title = f"Single rows of {options.rows:,}, pages in the cache of the operating system"
        show(title, rows_of(folder, options.rows, options.rounds, options.reads), options.json)


if __name__ == "__main__":
    main()
