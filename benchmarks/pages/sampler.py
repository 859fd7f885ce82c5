# ruff: noqa: PLC0415 - imports are late so that Lance may be missing
"""The rate of shuffled batches for training, next to Lance's sampler.

python -m benchmarks.pages.sampler [--rows 4000000] [--batch-rows 1024] [--rounds 3]

Lance's `ShardedBatchSampler` reads batches in random order, and leaves the rows of a batch in theirs. Install
it with ``pip install pylance``; without it, its line is left out.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import spark_pages as sp


def rows_of(count: int) -> pa.Table:
    """Create a table of a number, eight features and a label."""
    random = np.random.default_rng(1)
    features = {f"x{place}": random.random(count, dtype=np.float32) for place in range(8)}
    return pa.table({"id": np.arange(count), **features, "y": random.integers(0, 10, count).astype(np.int8)})


def measure(name: str, batches: Callable[[int], Iterable[Any]], rounds: int) -> None:
    """Print million rows a second of the best of some rounds, by time and by processor time."""
    rates = []
    for seed in range(rounds):
        began, began_cpu = time.perf_counter(), time.process_time()
        count = sum(batch.num_rows for batch in batches(seed))
        rates.append((count / (time.perf_counter() - began), count / (time.process_time() - began_cpu)))
    wall, processor = (max(each) / 1e6 for each in zip(*rates, strict=True))
    print(f"| {name} | {wall:.1f} | {processor:.1f} |")


def main() -> None:
    """Measure spark_pages, and Lance where it is installed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--batch-rows", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    rows, size = rows_of(given.rows), given.batch_rows
    with tempfile.TemporaryDirectory() as folder:
        store = sp.create(str(Path(folder, "store")))
        store.write("t", rows)
        table = store["t"]
        measure("spark_pages", lambda seed: table.batches(size, shuffle=True, seed=seed), given.rounds)
        try:
            import lance
            from lance.sampler import ShardedBatchSampler
        except ImportError:
            return
        lance.write_dataset(rows, str(Path(folder, "t.lance")))
        dataset = lance.dataset(str(Path(folder, "t.lance")))

        def shuffled(seed: int) -> Iterable[Any]:
            sampler = ShardedBatchSampler(0, 1, randomize=True, seed=seed)
            batches: Iterable[Any] = sampler(dataset, batch_size=size, columns=rows.column_names)
            return batches

        measure("Lance", shuffled, given.rounds)


if __name__ == "__main__":
    main()
