"""One truth (DESIGN.md, section 5): whatever happens to a store, every way to a version gives the same.

A state machine writes to a store in memory and to plain Python lists. The trees of its checkpoints are
kept tiny, so that segments and parts split, tails pile up and merge, and catalog files divide.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
)

import spark_pages as sp
from spark_pages.maintenance.page_rewrite import PageTarget, rewrite_runs
from spark_pages.store import Store
from spark_pages.transaction.transaction import Transaction
from tests.effort import run_machine
from tests.invariants import check_against_replay, check_checkpoint, check_snapshot, check_table_zero

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string())])
PAGE_BYTES = 48
NAMES = [f"t{i:02d}" for i in range(8)]

Rows = dict[str, list[Any]]
Model = dict[str, Rows]

values_n = st.one_of(st.none(), st.integers(-50, 50))
values_s = st.one_of(st.none(), st.text("abc", max_size=6))
rows_of_both = st.integers(1, 40).flatmap(
    lambda n: st.tuples(
        st.lists(values_n, min_size=n, max_size=n), st.lists(values_s, min_size=n, max_size=n)
    )
)


def as_table(rows: Rows) -> pa.Table:
    return pa.table({name: pa.array(rows[name], SCHEMA.field(name).type) for name in SCHEMA.names})


class OneTruth(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.url = f"memory://{uuid4().hex}"
        self.model: Model = {}
        self.past: dict[int, Model] = {}

    @initialize()
    def begin(self) -> None:
        self.store: Store = sp.create(self.url)
        self.first = self.store  # keeps the store in memory alive, and is a reader that never reopens
        self.past[0] = {}

    def transaction(self) -> Transaction:
        txn = self.store.transaction()
        txn._page_bytes = PAGE_BYTES
        return txn

    def done(self, version: int | None) -> None:
        assert version is not None
        self.past[version] = {
            name: {c: list(v) for c, v in rows.items()} for name, rows in self.model.items()
        }
        self.check()

    def check(self) -> None:
        snapshot = self.store.snapshot()
        assert snapshot.version == max(self.past)
        self.check_rows(snapshot, self.past[snapshot.version])
        check_snapshot(snapshot.log)
        check_against_replay(self.store._log, snapshot.log)
        check_table_zero(self.store)
        for version in {snapshot.version // 2, snapshot.version - 1} - {-1}:
            self.check_rows(self.store.snapshot(version=version), self.past[version])

    def check_rows(self, snapshot: Any, model: Model) -> None:
        assert snapshot.tables() == sorted(model)
        for name, rows in model.items():
            table = snapshot.table(name)
            assert table.num_rows == len(rows["n"])
            assert table.read().equals(as_table(rows)), (name, snapshot.version)

    @precondition(lambda self: len(self.model) < len(NAMES))
    @rule(data=st.data(), how_many=st.integers(1, 3))
    def create_tables(self, data: st.DataObject, how_many: int) -> None:
        free = [name for name in NAMES if name not in self.model]
        names = data.draw(st.lists(st.sampled_from(free), min_size=1, max_size=how_many, unique=True))
        with self.transaction() as txn:
            for name in names:
                txn.create_table(name, SCHEMA)
                self.model[name] = {"n": [], "s": []}
        self.done(txn.version)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def append(self, data: st.DataObject) -> None:
        names = data.draw(st.lists(st.sampled_from(sorted(self.model)), min_size=1, max_size=3))
        with self.transaction() as txn:
            for name in names:
                n, s = data.draw(rows_of_both)
                txn.append(name, as_table({"n": n, "s": s}))
                self.model[name]["n"] += n
                self.model[name]["s"] += s
        self.done(txn.version)

    @precondition(lambda self: any(rows["n"] for rows in self.model.values()))
    @rule(data=st.data())
    def update(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(name for name, rows in self.model.items() if rows["n"])))
        column, values = data.draw(st.sampled_from([("n", values_n), ("s", values_s)]))
        column_rows = self.model[name][column]
        changes = data.draw(
            st.lists(st.tuples(st.integers(0, len(column_rows) - 1), values), min_size=1, max_size=5)
        )
        with self.transaction() as txn:
            txn.update_rows(name, [row for row, _ in changes], {column: [value for _, value in changes]})
        for row, value in changes:
            column_rows[row] = value
        self.done(txn.version)

    @precondition(lambda self: any(rows["n"] for rows in self.model.values()))
    @rule(data=st.data(), page_bytes=st.sampled_from([16, 64, 1 << 16]))
    def compact_some_pages(self, data: st.DataObject, page_bytes: int) -> None:
        name = data.draw(st.sampled_from(sorted(name for name, rows in self.model.items() if rows["n"])))
        column = data.draw(st.sampled_from(SCHEMA.names))
        txn = self.transaction()
        table = txn.snapshot.table(name)
        pages = table.directory.chain(column).all_pages()
        start = data.draw(st.integers(0, pages.num_pages - 1))
        run = pages.slice(start, data.draw(st.integers(start + 1, pages.num_pages)))
        kind = SCHEMA.field(column).type
        first_row = int(pages.prefix_entries[start - 1]) if start else 0
        (new,) = rewrite_runs(
            [(run, PageTarget(kind, page_bytes))],
            table.page_handler,
            self.store.object_store,
            txn.next_page_file,
        )
        txn.replace_pages(
            table.definition.table_id,
            table.definition.field_ids[column],
            first_row,
            run.page_ids.tolist(),
            new,
        )
        self.done(txn.commit())

    @rule()
    def checkpoint(self) -> None:
        ref = self.store.checkpoint()
        assert ref.version == max(self.past)
        self.check()
        check_checkpoint(self.store.snapshot().log.checkpoint)

    @rule()
    def reopen(self) -> None:
        self.store = Store(self.first.object_store)
        self.check()

    def teardown(self) -> None:
        for version, model in self.past.items():
            self.check_rows(self.store.snapshot(version=version), model)
            self.check_rows(self.first.snapshot(version=version), model)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("pages", "segments", "tables"),
    [(4, 3, 2), pytest.param(2, 2, 1, marks=pytest.mark.slow), pytest.param(1, 1, 1, marks=pytest.mark.slow)],
)
def test_every_way_to_a_version_gives_the_same(small_trees, pages, segments, tables):
    small_trees(pages, segments, tables)

    run_machine(OneTruth, 8, steps=20)
