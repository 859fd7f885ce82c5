"""History: who did what, when, and how much."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_pages.log.commit_codec import encode_tombstone
from spark_pages.log.names import commit_key
from spark_pages.model.actions import COMMITTED, Tombstone
from spark_pages.runtime import writer_name
from spark_pages.tables import staging
from spark_pages.tables.store import Store
from tests.tables.stores import store_with
from tests.versions import hand
from tests.versions.hand import numbers


def newest(store: Store, *names: str) -> tuple[object, ...]:
    (row,) = store.history(limit=1).to_pylist()
    return tuple(row[name] for name in names)


ROWS = ("rows_added", "rows_updated", "rows_removed")


@pytest.fixture
def ten() -> Store:
    """Table ``t`` has rows 0 to 9 at version 2."""
    return store_with(numbers(0, 10))


def test_who_what_and_when_are_told(ten):
    with ten.transaction(operation="ingest", parameters={"day": "1"}) as txn:
        txn.append("t", numbers(0, 1))

    told = newest(ten, "version", "operation", "writer", "timestamp", "parameters")

    assert told == (3, "ingest", writer_name(), ten.snapshot().timestamp, '{"day": "1"}')


def test_rows_are_counted_by_table_and_not_by_column(ten):
    with ten.transaction() as txn:
        txn.append("t", numbers(0, 3))
        txn.append("t", numbers(0, 4))
        txn.create_table("u", pa.schema([("x", pa.int64())]))
        txn.append("u", pa.table({"x": [1, 2]}))

    assert newest(ten, *ROWS, "tables_created") == (9, 0, 0, 1)


def test_a_row_updated_in_two_columns_is_one_row(ten):
    with ten.transaction() as txn:
        txn.update("t", "n", rows=[1, 2, 3], values=[0, 0, 0])
        txn.update("t", "s", rows=[3, 4], values=["", ""])

    assert newest(ten, *ROWS) == (0, 4, 0)


def test_a_tail_that_shrinks_or_changes_is_told_as_removed_and_updated(ten):
    hand.replace_tail(ten, "t", 6, {"n": [1, 2], "s": ["a", "b"]})

    assert newest(ten, *ROWS) == (0, 2, 2)


def test_a_tail_that_grows_is_told_as_added_and_updated(ten):
    hand.replace_tail(ten, "t", 9, {"n": [1, 2], "s": ["a", "b"]})

    assert newest(ten, *ROWS) == (1, 1, 0)


def test_a_truncate_does_not_tell_how_many_rows_it_took(ten):
    hand.truncate(ten, "t")

    assert newest(ten, *ROWS) == (0, 0, None)


def test_pages_and_bytes_are_those_put_in(ten):
    with ten.transaction() as txn:
        txn.append("t", numbers(10, 20))

    pages = ten.snapshot().table("t").pages()
    added = [p for p in pages.to_pylist() if p["first_row"] == 10]
    assert newest(ten, "pages_added", "bytes_added") == (2, sum(page["actual_len"] for page in added))


def test_bytes_of_a_manifest_are_told_without_reading_it(monkeypatch):
    monkeypatch.setattr(staging, "MANIFEST_PAGES", 2)
    store = store_with(numbers(0, 50_000))
    pages = store.snapshot().table("t").pages()
    (commit,) = store._log.commits(2, 3)
    store.objects.delete(commit.records[0].manifests[0].location.key)

    told = newest(Store(store.objects), "pages_added", "bytes_added")

    assert told == (pages.num_rows, sum(pages.column("actual_len").to_pylist()))


def test_maintenance_is_told_like_any_other_commit(ten):
    for row in range(3):
        with ten.transaction() as txn:
            txn.append("t", numbers(row, row + 1))
    ten.tag("x", version=3)
    ten.compact_pages("t")
    ten.restore(version=3)
    hand.retain(ten, 3)

    names = ["operation", "rows_added", "rows_removed", "min_readable"]
    told = [tuple(row.values()) for row in ten.history().select(names).to_pylist()]

    assert told[:2] == [("vacuum", 0, 0, 3), ("restore", 0, 2, None)]
    assert {("compact pages", 0, 0, None), ("tag", 0, 0, None)} < set(told)


def test_a_checkpoint_is_told_by_the_commits_that_name_it(ten):
    ten.checkpoint()
    for row in range(2):
        with ten.transaction() as txn:
            txn.append("t", numbers(row, row + 1))
    ten.checkpoint()
    ten.tag("x")

    assert ten.history().column("checkpoint").to_pylist() == [4, 2, 2, None, None, None]


def test_versions_that_cannot_be_read_any_more_are_left_out(ten):
    with ten.transaction() as txn:
        txn.append("t", numbers(10, 11))
    checkpoint = ten.checkpoint()
    hand.retain(ten, 2)
    (second,) = ten._log.commits(2, 3)
    tokens = tuple((record.token, COMMITTED) for record in second.records)
    tombstone = Tombstone(2, second.timestamp_us, second.token, second.digest, tokens, checkpoint)
    ten.objects.put(commit_key(2), encode_tombstone(tombstone)[0])

    assert Store(ten.objects).history().column("version").to_pylist() == [4, 3]
