"""Random changes of definitions and rows: feed by pages, feed by rows and history report the same changes."""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spark_pages as sp
from spark_pages.errors import SparkPagesError
from spark_pages.store import Store
from tests.effort import examples
from tests.transaction.stores import QUIET
from tests.versions import hand

INT = pa.int64()


def append(txn: Any, table: str, rows: int) -> None:
    definition = txn.table(table).schema
    txn.append(table, pa.table({field.name: pa.array(range(rows), field.type) for field in definition}))


CHANGES = {
    "append": lambda txn, n: append(txn, "t", n),
    "append u": lambda txn, n: append(txn, "u", n),
    "create": lambda txn, n: (txn.create_table("u", pa.schema([("x", INT)])), append(txn, "u", n)),
    "create ragged": lambda txn, _: txn.create_table("r", pa.schema([("x", INT), ("y", INT)]), aligned=False),
    "append ragged": lambda txn, n: txn.append("r", pa.table({"x": [1] * n, "y": [1] * n})),
    "append half": lambda txn, n: txn.append("r", pa.table({"x": [1] * n})),
    "drop": lambda txn, _: txn.drop_table("t"),
    "drop u": lambda txn, _: txn.drop_table("u"),
    "undrop": lambda txn, _: txn.undrop_table("t"),
    "undrop and append": lambda txn, n: (txn.undrop_table("t"), append(txn, "t", n)),
    "truncate": lambda txn, _: txn.truncate_table("t"),
    "overwrite": lambda txn, n: (txn.truncate_table("t"), append(txn, "t", n)),
    "add column": lambda txn, n: txn.add_column("t", pa.field("extra", INT), default=n),
    "add and append": lambda txn, n: (txn.add_column("t", pa.field("extra", INT)), append(txn, "t", n)),
    "drop column": lambda txn, _: txn.drop_column("t", "extra"),
    "not null": lambda txn, _: txn.set_nullable("t", "n", False),
    "rename": lambda txn, _: (txn.rename_table("t", "u"), txn.rename_table("u", "t")),
    "rename column": lambda txn, _: txn.rename_column("t", "s", "was_s"),
    "update": lambda txn, _: txn.update_rows("t", [0], {"n": [7]}),
    "two tables": lambda txn, n: (append(txn, "t", n), append(txn, "u", n + 1), txn.drop_table("u")),
}
steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(sorted(CHANGES)), st.integers(1, 5)),
        st.tuples(st.sampled_from(["restore", "compact", "shrink"]), st.integers(0, 9)),
    ),
    max_size=9,
)


def store_after(done: list[tuple[str, int]]) -> Store:
    store = sp.create(f"memory://{uuid4().hex}", properties=QUIET)
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("n", INT), ("s", INT)]))
        txn.append("t", pa.table({"n": [1, 2, 3], "s": [4, 5, 6]}))
    for what, number in done:
        try:
            if what == "restore":
                store.restore(version=number % (store.snapshot().version + 1))
            elif what == "compact":
                store.compact_pages("t")
            elif what == "shrink":
                rows = {name: [number] for name in store.snapshot().table("t").columns}
                hand.replace_tail(store, "t", 0, rows, 48)
            else:
                with store.transaction() as txn:
                    CHANGES[what](txn, number)
        except (SparkPagesError, AttributeError):
            continue
    return store


def rows_at(store: Store, version: int) -> dict[tuple[int, int], int]:
    """Rows of each column that users can read."""
    if version < 0:
        return {}
    log = store.snapshot(version=version).log
    return {key: log.chain(key).num_rows for key in log.chain_keys() if key[0]}


def rows_of_tables(store: Store, version: int) -> int:
    """Rows of all tables; of one whose columns differ in length, those of the longest."""
    longest: dict[int, int] = {}
    for (table_id, _), rows in rows_at(store, version).items():
        longest[table_id] = max(rows, longest.get(table_id, 0))
    return sum(longest.values())


def by_pages(store: Store, start: int, end: int) -> Counter[tuple[int, int]]:
    """By how many rows each column has grown, as the feed of pages tells it."""
    entries: dict[int, int] = {
        row["page_id"]: row["entry_count"]
        for row in store.changes(0, end).to_pylist()
        if row["entry_count"] is not None
    }
    growth: Counter[tuple[int, int]] = Counter()
    for row in store.changes(start + 1, end).to_pylist():
        key = row["table_id"], row["field_id"]
        came = row["change"] in ("added", "entry_count_changed")
        growth[key] += entries[row["page_id"]] if came else -entries[row["page_id"]]
        if row["change"] == "entry_count_changed":
            growth[key] -= entries[row["old_page_id"]]
    return growth


def by_rows(store: Store, start: int, end: int) -> Counter[tuple[int, int]]:
    growth: Counter[tuple[int, int]] = Counter()
    for row in store.changes(start + 1, end, granularity="rows").to_pylist():
        sign = {"inserted": 1, "updated": 0, "removed": -1}[row["change"]]
        growth[row["table_id"], row["field_id"]] += sign * (row["end_row"] - row["first_row"])
    return growth


@settings(max_examples=examples(12))
@given(done=steps, data=st.data())
def test_both_feeds_report_by_how_much_each_column_has_grown(done, data):
    store = store_after(done)
    end = data.draw(st.integers(0, store.snapshot().version))
    start = data.draw(st.integers(-1, end))
    then, now = rows_at(store, start), rows_at(store, end)

    grown = Counter({key: now.get(key, 0) - then.get(key, 0) for key in then.keys() | now.keys()})

    assert by_rows(store, start, end) == grown
    assert by_pages(store, start, end) == grown


@settings(max_examples=examples(12))
@given(done=steps, data=st.data())
def test_sums_over_the_history_are_numbers_of_rows(done, data):
    store = store_after(done)
    head = store.snapshot().version
    first = data.draw(st.integers(1, head + 1))

    whole = [(row["rows_added"], row["rows_removed"]) for row in store.history().to_pylist()]
    last = store.history(limit=head + 1 - first).to_pylist()

    totals = [rows_of_tables(store, version) for version in range(head + 1)]
    assert [added - removed for added, removed in reversed(whole)] == [
        now - then for then, now in zip([0, *totals], totals, strict=False)
    ]
    assert [(row["rows_added"], row["rows_removed"]) for row in last] == whole[: len(last)]


def newest(store: Store) -> dict[str, Any]:
    return store.history(limit=1).to_pylist()[0]


def of_rows(store: Store) -> tuple[int, int, int]:
    return tuple(newest(store)[name] for name in ("rows_added", "rows_updated", "rows_removed"))


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_column_that_comes_adds_no_rows_and_a_table_that_goes_takes_all_of_them(checkpoint):
    store = store_after([])
    with store.transaction() as txn:
        txn.append("t", pa.table({"n": range(30_000), "s": range(30_000)}))
    if checkpoint:
        store.checkpoint()

    told = []
    for change in ("add column", "drop column", "drop", "undrop", "truncate"):
        with store.transaction() as txn:
            CHANGES[change](txn, 1)
        told.append(of_rows(store))

    assert told == [(0, 0, 0), (0, 0, 0), (0, 0, 30_003), (30_003, 0, 0), (0, 0, 30_003)]


def test_what_a_drop_took_is_told_as_long_as_the_version_before_can_be_read():
    store = store_after([])
    with store.transaction() as txn:
        txn.drop_table("t")
    hand.retain(store, 2)

    told = [(row["version"], row["rows_added"], row["rows_removed"]) for row in store.history().to_pylist()]

    assert told[-1] == (2, None, None)
