"""A mirror of a table, kept by the change feed with values, equals the table at every version."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import spark_pages as sp
from spark_pages.query import value_feed
from spark_pages.store import Store
from spark_pages.transaction import deleted_rows
from tests.transaction.stores import QUIET

SCHEMA = pa.schema([("n", pa.float64()), ("s", pa.string())])
Rows = dict[int, dict[int, str]]

PICKS = st.lists(st.integers(0, 999), max_size=6)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["append", "overwrite", "restore"]), st.integers(0, 40)),
        st.tuples(st.sampled_from(["delete", "update", "update back"]), PICKS),
        st.tuples(st.sampled_from(["add a", "add b"]), st.sampled_from([None, 7])),
        st.tuples(st.just("drop column"), st.sampled_from(["n", "a", "b"])),
        st.tuples(
            st.sampled_from(["truncate", "compact", "purge", "checkpoint", "rename", "drop and undrop"]),
            st.none(),
        ),
    ),
    max_size=9,
)


def new_rows(table: Any, count: int) -> pa.Table:
    """Rows for the columns that the table has now; a null and a NaN among them."""
    numbers = [None if each % 5 == 0 else float("nan") if each % 5 == 1 else each for each in range(count)]
    made = {
        field.name: [f"r{each}" for each in numbers] if pa.types.is_string(field.type) else numbers
        for field in table.schema
    }
    return pa.table({name: pa.array(made[name], table.schema.field(name).type) for name in made})


def some(table: Any, picks: list[int]) -> list[int]:
    live = table.row_numbers().tolist()
    return sorted({live[each % len(live)] for each in picks}) if live else []


def append(store: Store, count: int) -> None:
    store.append("t", new_rows(store["t"], count))


def overwrite(store: Store, count: int) -> None:
    rows = new_rows(store["t"], count)
    with store.transaction() as txn:
        txn.delete("t", where=True)
        txn.append("t", rows)


def restore(store: Store, number: int) -> None:
    store.restore(version=2 + number % (store.snapshot().version - 1))


def delete(store: Store, picks: list[int]) -> None:
    with store.transaction() as txn:
        txn.delete("t", some(store["t"], picks))


def update(store: Store, picks: list[int], value: str | None = None) -> None:
    rows = some(store["t"], picks)
    with store.transaction() as txn:
        txn.update_rows("t", rows, {"s": [value or f"u{txn.snapshot.version}"] * len(rows)})


def update_back(store: Store, picks: list[int]) -> None:
    rows = some(store["t"], picks)
    old = store["t"].take(rows, ["s"]).column(0)
    update(store, picks, "away")
    with store.transaction() as txn:
        txn.update_rows("t", rows, {"s": old})


def add(store: Store, name: str, default: int | None) -> None:
    if name not in store["t"].columns:
        with store.transaction() as txn:
            txn.add_column("t", pa.field(name, pa.float64()), default=default)


def drop_column(store: Store, name: str) -> None:
    if name in store["t"].columns:
        with store.transaction() as txn:
            txn.drop_column("t", name)


def rename(store: Store) -> None:
    if "n" in store["t"].columns:
        with store.transaction() as txn:
            txn.rename_column("t", "n", "m")
        with store.transaction() as txn:
            txn.rename_column("t", "m", "n")


def drop_and_undrop(store: Store) -> None:
    before = store.snapshot().version
    with store.transaction() as txn:
        txn.drop_table("t")
    store.restore(version=before)


def truncate(store: Store) -> None:
    with store.transaction() as txn:
        txn.truncate_table("t")


DO: dict[str, Callable[[Store, Any], object]] = {
    "append": append,
    "overwrite": overwrite,
    "restore": restore,
    "delete": delete,
    "update": update,
    "update back": update_back,
    "add a": lambda store, default: add(store, "a", default),
    "add b": lambda store, default: add(store, "b", default),
    "drop column": drop_column,
    "truncate": lambda store, _: truncate(store),
    "compact": lambda store, _: store.compact_pages("t"),
    "purge": lambda store, _: store.compact_pages("t", purge=True),
    "checkpoint": lambda store, _: store.checkpoint(),
    "rename": lambda store, _: rename(store),
    "drop and undrop": lambda store, _: drop_and_undrop(store),
}


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Marks in pages of eight rows, and windows of few rows."""
    monkeypatch.setattr(deleted_rows, "BLOCK_ROWS", 8)
    monkeypatch.setattr(deleted_rows, "CONSTANT_ROWS", 20)
    monkeypatch.setattr(deleted_rows, "MOST_RANGES", 3)
    monkeypatch.setattr(value_feed, "WINDOW_BYTES", (2000, 2000, 4000))


def fields_at(store: Store, version: int) -> dict[str, int]:
    """Field ids of the columns by name; none where the version has no such table."""
    snapshot = store.snapshot(version)
    return dict(snapshot["t"].definition.field_ids) if "t" in snapshot else {}


def rows_at(store: Store, version: int) -> Rows:
    """The live rows of a version, their values by field id; none where it has no such table."""
    fields = fields_at(store, version)
    read = store.snapshot(version)["t"].read(row_numbers=True).to_pylist() if fields else []
    return {each.pop("_row"): comparable(each, fields) for each in read}


def comparable(row: dict[str, Any], fields: dict[str, int]) -> dict[int, str]:
    return {fields[name]: repr(value) for name, value in row.items()}


def applied(rows: Rows, feed: pa.RecordBatchReader, fields: dict[str, int]) -> Rows:
    """The rows after the changes, each of which must fit the rows before."""
    found = {
        row: {each: values.get(each, "None") for each in fields.values()} for row, values in rows.items()
    }
    waiting: Rows = {}
    for change in feed.read_all().to_pylist():
        kind, row, _, _ = (change.pop(name) for name in value_feed.CHANGE_SCHEMA.names)
        values = comparable(change, fields)
        match kind:
            case "insert":
                assert row not in found
                found[row] = values
            case "delete":
                assert found.pop(row) == values
            case "update_before":
                assert found[row] == values
                waiting[row] = values
            case "update_after":
                assert waiting.pop(row) != values
                found[row] = values
    assert not waiting
    return found


@pytest.mark.slow
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
def test_a_mirror_kept_by_the_feed_equals_the_table_at_every_version(steps):
    store = sp.create(f"memory://{uuid4().hex}", properties=QUIET)
    with store.transaction() as txn:
        txn.create_table("t", SCHEMA)
    append(store, 20)
    for what, argument in steps:
        DO[what](store, argument)

    last = store.snapshot().version
    rows = {version: rows_at(store, version) for version in range(1, last + 1)}
    pairs = {*pairwise(rows), *zip(rows, reversed(rows), strict=True), *((then, last) for then in rows)}
    for then, now in sorted(pair for pair in pairs if pair[0] < pair[1]):
        fields = fields_at(store, now) or fields_at(store, then)
        feed = store.changes(then + 1, now, "t", values=True) if fields else pa.table({}).to_reader()
        assert applied(rows[then], feed, fields) == rows[now], (then, now)
