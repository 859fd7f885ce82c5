"""The public API against a plain model: a dictionary of lists for every version.

Two handles stand for two processes. Transactions stay open across steps, so that they meet each other;
the model decides which of them must conflict. Maintenance runs in between, and must change nothing.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

import spark_pages as sp
from spark_pages.errors import (
    AlreadyExistsError,
    CommitConflictError,
    InvalidInputError,
    RowOutOfRangeError,
    TableExistsError,
    TableNotFoundError,
    VersionNotFoundError,
)
from spark_pages.tables.store import Store
from spark_pages.tables.transaction import Transaction
from tests.invariants import check_snapshot, check_table_zero

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string())])
NAMES = ["a", "b", "c"]
TAGS = ["x", "y"]
MAINTENANCE = ["checkpoint", "compact_log", "compact_pages", "reopen"]
ROWS = st.lists(st.tuples(st.none() | st.integers(-9, 9), st.none() | st.text("ab", max_size=3)), max_size=5)

Row = tuple[Any, Any]
Tables = dict[str, list[Row]]


def as_table(rows: list[Row]) -> pa.Table:
    return pa.table({"n": [n for n, _ in rows], "s": [s for _, s in rows]}, schema=SCHEMA)


def as_rows(table: pa.Table) -> list[Row]:
    return list(zip(table["n"].to_pylist(), table["s"].to_pylist(), strict=True))


@dataclass
class Open:
    """A transaction that has not ended, and what the model knows of it."""

    txn: Transaction
    read: int
    serializable: bool
    created: set[str] = field(default_factory=set)
    appended: dict[str, list[Row]] = field(default_factory=dict)
    updated: dict[tuple[str, str], dict[int, Any]] = field(default_factory=dict)


class PublicApi(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        url = f"memory://{uuid4().hex}"
        first = sp.create(url, properties={"checkpoint_commits": "0"})
        self.stores = [first, Store(first.objects)]
        self.versions: list[Tables] = [{}]
        self.wrote: list[set[str]] = [set()]
        self.tags: dict[str, int] = {}
        self.open: Open | None = None
        self.pairs: dict[int, int] = {}
        self.dropped: dict[str, list[list[Row]]] = {}
        self.restored = False
        rows = [(number, "ab"[number % 2]) for number in range(6)]
        with first.transaction() as txn:
            txn.create_table("a", SCHEMA)
            txn.append("a", as_table(rows))
        self.landed(txn.version, {"a": rows}, {"a"})

    # what the model knows

    @property
    def now(self) -> Tables:
        return self.versions[-1]

    def landed(self, version: int, tables: Tables, wrote: set[str]) -> None:
        """The store has moved on by one version that changes tables."""
        assert version == len(self.versions)
        self.versions.append(tables)
        self.wrote.append(wrote)

    def maintained(self) -> None:
        """The store may have moved on, but nothing has changed."""
        while len(self.versions) <= self.stores[0].snapshot().version:
            self.versions.append(self.now)
            self.wrote.append(set())

    def handle(self, second: bool) -> Store:
        return self.stores[second]

    # reading

    @rule(second=st.booleans(), data=st.data())
    def read_any_version(self, second: bool, data: st.DataObject) -> None:
        version = data.draw(st.integers(0, len(self.versions) - 1))
        snapshot = self.handle(second).snapshot(version=version)
        assert snapshot.tables() == sorted(self.versions[version])
        for name, rows in self.versions[version].items():
            table = snapshot.table(name)
            start = data.draw(st.integers(0, len(rows)))
            stop = data.draw(st.integers(start, len(rows)))
            assert as_rows(table.read(start=start, stop=stop)) == rows[start:stop]
            assert as_rows(table.scan(batch_rows=2).read_all()) == rows
            found = table.read(filter=[("n", ">", 2)])
            assert as_rows(found) == [row for row in rows if row[0] is not None and row[0] > 2]
            if rows:
                wanted = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=4))
                assert as_rows(table.take(wanted)) == [rows[row] for row in wanted]
            with pytest.raises(RowOutOfRangeError):
                table.take([len(rows)])

    @rule(second=st.booleans())
    def the_newest_version_is_that_of_the_model(self, second: bool) -> None:
        store = self.handle(second)
        snapshot = store.snapshot()
        assert snapshot.version == len(self.versions) - 1
        assert {name: as_rows(snapshot.table(name).read()) for name in snapshot.tables()} == self.now
        assert store.tags() == dict(sorted(self.tags.items()))
        check_snapshot(snapshot.log)
        check_table_zero(store)
        with pytest.raises(VersionNotFoundError):
            store.snapshot(version=len(self.versions))
        with pytest.raises(TableNotFoundError):
            snapshot.table("nothing")

    # transactions that end at once

    @rule(second=st.booleans(), name=st.sampled_from(NAMES), rows=ROWS)
    def create_and_fill(self, second: bool, name: str, rows: list[Row]) -> None:
        txn = self.handle(second).transaction()
        if name in self.now:
            with pytest.raises(TableExistsError):
                txn.create_table(name, SCHEMA)
            return
        txn.create_table(name, SCHEMA)
        txn.append(name, as_table(rows))
        assert as_rows(txn.table(name).read()) == rows
        self.landed(txn.commit(), {**self.now, name: rows}, {name})

    @precondition(lambda self: self.now)
    @rule(second=st.booleans(), data=st.data())
    def append_to_several(self, second: bool, data: st.DataObject) -> None:
        tables = dict(self.now)
        names = data.draw(st.lists(st.sampled_from(sorted(tables)), min_size=1, unique=True))
        txn = self.handle(second).transaction()
        for name in names:
            rows = data.draw(ROWS.filter(bool))
            txn.append(name, as_table(rows))
            tables[name] = tables[name] + rows
        self.landed(txn.commit(), tables, set(names))

    @precondition(lambda self: any(self.now.values()))
    @rule(second=st.booleans(), data=st.data())
    def update_some_rows(self, second: bool, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(name for name, rows in self.now.items() if rows)))
        rows = list(self.now[name])
        row, value = data.draw(st.integers(0, len(rows) - 1)), data.draw(st.text("cd", max_size=2))
        number = data.draw(st.integers(200, 209))
        txn = self.handle(second).transaction()
        txn.update(name, "s", [row], [value])
        txn.update(name, "n", [row], [number])
        rows[row] = (number, value)
        self.landed(txn.commit(), {**self.now, name: rows}, {name})

    @precondition(lambda self: self.now)
    @rule(second=st.booleans(), data=st.data(), number=st.integers(1, 3))
    def append_exactly_once(self, second: bool, data: st.DataObject, number: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.now)))
        rows = data.draw(ROWS.filter(bool))
        txn = self.handle(second).transaction(app_id="etl", app_version=number)
        txn.append(name, as_table(rows))
        if number not in self.pairs and number < max(self.pairs, default=0):
            with pytest.raises(InvalidInputError, match="never landed"):
                txn.commit()
            return
        version = txn.commit()
        if number in self.pairs:
            assert version == self.pairs[number]
        else:
            self.landed(version, {**self.now, name: self.now[name] + rows}, {name})
            self.pairs[number] = version

    @rule(second=st.booleans(), name=st.sampled_from(NAMES))
    def roll_back(self, second: bool, name: str) -> None:
        txn = self.handle(second).transaction()
        if name in self.now:
            txn.append(name, as_table([(1, "a")]))
        else:
            txn.create_table(name, SCHEMA)
        txn.rollback()

    # tables that change

    def changed(self) -> None:
        """Both processes know of it: an append of one that does not would conflict, and be repeated."""
        for store in self.stores:
            store.snapshot()

    @precondition(lambda self: self.now)
    @rule(second=st.booleans(), data=st.data())
    def drop(self, second: bool, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.now)))
        with self.handle(second).transaction() as txn:
            txn.drop_table(name)
        self.landed(txn.version, {n: rows for n, rows in self.now.items() if n != name}, {name})
        self.changed()
        self.dropped.setdefault(name, []).append(self.versions[-2][name])

    @precondition(lambda self: not self.restored)  # which drops and brings back by itself
    @rule(second=st.booleans(), name=st.sampled_from(NAMES))
    def undrop(self, second: bool, name: str) -> None:
        txn = self.handle(second).transaction()
        if name in self.now:
            with pytest.raises(TableExistsError):
                txn.undrop_table(name)
        elif not self.dropped.get(name):
            with pytest.raises(TableNotFoundError):
                txn.undrop_table(name)
        else:
            txn.undrop_table(name)
            self.landed(txn.commit(), {**self.now, name: self.dropped[name].pop()}, {name})
            self.changed()

    @precondition(lambda self: self.now)
    @rule(second=st.booleans(), data=st.data(), new=st.sampled_from(NAMES), rows=ROWS)
    def rename_and_append(self, second: bool, data: st.DataObject, new: str, rows: list[Row]) -> None:
        name = data.draw(st.sampled_from(sorted(self.now)))
        txn = self.handle(second).transaction()
        if new in self.now:
            with pytest.raises(TableExistsError):
                txn.rename_table(name, new)
            return
        txn.append(name, as_table([(0, "before")]))
        txn.rename_table(name, new)
        txn.append(new, as_table(rows))
        tables = {n: each for n, each in self.now.items() if n != name}
        tables[new] = [*self.now[name], (0, "before"), *rows]
        self.landed(txn.commit(), tables, {name, new})
        self.changed()

    @precondition(lambda self: self.now)
    @rule(second=st.booleans(), data=st.data(), rows=ROWS)
    def truncate(self, second: bool, data: st.DataObject, rows: list[Row]) -> None:
        name = data.draw(st.sampled_from(sorted(self.now)))
        with self.handle(second).transaction() as txn:
            txn.truncate_table(name)
            txn.append(name, as_table(rows))
        self.landed(txn.version, {**self.now, name: rows}, {name})

    @precondition(lambda self: self.now)
    @rule(second=st.booleans(), data=st.data(), rows=ROWS, value=st.none() | st.integers(0, 9))
    def a_column_comes_and_goes(
        self, second: bool, data: st.DataObject, rows: list[Row], value: int | None
    ) -> None:
        name = data.draw(st.sampled_from(sorted(self.now)))
        with self.handle(second).transaction() as txn:
            txn.append(name, as_table(rows))
            txn.add_column(name, pa.field("x", pa.int64()), default=value)
        tables = {**self.now, name: self.now[name] + rows}
        self.landed(txn.version, tables, {name})
        table = self.handle(not second).snapshot().table(name)
        assert table.read(["x"])["x"].to_pylist() == [value] * len(tables[name])
        with self.handle(not second).transaction() as txn:
            txn.drop_column(name, "x")
        self.landed(txn.version, tables, {name})
        self.changed()

    # a transaction that stays open while others commit

    def open_one(self, data: st.DataObject) -> None:
        if self.open is None:
            serializable = data.draw(st.booleans())
            isolation = "serializable" if serializable else "snapshot"
            txn = self.handle(data.draw(st.booleans())).transaction(isolation=isolation)
            assert txn.snapshot.version == len(self.versions) - 1
            self.open = Open(txn, len(self.versions) - 1, serializable)

    @precondition(lambda self: self.now if self.open is None else self.versions[self.open.read])
    @rule(data=st.data())
    def stage_an_append(self, data: st.DataObject) -> None:
        self.open_one(data)
        name = data.draw(st.sampled_from(sorted(self.versions[self.open.read])))
        rows = data.draw(ROWS.filter(bool))
        self.open.txn.append(name, as_table(rows))
        self.open.appended.setdefault(name, []).extend(rows)
        self.check_own_writes()

    @precondition(
        lambda self: any((self.now if self.open is None else self.versions[self.open.read]).values())
    )
    @rule(data=st.data())
    def stage_an_update(self, data: st.DataObject) -> None:
        self.open_one(data)
        tables = self.versions[self.open.read]
        name = data.draw(st.sampled_from(sorted(name for name, rows in tables.items() if rows)))
        row = data.draw(st.integers(0, len(tables[name]) - 1))
        value = data.draw(st.integers(100, 109))
        self.open.txn.update(name, "n", [row], [value])
        self.open.updated.setdefault((name, "n"), {})[row] = value
        self.check_own_writes()

    def check_own_writes(self) -> None:
        """Under serializable isolation reading would count, so only the other one looks."""
        if not self.open.serializable:
            for name, rows in self.after(self.versions[self.open.read]).items():
                assert as_rows(self.open.txn.table(name).read()) == rows

    def after(self, tables: Tables) -> Tables:
        """The tables with what is staged."""
        tables = copy.deepcopy(tables)
        for (name, _), changes in self.open.updated.items():
            for row, value in changes.items():
                tables[name][row] = (value, tables[name][row][1])
        for name, rows in self.open.appended.items():
            tables[name] = tables[name] + rows
        return tables

    @precondition(lambda self: self.open is not None)
    @rule()
    def commit_the_open_one(self) -> None:
        opened, self.open = self.open, None
        touched = {*opened.appended, *(name for name, _ in opened.updated)}
        since = set().union(*self.wrote[opened.read + 1 :])
        maintained = not all(self.wrote[opened.read + 1 :])
        may_conflict = bool(touched) and (bool(touched & since) or maintained)
        must_conflict = opened.serializable and bool(touched & since)
        try:
            version = opened.txn.commit()
        except CommitConflictError:
            assert may_conflict
            return
        assert not must_conflict
        if not touched:
            assert version == opened.read
            return
        self.open = opened
        tables = self.after(self.now)
        self.open = None
        self.landed(version, tables, touched)

    # maintenance

    @rule(
        second=st.booleans(), what=st.sampled_from(["checkpoint", "compact_log", "compact_pages", "reopen"])
    )
    def maintain(self, second: bool, what: str) -> None:
        if what == "reopen":
            self.stores[second] = Store(self.stores[0].objects)
        else:
            getattr(self.handle(second), what)()
            self.maintained()

    # versions by name

    @rule(second=st.booleans(), name=st.sampled_from(TAGS), data=st.data())
    def tag(self, second: bool, name: str, data: st.DataObject) -> None:
        version = data.draw(st.integers(0, len(self.versions) - 1))
        store = self.handle(second)
        if self.tags.get(name, version) != version:
            with pytest.raises(AlreadyExistsError):
                store.tag(name, version)
            store.delete_tag(name)
        store.tag(name, version)
        self.tags[name] = version
        self.maintained()
        assert store.snapshot(tag=name).version == version

    @precondition(lambda self: self.tags)
    @rule(second=st.booleans(), data=st.data())
    def delete_tag(self, second: bool, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.tags)))
        self.handle(second).delete_tag(name)
        del self.tags[name]
        self.maintained()

    @rule(second=st.booleans(), data=st.data())
    def restore(self, second: bool, data: st.DataObject) -> None:
        wanted = data.draw(st.integers(0, len(self.versions) - 1))
        version = self.handle(second).restore(version=wanted)
        self.restored = True
        if version == len(self.versions):
            names = set(self.now) | set(self.versions[wanted])
            self.landed(version, self.versions[wanted], names)
        else:
            assert version == len(self.versions) - 1
            assert self.now == self.versions[wanted]
        self.changed()

    def teardown(self) -> None:
        for version, tables in enumerate(self.versions):
            snapshot = Store(self.stores[0].objects).snapshot(version=version)
            assert {name: as_rows(snapshot.table(name).read()) for name in snapshot.tables()} == tables


def test_the_public_api_behaves_like_a_dictionary_of_lists(small_trees):
    run_state_machine_as_test(
        PublicApi,
        settings=settings(
            max_examples=40,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
