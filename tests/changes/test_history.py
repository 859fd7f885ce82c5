"""History: who did what, when, and how much."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from spark_pages.changes.history import RowCounts, history_table
from spark_pages.format.commit import encode_tombstone
from spark_pages.format.names import HINT_KEY, commit_key
from spark_pages.model.actions import COMMITTED, Tombstone
from spark_pages.runtime import writer_name
from spark_pages.storage import MeteredStore
from spark_pages.storage.store import CreateOutcome
from spark_pages.store import Store
from spark_pages.transaction import placement
from tests.transaction.stores import store_with
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

    assert told == (3, "ingest", writer_name(), ten.snapshot().timestamp, [("day", "1")])


def test_rows_are_counted_by_table_and_not_by_column(ten):
    with ten.transaction() as txn:
        txn.append("t", numbers(0, 3))
        txn.append("t", numbers(0, 4))
        txn.create_table("u", pa.schema([("x", pa.int64())]))
        txn.append("u", pa.table({"x": [1, 2]}))

    assert newest(ten, *ROWS, "tables_created") == (9, 0, 0, 1)


def test_a_row_updated_in_two_columns_is_one_row(ten):
    with ten.transaction() as txn:
        txn.update_rows("t", [1, 2, 3], {"n": [0, 0, 0]})
        txn.update_rows("t", [3, 4], {"s": ["", ""]})

    assert newest(ten, *ROWS) == (0, 4, 0)


def test_a_tail_that_shrinks_or_changes_is_told_as_removed_and_updated(ten):
    hand.replace_tail(ten, "t", 6, {"n": [1, 2], "s": ["a", "b"]})

    assert newest(ten, *ROWS) == (0, 2, 2)


def test_a_tail_that_grows_is_told_as_added_and_updated(ten):
    hand.replace_tail(ten, "t", 9, {"n": [1, 2], "s": ["a", "b"]})

    assert newest(ten, *ROWS) == (1, 1, 0)


def test_a_truncate_tells_how_many_rows_it_took(ten):
    hand.truncate(ten, "t")

    assert newest(ten, *ROWS) == (0, 0, 10)


def test_pages_and_bytes_are_those_put_in(ten):
    with ten.transaction() as txn:
        txn.append("t", numbers(10, 20))

    pages = ten.snapshot().table("t").pages()
    added = [p for p in pages.to_pylist() if p["first_row"] == 10]
    assert newest(ten, "pages_added", "bytes_added") == (2, sum(page["actual_len"] for page in added))


def test_bytes_of_a_manifest_are_told_without_reading_it(monkeypatch):
    monkeypatch.setattr(placement, "MANIFEST_PAGES", 2)
    store = store_with(numbers(0, 50_000))
    pages = store.snapshot().table("t").pages()
    (commit,) = store._log.commits(2, 3)
    store.object_store.delete(commit.records[0].manifests[0].location.key)

    told = newest(Store(store.object_store), "pages_added", "bytes_added")

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

    history = ten.history()
    transactions = history.filter(history.column("transaction").is_valid())
    assert transactions.column("checkpoint").to_pylist() == [4, 2, 2, None, None, None]


UPKEEP = ["version", "operation", "read_version", "writer"]


def upkeep(store: Store) -> list[tuple[object, ...]]:
    """What the history tells of upkeep, newest first."""
    history = store.history()
    rows = history.filter(history.column("transaction").is_null()).select(UPKEEP).to_pylist()
    return [tuple(row.values()) for row in rows]


def test_who_looked_after_the_log_is_told_at_once_and_by_the_next_commit_of_whoever(ten):
    me = writer_name()
    ten.checkpoint()
    ten.compact_log()
    untold = [(None, "compact log", 1, me), (None, "checkpoint", 2, me)]
    assert upkeep(ten) == upkeep(Store(ten.object_store)) == untold

    Store(ten.object_store).tag("x")
    assert upkeep(ten) == upkeep(Store(ten.object_store)) == [(3, *row[1:]) for row in untold]

    ten.tag("y")
    Store(ten.object_store).tag("z")
    assert upkeep(ten) == upkeep(Store(ten.object_store)) == [(3, *row[1:]) for row in untold]
    assert [commit.upkeep == () for commit in ten._log.commits(0, 6)] == [True, True, True, False, True, True]


def test_upkeep_tells_when_it_was_done_and_what_it_wrote(ten):
    before, start = objects_of(ten), time.time_ns() // 1000
    ten.checkpoint()
    end, made = time.time_ns() // 1000, objects_of(ten).items() - before.items()

    written = {key: size for key, size in made if not key.endswith("_last_checkpoint")}
    row = ten.history().to_pylist()[0]
    told = {"objects": str(len(written)), "bytes": str(sum(written.values()))}
    assert dict(row["parameters"]) == told
    assert start <= row["timestamp"].timestamp() * 1_000_000 <= end
    assert row["rows_added"] is None


def objects_of(store: Store) -> dict[str, int]:
    return {each.key: each.size_bytes for each in store.object_store.list("")}


class Meanwhile(MeteredStore):
    """Storage in front of which something else happens before the next commit lands."""

    happens: Callable[[], object] | None = None

    def create(self, key: str, data: bytes) -> CreateOutcome:
        happens, self.happens = self.happens, None
        if happens is not None:
            happens()
        return super().create(key, data)


def test_upkeep_while_a_commit_lands_is_told_by_the_next(ten):
    objects = Meanwhile(ten.object_store)
    store = Store(objects)
    store.snapshot()
    objects.happens = store.checkpoint
    store.tag("x")
    store.tag("y")
    store.tag("z")

    assert [row[:3] for row in upkeep(store)] == [(4, "checkpoint", 2)]


def test_upkeep_of_which_another_process_tells_while_a_commit_lands_is_not_told_again(ten):
    objects = Meanwhile(ten.object_store)
    store = Store(objects)
    store.snapshot()
    objects.happens = lambda: (store.checkpoint(), Store(ten.object_store).tag("w"))
    store.tag("x")
    store.tag("y")

    assert [row[:3] for row in upkeep(store)] == [(3, "checkpoint", 2)]


def test_upkeep_of_which_another_process_has_told_is_not_told_again(ten):
    late = ten.transaction()
    late.append("t", numbers(10, 11))
    ten.checkpoint()
    Store(ten.object_store).tag("x")
    late.commit()
    ten.tag("y")

    assert [row[:3] for row in upkeep(ten)] == [(3, "checkpoint", 2)]


NOTE = {
    "operation": "checkpoint",
    "writer": "somebody",
    "timestamp_us": 5,
    "reached": 2,
    "objects": 1,
    "size_bytes": 1,
}


@pytest.mark.parametrize(
    "wrong",
    [
        {"reached": 30},
        {"reached": -1},
        {"reached": 1 << 70},
        {"reached": 1.5},
        {"timestamp_us": "now"},
        {"objects": -1},
        {"size_bytes": True},
        {"writer": None},
        {"operation": "magic"},
    ],
)
def test_upkeep_in_a_hint_that_cannot_have_been_gets_into_no_commit(ten, wrong):
    ten.checkpoint()
    hint = json.loads(ten.object_store.get(HINT_KEY)) | {"upkeep": [NOTE | wrong]}
    ten.object_store.put(HINT_KEY, json.dumps(hint).encode())

    other = Store(ten.object_store)
    other.tag("x")

    assert upkeep(Store(ten.object_store)) == []
    hint["upkeep"] = [NOTE]
    ten.object_store.put(HINT_KEY, json.dumps(hint).encode())
    assert upkeep(Store(ten.object_store)) == [(None, "checkpoint", 2, "somebody")]


def test_a_limit_is_a_number_of_rows(ten):
    ten.tag("noted")
    ten.checkpoint()

    assert [Store(ten.object_store).history(limit=limit).num_rows for limit in (0, 1, 2)] == [0, 1, 2]


def test_of_a_commit_of_two_transactions_the_later_one_is_listed_first(ten):
    for operation in ("first", "second"):
        with ten.transaction(operation=operation) as txn:
            txn.append("t", numbers(0, 1))
    one, two = ten._log.commits(3, 5)
    both = replace(one, records=(*one.records, *two.records))

    listed = history_table([both], RowCounts.before(ten._log, 3), newest_first=True)

    assert listed["operation"].to_pylist() == ["second", "first"]


def test_versions_that_cannot_be_read_any_more_are_left_out(ten):
    with ten.transaction() as txn:
        txn.append("t", numbers(10, 11))
    checkpoint = ten.checkpoint()
    hand.retain(ten, 2)
    (second,) = ten._log.commits(2, 3)
    tokens = tuple((record.token, COMMITTED) for record in second.records)
    tombstone = Tombstone(2, second.timestamp_us, second.token, second.digest, tokens, checkpoint)
    ten.object_store.put(commit_key(2), encode_tombstone(tombstone)[0])

    assert Store(ten.object_store).history(limit=3).column("version").to_pylist() == [4, 4, 3]
