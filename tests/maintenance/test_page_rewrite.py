"""Runs are rewritten while the page file before is written, and nothing is told before it is durable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.errors import StorageError
from spark_pages.io import PageHandler
from spark_pages.maintenance import page_rewrite
from spark_pages.maintenance.page_rewrite import PageTarget, rewrite_runs
from spark_pages.query.table import Table
from spark_pages.runtime import spawn_thread
from spark_pages.storage.instrumented import MeteredStore
from spark_pages.storage.store import ObjectStore

ROWS = 40_000


@pytest.fixture
def table(url: str) -> Table:
    return table_at(url)


def table_at(url: str) -> Table:
    store = sp.create(url)
    rows = pa.table({"n": np.random.default_rng(3).integers(0, 1 << 62, ROWS)})
    with store.transaction() as txn:
        txn.create_table("t", rows.schema, properties={"page_bytes": "1024"})
        txn.append("t", rows)
    return store.snapshot().table("t")


def rewritten(table: Table, objects: ObjectStore, spawn: Callable, runs: int = 4, prefix: str = "new"):
    pages = table.directory.chain("n").all_pages()
    cuts = np.linspace(0, pages.num_pages, runs + 1).astype(int).tolist()
    keys = iter(f"pages/{prefix}-{number}.pages" for number in range(100))
    wanted = PageTarget(pa.int64(), 8192)
    each = [(pages.slice(*cut), wanted) for cut in pairwise(cuts)]
    return rewrite_runs(each, table.page_handler, objects, lambda: next(keys), spawn)


def objects_of(table: Table) -> MeteredStore:
    return MeteredStore(table.page_handler._store)


def test_each_page_file_but_the_last_is_begun_beside_the_caller_and_waited_for(table, monkeypatch):
    monkeypatch.setattr(page_rewrite, "_FILE_BYTES", 100_000)
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


def test_what_is_read_straight_is_written_as_what_is_read_page_by_page(tmp_path, monkeypatch):
    table = table_at(str(tmp_path / "store"))
    objects = objects_of(table)
    asked: list[int] = []
    real = PageHandler.get_values
    monkeypatch.setattr(
        PageHandler, "get_values", lambda self, runs, **how: asked.append(1) or real(self, runs, **how)
    )

    straight = rewritten(table, objects, spawn_thread, prefix="straight")
    monkeypatch.setattr(PageHandler, "read_numbers", lambda _, runs: [None] * len(runs))
    page_by_page = rewritten(table, objects, spawn_thread, prefix="by-page")

    assert len(asked) == 4, "by the second alone"
    assert [[replace(page, path="") for page in run] for run in straight] == [
        [replace(page, path="") for page in run] for run in page_by_page
    ]
    assert objects.get("pages/straight-0.pages") == objects.get("pages/by-page-0.pages")


@pytest.mark.parametrize("file_bytes", [100_000, 32 << 20])
def test_a_page_file_that_cannot_be_written_fails_the_work(table, monkeypatch, file_bytes):
    monkeypatch.setattr(page_rewrite, "_FILE_BYTES", file_bytes)

    class Full(MeteredStore):
        def put(self, key: str, data: object) -> None:
            raise StorageError("the disk is full")

    def spawn(work: Callable[[], None]) -> Callable[[float | None], object]:
        work()
        return lambda _: None

    with pytest.raises(StorageError, match="full"):
        rewritten(table, Full(table.page_handler._store), spawn)
