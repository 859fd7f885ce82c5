"""Values of deleted rows are blanked, and nothing that anyone reads of the newest version changes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from spark_pages.errors import CommitConflictError, InvalidInputError, RowOutOfRangeError
from spark_pages.model.ids import LIVENESS
from spark_pages.store import Store
from spark_pages.transaction import deleted_rows
from tests.transaction.stores import store_with

SCHEMA = pa.schema([pa.field("n", pa.int64(), nullable=False), ("s", pa.string())])
ROWS = 40_000
DEAD = [3, 9_000, *range(16_384, 24_576)]


def rows(first: int = 0, count: int = ROWS) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table({"n": numbers, "s": [f"s{each}" for each in numbers]}, SCHEMA)


def with_dead(dead: list[int] = DEAD, table: pa.Table | None = None) -> Store:
    store = store_with(rows() if table is None else table)
    with store.transaction() as txn:
        txn.delete("t", dead)
    return store


def pages(store: Store, column: str = "n") -> list[tuple[str, int, int | None]]:
    found = store.snapshot().table("t").pages(column)
    return list(
        zip(*(found.column(name).to_pylist() for name in ("kind", "first_row", "null_count")), strict=True)
    )


def stored(store: Store, column: str = "n") -> list[object]:
    """All entries of a column as they are in storage, dead rows too."""
    table = store.snapshot().table("t")
    found = table.directory.chain(column).all_pages()
    every = found.descriptors(0, found.num_pages)
    return [value for array in table.page_values(column, every) for value in array.to_pylist()]


def test_a_compaction_puts_constants_in_the_place_of_pages_without_a_live_row():
    store = with_dead()
    before = store.snapshot().table("t").read()

    (done,) = store.compact_pages("t")

    assert done["purged_pages"] == 1
    assert ("constant", 16_384, 8_192) in pages(store)
    assert store.snapshot().table("t").read().equals(before)
    assert store.compact_pages("t")[0]["version"] is None


def test_a_purge_blanks_every_dead_value_and_no_other():
    store = with_dead()

    store.compact_pages("t", purge=True)

    for column in ("n", "s"):
        values = stored(store, column)
        assert [row for row, value in enumerate(values) if value is None] == DEAD
    assert store.compact_pages("t", purge=True)[0]["version"] is None
    assert store.verify("all").ok


def test_a_purge_touches_exactly_the_rows_that_it_blanks():
    store = with_dead([3, 5])

    store.compact_pages("t", purge=True)

    (record,) = store._log.commits(store.version, store.version + 1)[0].records
    assert {splice.touched for splice in record.splices} == {((3, 4), (5, 6))}
    assert all(splice.data_change for splice in record.splices)


def test_a_restore_brings_purged_values_back():
    store = with_dead()
    store.compact_pages("t", purge=True)

    store.restore(version=2)

    assert store.snapshot().table("t").read().equals(rows())
    assert store.verify("all").ok


def test_the_change_feed_does_not_tell_of_a_purge():
    store = with_dead()
    then = store.version
    store.compact_pages("t", purge=True)

    assert store.changes(then + 1, store.version, "t", granularity="rows").num_rows == 0


def test_what_entries_have_beside_their_values_is_blanked_too():
    store = store_with(schema=SCHEMA)
    meta = pa.table({"s.prefix_meta": pa.array([b"secret", b"kept"], pa.binary())})
    with store.transaction() as txn:
        txn.append("t", rows(0, 2), entry_meta=meta)
    with store.transaction() as txn:
        txn.delete("t", [0])

    store.compact_pages("t", purge=True)

    table = store.snapshot().table("t")
    (page,) = table.directory.chain("s").all_pages().descriptors(0, 1)
    (batch,) = table.page_handler.get_pages([page])
    assert batch.column("prefix_meta").to_pylist() == [None, b"kept"]


def test_a_constant_with_a_dead_row_is_unfolded():
    store = store_with(rows(0, 5))
    with store.transaction() as txn:
        txn.add_column("t", pa.field("c", pa.string()), default="d")
    with store.transaction() as txn:
        txn.delete("t", [2])

    store.compact_pages("t", purge=True)

    assert stored(store, "c") == ["d", "d", None, "d", "d"]


def test_a_dropped_column_is_purged_too():
    store = store_with(rows(0, 5))
    with store.transaction() as txn:
        txn.drop_column("t", "s")
    with store.transaction() as txn:
        txn.delete("t", [2])

    store.compact_pages("t", purge=True)

    store.restore(version=2)
    assert store.snapshot().table("t").read().column("s").to_pylist() == ["s0", "s1", "s2", "s3", "s4"]
    (gone,) = store._log.snapshot(5).chain((1, 2)).all_pages().descriptors(0, 1)
    assert store._pages.get_page(gone).column("data").to_pylist() == ["s0", "s1", None, "s3", "s4"]


def test_many_small_pages_of_marks_become_one(monkeypatch: pytest.MonkeyPatch):
    store = store_with(*(rows(first, 10) for first in range(0, 100, 10)))
    for end in range(10, 100, 20):
        with store.transaction() as txn:
            txn.append("t", rows(end, 10))
            txn.delete("t", [store.snapshot().table("t").end_row - 1])
    before = store.snapshot().table("t").row_numbers().tolist()

    store.compact_pages("t")

    assert store._log.known().chain((1, LIVENESS)).num_pages == 1
    assert store.snapshot().table("t").row_numbers().tolist() == before


def test_constants_of_marks_are_joined(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(deleted_rows, "BLOCK_ROWS", 8)
    store = store_with(rows(0, 80))
    for first in range(0, 80, 8):
        with store.transaction() as txn:
            txn.delete("t", range(first, first + 8))

    store.compact_pages("t")

    assert store._log.known().chain((1, LIVENESS)).num_pages == 1
    assert store.snapshot().table("t").num_rows == 0


def test_a_purge_conflicts_with_a_restore_that_makes_its_rows_live():
    store = with_dead([3])
    txn = store.transaction()
    txn.purge_rows("t")
    store.restore(version=2)
    with pytest.raises(CommitConflictError, match="it deleted rows of table 't' that"):
        txn.commit()

    assert store.snapshot().table("t").take([3]).column("n").to_pylist() == [3]


def test_a_purge_and_a_delete_of_another_row_both_commit():
    store = with_dead([3])
    with store.transaction() as txn:
        txn.purge_rows("t")
        with store.transaction() as other:
            other.delete("t", [4])

    assert stored(store)[3:5] == [None, 4]
    assert store.snapshot().table("t").num_rows == ROWS - 2


def test_a_purge_of_some_rows_leaves_the_pages_of_others():
    store = with_dead([3, 39_000])
    with store.transaction() as txn:
        txn.purge_rows("t", [3])

    assert [row for row, value in enumerate(stored(store)) if value is None] == [3]


def test_a_purge_of_keys_keeps_the_primary_key():
    store = store_with(rows(0, 100))
    with store.transaction() as txn:
        txn.add_constraint("t", "key", primary_key=["n"])
    with store.transaction() as txn:
        txn.delete("t", [1, 2])
    store.compact_pages("t", purge=True)

    with store.transaction() as txn:
        txn.append("t", rows(1, 2))
    assert store.snapshot().table("t").num_rows == 100


@pytest.mark.parametrize(
    ("given", "error", "told"),
    [
        ([0], InvalidInputError, "Cannot purge row 0 of table 't': it is not deleted"),
        ([ROWS], RowOutOfRangeError, f"row {ROWS}"),
    ],
)
def test_only_deleted_rows_are_purged(given: list[int], error: type[Exception], told: str):
    store = with_dead()
    with pytest.raises(error, match=told), store.transaction() as txn:
        txn.purge_rows("t", given)


def test_rows_of_an_unaligned_table_are_not_purged():
    store = store_with(schema=SCHEMA)
    with store.transaction() as txn:
        txn.create_table("u", SCHEMA, aligned=False)
    with pytest.raises(InvalidInputError, match="not aligned"), store.transaction() as txn:
        txn.purge_rows("u")


def test_nothing_that_was_deleted_stands_under_a_null():
    secret = 0x5EC12E75EC12E7
    numbers = np.arange(2_000)
    numbers[77] = secret
    table = pa.table({"n": numbers, "s": [""] * 2_000}, SCHEMA)
    store = with_dead([77], table)

    store.compact_pages("t", purge=True)

    shown = store.snapshot().table("t")
    (page,) = shown.directory.chain("n").all_pages().descriptors(0, 1)
    (array,) = shown.page_values("n", [page])
    assert secret.to_bytes(8, "little") not in array.buffers()[1].to_pybytes()
