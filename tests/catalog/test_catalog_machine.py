"""The catalog against a model: several transactions change tables and append rows, and meet each other.

The model knows of every transaction what it has changed, used and named since it began, and from that whether
it must conflict: there is neither a conflict without reason nor a change that gets lost.
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
from spark_pages.errors import AlreadyExistsError, CommitConflictError, InvalidInputError, TableExistsError
from spark_pages.store import Store
from spark_pages.transaction.transaction import Transaction
from tests.catalog.machine import Footprint, SeveralTransactions
from tests.effort import run_machine
from tests.invariants import check_table_zero

PLAIN = ["a", "b"]
SPACES = ["x", "y"]
NAMES = [*PLAIN, *(f"{space}.{name}" for space in SPACES for name in PLAIN)]
WIDTHS = ["int8", "int16", "int32", "int64"]


@dataclass
class Column:
    width: str
    values: list[int | None]


@dataclass
class Model:
    """A version: namespaces by name, tables by name, columns in order; each known by a number of its own."""

    spaces: dict[str, int] = field(default_factory=dict)
    tables: dict[str, int] = field(default_factory=dict)
    columns: dict[int, dict[str, Column]] = field(default_factory=dict)

    def shown(self) -> dict[str, dict[str, tuple[str, list[int | None]]]]:
        return {
            name: {column: (each.width, each.values) for column, each in self.columns[uid].items()}
            for name, uid in self.tables.items()
        }


@dataclass
class Open:
    txn: Transaction
    read: int
    model: Model
    mark: Footprint = field(default_factory=Footprint)
    new: set[int] = field(default_factory=set)
    appended: list[tuple[int, dict[str, list[int | None]]]] = field(default_factory=list)


def shown(snapshot: sp.Snapshot) -> dict[str, dict[str, tuple[str, list[int | None]]]]:
    return {name: contents(snapshot.table(name)) for name in snapshot.tables()}


def contents(table: sp.Table) -> dict[str, tuple[str, list[int | None]]]:
    rows = table.read()
    return {column: (str(rows[column].type), rows[column].to_pylist()) for column in rows.column_names}


class Catalog(SeveralTransactions):
    opened = Open
    most_open = 3

    @initialize()
    def begin(self) -> None:
        first = self.two_stores()
        self.versions = [Model()]
        self.landed = [Footprint()]
        self.numbers = count()
        with first.transaction() as txn:
            for space in SPACES:
                txn.create_namespace(space)
            txn.create_table("a", pa.schema([("n", pa.int8())]))
            txn.append("a", {"n": [1, 2]})
        spaces = {space: next(self.numbers) for space in SPACES}
        uid = next(self.numbers)
        self.versions.append(Model(spaces, {"a": uid}, {uid: {"n": Column("int8", [1, 2])}}))
        self.landed.append(Footprint())

    def gives(self, one: Open, name: str, uid: int) -> None:
        """The table gets the name: nobody else gives it, or takes its namespace away."""
        one.model.tables[name] = uid
        one.mark.named.add(name)
        space = one.model.spaces.get(name.rpartition(".")[0])
        if space is not None and space not in one.new:
            one.mark.used.add(space)

    def may_be_named(self, one: Open, name: str) -> type[Exception] | None:
        space = name.rpartition(".")[0]
        if space and space not in one.model.spaces:
            return sp.SparkPagesError
        return TableExistsError if name in one.model.tables else None

    # namespaces

    @rule(data=st.data(), name=st.sampled_from(SPACES))
    def create_namespace(self, data: st.DataObject, name: str) -> None:
        one = self.draw_open(data)
        if name in one.model.spaces:
            with pytest.raises(AlreadyExistsError):
                one.txn.create_namespace(name)
            return
        one.txn.create_namespace(name)
        one.model.spaces[name] = uid = next(self.numbers)
        one.new.add(uid)
        one.mark.named.add(f"namespace {name}")

    @rule(data=st.data())
    def drop_namespace(self, data: st.DataObject) -> None:
        one = self.draw_open(data)
        if not one.model.spaces:
            return
        name = data.draw(st.sampled_from(sorted(one.model.spaces)))
        if any(table.startswith(f"{name}.") for table in one.model.tables):
            with pytest.raises(InvalidInputError, match="it holds"):
                one.txn.drop_namespace(name)
            return
        one.txn.drop_namespace(name)
        uid = one.model.spaces.pop(name)
        self.changes(one, uid)
        if uid in one.new:
            one.mark.named.discard(f"namespace {name}")

    # tables

    @rule(data=st.data(), name=st.sampled_from(NAMES))
    def create_table(self, data: st.DataObject, name: str) -> None:
        one = self.draw_open(data)
        schema = pa.schema([("n", pa.int8())])
        refused = self.may_be_named(one, name)
        if refused is not None:
            with pytest.raises(refused):
                one.txn.create_table(name, schema)
            return
        one.txn.create_table(name, schema)
        uid = next(self.numbers)
        one.new.add(uid)
        one.model.columns[uid] = {"n": Column("int8", [])}
        self.gives(one, name, uid)

    @rule(data=st.data())
    def drop_table(self, data: st.DataObject) -> None:
        one = self.draw_open(data)
        found = self.draw_table(data, one)
        if found is None:
            return
        name, uid = found
        one.txn.drop_table(name)
        del one.model.tables[name]
        self.changes(one, uid)
        one.appended = [each for each in one.appended if each[0] != uid]

    @rule(data=st.data(), new=st.sampled_from(NAMES))
    def rename_table(self, data: st.DataObject, new: str) -> None:
        one = self.draw_open(data)
        found = self.draw_table(data, one)
        if found is None:
            return
        name, uid = found
        refused = self.may_be_named(one, new)
        if refused is not None:
            with pytest.raises(refused):
                one.txn.rename_table(name, new)
            return
        one.txn.rename_table(name, new)
        del one.model.tables[name]
        self.changes(one, uid)
        self.gives(one, new, uid)

    # columns

    @rule(data=st.data(), column=st.sampled_from(["n", "m"]), default=st.none() | st.integers(0, 9))
    def add_or_drop_column(self, data: st.DataObject, column: str, default: int | None) -> None:
        one = self.draw_open(data)
        found = self.draw_table(data, one)
        if found is None:
            return
        name, uid = found
        columns = one.model.columns[uid]
        if column not in columns:
            one.txn.add_column(name, pa.field(column, pa.int8()), default=default)
            rows = len(next(iter(columns.values())).values)
            columns[column] = Column("int8", [default] * rows)
        elif len(columns) == 1:
            with pytest.raises(InvalidInputError):
                one.txn.drop_column(name, column)
            return
        else:
            one.txn.drop_column(name, column)
            del columns[column]
        self.changes(one, uid)

    @rule(data=st.data(), width=st.sampled_from(WIDTHS))
    def widen(self, data: st.DataObject, width: str) -> None:
        one = self.draw_open(data)
        found = self.draw_table(data, one)
        if found is None:
            return
        name, uid = found
        column = data.draw(st.sampled_from(sorted(one.model.columns[uid])))
        now = one.model.columns[uid][column]
        if WIDTHS.index(width) < WIDTHS.index(now.width):
            with pytest.raises(InvalidInputError):
                one.txn.widen_column(name, column, pa.type_for_alias(width))
            return
        one.txn.widen_column(name, column, pa.type_for_alias(width))
        now.width = width
        self.changes(one, uid)

    @rule(data=st.data())
    def reorder(self, data: st.DataObject) -> None:
        one = self.draw_open(data)
        found = self.draw_table(data, one)
        if found is None:
            return
        name, uid = found
        columns = one.model.columns[uid]
        order = data.draw(st.permutations(sorted(columns)))
        one.txn.reorder_columns(name, order)
        one.model.columns[uid] = {column: columns[column] for column in order}
        self.changes(one, uid)

    # rows

    @rule(data=st.data(), values=st.lists(st.none() | st.integers(-9, 9), min_size=1, max_size=3))
    def append(self, data: st.DataObject, values: list[int | None]) -> None:
        one = self.draw_open(data)
        found = self.draw_table(data, one)
        if found is None:
            return
        name, uid = found
        columns = one.model.columns[uid]
        one.txn.append(name, {column: pa.array(values, columns[column].width) for column in columns})
        for column in columns.values():
            column.values += values
        one.mark.used.add(uid)
        one.appended.append((uid, dict.fromkeys(columns, values)))

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def a_transaction_sees_what_it_has_staged(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(self.open))
        for name, expected in one.model.shown().items():
            assert contents(one.txn.table(name)) == expected
        shown_names = one.txn.table("system.tables").read(
            ["namespace", "name"], filter="namespace <> 'system'"
        )
        assert len(shown_names) == len(one.model.tables)

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
        try:
            version = one.txn.commit()
        except CommitConflictError:
            assert any(one.mark.meets(each) for each in since), "a conflict without a reason"
            return
        if version == one.read and not (one.mark.named or one.mark.changed or one.mark.used):
            return
        if version == len(self.versions):
            assert not any(one.mark.meets(each) for each in since), "two changes that cannot both be"
            self.versions.append(self.merged(one))
            self.landed.append(one.mark)
        assert version <= len(self.versions) - 1
        assert shown(self.stores[0].snapshot()) == self.versions[-1].shown()

    def merged(self, one: Open) -> Model:
        """The newest version with what the transaction did; rows that it only appended come behind."""
        model = copy.deepcopy(self.versions[-1])
        for what in ("spaces", "tables"):
            self.bring_names(one, model, what)
        for uid in one.mark.changed | one.new:
            if uid in one.model.columns:
                model.columns[uid] = copy.deepcopy(one.model.columns[uid])
        for uid, rows in one.appended:
            if uid not in one.mark.changed | one.new:
                for column, values in rows.items():
                    model.columns[uid][column].values += values
        return model

    @rule(data=st.data(), checkpoint=st.booleans())
    def another_process_sees_the_same(self, data: st.DataObject, checkpoint: bool) -> None:
        if checkpoint:
            data.draw(st.sampled_from(self.stores)).checkpoint()
        fresh = Store(self.stores[0].object_store)
        version = data.draw(st.integers(0, len(self.versions) - 1))
        assert shown(fresh.snapshot(version=version)) == self.versions[version].shown()
        spaces = [each.name for each in fresh.snapshot(version=version).namespaces()[3:]]
        assert spaces == sorted(self.versions[version].spaces)
        check_table_zero(fresh)


@pytest.mark.sampled
def test_the_catalog_behaves_like_a_dictionary_of_tables_for_every_version(small_trees):
    run_machine(Catalog, 12, steps=20)
