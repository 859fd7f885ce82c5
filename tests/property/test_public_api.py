"""The public API against a plain model: a dictionary of lists for every version.

Two handles stand for two processes. Transactions stay open across steps, so that they meet each other;
the model decides which of them must conflict. Maintenance runs in between, and must change nothing.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from spark_pages.errors import CommitConflictError, InvalidInputError, TableExistsError, TableNotFoundError
from spark_pages.query.snapshot import Snapshot
from spark_pages.store import Store
from spark_pages.transaction.transaction import Transaction
from tests.effort import LONG, run_machine
from tests.property.driven import NOT_DRIVEN, public_methods, recording
from tests.property.public_catalog import CatalogChanges
from tests.property.public_model import NAMES, ROWS, SCHEMA, Row, Tables, as_rows, as_table
from tests.property.public_questions import Questions
from tests.property.public_upkeep import Upkeep
from tests.transaction.foreign import pending, write_file


@dataclass
class Open:
    """A transaction that has not ended, and what the model knows of it."""

    txn: Transaction
    read: int
    serializable: bool
    ids: dict[str, int]
    created: set[str] = field(default_factory=set)
    appended: dict[str, list[Row]] = field(default_factory=dict)
    updated: dict[tuple[str, str], dict[int, Any]] = field(default_factory=dict)

    def rename(self, now: dict[str, int]) -> None:
        """Call each table by its name of now: a table is followed by its id, whoever renames it meanwhile."""
        names = {table_id: name for name, table_id in now.items()}
        self.appended = {names[self.ids[name]]: rows for name, rows in self.appended.items()}
        self.updated = {(names[self.ids[name]], column): v for (name, column), v in self.updated.items()}


def ids_of(snapshot: Snapshot) -> dict[str, int]:
    return {name: snapshot.table(name).definition.table_id for name in snapshot.tables()}


class PublicApi(Questions, Upkeep, CatalogChanges):
    """Transactions of two handles, and all that the other modules ask and do beside them."""

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
        self.stage_for_nothing(self.handle(not second), names[0])
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
        txn.update_rows(name, [row], {"s": [value]})
        txn.update_rows(name, [row], {"n": [number]})
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
            if not self.oldest:
                with pytest.raises(InvalidInputError, match="Cannot commit number"):
                    txn.commit()
            return  # else commits that have been cleaned away might tell
        if self.oldest and number < max(self.pairs, default=0):
            version = txn.commit()
            assert self.pairs[number] <= version <= max(self.pairs.values())
            assert not txn.version_is_exact or version == self.pairs[number]
            return
        landed = self.pairs.get(number)
        is_known = landed is not None and self.handle(second)._log.known().state.version >= landed
        assert txn.applied_version() == (landed if is_known else None)
        version = txn.commit()
        if number in self.pairs:
            assert version == self.pairs[number]
        else:
            self.landed(version, {**self.now, name: self.now[name] + rows}, {name})
            self.pairs[number] = version

    @rule(second=st.booleans(), name=st.sampled_from(NAMES))
    def roll_back(self, second: bool, name: str) -> None:
        self.stage_for_nothing(self.handle(second), name)

    def stage_for_nothing(self, store: Store, name: str) -> None:
        txn = store.transaction()
        if name in self.now:
            txn.append(name, as_table([(1, "a")]))
        else:
            txn.create_table(name, SCHEMA)
        txn.rollback()

    # tables that change

    @precondition(lambda self: self.now)
    @rule(second=st.booleans(), data=st.data(), back=st.booleans())
    def drop(self, second: bool, data: st.DataObject, back: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.now)))
        with self.handle(second).transaction() as txn:
            txn.drop_table(name)
        self.landed(txn.version, {n: rows for n, rows in self.now.items() if n != name}, {name})
        self.changed()
        if back:
            with self.handle(not second).transaction() as txn:
                txn.undrop_table(name)
            self.landed(txn.version, self.versions[-2], {name})
            self.changed()
            return
        self.dropped.setdefault(name, []).append(self.versions[-2][name])

    @precondition(lambda self: self.may_undrop)
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
        self.halfway.add(txn.version)
        table = self.handle(not second).snapshot().table(name)
        assert table.read(["x"])["x"].to_pylist() == [value] * len(tables[name])
        with self.handle(not second).transaction() as txn:
            txn.drop_column(name, "x")
        self.landed(txn.version, tables, {name})
        self.changed()

    @precondition(lambda self: self.now)
    @rule(second=st.booleans(), data=st.data())
    def pages_of_another_writer_are_registered(self, second: bool, data: st.DataObject) -> None:
        name = self.a_table(data)
        rows = self.now[name]
        with self.handle(second).transaction() as txn:
            key = txn.next_page_file(name)
            arrays = [pa.array(each) for each in ([5, None], ["x", "y"], [6, 7], ["z", None])]
            numbers, texts, *_ = pages = write_file(txn.store, key, *arrays)
            directory = txn.directory(name)
            directory.register_page("n", key, 0)
            directory.register_page_with_sizes(
                "s", key, numbers.alloc_len, texts.alloc_len, texts.actual_len, 2
            )
            for column in SCHEMA.names:
                chain = directory.chain(column)
                assert chain.num_rows == directory.chain_of(directory.key(column)).num_rows == len(rows) + 2
                assert len(directory.range(column, len(rows), len(rows) + 2)) == 1
            directory.register_batch([pending("n", key, pages, 2), pending("s", key, pages, 3)])
            for column in SCHEMA.names:
                directory.update_latest_entry_count(column, 1)
        self.landed(txn.version, {**self.now, name: [*rows, (5, "x"), (None, "y"), (6, "z")]}, {name})

    # a transaction that stays open while others commit

    def open_one(self, data: st.DataObject) -> None:
        if self.open is None:
            serializable = data.draw(st.booleans())
            isolation = "serializable" if serializable else "snapshot"
            txn = self.handle(data.draw(st.booleans())).transaction(isolation=isolation)
            assert txn.snapshot.version == len(self.versions) - 1
            self.open = Open(txn, len(self.versions) - 1, serializable, ids_of(self.stores[0].snapshot()))

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
        self.open.txn.update_rows(name, [row], {"n": [value]})
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
        opened.rename(ids_of(self.stores[0].snapshot(version=version)))
        touched |= {*opened.appended, *(name for name, _ in opened.updated)}
        self.open = opened
        tables = self.after(self.now)
        self.open = None
        self.landed(version, tables, touched)


def test_the_public_api_behaves_like_a_dictionary_of_lists(small_trees):
    run_machine(PublicApi, 16, steps=30, shrinks=False)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_rules_call_all_of_the_public_api(small_trees):
    with recording() as called:
        for examples in (100,) if LONG else (16, 32, 64, 128):  # rules not drawn yet get more chances
            run_machine(PublicApi, examples, steps=30, shrinks=False)
            if public_methods() - called == set(NOT_DRIVEN):
                break

    assert public_methods() - called == set(NOT_DRIVEN)
