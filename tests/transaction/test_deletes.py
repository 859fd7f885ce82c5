"""`Transaction.delete`: what it counts, refuses, writes and reads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.errors import (
    CommitConflictError,
    ConstraintError,
    InvalidInputError,
    RowDeletedError,
    RowOutOfRangeError,
)
from spark_pages.format.features import DELETED_ROWS
from spark_pages.format.names import commit_key
from spark_pages.storage import MeteredStore
from spark_pages.store import Store
from tests.transaction.stores import store_with

ROWS = pa.table({"n": pa.array(range(10), pa.int64()), "s": [str(n % 3) for n in range(10)]})


def delete(store: Store, *args: object, **named: object) -> int:
    with store.transaction() as txn:
        return txn.delete("t", *args, **named)


def numbers(store: Store, version: int | None = None) -> list[int]:
    return store.snapshot(version).table("t").read(["n"]).column(0).to_pylist()


@pytest.mark.parametrize(
    ("args", "named", "count"),
    [
        (([3, 1, 3],), {}, 2),
        ((np.array([9], np.uint8),), {}, 1),
        (([],), {}, 0),
        ((), {"where": "n < 4"}, 4),
        ((), {"where": [("s", "==", "1")]}, 3),
        ((), {"where": True}, 10),
        ((), {"where": "n > 100"}, 0),
    ],
)
def test_a_delete_gives_the_number_of_rows_that_were_live(args, named, count):
    store = store_with(ROWS)

    assert delete(store, *args, **named) == count
    assert delete(store, *args, **named) == 0
    assert len(store.snapshot().table("t")) == 10 - count


def test_a_delete_that_finds_no_row_commits_nothing():
    store = store_with(ROWS)

    delete(store, where="n > 100")

    assert store.snapshot().version == 2


@pytest.mark.parametrize("named", [{}, {"rows": [1], "where": "n = 1"}, {"where": False}])
def test_a_delete_names_its_rows_in_one_way(named):
    with pytest.raises(InvalidInputError, match="give rows or where"):
        delete(store_with(ROWS), **named)


@pytest.mark.parametrize("rows", [[10], [-1], [1 << 62]])
def test_rows_that_are_not_there_cannot_be_deleted(rows):
    with pytest.raises(RowOutOfRangeError):
        delete(store_with(ROWS), rows)


def test_rows_of_an_unaligned_table_cannot_be_deleted():
    store = store_with(ROWS)
    with store.transaction() as txn:
        txn.create_table("u", ROWS.schema, aligned=False)
        txn.append("u", ROWS)

    with store.transaction() as txn, pytest.raises(InvalidInputError, match=r"table 'u': it is not aligned"):
        txn.delete("u", [1])


def test_rows_that_the_transaction_appended_cannot_be_deleted_by_it():
    store = store_with(ROWS)

    with store.transaction() as txn:
        txn.append("t", ROWS)
        with pytest.raises(InvalidInputError, match="this transaction appended it"):
            txn.delete("t", where="n = 3")


def test_deleted_rows_cannot_be_updated_in_the_same_transaction_or_later():
    store = store_with(ROWS)

    with store.transaction() as txn:
        txn.delete("t", [3])
        with pytest.raises(RowDeletedError, match="row 3 of table 't'"):
            txn.update_rows("t", [2, 3], {"n": [0, 0]})
    with store.transaction() as txn, pytest.raises(RowDeletedError, match="row 3 of table 't'"):
        txn.update_rows("t", [2, 3], {"n": [0, 0]})


def test_a_transaction_sees_its_own_deletes():
    store = store_with(ROWS)

    with store.transaction() as txn:
        txn.delete("t", where="n < 8")
        assert txn.table("t").read(["n"]).column(0).to_pylist() == [8, 9]


def test_earlier_versions_keep_their_rows_and_other_rows_their_numbers():
    store = store_with(ROWS)

    delete(store, [0, 5])

    assert numbers(store, 2) == list(range(10))
    assert store.snapshot().table("t").take([1, 9], ["n"]).column(0).to_pylist() == [1, 9]


def test_appended_rows_are_live_though_the_last_rows_were_deleted():
    store = store_with(ROWS)
    delete(store, [8, 9])
    with store.transaction() as txn:
        txn.append("t", ROWS.slice(0, 2))

    assert numbers(store) == [*range(8), 0, 1]
    assert store.snapshot().table("t").row_numbers().tolist() == [*range(8), 10, 11]


def test_a_table_that_becomes_shorter_forgets_which_rows_were_dead():
    store = store_with(ROWS)
    delete(store, [2, 8, 9])
    with store.transaction() as txn:
        for name in ("n", "s"):
            txn.directory("t").update_latest_entry_count(name, 8)
    with store.transaction() as txn:
        txn.append("t", ROWS.slice(0, 3))

    assert numbers(store) == [0, 1, 3, 4, 5, 6, 7, 0, 1, 2]
    assert store.verify("all").ok


def test_a_transaction_cannot_delete_rows_of_a_table_that_it_shortens():
    store = store_with(ROWS)

    txn = store.transaction()
    txn.delete("t", [2])
    for name in ("n", "s"):
        txn.directory("t").update_latest_entry_count(name, 8)

    with pytest.raises(InvalidInputError, match="it becomes shorter in this transaction"):
        txn.commit()


def test_a_delete_and_a_shortening_of_the_same_rows_conflict():
    store = store_with(ROWS)
    late = store.transaction()
    late.delete("t", [9])
    with store.transaction() as txn:
        for name in ("n", "s"):
            txn.directory("t").update_latest_entry_count(name, 8)

    with pytest.raises(CommitConflictError):
        late.commit()


def test_keys_of_deleted_rows_may_come_again():
    store = store_with(ROWS)
    with store.transaction() as txn:
        txn.set_nullable("t", "n", False)
        txn.add_constraint("t", "t_key", primary_key=["n"])
    delete(store, [3])

    with store.transaction() as txn:
        txn.append("t", ROWS.slice(3, 1))
    with store.transaction() as txn:
        txn.delete("t", [4])
        txn.append("t", ROWS.slice(4, 1))
    with pytest.raises(ConstraintError), store.transaction() as txn:
        txn.append("t", ROWS.slice(5, 1))


def test_a_column_whose_nulls_are_all_deleted_may_be_declared_without():
    store = store_with(pa.table({"n": [1, None, 3]}))
    delete(store, where="n IS NULL")

    with store.transaction() as txn:
        txn.set_nullable("t", "n", False)
    store.checkpoint()

    assert store.verify("all").ok, store.verify("all")


def test_the_first_delete_asks_readers_to_know_of_dead_rows():
    store = store_with(ROWS)
    before = store.snapshot().log.state.features.reader

    delete(store, [1])

    assert DELETED_ROWS not in before
    assert DELETED_ROWS in store.snapshot().log.state.features.reader


def test_threads_that_delete_other_rows_at_once_all_succeed():
    store = store_with(pa.table({"n": pa.array(range(400), pa.int64())}))

    with ThreadPoolExecutor(8) as threads:
        counts = list(threads.map(lambda first: delete(store, [first, first + 200]), range(40)))

    assert counts == [2] * 40
    assert numbers(store) == [*range(40, 200), *range(240, 400)]


def test_two_deletes_of_a_row_agree():
    store = store_with(ROWS)
    late = store.transaction()
    late.delete("t", [3, 4])
    delete(store, [3])

    late.commit()

    assert numbers(store) == [0, 1, 2, 5, 6, 7, 8, 9]


def test_a_delete_under_serializable_isolation_conflicts_with_rows_appended_since():
    store = store_with(ROWS)
    late = store.transaction(isolation="serializable")
    late.delete("t", where="n = 3")
    with store.transaction() as txn:
        txn.append("t", ROWS)

    with pytest.raises(CommitConflictError):
        late.commit()


def test_a_delete_of_one_row_writes_a_commit_of_less_than_eight_kilobytes_and_no_page():
    columns = {f"c{each}": np.arange(336_776) for each in range(20)}
    meter = MeteredStore(store_with(pa.table(columns)).object_store)
    store = Store(meter)
    store.snapshot()
    ranges = meter.counts.ranges

    delete(store, [336_000])

    size = len(store.object_store.get(commit_key(3)))
    assert size <= 8 << 10, size
    assert (meter.counts.creates, meter.counts.puts, meter.counts.ranges - ranges) == (1, 0, 0)
    assert store.history(limit=1).column("operation").to_pylist() == ["delete"]


def test_a_delete_of_many_rows_names_pages_instead_of_rows():
    store = store_with(pa.table({"n": np.arange(300_000)}))

    delete(store, np.arange(0, 300_000, 2))

    (splice,) = store._log.commits(3, 4)[0].records[0].splices
    assert splice.touched == (
        (0, 65_536),
        (65_536, 131_072),
        (131_072, 196_608),
        (196_608, 262_144),
        (262_144, 300_000),
    )


def test_rows_are_found_by_position_from_the_marks_of_their_own_pages():
    count = 1_000_000
    store = store_with(pa.table({"n": np.zeros(count, np.int8)}), schema=pa.schema([("n", pa.int8())]))
    dead = np.append(np.arange(0, count, 1000), np.arange(200_000, 300_000))
    with store.transaction() as txn:
        txn.delete("t", dead)
    table = store.snapshot().table("t")
    pages = []
    marks = table.marks
    read = marks.page_values
    marks.page_values = lambda name, some: (pages.extend(some), read(name, some))[1]

    found = table.rows_at([890_000, 5, 0, 700_000])

    live = np.setdiff1d(np.arange(count), dead)
    assert found.tolist() == live[[890_000, 5, 0, 700_000]].tolist()
    assert len(pages) == 3


def test_a_plan_of_a_scan_tells_how_many_deleted_rows_it_leaves_out():
    store = store_with(pa.table({"n": range(1_000)}))
    with store.transaction() as txn:
        txn.delete("t", [3, 5, 900])
    table = store.snapshot().table("t")

    assert "deleted  3 rows of them, left out" in repr(table.explain())
    assert table.explain(stop=100).dead_rows == 2
    assert store.snapshot(2).table("t").explain().dead_rows == 0


def test_a_scan_gives_the_numbers_of_the_rows():
    store = store_with(pa.table({"n": list(range(6))}), schema=pa.schema([("n", pa.int64())]))
    with store.transaction() as txn:
        txn.delete("t", [1, 4])

    found = store["t"].scan(["n"], start=1, filter="n < 5", row_numbers=True).read_all()

    assert found.to_pydict() == {"n": [2, 3], "_row": [2, 3]}
    assert found.schema.field("_row").type == pa.uint64()


@pytest.mark.parametrize("others", [0, 1])
def test_deletes_beside_a_few_appended_rows_that_could_join_a_tail_stay(others: int) -> None:
    store = sp.create(f"memory://{uuid4().hex}")
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("n", pa.int64()), ("x", pa.float64())]))
        txn.append("t", {"n": range(10)})
    txn = store.transaction()
    txn.delete("t", [0, 1, 2])
    txn.append("t", {"n": [20]})
    for _ in range(others):
        store.append("t", {"n": [30]})
    txn.commit()
    assert store.snapshot().table("t").row_numbers().tolist() == list(range(3, 11 + others))
