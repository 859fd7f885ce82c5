"""`update_latest_entry_count`: the number of rows of the last page changes, its payload does not."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.errors import (
    CommitConflictError,
    InvalidInputError,
    RaggedTableError,
    SchemaMismatchError,
)
from spark_pages.model.page import PageKind
from spark_pages.store import Store
from tests.transaction.foreign import pending, write_file
from tests.transaction.stores import store_with

KEY = "imports/day-1.pages"
BIG = 5_000  # numbers: a page of more than 16 KiB, which no commit holds inline


def of_size(count: int) -> Store:
    """Column ``n`` with one page of so many numbers that do not compress, in a file if they are many."""
    return store_with(pa.table({"n": noise(count)}))


def noise(count: int) -> pa.Array:
    return pa.array(np.random.default_rng(count).integers(0, 1 << 62, count))


def resize(store: Store, count: int, name: str = "n") -> None:
    with store.transaction(operation="resize") as txn:
        txn.directory("t").update_latest_entry_count(name, count)


def rows(store: Store, version: int | None = None) -> list[object]:
    return store.snapshot(version).table("t").read(["n"]).column("n").to_pylist()


@pytest.mark.parametrize("size", [10, BIG])
@pytest.mark.parametrize("share", [0, 0.3, 1.5])
def test_fewer_rows_are_a_prefix_and_more_are_null_behind_side_by_side_in_one_cache(size, share):
    store = of_size(size)
    full = rows(store)
    count = int(size * share)

    resize(store, count)

    expected = (full + [None] * size)[:count]
    for _ in range(2):  # first from storage or one cache, then from the other
        assert rows(store) == expected
        assert rows(store, version=2) == full
    assert rows(Store(store.object_store)) == expected
    page = store.snapshot().table("t").directory.latest("n")
    assert (page.entry_count, page.payload_entries) == (count, size)
    assert store.verify(pages="all").ok


def test_a_page_in_a_file_stays_where_it_is_and_a_small_one_stays_in_the_log():
    store = of_size(BIG)
    before = store.snapshot().table("t").directory.latest("n")

    resize(store, 3)

    after = store.snapshot().table("t").directory.latest("n")
    assert (after.disk_path, after.offset, after.checksum) == (
        before.disk_path, before.offset, before.checksum,
    )  # fmt: skip
    assert len(store.object_store.list("pages/")) == 1
    small = of_size(10)
    resize(small, 3)
    assert small.snapshot().table("t").directory.latest("n").kind is PageKind.INLINE
    assert small.object_store.list("pages/") == []


def test_a_small_page_does_not_rest_on_the_home_that_a_checkpoint_gave_it():
    store = of_size(10)
    store.checkpoint()
    home = store.snapshot().table("t").directory.latest("n").disk_path
    assert home.startswith("pages/")

    resize(store, 3)

    assert store.snapshot().table("t").directory.latest("n").disk_path != home


def test_rows_come_back_when_the_count_grows_again():
    store = of_size(10)
    full = rows(store)

    for count in (4, 0, 10, 12):
        resize(store, count)
        assert rows(store) == [*full, None, None][:count]


def test_rows_appended_behind_stand_behind_what_is_shown():
    store = of_size(10)
    full = rows(store)
    resize(store, 4)

    with store.transaction() as txn:
        txn.append("t", pa.table({"n": [1, 2]}))

    assert rows(store) == [*full[:4], 1, 2]
    assert store.snapshot().table("t").take([5, 3])["n"].to_pylist() == [2, full[3]]


def test_an_update_of_shown_rows_keeps_what_is_shown():
    store = of_size(10)
    full = rows(store)
    resize(store, 12)

    with store.transaction() as txn:
        txn.update_rows("t", [1, 11], {"n": [100, 200]})

    assert rows(store) == [full[0], 100, *full[2:], None, 200]


def test_columns_are_resized_together_or_not_at_all():
    store = store_with(pa.table({"n": [1, 2, 3], "s": ["a", "b", "c"]}))

    with pytest.raises(RaggedTableError):
        resize(store, 2)
    with store.transaction() as txn:
        directory = txn.directory("t")
        directory.update_latest_entry_count("n", 2)
        directory.update_latest_entry_count("t", "s", 2)

    assert store.snapshot().table("t").read().to_pydict() == {"n": [1, 2], "s": ["a", "b"]}


def test_nulls_are_refused_where_the_column_may_have_none():
    store = store_with(schema=pa.schema([pa.field("n", pa.int64(), nullable=False)]))
    with store.transaction() as txn:
        txn.append("t", pa.table({"n": [1, 2, 3]}))

    with pytest.raises(SchemaMismatchError, match="not nullable"):
        resize(store, 4)
    resize(store, 1)

    assert rows(store) == [1]


def test_statistics_follow_what_is_shown():
    store = store_with(pa.table({"n": pa.array([5, 1, None, 9])}))

    resize(store, 2)
    shown = store.snapshot().table("t").directory.chain("n").all_pages().stats.to_pylist()[-1]
    resize(store, 6)
    more = store.snapshot().table("t").directory.chain("n").all_pages().stats.to_pylist()[-1]

    assert (shown["null_count"], int.from_bytes(shown["max"], "little")) == (0, 5)
    assert (more["null_count"], int.from_bytes(more["max"], "little")) == (3, 9)
    assert store.snapshot().table("t").read(filter=[("n", "==", 9)]).num_rows == 1
    assert store.snapshot(version=3).table("t").read(filter=[("n", "==", 9)]).num_rows == 0


@pytest.mark.parametrize("size", [10, BIG])
def test_checkpoints_and_reconstruction_from_commits_agree(size):
    store = of_size(size)
    resize(store, 3)
    store.checkpoint()
    resize(store, size + 2)
    expected = rows(store)

    again = Store(store.object_store)

    assert rows(again) == expected
    assert rows(again, version=3) == expected[:3]
    store.checkpoint()
    assert rows(Store(store.object_store)) == expected
    page = Store(store.object_store).snapshot().table("t").directory.latest("n")
    assert (page.entry_count, page.payload_entries) == (size + 2, size)
    assert store.verify(pages="all").ok


def test_page_compaction_keeps_the_rows_that_are_shown():
    store = of_size(10)
    resize(store, 12)
    with store.transaction() as txn:
        txn.append("t", pa.table({"n": [1, 2]}))
    resize(store, 1)
    expected = rows(store)

    store.compact_pages("t")

    assert rows(store) == expected
    assert store.snapshot().table("t").directory.chain("n").num_pages == 1


def test_change_feed_and_blame_tell_the_rows_that_came_and_went():
    store = of_size(10)
    resize(store, 4)
    resize(store, 7)

    shrunk, grown = store.changes(3, 3), store.changes(4, 4)

    assert shrunk.column("change").to_pylist() == ["entry_count_changed"]
    assert grown.select(["change", "entry_count"]).to_pylist() == [
        {"change": "entry_count_changed", "entry_count": 7}
    ]
    assert store.changes(3, 3, granularity="rows").select(["change", "first_row", "end_row"]).to_pylist() == [
        {"change": "removed", "first_row": 4, "end_row": 10}
    ]
    assert store.changes(4, 4, granularity="rows").select(["change", "first_row", "end_row"]).to_pylist() == [
        {"change": "inserted", "first_row": 4, "end_row": 7}
    ]
    assert store.blame("t", "n", 3).version == 2
    assert store.blame("t", "n", 5).version == 4


@pytest.mark.parametrize("size", [10, BIG])
def test_restore_brings_the_rows_back(size):
    store = of_size(size)
    full = rows(store)
    resize(store, 3)

    store.restore(version=2)
    assert rows(store) == full
    store.restore(version=3)

    assert rows(store) == full[:3]


def test_a_count_that_is_the_one_it_has_is_no_commit():
    store = of_size(10)
    version = store.snapshot().version

    with store.transaction() as txn:
        directory = txn.directory("t")
        directory.update_latest_entry_count("n", 10)
        directory.update_latest_entry_count("n", 3)
        directory.update_latest_entry_count("n", 10)

    assert store.snapshot().version == version


def test_the_directory_shows_the_new_count_before_the_commit():
    store = of_size(10)
    write_file(store.object_store, KEY, pa.array([1, 2]))

    with store.transaction() as txn:
        directory = txn.directory("t")
        directory.update_latest_entry_count("n", 3)
        assert directory.latest("n").entry_count == 3
        directory.register_page("n", KEY, 0)
        directory.update_latest_entry_count("n", 1)
        assert directory.chain("n").num_rows == 4

    assert rows(store)[3:] == [1]


def test_a_page_staged_in_the_same_transaction_can_be_resized():
    store = of_size(10)
    full = rows(store)

    with store.transaction() as txn:
        txn.append("t", pa.table({"n": [1, 2, 3]}))
        txn.directory("t").update_latest_entry_count("n", 2)
    with store.transaction() as txn:
        txn.append("t", pa.table({"n": noise(BIG)}))
        txn.directory("t").update_latest_entry_count("n", 1)

    assert rows(store) == [*full, 1, 2, noise(BIG)[0].as_py()]
    assert store.snapshot().table("t").directory.latest("n").payload_entries == BIG


def test_a_row_count_that_moved_in_between_is_a_conflict():
    store = of_size(10)
    txn = store.transaction()
    txn.directory("t").update_latest_entry_count("n", 3)
    with store.transaction() as other:
        other.append("t", pa.table({"n": [1]}))

    with pytest.raises(CommitConflictError):
        txn.commit()

    assert len(rows(store)) == 11


def test_a_constant_of_nulls_may_grow_and_shrink_and_no_other_may_grow():
    store = store_with(schema=pa.schema([("n", pa.int64()), ("s", pa.string())]))
    with store.transaction() as txn:
        txn.append("t", pa.table({"n": [1, 2, 3]}))
    assert store.snapshot().table("t").directory.latest("s").kind is PageKind.CONSTANT

    for count in (5, 2):
        with store.transaction() as txn:
            txn.directory("t").update_latest_entry_count("s", count)
            txn.directory("t").update_latest_entry_count("n", count)

        table = store.snapshot().table("t").read()
        assert table.to_pydict() == {"n": [1, 2, 3, None, None][:count], "s": [None] * count}
    assert store.verify(pages="all").ok


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("n", -1), "expected"),
        (("n", 1.5), "expected"),
        (("n", True), "expected"),
        ((3,), "expected"),
        (("n",), "expected"),
        (("t", "n", "m", 3), "expected"),
        (("u", "n", 3), "Cannot use table 'u' here"),
        (("n", 1 << 40), "2 GiB"),
    ],
)
def test_what_cannot_be_a_count_is_refused(arguments, said):
    store = of_size(10)

    with store.transaction() as txn, pytest.raises(InvalidInputError, match=said):
        txn.directory("t").update_latest_entry_count(*arguments)


def test_a_column_without_pages_cannot_be_resized():
    store = sp.create("memory://no-pages-to-resize")
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("n", pa.int64())]))

    with (
        store.transaction() as txn,
        pytest.raises(InvalidInputError, match="it has none that could be changed"),
    ):
        txn.directory("t").update_latest_entry_count("n", 0)


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["a", "b"]).dictionary_encode(),
        pa.array([[1], [2, 3]]),
        pa.array([{"a": 1}, {"a": 2}]),
        pa.array([Decimal(1), Decimal(2)], pa.decimal128(9, 0)),
        pa.array([True, False]),
        pa.array(["a", "bb" * 20], pa.string_view()),
        pa.array([b"ab", b"cd"], pa.binary(2)),
        pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64())),
        pa.RunEndEncodedArray.from_arrays(pa.array([1, 2], pa.int32()), pa.array(["p", "q"])),
        pa.nulls(2),
    ],
    ids=lambda values: str(values.type)[:20],
)
def test_rows_behind_the_payload_are_null_whatever_the_type(values):
    store = store_with(pa.table({"n": values}))

    resize(store, 4)

    assert rows(store) == [*values.to_pylist(), None, None]
    assert pending("n", KEY, write_file(store.object_store, KEY, values)).entry_count == 2
