"""Restore beside transactions that change definitions and append rows: whatever lands, all stays readable.

Handles append without a look at storage, widen, add and drop columns, drop what others need, and restore any
version. The model knows the rows of each version; a commit either conflicts, or does all of what it says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

import spark_pages as sp
from spark_pages.catalog.references import dangling_references
from spark_pages.errors import CommitConflictError, ConstraintError, SparkPagesError
from spark_pages.store import Store
from spark_pages.transaction.transaction import Transaction
from tests.effort import run_machine
from tests.transaction.stores import QUIET

WIDE = {"n": pa.int64(), "f": pa.float64()}
VALUES = {"n": [1, -7, 2**40], "f": [0.5, 0.1, 1e300]}
Rows = list[dict[str, Any]]


@dataclass
class Open:
    txn: Transaction
    appended: tuple[str, Rows] | None = None


def start(store: Store) -> None:
    with store.transaction() as txn:
        txn.create_namespace("sales")
        txn.create_type("money", pa.int32())
    with store.transaction() as txn:
        txn.create_table("others", pa.schema([("k", pa.int64()), ("v", pa.int8())]))
        txn.create_table("t", pa.schema([("n", pa.int32()), ("f", pa.float32())]))
        txn.append("t", {"n": pa.array([1], pa.int32()), "f": pa.array([0.5], pa.float32())})
    with store.transaction() as txn:
        txn.create_table("sales.s", pa.schema([("n", pa.int32()), sp.typed("m", "money")]))
        txn.add_constraint("sales.s", "other", foreign_key=(["n"], "others", ["k"]))


DEFINITIONS = {
    "widen n": lambda txn: txn.widen_column("t", "n", pa.int64()),
    "widen f": lambda txn: txn.widen_column("t", "f", pa.float64()),
    "not null": lambda txn: txn.set_nullable("t", "n", False),
    "add column": lambda txn: txn.add_column("t", pa.field("extra", pa.int8()), default=3),
    "drop column": lambda txn: txn.drop_column("t", "extra"),
    "rename": lambda txn: txn.rename_table("t", "u"),
    "name back": lambda txn: txn.rename_table("u", "t"),
    "drop referring": lambda txn: txn.drop_table("sales.s"),
    "undrop": lambda txn: txn.undrop_table("sales.s"),
    "unrefer": lambda txn: txn.drop_constraint("sales.s", "other"),
    "refer": lambda txn: txn.add_constraint("sales.s", "other", foreign_key=(["n"], "others", ["k"])),
    "drop typed column": lambda txn: txn.drop_column("sales.s", "m"),
    "add typed column": lambda txn: txn.add_column("sales.s", sp.typed("m", "money")),
    "drop namespace": lambda txn: txn.drop_namespace("sales"),
    "drop type": lambda txn: txn.drop_type("money"),
    "drop referenced": lambda txn: txn.drop_table("others"),
    "drop referenced column": lambda txn: txn.drop_column("others", "k"),
    "truncate": lambda txn: txn.truncate_table("t"),
}


class Restoring(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        first = sp.create(f"memory://{uuid4().hex}", properties=QUIET)
        start(first)
        self.stores = [first, Store(first.object_store), Store(first.object_store)]
        self.open: list[Open] = []
        self.past = {version: contents(first, version) for version in range(first.snapshot().version + 1)}

    @rule(who=st.integers(0, 2), what=st.sampled_from(sorted(DEFINITIONS)))
    def stage_definition(self, who: int, what: str) -> None:
        txn = self.stores[who].transaction()
        try:
            DEFINITIONS[what](txn)
        except SparkPagesError:
            txn.rollback()
            return
        self.open.append(Open(txn))

    @rule(who=st.integers(0, 2), data=st.data())
    def stage_append(self, who: int, data: st.DataObject) -> None:
        """Of the types that this handle knows; it does not look for newer ones."""
        known = self.stores[who]._log.known().table((0, "t"))
        if known is None:
            return
        fields = [field for field in known.bare_schema if field.name in WIDE]
        row = {
            field.name: data.draw(
                st.sampled_from(VALUES[field.name][: 3 if field.type == WIDE[field.name] else 1])
            )
            for field in fields
        }
        txn = self.stores[who].transaction()
        try:
            txn.append("t", pa.Table.from_pylist([row], schema=pa.schema(fields)))
        except SparkPagesError:
            txn.rollback()
            return
        self.open.append(Open(txn, ("t", [row])))

    @rule(data=st.data(), change=st.sampled_from(sorted(DEFINITIONS)))
    def take_a_change_back_while_another_is_on_its_way(self, data: st.DataObject, change: str) -> None:
        """The order in which restores have gone wrong: change, stage, restore, commit."""
        head = max(self.past)
        try:
            with self.stores[0].transaction() as txn:
                DEFINITIONS[change](txn)
        except SparkPagesError:
            return
        self.landed(txn.version)
        self.stores[1].snapshot()
        staged = len(self.open)
        if data.draw(st.booleans()):
            self.stage_append(1, data)
        else:
            self.stage_definition(1, data.draw(st.sampled_from(sorted(DEFINITIONS))))
        self.landed(self.stores[0].restore(version=head))
        if len(self.open) > staged:
            self.finish(self.open.pop())

    @rule(who=st.integers(0, 2))
    def look(self, who: int) -> None:
        self.stores[who].snapshot()

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        self.finish(self.open.pop(data.draw(st.integers(0, len(self.open) - 1))))

    def finish(self, one: Open) -> None:
        before = self.past[max(self.past)]
        try:
            version = one.txn.commit()
        except (CommitConflictError, ConstraintError):
            return
        if version not in self.past:
            self.landed(version)
            if one.appended is not None:
                assert grown(before, self.past[version]) == one.appended[1]

    @rule(who=st.integers(0, 2), data=st.data())
    def restore(self, who: int, data: st.DataObject) -> None:
        then = data.draw(st.sampled_from(sorted(self.past)))
        version = self.stores[who].restore(version=then)
        if version not in self.past:
            self.landed(version)
        assert self.past[version] == self.past[then]

    def landed(self, version: int) -> None:
        self.past[version] = contents(Store(self.stores[0].object_store), version)

    @invariant()
    def every_reference_is_there(self) -> None:
        assert list(dangling_references(Store(self.stores[0].object_store).snapshot().log.tables())) == []

    def teardown(self) -> None:
        if not hasattr(self, "open"):
            return
        for one in self.open:
            one.txn.rollback()
        fresh = Store(self.stores[0].object_store)
        assert fresh.verify(pages="all").ok
        fresh.compact_pages()
        assert contents(fresh, fresh.snapshot().version) == self.past[max(self.past)]


def contents(store: Store, version: int) -> dict[int, Rows]:
    """Rows by id of the table, under ids of columns."""
    snapshot = store.snapshot(version=version)
    found = {}
    for name in snapshot.tables():
        table = snapshot.table(name)
        ids = [str(each) for each in table.definition.field_ids.values()]
        found[int(table.definition.table_id)] = table.read().rename_columns(ids).to_pylist()
    return found


def grown(before: dict[int, Rows], after: dict[int, Rows]) -> Rows:
    """The rows that one table has got behind its own, under the names of the columns given."""
    (table_id,) = [each for each in after if after[each] != before[each]]
    was, now = before[table_id], after[table_id]
    assert now[: len(was)] == was
    return [{name: row[of] for name, of in (("n", "1"), ("f", "2")) if of in row} for row in now[len(was) :]]


@pytest.mark.sampled
def test_a_restore_beside_changes_of_the_catalog_leaves_everything_readable():
    run_machine(Restoring, 6, steps=12)
