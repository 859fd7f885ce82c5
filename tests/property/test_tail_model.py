"""Whatever happens at the end of a column, its rows are those of a list to which the same was done."""

from __future__ import annotations

from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import spark_pages as sp
from spark_pages.store import Store
from tests.effort import run_machine
from tests.transaction.foreign import pending, write_file
from tests.transaction.stores import QUIET

Rows = list[int | None]
rows_of_a_page = st.lists(st.none() | st.integers(-9, 9), max_size=4)
counts = st.integers(0, 6)


class Page:
    """A page of the model: what its payload holds, and how many rows it shows."""

    def __init__(self, payload: Rows, shown: int) -> None:
        self.payload = payload
        self.shown = shown

    @property
    def rows(self) -> Rows:
        return [*self.payload, *[None] * self.shown][: self.shown]


class TailMachine(RuleBasedStateMachine):
    """Register, replace, resize, append, update, compact, checkpoint and restore, in any order."""

    @initialize()
    def begin(self) -> None:
        self.store = sp.create(f"memory://{uuid4().hex}", properties=QUIET)
        with self.store.transaction() as txn:
            txn.create_table("t", pa.schema([("n", pa.int64())]))
        self.rows: Rows = []
        self.last: Page | None = None  # what the model knows of the last page
        self.past: dict[int, Rows] = {self.store.snapshot().version: []}
        self.files = 0

    def file(self, payload: Rows) -> tuple[str, list[object]]:
        self.files += 1
        key = f"imports/{self.files}.pages"
        return key, write_file(self.store.object_store, key, pa.array(payload, pa.int64()))

    def committed(self) -> None:
        self.past[self.store.snapshot().version] = list(self.rows)

    @rule(payload=rows_of_a_page, shown=counts)
    def register(self, payload: Rows, shown: int) -> None:
        key, pages = self.file(payload)
        with self.store.transaction() as txn:
            txn.directory("t").register_batch([pending("n", key, pages, rows=shown)])
        self.last = Page(payload, shown)
        self.rows += self.last.rows
        self.committed()

    @precondition(lambda self: self.last is not None)
    @rule(payload=rows_of_a_page, shown=counts, more=counts)
    def replace_and_resize(self, payload: Rows, shown: int, more: int) -> None:
        key, pages = self.file(payload)
        with self.store.transaction() as txn:
            directory = txn.directory("t")
            directory.register_batch([pending("n", key, pages, rows=shown, replace_last=True)])
            directory.update_latest_entry_count("n", more)
        self.end_with(Page(payload, more))

    @precondition(lambda self: self.last is not None)
    @rule(shown=counts)
    def resize(self, shown: int) -> None:
        with self.store.transaction() as txn:
            txn.directory("t").update_latest_entry_count("n", shown)
        self.end_with(Page(self.last.payload, shown))

    def end_with(self, page: Page) -> None:
        del self.rows[len(self.rows) - self.last.shown :]
        self.last = page
        self.rows += page.rows
        self.committed()

    @rule(values=rows_of_a_page)
    def append(self, values: Rows) -> None:
        with self.store.transaction() as txn:
            txn.append("t", pa.table({"n": pa.array(values, pa.int64())}))
        self.rows += values
        if values:
            self.last = None  # a small append may take the pages before it along
        self.committed()

    @precondition(lambda self: self.rows)
    @rule(row=st.integers(0, 999), value=st.none() | st.integers(100, 109))
    def update(self, row: int, value: int | None) -> None:
        row %= len(self.rows)
        with self.store.transaction() as txn:
            txn.update_rows("t", [row], {"n": [value]})
        self.rows[row] = value
        if self.last is not None and row >= len(self.rows) - self.last.shown:
            self.last = Page(self.last.rows[:], self.last.shown)
            self.last.payload[row - len(self.rows)] = value
        self.committed()

    @rule()
    def compact(self) -> None:
        self.store.compact_pages("t")
        self.last = None
        self.committed()

    @rule()
    def checkpoint(self) -> None:
        self.store.checkpoint()

    @rule(which=st.integers(0, 999))
    def restore(self, which: int) -> None:
        versions = sorted(self.past)
        version = versions[which % len(versions)]
        self.store.restore(version=version)
        self.rows = list(self.past[version])
        self.last = None
        self.committed()

    @invariant()
    def rows_and_history_are_those_of_the_list(self) -> None:
        fresh = Store(self.store.object_store)
        for store in (self.store, fresh):
            assert store.snapshot().table("t").read().column("n").to_pylist() == self.rows
        for version, rows in self.past.items():
            assert fresh.snapshot(version).table("t").read().column("n").to_pylist() == rows

    def teardown(self) -> None:
        if hasattr(self, "store"):
            assert self.store.verify(pages="all").ok


@pytest.mark.sampled
def test_the_end_of_a_column_is_that_of_a_list():
    run_machine(TailMachine, 10, steps=12)
