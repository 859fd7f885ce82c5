"""The change feed with values: which rows, versions and values it gives, and what it refuses."""

from __future__ import annotations

from uuid import uuid4

import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.errors import InvalidInputError, SnapshotExpiredError, TableNotFoundError
from spark_pages.query.value_feed import ValueFeed
from spark_pages.store import Store
from tests.transaction.stores import QUIET, store_with


def ten() -> Store:
    """Versions 1 and 2 create table ``t`` and append ten rows."""
    return store_with(pa.table({"n": list(range(10)), "s": [f"r{n}" for n in range(10)]}))


def told(store: Store, start: int, end: int, table: str = "t") -> list[tuple]:
    rows = store.changes(start, end, table, values=True).read_all().drop_columns(["_timestamp"])
    return [tuple(row.values()) for row in rows.to_pylist()]


def delete(store: Store, *rows: int) -> int:
    with store.transaction() as txn:
        txn.delete("t", list(rows))
    assert txn.version is not None
    return txn.version


def test_each_changed_row_comes_with_its_values_and_the_last_version_that_changed_it():
    store = ten()
    v = store.snapshot().version
    delete(store, 2)
    with store.transaction() as txn:
        txn.update_rows("t", [5], {"n": [50]})
    store.append("t", pa.table({"n": [10], "s": ["new"]}))

    assert told(store, v + 1, v + 3) == [
        ("delete", 2, v + 1, 2, "r2"),
        ("update_before", 5, v + 2, 5, "r5"),
        ("update_after", 5, v + 2, 50, "r5"),
        ("insert", 10, v + 3, 10, "new"),
    ]


def test_a_row_carries_the_time_of_the_commit_that_changed_it():
    store = ten()
    version = delete(store, 1)

    (row,) = store.changes(version, version, "t", values=True).read_all().to_pylist()

    (commit,) = store.history(1).to_pylist()
    assert row["_timestamp"] == commit["timestamp"]


def test_what_is_undone_within_the_range_is_left_out():
    store = ten()
    v = store.snapshot().version
    store.append("t", pa.table({"n": [10], "s": ["new"]}))
    delete(store, 10)
    delete(store, 3)
    with store.transaction() as txn:
        txn.update_rows("t", [5], {"n": [50]})
    store.restore(version=v)

    assert told(store, v + 1, v + 5) == []


def test_a_deleted_row_carries_the_version_of_its_own_delete():
    store = ten()
    version = delete(store, 3)
    delete(store, 7)

    assert told(store, version, version + 1) == [
        ("delete", 3, version, 3, "r3"),
        ("delete", 7, version + 1, 7, "r7"),
    ]


def test_a_truncated_table_that_is_filled_again_has_other_rows_under_the_old_numbers():
    store = ten()
    v = store.snapshot().version
    with store.transaction() as txn:
        txn.truncate_table("t")
    store.append("t", pa.table({"n": [0, 100], "s": ["r0", "new"]}))

    found = told(store, v + 1, v + 2)

    assert found[:3] == [
        ("delete", 1, v + 1, 1, "r1"),
        ("insert", 1, v + 2, 100, "new"),
        ("delete", 2, v + 1, 2, "r2"),
    ]
    assert {kind for kind, *_ in found[3:]} == {"delete"}


def test_a_column_that_came_in_with_a_value_updates_the_rows_and_one_without_does_not():
    store = ten()
    v = store.snapshot().version
    with store.transaction() as txn:
        txn.add_column("t", pa.field("empty", pa.int64()))
        txn.add_column("t", pa.field("full", pa.int64()), default=7)

    assert told(store, v + 1, v + 1)[:2] == [
        ("update_before", 0, v + 1, 0, "r0", None, None),
        ("update_after", 0, v + 1, 0, "r0", None, 7),
    ]
    with store.transaction() as txn:
        txn.add_column("t", pa.field("also_empty", pa.int64()))
    assert told(store, v + 2, v + 2) == []


def test_a_widened_column_has_one_type_in_the_feed():
    schema = pa.schema([("n", pa.int32())])
    store = store_with(pa.table({"n": [1, 2]}, schema), schema=schema)
    v = store.snapshot().version
    with store.transaction() as txn:
        txn.widen_column("t", "n", pa.int64())
    with store.transaction() as txn:
        txn.update_rows("t", [1], {"n": [1 << 40]})
    after = told(store, v + 1, v + 2)
    store.restore(version=v)
    back = store.changes(v + 3, v + 3, "t", values=True)

    assert after == [("update_before", 1, v + 2, 2), ("update_after", 1, v + 2, 1 << 40)]
    assert back.schema.field("n").type == pa.int64()
    assert back.read_all()["n"].to_pylist() == [1 << 40, 2]


def test_a_table_that_was_dropped_has_its_rows_deleted_and_one_that_was_created_inserted():
    store = ten()
    v = store.snapshot().version
    with store.transaction() as txn:
        txn.drop_table("t")

    assert [row[:3] for row in told(store, v + 1, v + 1)] == [("delete", n, v + 1) for n in range(10)]
    assert [row[:2] for row in told(store, 0, v)] == [("insert", n) for n in range(10)]


def test_compaction_changes_no_row():
    store = ten()
    store.append("t", pa.table({"n": [1], "s": ["x"]}))
    v = store.snapshot().version
    store.compact_pages("t")

    assert store.snapshot().version > v
    assert told(store, v + 1, store.snapshot().version) == []


def test_pages_of_rows_that_nobody_touched_are_not_read():
    count = 200_000
    store = store_with(pa.table({"n": pa.array(range(count)), "s": ["x"] * count}))
    version = delete(store, 5)
    before = store.cache_stats

    assert len(told(store, version, version)) == 1

    after = store.cache_stats
    assert after.hits + after.misses - before.hits - before.misses <= 6


def test_a_large_feed_is_read_window_by_window(monkeypatch):
    count = 100_000
    store = store_with(pa.table({"n": pa.array(range(count))}), schema=pa.schema([("n", pa.int64())]))
    monkeypatch.setattr("spark_pages.query.value_feed.WINDOW_BYTES", (1 << 16, 1 << 16, 1 << 16))
    windows = []
    changed = ValueFeed._changed
    monkeypatch.setattr(
        ValueFeed, "_changed", lambda self, rows: (windows.append(rows.num_rows), changed(self, rows))[1]
    )

    reader = store.changes(2, 2, "t", values=True)
    first = reader.read_next_batch()

    assert len(windows) == 1
    assert first.num_rows + reader.read_all().num_rows == count
    assert max(windows) < 20_000


def test_a_version_that_vacuum_removed_is_an_error_that_says_so():
    store = ten()
    for n in range(4):
        delete(store, n)
    store.vacuum_plan(retention=1).execute()

    with pytest.raises(SnapshotExpiredError):
        store.changes(3, 4, "t", values=True)


@pytest.mark.parametrize(
    ("table", "error", "match"),
    [
        (None, InvalidInputError, "no table was named"),
        ("u", TableNotFoundError, "u"),
        ("system.catalog", InvalidInputError, "do not share row numbers"),
        ("odd", InvalidInputError, "the feed has a column '_change', too"),
        ("loose", InvalidInputError, "do not share row numbers"),
    ],
)
def test_tables_without_such_a_feed_are_refused(table, error, match):
    store = ten()
    with store.transaction() as txn:
        txn.create_table("odd", pa.schema([("_change", pa.int64())]))
        txn.create_table("loose", pa.schema([("n", pa.int64())]), aligned=False)
    version = store.snapshot().version

    with pytest.raises(error, match=match):
        store.changes(version, version, table, values=True)


def test_an_empty_range_has_columns_and_no_rows():
    store = sp.create(f"memory://{uuid4().hex}", properties=QUIET)
    store.append("t", pa.table({"n": [1]}), create=True)

    found = store.changes(2, store.snapshot().version, "t", values=True).read_all()

    assert (found.num_rows, found.column_names) == (0, ["_change", "_row", "_version", "_timestamp", "n"])


def test_a_query_reads_the_feed_where_it_is_registered():
    store = ten()
    version = delete(store, 2, 3)
    connection = store.snapshot().duckdb()

    connection.register("feed", store.changes(version, version, "t", values=True))

    found = connection.execute("SELECT _change, count(*), sum(n) FROM feed GROUP BY ALL").fetchall()
    assert found == [("delete", 2, 5)]
