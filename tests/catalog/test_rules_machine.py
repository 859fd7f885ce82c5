"""Types, checks, keys and tables that come back against a model: several transactions and vacuum.

`test_catalog_machine.py` does the same for names and columns. The model knows of every transaction what it
has changed and used: there is neither a conflict without reason nor a rule that two of them break together.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from itertools import count

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    initialize,
    precondition,
    rule,
)

import spark_pages as sp
from spark_pages.errors import (
    AlreadyExistsError,
    CommitConflictError,
    ConstraintError,
    InvalidInputError,
    SnapshotExpiredError,
    TableNotFoundError,
)
from spark_pages.store import Store
from spark_pages.transaction.transaction import Transaction
from tests.catalog.machine import Footprint, SeveralTransactions
from tests.effort import run_machine
from tests.invariants import check_table_zero

NAMES = ["a", "b", "c"]
TYPES = ["p", "q"]
CHECKS = ["low", "lower"]


@dataclass
class Kind:
    """A domain: values are below a bound, and below that of what it is made of."""

    bound: int
    base: int | None


@dataclass
class Rows:
    """A table: column ``n``, never null, may have a type, checks and a key; ``r`` may refer to another."""

    kind: int | None
    values: list[int] = field(default_factory=list)
    checks: dict[str, int] = field(default_factory=dict)
    is_key: bool = False
    refers: int | None = None


@dataclass
class Model:
    """A version: types and tables by name, each known by a number of its own; tables that can come back."""

    types: dict[str, int] = field(default_factory=dict)
    tables: dict[str, int] = field(default_factory=dict)
    kinds: dict[int, Kind] = field(default_factory=dict)
    rows: dict[int, Rows] = field(default_factory=dict)
    dropped: dict[int, tuple[str, int]] = field(default_factory=dict)
    """Name, and the version that dropped it."""

    def bounds(self, uid: int) -> list[int]:
        """What all values of a table are below."""
        rows = self.rows[uid]
        found, kind = [*rows.checks.values()], rows.kind
        while kind is not None:
            found.append(self.kinds[kind].bound)
            kind = self.kinds[kind].base
        return found

    def users(self, kind: int) -> bool:
        """Whether a live table or another type is of this type."""
        return kind in [self.rows[uid].kind for uid in self.tables.values()] + [
            self.kinds[uid].base for uid in self.types.values()
        ]

    def referrers(self, uid: int) -> list[int]:
        return [each for each in self.tables.values() if each != uid and self.rows[each].refers == uid]

    def shown(self) -> dict[str, list[int]]:
        return {name: self.rows[uid].values for name, uid in self.tables.items()}

    def rules(self) -> set[tuple[str, str, str | None]]:
        names = {uid: name for name, uid in self.tables.items()}
        found: set[tuple[str, str, str | None]] = set()
        for name, uid in self.tables.items():
            rows = self.rows[uid]
            found |= {(name, check, None) for check in rows.checks}
            found |= {(name, "key", None)} if rows.is_key else set()
            found |= {(name, "to", names[rows.refers])} if rows.refers is not None else set()
        return found


@dataclass
class KeyedFootprint(Footprint):
    """Also the tables that it has written rows to."""

    written: set[int] = field(default_factory=set)


@dataclass
class Open:
    txn: Transaction
    read: int
    model: Model
    mark: KeyedFootprint = field(default_factory=KeyedFootprint)
    new: set[int] = field(default_factory=set)
    appended: list[tuple[int, list[int]]] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)
    is_overtaken: bool = False
    """Vacuum passed since: the version read may be gone, and the commit may be refused for that alone."""


class Rules(SeveralTransactions):
    opened = Open
    most_open = 2

    def can_go_on(self, one: Open) -> bool:
        return not one.is_overtaken

    @initialize()
    def begin(self) -> None:
        first = self.two_stores()
        self.numbers = count(100)
        with first.transaction() as txn:
            txn.create_type("p", pa.int8(), check="VALUE < 9")
            txn.create_type("q", pa.int8(), check="VALUE < 6")
            for name, kind in (("a", "p"), ("b", None), ("c", "q")):
                self._make(txn, name, kind)
                txn.append(name, {"n": [1, 2]})
            txn.add_constraint("c", "to", foreign_key=(["r"], "b", ["n"]))
        with first.transaction() as txn:
            txn.drop_table("c")
        p, q, a, b, c = (next(self.numbers) for _ in range(5))
        rows = {a: Rows(p, [1, 2]), b: Rows(None, [1, 2]), c: Rows(q, [1, 2], refers=b)}
        made = Model({"p": p, "q": q}, {"a": a, "b": b, "c": c}, {p: Kind(9, None), q: Kind(6, None)}, rows)
        left = copy.deepcopy(made)
        del left.tables["c"]
        left.dropped[c] = ("c", 2)
        self.versions = [Model(), made, left]
        self.landed = [KeyedFootprint() for _ in self.versions]
        self.oldest = 0

    @staticmethod
    def _make(txn: Transaction, name: str, kind: str | None) -> None:
        first = (
            pa.field("n", pa.int8(), nullable=False) if kind is None else sp.typed("n", kind, nullable=False)
        )
        txn.create_table(name, pa.schema([first, ("r", pa.int8())]))

    def uses(self, one: Open, uid: int | None) -> None:
        if uid is not None and uid not in one.new:
            one.mark.used.add(uid)

    # types

    @rule(
        data=st.data(),
        name=st.sampled_from(TYPES),
        bound=st.sampled_from([3, 6, 9]),
        is_made_of_other=st.booleans(),
    )
    def create_type(self, data: st.DataObject, name: str, bound: int, is_made_of_other: bool) -> None:
        one = self.draw_open(data)
        known = sorted(one.model.types)
        base = data.draw(st.sampled_from(known)) if is_made_of_other and known else None
        if name in one.model.types:
            with pytest.raises(AlreadyExistsError):
                one.txn.create_type(name, base or pa.int8(), check=f"VALUE < {bound}")
            return
        one.txn.create_type(name, base or pa.int8(), check=f"VALUE < {bound}")
        uid, of = next(self.numbers), one.model.types[base] if base else None
        self.uses(one, of)
        one.model.types[name] = uid
        one.model.kinds[uid] = Kind(bound, of)
        one.new.add(uid)
        one.mark.named.add(f"type {name}")

    @rule(data=st.data())
    def drop_type(self, data: st.DataObject) -> None:
        one = self.draw_open(data)
        if not one.model.types:
            return
        name = data.draw(st.sampled_from(sorted(one.model.types)))
        uid = one.model.types[name]
        if one.model.users(uid):
            with pytest.raises(InvalidInputError, match="Cannot drop type"):
                one.txn.drop_type(name)
            return
        one.txn.drop_type(name)
        del one.model.types[name]
        self.changes(one, uid)
        if uid in one.new:
            one.mark.named.discard(f"type {name}")

    # tables

    @rule(data=st.data(), name=st.sampled_from(NAMES), is_typed=st.booleans())
    def create_table(self, data: st.DataObject, name: str, is_typed: bool) -> None:
        one = self.draw_open(data)
        known = sorted(one.model.types)
        kind = data.draw(st.sampled_from(known)) if is_typed and known else None
        if name in one.model.tables:
            with pytest.raises(AlreadyExistsError):
                self._make(one.txn, name, kind)
            return
        self._make(one.txn, name, kind)
        uid, of = next(self.numbers), one.model.types[kind] if kind else None
        self.uses(one, of)
        one.model.tables[name] = uid
        one.model.rows[uid] = Rows(of)
        one.new.add(uid)
        one.mark.named.add(name)

    @rule(data=st.data())
    def drop_table(self, data: st.DataObject) -> None:
        one = self.draw_open(data)
        found = self.draw_table(data, one)
        if found is None:
            return
        name, uid = found
        if one.model.referrers(uid):
            with pytest.raises(InvalidInputError, match="a foreign key of"):
                one.txn.drop_table(name)
            return
        one.txn.drop_table(name)
        del one.model.tables[name]
        self.changes(one, uid)
        one.gone.add(name)
        one.appended = [each for each in one.appended if each[0] != uid]

    @rule(data=st.data())
    def undrop_table(self, data: st.DataObject) -> None:
        one = self.draw_open(data)
        known = sorted({name for name, _ in one.model.dropped.values()})
        name = data.draw(st.sampled_from(known or NAMES))
        if name in one.gone:
            return  # what the transaction drops itself does not come back
        model = one.model
        back = [(version, uid) for uid, (of, version) in model.dropped.items() if of == name]
        refused = self._refuses_back(model, name, max(back)[1] if back else None)
        if refused is not None:
            with pytest.raises(refused):
                one.txn.undrop_table(name)
            return
        one.txn.undrop_table(name)
        _, uid = max(back)
        del model.dropped[uid]
        model.tables[name] = uid
        self.changes(one, uid)
        self.uses(one, model.rows[uid].kind)
        self.uses(one, model.rows[uid].refers)
        one.mark.named.add(name)

    @staticmethod
    def _refuses_back(model: Model, name: str, uid: int | None) -> type[Exception] | None:
        if name in model.tables:
            return AlreadyExistsError
        if uid is None:
            return TableNotFoundError
        rows = model.rows[uid]
        lacks_type = rows.kind is not None and rows.kind not in model.types.values()
        lacks_table = rows.refers not in (None, uid, *model.tables.values())
        return InvalidInputError if lacks_type or lacks_table else None

    # constraints

    @rule(data=st.data(), name=st.sampled_from(CHECKS), bound=st.sampled_from([2, 5, 8]))
    def add_check(self, data: st.DataObject, name: str, bound: int) -> None:
        one = self.draw_open(data)
        found = self.draw_table(data, one)
        if found is None:
            return
        table, uid = found
        rows = one.model.rows[uid]
        if name in rows.checks or any(value >= bound for value in rows.values):
            with pytest.raises((InvalidInputError, ConstraintError)):
                one.txn.add_constraint(table, name, check=f"n < {bound}")
            return
        one.txn.add_constraint(table, name, check=f"n < {bound}")
        rows.checks[name] = bound
        self.changes(one, uid)

    @rule(data=st.data())
    def add_key(self, data: st.DataObject) -> None:
        one = self.draw_open(data)
        found = self.draw_table(data, one)
        if found is None:
            return
        table, uid = found
        rows = one.model.rows[uid]
        if rows.is_key or len(set(rows.values)) < len(rows.values):
            with pytest.raises((InvalidInputError, ConstraintError)):
                one.txn.add_constraint(table, "key", primary_key=["n"])
            return
        one.txn.add_constraint(table, "key", primary_key=["n"])
        rows.is_key = True
        self.changes(one, uid)

    @rule(data=st.data())
    def add_reference(self, data: st.DataObject) -> None:
        one = self.draw_open(data)
        found, there = self.draw_table(data, one), self.draw_table(data, one)
        if found is None or there is None or one.model.rows[found[1]].refers is not None:
            return
        one.txn.add_constraint(found[0], "to", foreign_key=(["r"], there[0], ["n"]))
        one.model.rows[found[1]].refers = there[1]
        self.changes(one, found[1])
        self.uses(one, there[1])

    @rule(data=st.data())
    def drop_constraint(self, data: st.DataObject) -> None:
        one = self.draw_open(data)
        found = self.draw_table(data, one)
        if found is None:
            return
        table, uid = found
        rows = one.model.rows[uid]
        name = data.draw(st.sampled_from([*sorted(rows.checks), *CHECKS, "key", "to"]))
        has = (
            name in rows.checks
            or (name == "key" and rows.is_key)
            or (name == "to" and rows.refers is not None)
        )
        if not has:
            with pytest.raises(sp.SparkPagesError, match="constraint"):
                one.txn.drop_constraint(table, name)
            return
        one.txn.drop_constraint(table, name)
        rows.checks.pop(name, None)
        rows.is_key &= name != "key"
        rows.refers = None if name == "to" else rows.refers
        self.changes(one, uid)

    # rows

    @rule(data=st.data(), values=st.lists(st.integers(0, 9), min_size=1, max_size=3))
    def append(self, data: st.DataObject, values: list[int]) -> None:
        one = self.draw_open(data)
        found = self.draw_table(data, one)
        if found is None:
            return
        name, uid = found
        given = {"n": pa.array(values, pa.int8())}
        if any(value >= bound for value in values for bound in one.model.bounds(uid)):
            with pytest.raises(ConstraintError):
                one.txn.append(name, given)
            return
        one.txn.append(name, given)
        one.model.rows[uid].values += values
        self.uses(one, uid)
        one.mark.written |= {uid} - one.new
        one.appended.append((uid, values))

    # ends

    @precondition(lambda self: self.open)
    @rule(data=st.data(), roll_back=st.integers(0, 9))
    def end(self, data: st.DataObject, roll_back: int) -> None:
        one = data.draw(st.sampled_from(self.open))
        self.open.remove(one)
        if not roll_back:
            one.txn.rollback()
            return
        since = self.landed[one.read + 1 :]
        keyed = {uid for uid in one.model.tables.values() if one.model.rows[uid].is_key}
        met = any(one.mark.meets(each) for each in since)
        is_more = bool(one.mark.changed or one.mark.named or one.new)
        compared = any(one.mark.written & each.written & keyed for each in since)
        try:
            version = one.txn.commit()
        except ConstraintError:
            now = self.versions[-1] if met else self.merged(one, len(self.versions))
            values = [
                model.rows[uid].values for model in (one.model, now) for uid in keyed & model.rows.keys()
            ]
            assert any(len(set(each)) < len(each) for each in values), "a key that was not there twice"
            return
        except CommitConflictError:
            assert met or (compared and is_more) or one.is_overtaken, "a conflict without a reason"
            return
        except SnapshotExpiredError:
            assert one.is_overtaken
            return
        if version == len(self.versions):
            assert not met, "two changes that cannot both be"
            self.versions.append(self.merged(one, version))
            self.landed.append(one.mark)
            now = self.versions[-1]
            keys = [now.rows[uid].values for uid in now.tables.values() if now.rows[uid].is_key]
            assert all(len(set(each)) == len(each) for each in keys), "a key that is there twice"
        assert version <= len(self.versions) - 1
        self.check(self.stores[0], len(self.versions) - 1)

    def merged(self, one: Open, version: int) -> Model:
        """The newest version with what the transaction did; rows that it only appended come behind."""
        model = copy.deepcopy(self.versions[-1])
        self.bring_names(one, model, "types")
        for name, uid in self.bring_names(one, model, "tables").items():
            model.dropped[uid] = (name, version)
        for uid in model.tables.values():
            model.dropped.pop(uid, None)
        model.kinds |= {uid: one.model.kinds[uid] for uid in one.new if uid in one.model.kinds}
        for uid in one.mark.changed | one.new:
            if uid in one.model.rows:
                model.rows[uid] = copy.deepcopy(one.model.rows[uid])
        for uid, rows in one.appended:
            if uid not in one.mark.changed | one.new:
                model.rows[uid].values += rows
        return model

    @rule(data=st.data())
    def vacuum(self, data: st.DataObject) -> None:
        store = data.draw(st.sampled_from(self.stores))
        store.vacuum(retention=1)
        newest = store.snapshot().version
        self.oldest = store.snapshot().log.state.retention.min_readable
        model = copy.deepcopy(self.versions[-1])
        model.dropped.clear()  # what no version shows any more does not come back
        if newest >= len(self.versions):
            for one in self.open:
                one.is_overtaken = True
        while len(self.versions) <= newest:
            self.versions.append(copy.deepcopy(model))
            self.landed.append(KeyedFootprint())
        self.versions[-1] = model

    @rule(data=st.data(), checkpoint=st.booleans())
    def another_process_sees_the_same(self, data: st.DataObject, checkpoint: bool) -> None:
        if checkpoint:
            data.draw(st.sampled_from(self.stores)).checkpoint()
        fresh = Store(self.stores[0].object_store)
        self.check(fresh, len(self.versions) - 1)
        version = data.draw(st.integers(0, len(self.versions) - 1))
        try:
            self.check(fresh, version)
        except SnapshotExpiredError:
            assert version < self.oldest
        check_table_zero(fresh)

    def check(self, store: Store, version: int) -> None:
        """Rows, types and constraints are those of the model; each can be seen in ``system.*``."""
        snapshot, model = store.snapshot(version=version), self.versions[version]
        rows = {name: snapshot.table(name).read(["n"])["n"].to_pylist() for name in snapshot.tables()}
        assert rows == model.shown()
        types = {each.name: [check.sql for check in each.checks] for each in snapshot.types()}
        assert {name: len(checks) for name, checks in types.items()} == {
            name: self.depth(model, uid) for name, uid in model.types.items()
        }
        told = snapshot.table("system.constraints").read(["table", "name", "references"])
        assert set(zip(*(column.to_pylist() for column in told.columns), strict=True)) == model.rules()

    @staticmethod
    def depth(model: Model, kind: int | None) -> int:
        return 0 if kind is None else 1 + Rules.depth(model, model.kinds[kind].base)


@pytest.mark.sampled
def test_rules_hold_and_tables_come_back_for_every_version_whoever_is_about(small_trees):
    run_machine(Rules, 15, steps=25)
