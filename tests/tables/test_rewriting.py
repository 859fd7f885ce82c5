"""Runs are rewritten while the page file before is written, and nothing is told before it is durable."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.errors import StorageError
from spark_pages.storage.metered import MeteredStore
from spark_pages.storage.store import ObjectStore
from spark_pages.tables import rewriting
from spark_pages.tables.rewriting import PagesWanted, rewrite_runs
from spark_pages.tables.table import Table

ROWS = 40_000


@pytest.fixture
def table(url: str) -> Table:
    store = sp.create(url)
    rows = pa.table({"n": np.random.default_rng(3).integers(0, 1 << 62, ROWS)})
    with store.transaction() as txn:
        txn.create_table("t", rows.schema, properties={"page_bytes": "1024"})
        txn.append("t", rows)
    return store.snapshot().table("t")


def rewritten(table: Table, objects: ObjectStore, spawn: Callable, runs: int = 4):
    pages = table.directory.chain("n").all_pages()
    cuts = np.linspace(0, pages.num_pages, runs + 1).astype(int).tolist()
    keys = iter(f"pages/new-{number}.pages" for number in range(100))
    wanted = PagesWanted(pa.int64(), 8192)
    each = [(pages.slice(*cut), wanted) for cut in pairwise(cuts)]
    return rewrite_runs(each, table.page_handler, objects, lambda: next(keys), spawn)


def objects_of(table: Table) -> MeteredStore:
    return MeteredStore(table.page_handler._store)


def test_each_page_file_but_the_last_is_begun_beside_the_caller_and_waited_for(table, monkeypatch):
    monkeypatch.setattr(rewriting, "_FILE_BYTES", 100_000)
    objects = objects_of(table)
    events: list[str] = []

    def spawn(work: Callable[[], None]) -> Callable[[float | None], object]:
        events.append("begun")

        def wait(_: float | None) -> None:
            work()
            events.append("waited for")

        return wait

    new = rewritten(table, objects, spawn)

    assert events == ["begun", "waited for"] * (objects.counts.puts - 1)
    assert objects.counts.puts > 2
    assert sum(page.entry_count for run in new for page in run) == ROWS
    assert {page.path for run in new for page in run} <= set(objects.counts.keys)


@pytest.mark.parametrize("file_bytes", [100_000, 32 << 20])
def test_a_page_file_that_cannot_be_written_fails_the_work(table, monkeypatch, file_bytes):
    monkeypatch.setattr(rewriting, "_FILE_BYTES", file_bytes)

    class Full(MeteredStore):
        def put(self, key: str, data: object) -> None:
            raise StorageError("the disk is full")

    def spawn(work: Callable[[], None]) -> Callable[[float | None], object]:
        work()
        return lambda _: None

    with pytest.raises(StorageError, match="full"):
        rewritten(table, Full(table.page_handler._store), spawn)
