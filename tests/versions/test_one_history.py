"""Restore, change feed and blame agree with a plain model of the history, whatever happened in it.

The model keeps, of each version, every value of every column and the version that wrote it. Trees of
checkpoints are tiny, and so are the limits above which a restore needs a manifest or a page file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.maintenance.page_rewrite import PageTarget, rewrite_runs
from spark_pages.model.chain_tree import ChainKey
from spark_pages.store import Store
from spark_pages.transaction import placement
from spark_pages.transaction.transaction import Transaction
from spark_pages.versions import restore
from tests.effort import run_machine
from tests.invariants import check_against_replay, check_snapshot, check_table_zero
from tests.versions import hand

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string())])
PAGE_BYTES = 48
NAMES = ["a", "b", "c", "d"]

Cells = list[tuple[Any, int]]
"""Value, and the version that wrote it."""


@dataclass
class ModelTable:
    columns: dict[str, Cells] = field(default_factory=lambda: {"n": [], "s": []})

    def copy(self) -> ModelTable:
        return ModelTable({name: list(cells) for name, cells in self.columns.items()})

    def values(self, column: str) -> list[Any]:
        return [value for value, _ in self.columns[column]]

    @property
    def rows(self) -> int:
        return len(self.columns["n"])


@dataclass
class Model:
    """One version: tables by id, names by id, properties."""

    tables: dict[int, ModelTable] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)

    def copy(self) -> Model:
        tables = {number: table.copy() for number, table in self.tables.items()}
        return Model(tables, dict(self.names), dict(self.properties))


values = {
    "n": st.one_of(st.none(), st.integers(-50, 50)),
    "s": st.one_of(st.none(), st.text("abc", max_size=6)),
}
few_rows = st.integers(0, 12).flatmap(
    lambda n: st.fixed_dictionaries(
        {name: st.lists(each, min_size=n, max_size=n) for name, each in values.items()}
    )
)


class OneHistory(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.url = f"memory://{uuid4().hex}"
        self.model = Model()
        self.lost: dict[int, ModelTable] = {}
        self.past: dict[int, Model] = {}

    @initialize()
    def begin(self) -> None:
        self.store: Store = sp.create(self.url)
        self.first = self.store
        self.past[0] = Model()
        self.create("a")

    # helpers

    def transaction(self) -> Transaction:
        txn = self.store.transaction()
        txn._page_bytes = PAGE_BYTES
        return txn

    def done(self, version: int) -> None:
        self.past[version] = self.model.copy()
        self.check(version)
        check_table_zero(self.store)
        check_against_replay(self.store._log, self.store.snapshot().log)

    def check(self, version: int) -> None:
        snapshot, model = self.store.snapshot(version=version), self.past[version]
        assert snapshot.tables() == sorted(model.names.values())
        assert dict(snapshot.log.state.properties) == model.properties
        for number, name in model.names.items():
            table = snapshot.table(name)
            assert table.definition.table_id == number
            read = table.read()
            for column in SCHEMA.names:
                assert read.column(column).to_pylist() == model.tables[number].values(column)
        check_snapshot(snapshot.log)

    def a_table(self, data: st.DataObject, filled: bool = False) -> tuple[int, str]:
        fits = [
            (t, n) for t, n in sorted(self.model.names.items()) if not filled or self.model.tables[t].rows
        ]
        return data.draw(st.sampled_from(fits))

    def create(self, name: str) -> None:
        number = self.store.snapshot().log.state.next_table_id
        with self.transaction() as txn:
            txn.create_table(name, SCHEMA)
        self.model.tables[number], self.model.names[number] = ModelTable(), name
        self.done(txn.version)

    # what happens to a store

    @precondition(lambda self: len(self.model.names) < len(NAMES))
    @rule(data=st.data())
    def create_table(self, data: st.DataObject) -> None:
        self.create(data.draw(st.sampled_from([n for n in NAMES if n not in self.model.names.values()])))

    @precondition(lambda self: self.model.names)
    @rule(data=st.data(), rows=few_rows.filter(lambda rows: rows["n"]))
    def append(self, data: st.DataObject, rows: dict[str, list[Any]]) -> None:
        number, name = self.a_table(data)
        with self.transaction() as txn:
            txn.append(name, pa.table(rows, schema=SCHEMA))
        for column, cells in self.model.tables[number].columns.items():
            cells += [(value, txn.version) for value in rows[column]]
        self.done(txn.version)

    @precondition(lambda self: any(self.model.tables[t].rows for t in self.model.names))
    @rule(data=st.data(), column=st.sampled_from(SCHEMA.names))
    def update(self, data: st.DataObject, column: str) -> None:
        number, name = self.a_table(data, filled=True)
        cells = self.model.tables[number].columns[column]
        changes = data.draw(
            st.dictionaries(st.integers(0, len(cells) - 1), values[column], min_size=1, max_size=4)
        )
        with self.transaction() as txn:
            txn.update_rows(name, list(changes), {column: list(changes.values())})
        for row, value in changes.items():
            cells[row] = (value, txn.version)
        self.done(txn.version)

    @precondition(lambda self: self.model.names)
    @rule(data=st.data(), rows=few_rows)
    def replace_tail(self, data: st.DataObject, rows: dict[str, list[Any]]) -> None:
        number, name = self.a_table(data)
        table = self.model.tables[number]
        first_row = data.draw(st.integers(0, table.rows))
        version = hand.replace_tail(self.store, name, first_row, rows, PAGE_BYTES)
        for column, cells in table.columns.items():
            cells[first_row:] = [(value, version) for value in rows[column]]
        self.done(version)

    @precondition(lambda self: any(self.model.tables[t].rows for t in self.model.names))
    @rule(data=st.data(), column=st.sampled_from(SCHEMA.names), page_bytes=st.sampled_from([16, 64, 1 << 16]))
    def compact(self, data: st.DataObject, column: str, page_bytes: int) -> None:
        _, name = self.a_table(data, filled=True)
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
        field_id = table.definition.field_ids[column]
        txn.replace_pages(table.definition.table_id, field_id, first_row, run.page_ids.tolist(), new)
        self.done(txn.commit())

    @precondition(lambda self: self.model.names)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        number, name = self.a_table(data)
        version = hand.truncate(self.store, name)
        self.model.tables[number] = ModelTable()
        self.done(version)

    @precondition(lambda self: self.model.names)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        number, name = self.a_table(data)
        version = hand.drop(self.store, name)
        del self.model.names[number]
        self.lost[number] = self.model.tables.pop(number)
        self.done(version)

    @precondition(lambda self: self.model.names)
    @rule(data=st.data())
    def rename(self, data: st.DataObject) -> None:
        """Any of the tables, to any names; they may change names with each other."""
        old = [name for _, name in sorted(self.model.names.items())]
        new = data.draw(st.permutations(NAMES))[: len(old)]
        names = {was: name for was, name in zip(old, new, strict=True) if was != name}
        if not names:
            return
        version = hand.rename(self.store, names)
        self.model.names = {t: names.get(name, name) for t, name in self.model.names.items()}
        self.done(version)

    @rule(key=st.sampled_from("pq"), value=st.sampled_from("xy"))
    def set_property(self, key: str, value: str) -> None:
        with self.transaction() as txn:
            txn.set_properties({key: value})
        self.model.properties[key] = value
        self.done(txn.version)

    @rule()
    def checkpoint(self) -> None:
        self.store.checkpoint()
        self.check(max(self.past))

    @rule()
    def reopen(self) -> None:
        self.store = Store(self.first.object_store)

    # what is asked of it

    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        then = data.draw(st.sampled_from(sorted(self.past)))
        head = max(self.past)
        version = self.store.restore(version=then)
        if version == head:
            self.check(head)
            wanted, now = self.past[then], self.past[head]
            assert (wanted.names, wanted.properties) == (now.names, now.properties)
            assert all(
                wanted.tables[t].values(c) == now.tables[t].values(c) for t in now.names for c in SCHEMA.names
            )
            return
        assert version == head + 1
        before = {**self.lost, **self.model.tables}
        self.lost = before
        self.model = self.past[then].copy()
        written = self.written_by(version)
        for number, table in self.model.tables.items():
            for column, cells in table.columns.items():
                now = before[number].columns[column]
                of_column = written.get((number, column), set())
                for row, (value, writer) in enumerate(cells):
                    was = now[row] if row < len(now) else None
                    if row in of_column:
                        assert was is None or was[1] != writer, "a row that nobody touched was restored"
                        cells[row] = (value, version)
                    else:  # as it was, or brought back by an earlier restore
                        assert was is not None
                        assert was[0] == value
                        cells[row] = was
        self.done(version)

    def written_by(self, version: int) -> dict[tuple[int, str], set[int]]:
        """Rows that the splices of a commit say they touch."""
        (commit,) = self.store._log.commits(version, version + 1)
        names = dict(enumerate(SCHEMA.names, 1))
        found: dict[tuple[int, str], set[int]] = {}
        for splice in commit.records[0].splices:
            rows = found.setdefault((splice.table_id, names.get(splice.field_id, "")), set())
            rows |= covered(list(splice.touched))
        return found

    @rule(data=st.data())
    def changes_by_rows(self, data: st.DataObject) -> None:
        start = data.draw(st.integers(-1, max(self.past)))
        end = data.draw(st.integers(max(start, 0), max(self.past)))
        then, now = self.past.get(start, Model()), self.past[end]
        told = self.store.changes(start + 1, end, granularity="rows").to_pylist()
        feed: dict[tuple[int, str], dict[str, list[tuple[int, int]]]] = {}
        for row in told:
            assert (now.names.get(row["table_id"]) or then.names[row["table_id"]]) == row["table"]
            kinds = feed.setdefault((row["table_id"], row["column"]), {})
            kinds.setdefault(row["change"], []).append((row["first_row"], row["end_row"]))
        for number in then.names.keys() | now.names.keys():
            for column in SCHEMA.names:
                kinds = feed.pop((number, column), {})
                old = then.tables[number].values(column) if number in then.names else []
                new = now.tables[number].columns[column] if number in now.names else []
                assert applied(old, [value for value, _ in new], kinds) == [value for value, _ in new]
                if number in then.names and number in now.names:
                    changed = {row for row, (_, writer) in enumerate(new) if writer > start}
                    assert covered(kinds.get("updated", [])) | covered(kinds.get("inserted", [])) == changed
        assert not feed

    @rule(data=st.data())
    def changes_by_pages(self, data: st.DataObject) -> None:
        start = data.draw(st.integers(0, max(self.past)))
        end = data.draw(st.integers(start, max(self.past)))
        then, now = (pages_of(self.store.snapshot(version=each).log) for each in (start, end))
        told = self.store.changes(start + 1, end).to_pylist()
        for key in {(row["table_id"], row["field_id"]) for row in told} | now.keys() | then.keys():
            pages = then.get(key, set())
            for row in told:
                if (row["table_id"], row["field_id"]) == key:
                    if row["change"] in ("added", "entry_count_changed"):
                        pages.add(row["page_id"])
                    gone = row["old_page_id"] if row["change"] == "entry_count_changed" else row["page_id"]
                    if row["change"] != "added":
                        pages.remove(gone)
            assert pages == now.get(key, set())

    @precondition(lambda self: any(self.model.tables[t].rows for t in self.model.names))
    @rule(data=st.data(), column=st.sampled_from(SCHEMA.names))
    def blame(self, data: st.DataObject, column: str) -> None:
        number, name = self.a_table(data, filled=True)
        cells = self.model.tables[number].columns[column]
        row = data.draw(st.integers(0, len(cells) - 1))

        found = self.store.blame(name, column, row)

        assert (found.version, found.exact) == (cells[row][1], True)

    def teardown(self) -> None:
        for version in self.past:
            self.check(version)


def pages_of(log: LogSnapshot) -> dict[ChainKey, set[int]]:
    """Ids of the pages of each chain that users can read."""
    return {key: set(log.chain(key).all_pages().page_ids.tolist()) for key in log.chain_keys() if key[0]}


def applied(old: list[Any], new: list[Any], kinds: dict[str, list[tuple[int, int]]]) -> list[Any]:
    """The old values after the changes; what is inserted and updated is looked up in the new ones."""
    rows = {row: value for row, value in enumerate(old) if row not in covered(kinds.get("removed", []))}
    assert covered(kinds.get("removed", [])) <= set(range(len(old)))
    for row in covered(kinds.get("inserted", [])):
        assert row not in rows
        rows[row] = new[row]
    for row in covered(kinds.get("updated", [])):
        assert row in rows
        rows[row] = new[row]
    return [rows[row] for row in range(len(rows))]


def covered(ranges: list[tuple[int, int]]) -> set[int]:
    return {row for start, end in ranges for row in range(start, end)}


@pytest.mark.sampled
@pytest.mark.parametrize(("manifest_pages", "inline_bytes"), [(1000, 1 << 16), (3, 0), (1000, 1500)])
def test_restore_changes_and_blame_agree_with_a_plain_history(
    small_trees, monkeypatch, manifest_pages, inline_bytes
):
    monkeypatch.setattr(placement, "MANIFEST_PAGES", manifest_pages)
    monkeypatch.setattr(restore, "MANIFEST_PAGES", manifest_pages)
    monkeypatch.setattr(restore, "INLINE_TRANSACTION_BYTES", inline_bytes)

    run_machine(OneHistory, 5, steps=20)


@pytest.mark.slow
def test_they_agree_over_long_histories_too(small_trees, monkeypatch):
    monkeypatch.setattr(restore, "INLINE_TRANSACTION_BYTES", 4000)

    run_machine(OneHistory, 15, steps=40)
