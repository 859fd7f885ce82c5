"""Transactions of several processes land in every order, also in the middle of each other's commits.

Tables with and without a primary key are appended to and updated, truncated, restored, compacted and cleaned.
The model knows of each version its rows, and of each cell whether that version may have written it. So it
tells of every commit whether it must land, must be refused, and for what.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

import spark_pages as sp
from spark_pages.errors import CommitConflictError, ConstraintError, InvalidInputError
from spark_pages.runtime import Runtime
from spark_pages.storage.store import Doubtful
from spark_pages.store import Store
from spark_pages.transaction import page_writer
from spark_pages.transaction.transaction import Transaction
from tests.effort import run_machine
from tests.invariants import check_against_replay, check_snapshot

SCHEMA = pa.schema([pa.field("n", pa.int64(), nullable=False), ("s", pa.string())])
ALONE = {"checkpoint_commits": "0", "checkpoint_bytes": "0", "log_compaction_commits": "0"}
TABLES = ["keyed", "plain"]
HANDLES = 3
WHO = st.integers(0, HANDLES - 1)

Row = tuple[int, str | None]
Tables = dict[str, list[Row]]
Cells = dict[tuple[str, int], set[int]]
"""Rows by table and number of the column."""


class MeanwhileStore:
    """The same objects; before a slot is created something else may happen first, and the answer be lost.

    Attributes
    ----------
    meanwhile
        What happens before the next tries.
    losing
        Whether the next creates reach storage, of those whose answer does not come back.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.meanwhile: list[Callable[[], object]] = []
        self.losing: list[bool] = []

    def create(self, key: str, data: bytes) -> Any:
        if not key.startswith("_log/0"):
            return self._inner.create(key, data)
        if self.meanwhile:
            self.meanwhile.pop(0)()
        if not self.losing:
            return self._inner.create(key, data)
        if self.losing.pop():
            self._inner.create(key, data)
            self.meanwhile.clear()  # what lands from now on stands behind it, and nobody knows of it yet
        return Doubtful("no answer came")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@dataclass
class Version:
    """What a version holds, and what it did.

    Attributes
    ----------
    written, perhaps
        Rows that it certainly wrote, and those that it may have written.
    cleared
        Tables that were emptied, or that are others by now.
    epoch
        From then on transactions must have read this version.
    is_whole
        Whether all tables are there.
    """

    tables: Tables
    written: Cells = field(default_factory=dict)
    perhaps: Cells = field(default_factory=dict)
    cleared: set[str] = field(default_factory=set)
    epoch: int = 0
    is_whole: bool = True


@dataclass
class Open:
    """A transaction that is staged.

    Attributes
    ----------
    read
        The version that it stands on for good; None while it may move on.
    since
        The newest version that its process knew when it was opened.
    """

    txn: Transaction
    who: int
    since: int
    read: int | None = None
    pair: int | None = None
    appended: dict[str, list[Row]] = field(default_factory=dict)
    updated: dict[tuple[str, int], dict[int, Any]] = field(default_factory=dict)

    @property
    def tables(self) -> set[str]:
        return {*self.appended, *(name for name, _ in self.updated)}

    def on(self, tables: Tables) -> Tables:
        """The tables with what it does."""
        after = {name: list(rows) for name, rows in tables.items()}
        for (name, column), changes in self.updated.items():
            for row, value in changes.items():
                if row < len(after[name]):
                    cells: list[Any] = list(after[name][row])
                    cells[column] = value
                    after[name][row] = (cells[0], cells[1])
        for name, rows in self.appended.items():
            after[name] += rows
        return after


def as_table(rows: list[Row]) -> pa.Table:
    return pa.table({"n": [n for n, _ in rows], "s": [s for _, s in rows]}, schema=SCHEMA)


def has_twice(rows: list[Row]) -> bool:
    return len({n for n, _ in rows}) < len(rows)


class Landings(RuleBasedStateMachine):
    """Up to four open transactions, of three processes."""

    @initialize()
    def begin(self) -> None:
        first = sp.create(f"memory://{uuid4().hex}", properties=ALONE)
        self.objects = first.object_store
        self.between = [MeanwhileStore(self.objects) for _ in range(HANDLES)]
        self.stores = [Store(each, Runtime(sleep_s=lambda _: None)) for each in self.between]
        with first.transaction() as txn:
            for name in TABLES:
                txn.create_table(name, SCHEMA)
            txn.add_constraint("keyed", "key", primary_key=["n"])
        rows: list[Row] = [(n, f"row {n}") for n in range(4)]
        with first.transaction() as txn:
            for name in TABLES:
                txn.append(name, as_table(rows))
        empty: Tables = {name: [] for name in TABLES}
        full = {name: list(rows) for name in TABLES}
        self.versions = [Version({}, cleared=set(TABLES)), Version(empty, cleared=set(TABLES)), Version(full)]
        self.open: list[Open] = []
        self.pairs: dict[int, int] = {}
        self.oldest = 0
        self.busy: set[int] = set()
        self.feeds: dict[tuple[int, int, str], pa.Table] = {}

    # what the model knows

    @property
    def head(self) -> int:
        return len(self.versions) - 1

    @property
    def now(self) -> Tables:
        return self.versions[-1].tables

    def landed(self, version: int, made: Version) -> None:
        assert version == len(self.versions), "a version that nobody knows of"
        self.versions.append(made)

    def nothing_changed(self) -> None:
        """Upkeep may have made versions of its own."""
        while self.head < Store(self.objects).snapshot().version:
            self.versions.append(Version(self.now))

    def handle(self, data: st.DataObject) -> Store:
        """One of the processes, or another one where that is in the middle of a commit."""
        who = data.draw(WHO)
        return Store(self.objects) if who in self.busy else self.stores[who]

    # staging

    @rule(data=st.data(), count=st.integers(2, 4))
    def race(self, data: st.DataObject, count: int) -> None:
        """Some transactions are staged, other things happen meanwhile, and all of them end."""
        for _ in range(count):
            self.open_one(data)
        for _ in range(data.draw(st.integers(0, 5))):
            if data.draw(st.booleans()):
                self.stage(data, data.draw(st.sampled_from(self.open)))
            else:
                self.something_else(data)
        while self.open:
            self.commit(data)

    def open_one(self, data: st.DataObject) -> None:
        who = data.draw(WHO)
        number = data.draw(st.sampled_from([None, None, 1, 1, 0, 2]))
        if number is not None:
            number += max(self.pairs, default=0)
        txn = self.stores[who].transaction(app_id="etl" if number else None, app_version=number or None)
        one = Open(txn, who, self.stores[who]._log.known().state.version, pair=number or None)
        if data.draw(st.booleans()):
            one.read = txn.snapshot.version
            assert one.read == self.head
        self.open.append(one)
        for _ in range(data.draw(st.integers(0, 2))):
            self.stage(data, one)

    def stage(self, data: st.DataObject, one: Open) -> None:
        name = data.draw(st.sampled_from(TABLES))
        if data.draw(st.booleans()):
            self.append(data, one, name)
        elif data.draw(st.integers(0, 3)):
            self.update(data, one, name, data.draw(st.integers(0, 1)))
        else:
            self.read_own_writes(one)

    def settle(self, one: Open) -> None:
        """Only the newest version will do, unless a table that it has written to is another one there."""
        if one.read is None:
            one.read = one.txn.snapshot.version
            assert one.since <= one.read <= self.head

    def append(self, data: st.DataObject, one: Open, name: str) -> None:
        numbers = data.draw(st.lists(st.integers(0, 40), min_size=1, max_size=4))
        rows: list[Row] = [(n, data.draw(st.sampled_from([None, "x", "y" * 30]))) for n in numbers]
        if name == "keyed":
            self.settle(one)
        one.txn.append(name, as_table(rows))
        one.appended.setdefault(name, []).extend(rows)

    def update(self, data: st.DataObject, one: Open, name: str, column: int) -> None:
        self.settle(one)
        assert one.read is not None
        count = len(self.versions[one.read].tables[name])
        if not count:
            return
        rows = data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=3, unique=True))
        of_column = st.sampled_from([None, "new", "z" * 40]) if column else st.integers(0, 40)
        values: list[Any] = [data.draw(of_column) for _ in rows]
        one.txn.update_rows(name, rows, {SCHEMA.names[column]: values})
        one.updated.setdefault((name, column), {}).update(zip(rows, values, strict=True))

    def read_own_writes(self, one: Open) -> None:
        self.settle(one)
        assert one.read is not None
        if any(each.epoch > one.read for each in self.versions):
            return
        for name, rows in one.on(self.versions[one.read].tables).items():
            assert one.txn.table(name).read().to_pydict() == as_table(rows).to_pydict()

    # ends

    def commit(self, data: st.DataObject) -> None:
        """One ends; others do in the middle of its tries."""
        one = data.draw(st.sampled_from(self.open))
        self.open.remove(one)
        self.busy.add(one.who)
        meanwhile = self.between[one.who].meanwhile
        for _ in range(data.draw(st.integers(0, 3))):
            others = [each for each in self.open if each.who not in self.busy]
            if others and data.draw(st.booleans()):
                other = data.draw(st.sampled_from(others))
                self.open.remove(other)
                meanwhile.append(partial(self.end, other))
            else:
                meanwhile.append(partial(self.something_else, data))
        self.between[one.who].losing = data.draw(st.lists(st.booleans(), max_size=1))
        self.end(one)
        self.between[one.who].losing.clear()
        self.busy.clear()
        left = list(meanwhile)
        meanwhile.clear()
        for each in left:
            each()

    def end(self, one: Open) -> None:
        """Commit; how that ends is what the model says of the versions that came in between."""
        try:
            ended: int | Exception = one.txn.commit()
        except (CommitConflictError, InvalidInputError) as error:
            ended = error
        has_landed = one.pair in self.pairs
        match ended:
            case int() if has_landed:
                known = self.pairs[one.pair or 0]
                assert ended == known if one.txn.version_is_exact else ended >= known
            case int() if not one.tables and one.pair is None:
                assert ended <= self.head
            case int() if not one.txn.version_is_exact:
                assert self.is_passed_over(one)
            case int():
                self.check_landed(one, ended)
            case ConstraintError():
                bases = [self.now] if one.read is None else [self.now, self.versions[one.read].tables]
                assert any(has_twice(one.on(base)["keyed"]) for base in bases), ended
                assert not has_landed, ended
            case InvalidInputError():
                assert self.is_passed_over(one), ended
            case _:
                self.check_conflict(one, ended)
                assert not has_landed, ended

    def is_passed_over(self, one: Open) -> bool:
        """Whether a later number has landed, and its own never did."""
        return one.pair is not None and one.pair not in self.pairs and one.pair < max(self.pairs, default=0)

    def check_landed(self, one: Open, version: int) -> None:
        assert not self.must_conflict(one), "it rests on what is another by now"
        after = one.on(self.now)
        assert not has_twice(after["keyed"]), "a key is there twice"
        self.landed(version, Version(after, {key: set(rows) for key, rows in one.updated.items()}))
        if one.pair is not None:
            self.pairs[one.pair] = version

    def since(self, one: Open) -> list[Version]:
        return self.versions[(one.since if one.read is None else one.read) + 1 :]

    def must_conflict(self, one: Open) -> bool:
        since = self.since(one)
        touched = any(
            rows.keys() & version.written.get(key, set())
            for version in since
            for key, rows in one.updated.items()
        )
        gone = any(name in version.cleared for version in since for name, _ in one.updated)
        passed = one.read is not None and any(version.epoch > one.read for version in since)
        return touched or gone or passed

    def check_conflict(self, one: Open, error: Exception) -> None:
        since = self.since(one)
        perhaps = any(
            rows.keys() & version.perhaps.get(key, set())
            for version in since
            for key, rows in one.updated.items()
        )
        cleared = any(one.tables & version.cleared for version in since)
        overtaken = any(version.epoch > one.since for version in since)
        assert self.must_conflict(one) or perhaps or cleared or overtaken, error

    # what else happens

    @rule(data=st.data())
    def something_else(self, data: st.DataObject) -> None:
        others = (
            self.single,
            self.truncated,
            self.gone_and_back,
            self.compacted,
            self.looked_after,
            self.vacuumed,
            self.restored,
        )
        data.draw(st.sampled_from(others))(data)

    def single(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(41, 10_000))
        if any(n == number for n, _ in self.now["keyed"]):
            return
        with Store(self.objects).transaction() as txn:
            for name in TABLES:
                txn.append(name, as_table([(number, None)]))
        self.landed(txn.version, Version({name: [*rows, (number, None)] for name, rows in self.now.items()}))

    def truncated(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(TABLES))
        with self.handle(data).transaction() as txn:
            txn.truncate_table(name)
        self.landed(txn.version, Version({**self.now, name: []}, cleared={name}))

    def gone_and_back(self, data: st.DataObject) -> None:
        name, rows = data.draw(st.sampled_from(sorted(self.now.items())))
        with self.handle(data).transaction() as txn:
            txn.drop_table(name)
        self.landed(txn.version, Version({**self.now, name: []}, cleared={name}, is_whole=False))
        with Store(self.objects).transaction() as txn:
            txn.undrop_table(name)
        self.landed(txn.version, Version({**self.now, name: rows}, cleared={name}))
        for who in {*range(HANDLES)} - self.busy:
            self.stores[who].snapshot()

    def compacted(self, data: st.DataObject) -> None:
        Store(self.objects).compact_pages(data.draw(st.sampled_from(TABLES)))
        self.nothing_changed()

    def looked_after(self, data: st.DataObject) -> None:
        what = data.draw(st.sampled_from(["checkpoint", "compact_log", "snapshot"]))
        getattr(self.handle(data), what)()

    def vacuumed(self, data: st.DataObject) -> None:
        keep, orphans = data.draw(st.integers(1, 8)), data.draw(st.booleans())
        self.handle(data).vacuum(retention=keep, orphans=orphans)
        retention = Store(self.objects).snapshot().log.state.retention
        self.nothing_changed()
        if retention is not None:
            self.oldest = retention.min_readable
            self.versions[-1].epoch = retention.min_epoch

    def restored(self, data: st.DataObject) -> None:
        then = max(self.head - data.draw(st.integers(1, 5)), self.oldest, 2)
        if not self.versions[then].is_whole:
            return
        version = self.handle(data).restore(version=then)
        wanted, now = self.versions[then].tables, self.now
        if version <= self.head:
            assert wanted == now
            return
        made = Version({name: list(rows) for name, rows in wanted.items()})
        for name in TABLES:
            short, long = sorted((len(wanted[name]), len(now[name])))
            for column in range(2):
                made.perhaps[name, column] = set(range(long))
                made.written[name, column] = {
                    row
                    for row in range(long)
                    if row >= short or wanted[name][row][column] != now[name][row][column]
                }
        self.landed(version, made)

    # what is asked

    def readable(self) -> list[int]:
        """Versions that can be read, and of which the model tells all."""
        return [each for each in range(max(self.oldest, 2), self.head + 1) if self.versions[each].is_whole]

    @rule(data=st.data())
    def changes(self, data: st.DataObject) -> None:
        start, end = sorted(data.draw(st.sampled_from(self.readable())) for _ in range(2))
        for granularity in ("rows", "pages"):
            told = Store(self.objects).changes(start + 1, end, granularity=granularity)
            assert self.feeds.setdefault((start, end, granularity), told).equals(told), (
                "the same, wherever it is read"
            )
        self.check_rows(start, end)

    def check_rows(self, start: int, end: int) -> None:
        told = self.feeds[start, end, "rows"].to_pylist()
        then, now = self.versions[start].tables, self.versions[end].tables
        for name in TABLES:
            for column, text in enumerate(SCHEMA.names):
                rows: dict[str, set[int]] = {"updated": set(), "inserted": set(), "removed": set()}
                for each in told:
                    if (each["table"], each["column"]) == (name, text):
                        rows[each["change"]] |= set(range(each["first_row"], each["end_row"]))
                kept = {r: v[column] for r, v in enumerate(then[name]) if r not in rows["removed"]}
                new = {row: value[column] for row, value in enumerate(now[name])}
                assert not rows["inserted"] & kept.keys()
                assert rows["updated"] <= kept.keys()
                kept |= {row: new[row] for row in rows["updated"] | rows["inserted"]}
                assert kept == new

    @rule()
    def all_is_well(self) -> None:
        self.check(Store(self.objects))

    def check(self, store: Store) -> None:
        snapshot = store.snapshot()
        assert snapshot.version == self.head
        for name, rows in self.now.items():
            assert snapshot.table(name).read().to_pydict() == as_table(rows).to_pydict()
        check_snapshot(snapshot.log)
        if not self.oldest:
            check_against_replay(store._log, snapshot.log)

    def teardown(self) -> None:
        if not hasattr(self, "objects"):
            return
        fresh = Store(self.objects)
        self.check(fresh)
        for version in self.readable():
            snapshot, rows = fresh.snapshot(version=version), self.versions[version].tables
            found = {name: snapshot.table(name).read().to_pydict() for name in TABLES}
            assert found == {name: as_table(rows[name]).to_pydict() for name in TABLES}
        for (start, end, granularity), told in self.feeds.items():
            if start >= self.oldest:
                assert fresh.changes(start + 1, end, granularity=granularity).equals(told)
        assert fresh.verify("all").ok


@pytest.mark.sampled
@pytest.mark.parametrize("inline_bytes", [64 << 10, pytest.param(300, marks=pytest.mark.slow)])
def test_transactions_land_in_every_order_as_a_plain_model_says(small_trees, monkeypatch, inline_bytes):
    monkeypatch.setattr(page_writer, "INLINE_TRANSACTION_BYTES", inline_bytes)

    run_machine(Landings, 6, steps=12, shrinks=False)
