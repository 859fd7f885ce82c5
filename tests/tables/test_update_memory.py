"""However much a transaction updates, a bounded part of it is in memory, and what it says is the same."""

from __future__ import annotations

import errno
import multiprocessing
import os
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spark_pages as sp
from spark_pages.errors import ConstraintError, StorageError
from spark_pages.io import CacheConfig
from spark_pages.runtime import Runtime
from spark_pages.tables.checks import update_checks
from spark_pages.tables.compaction.compact import compact_table
from spark_pages.tables.staging import spill_file, updates, waiting_updates
from spark_pages.tables.staging.spill_file import SpillFile
from spark_pages.tables.staging.updates import SortedUpdates, stretches
from spark_pages.tables.store import Store
from spark_pages.tables.transaction import Transaction
from tests.invariants import check_store
from tests.tables.stores import QUIET, store_with
from tests.tables.test_ingest import TYPES

MIB = 1 << 20


@contextmanager
def peak_bytes() -> Iterator[Callable[[], int]]:
    """Gives the most bytes that Arrow and Python have taken at a time since then, each by itself."""
    before = pa.default_memory_pool()
    counted = pa.proxy_memory_pool(before)
    pa.set_memory_pool(counted)
    tracemalloc.start()
    try:
        yield lambda: counted.max_memory() + tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(before)


def store_without_caches(folder: Path, rows: pa.Table) -> Store:
    url = str(folder / "store")
    with sp.create(url, properties=QUIET).transaction() as txn:
        txn.create_table("t", rows.schema)
        txn.append("t", rows)
    return sp.open(url, cache=CacheConfig(upc_bytes=0, cpc_bytes=0))


ROWS = 300_000


def many_updates(calls: int = 20) -> list[tuple[np.ndarray, dict[str, pa.Array]]]:
    """Rows all over the table, 3 MB with their values in each call."""
    rng = np.random.default_rng(4)
    return [
        (
            rng.permutation(ROWS)[:80_000],
            {
                "n": pa.array(rng.integers(0, 1 << 62, 80_000)),
                "s": pa.array(rng.integers(0, 1 << 62, 80_000)).cast(pa.string()),
            },
        )
        for _ in range(calls)
    ]


def after(before: pa.Table, calls: list[tuple[np.ndarray, dict[str, pa.Array]]]) -> pa.Table:
    """What the table holds then."""
    columns = {name: np.array(before[name].to_pylist(), object) for name in before.column_names}
    for rows, given in calls:
        for name, values in given.items():
            columns[name][rows] = values.to_pylist()
    return pa.table({name: pa.array(each, before[name].type) for name, each in columns.items()})


BEFORE = pa.table({"n": np.arange(ROWS), "s": pa.array(np.arange(ROWS)).cast(pa.string())})


def test_a_transaction_that_updates_many_times_its_memory_stays_below_it(tmp_path):
    store = store_without_caches(tmp_path, BEFORE)
    calls = many_updates()
    given_bytes = sum(rows.nbytes + sum(each.nbytes for each in given.values()) for rows, given in calls)

    with peak_bytes() as peak, store.transaction(memory_bytes=8 * MIB) as txn:
        for rows, given in calls:
            txn.update("t", rows=rows, values=given)
        updated = peak()
        txn.commit()
        committed = peak()

    print(given_bytes, updated, committed)
    assert given_bytes > 7 * 8 * MIB
    assert updated < 4 * MIB
    assert committed < 8 * MIB + 7 * MIB
    assert store.snapshot().table("t").read().equals(after(BEFORE, calls))
