"""Pages of other writers become part of a table: seed 000, "Registration APIs" and "Batch Publication"."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.errors import (
    ColumnNotFoundError,
    CommitConflictError,
    InvalidInputError,
    PageNotFoundError,
    RaggedTableError,
    SchemaMismatchError,
    TableNotFoundError,
)
from spark_pages.io import page_stats
from spark_pages.model.added_pages import NewPage
from spark_pages.model.page import PageKind, PageStats
from spark_pages.store import Store
from tests.transaction.foreign import pending, write_file
from tests.transaction.stores import QUIET, metered, store_with

KEY = "imports/day-1.pages"


def numbers(start: int, stop: int) -> pa.Array:
    return pa.array(range(start, stop), pa.int64())


def noise(count: int) -> pa.Array:
    return pa.array(np.random.default_rng(count).integers(0, 1 << 62, count))


def column(store: Store, name: str = "n", table: str = "t") -> list[object]:
    return store.snapshot().table(table).read([name]).column(name).to_pylist()


@pytest.fixture
def store() -> Store:
    return store_with(pa.table({"n": numbers(0, 10)}))


def test_a_registered_page_stands_behind_the_rows_of_its_column(store):
    write_file(store.object_store, KEY, numbers(10, 15))

    with store.transaction() as txn:
        page = txn.directory("t").register_page("n", KEY, 0)

    assert (page.disk_path, page.offset, page.entry_count, page.payload_entries) == (KEY, 0, 5, 5)
    assert column(store) == list(range(15))
    found = store.snapshot().table("t").directory.locate_row("n", 12)
    assert (found.page.disk_path, found.page.kind, found.row_in_page) == (KEY, PageKind.FILE, 2)


def test_a_batch_publishes_pages_of_several_columns_and_files_in_the_order_given():
    store = store_with(pa.table({"n": numbers(0, 2), "s": ["a", "b"]}))
    pages_n = write_file(store.object_store, "imports/n.pages", numbers(2, 4), numbers(4, 6))
    pages_s = write_file(store.object_store, "imports/s.pages", pa.array(["c", "d", None, "f"]))

    with store.transaction() as txn:
        txn.directory("t").register_batch(
            [
                pending("s", "imports/s.pages", pages_s),
                pending("n", "imports/n.pages", pages_n, 1),
                pending("n", "imports/n.pages", pages_n, 0),
            ]
        )

    assert store.snapshot().table("t").read().to_pydict() == {
        "n": [0, 1, 4, 5, 2, 3],
        "s": ["a", "b", "c", "d", None, "f"],
    }


def test_a_batch_of_one_file_is_read_in_two_requests(store):
    pages = write_file(store.object_store, KEY, *(numbers(i, i + 3) for i in range(50)))
    again, meter = metered(store)
    with again.transaction() as txn:
        directory = txn.directory("t")
        before = meter.counts.requests

        directory.register_batch([pending("n", KEY, pages, i) for i in range(50)])

        assert meter.counts.requests - before == 2


def test_statistics_are_made_from_the_page_and_a_filter_skips_by_them(store):
    write_file(store.object_store, KEY, numbers(1000, 1010), numbers(2000, 2010))
    with store.transaction() as txn:
        directory = txn.directory("t")
        directory.register_page("n", KEY, 0)
        directory.register_page("n", KEY, 4096)
    trace = sp.ReadTrace()

    found = store.snapshot().table("t").read(filter=[("n", "==", 2003)], trace=trace)

    assert found.column("n").to_pylist() == [2003]
    assert len(trace.page_ids) == 1


def test_given_statistics_are_kept_if_they_are_true_and_refused_if_not(store):
    pages = write_file(store.object_store, KEY, numbers(5, 8))
    wide = PageStats(0, page_stats(numbers(0, 1)).min, page_stats(numbers(9, 10)).max, exact=False)
    wrong = PageStats(0, page_stats(numbers(6, 7)).min, page_stats(numbers(9, 10)).max, exact=False)

    with store.transaction() as txn:
        directory = txn.directory("t")
        directory.register_batch([pending("n", KEY, pages, stats=wide)])
        with pytest.raises(InvalidInputError, match="statistics given are not true"):
            directory.register_batch([pending("n", KEY, pages, stats=wrong)])
        with pytest.raises(InvalidInputError, match="statistics given are not true"):
            directory.register_batch([pending("n", KEY, pages, stats=replace(wide, null_count=1))])

    last = store.snapshot().table("t").directory.chain("n").all_pages().stats.to_pylist()[-1]
    assert (last["min"], last["exact"]) == (wide.min, False)


@pytest.mark.parametrize("wrong", [{"nan": False}, {"max": bytes(8)}, {"min": None, "max": None}])
def test_given_statistics_of_a_page_with_a_nan_say_so_or_are_refused(wrong):
    store = store_with(schema=pa.schema([("x", pa.float64())]))
    values = pa.array([1.0, float("nan"), 2.0])
    pages, true = write_file(store.object_store, KEY, values), page_stats(values)

    with store.transaction() as txn:
        directory = txn.directory("t")
        with pytest.raises(InvalidInputError, match="statistics given are not true"):
            directory.register_batch([pending("x", KEY, pages, stats=replace(true, **wrong))])
        directory.register_batch([pending("x", KEY, pages, stats=true)])

    found = store.snapshot()
    assert found.log.state.features.reader == ("nan-bounds",)
    assert found.table("t").aggregate("x").pages_read == 0


@pytest.mark.parametrize(
    ("stats", "said"),
    [
        (sp.PageStats(0, distinct=-7), "distinct -7 is negative"),
        (sp.PageStats(0, distinct=1 << 63), "no 64-bit number"),
        (sp.PageStats(0, distinct=0.5), "distinct"),
        ({"null_count": 0}, "stats is a dict, and no PageStats"),
    ],
)
def test_statistics_that_can_be_true_of_no_page_are_refused(stats, said):
    with pytest.raises(InvalidInputError, match=said):
        sp.PendingPage("n", KEY, 0, 4096, 100, 3, stats=stats)


def test_the_directory_shows_what_is_staged_and_nobody_else_sees_it(store):
    write_file(store.object_store, KEY, numbers(10, 15))
    with store.transaction() as txn:
        directory = txn.directory("t")
        assert directory.latest("n").entry_count == 10

        directory.register_page("n", KEY, 0)

        assert directory.latest("n").disk_path == KEY
        assert directory.locate_row("n", 14).row_in_page == 4
        assert directory.locate_rows("n", [9, 10]).rows_in_page.tolist() == [9, 0]
        assert [piece.stop for piece in directory.locate_range("n", 8, 12)] == [10, 2]
        assert len(directory.range("n", 0, 15)) == 2
        committed = store.snapshot()
        assert len(directory.range("n", 0, 10, int(committed.timestamp.timestamp() * 1e6))) == 1
        assert directory.lookup(directory.latest("n").id, "n").disk_path == KEY
        assert txn.table("t").read().column("n").to_pylist() == list(range(15))
        assert store.snapshot().table("t").num_rows == 10
        assert txn.directory("t") is directory

    with pytest.raises(PageNotFoundError):
        store.snapshot().table("t").directory.lookup(1 << 61, "n")


def test_pages_of_a_table_that_is_new_in_the_transaction_may_be_registered(store):
    write_file(store.object_store, KEY, pa.array([1.5, None]))

    with store.transaction() as txn:
        txn.create_table("u", pa.schema([("x", pa.float64())]))
        directory = txn.directory("u")
        directory.register_page("x", KEY, 0)
        assert directory.locate_row("x", 1).page.disk_path == KEY

    assert column(store, "x", "u") == [1.5, None]


def test_registration_appends_and_updates_commit_together(store):
    write_file(store.object_store, KEY, numbers(20, 22))

    with store.transaction() as txn:
        txn.append("t", pa.table({"n": numbers(10, 12)}))
        txn.directory("t").register_page("n", KEY, 0)
        txn.append("t", pa.table({"n": numbers(30, 31)}))
        txn.update_rows("t", [0], {"n": [100]})

    assert column(store) == [100, *range(1, 10), 10, 11, 20, 21, 30]


def test_rows_and_pages_stand_in_the_order_in_which_they_were_staged(store):
    pages = write_file(store.object_store, KEY, numbers(20, 22), numbers(40, 41))

    with store.transaction() as txn:
        directory = txn.directory("t")
        txn.append("t", pa.table({"n": [10]}))
        directory.register_batch([pending("n", KEY, pages, 0)])
        txn.append("t", pa.table({"n": [30]}))
        directory.register_batch([pending("n", KEY, pages, 1)])
        txn.append("t", pa.table({"n": [50]}))
        assert directory.chain("n").num_rows == 16

    assert column(store) == [*range(10), 10, 20, 21, 30, 40, 50]
    assert store.changes(3, 3, granularity="rows").select(["first_row", "end_row"]).to_pylist() == [
        {"first_row": 10, "end_row": 16}
    ]
    assert {store.blame("t", "n", row).version for row in range(10, 16)} == {3}


def test_a_transaction_that_fails_leaves_nothing_of_what_it_registered(store):
    write_file(store.object_store, KEY, numbers(20, 22))

    txn = store.transaction()
    directory = txn.directory("t")
    directory.register_page("n", KEY, 0)
    txn.rollback()

    assert column(store) == list(range(10))
    with pytest.raises(InvalidInputError, match="has ended"):
        txn.directory("t")
    with pytest.raises(InvalidInputError, match="has ended"):
        directory.register_page("n", KEY, 0)
    with pytest.raises(InvalidInputError, match="has ended"):
        directory.latest("n")


def test_columns_that_would_differ_in_length_are_refused():
    store = store_with(pa.table({"n": numbers(0, 2), "s": ["a", "b"]}))
    write_file(store.object_store, KEY, numbers(2, 5))

    with pytest.raises(RaggedTableError, match="n"), store.transaction() as txn:
        txn.directory("t").register_page("n", KEY, 0)

    assert store.snapshot().table("t").num_rows == 2


def test_columns_may_differ_in_length_while_pages_are_registered_one_by_one():
    store = store_with(pa.table({"n": numbers(0, 2), "m": numbers(0, 2)}))
    write_file(store.object_store, KEY, numbers(2, 5))

    with store.transaction() as txn:
        directory = txn.directory("t")
        directory.register_page("n", KEY, 0)
        seen = [directory.locate_row("n", 4).page, directory.latest("m")]
        directory.register_page("m", KEY, 0)

    assert [page.entry_count for page in seen] == [3, 2]
    assert store.snapshot().table("t").num_rows == 5


def test_columns_of_an_unaligned_table_grow_as_they_like():
    store = sp.create("memory://unaligned-registration", properties=QUIET)
    write_file(store.object_store, KEY, numbers(0, 5))
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("n", pa.int64()), ("m", pa.int64())]), aligned=False)
        txn.directory("t").register_page("n", KEY, 0)

    table = store.snapshot().table("t")

    assert table.num_rows == 0
    assert table.directory.locate_row("n", 4).row_in_page == 4


@pytest.mark.parametrize("rows", [0, 3, 4, 9])
def test_the_rows_of_a_registered_page_are_as_many_as_its_entry_count_says(store, rows):
    pages = write_file(store.object_store, KEY, numbers(100, 104))

    with store.transaction() as txn:
        txn.directory("t").register_page_with_sizes(
            "n", KEY, 0, pages[0].alloc_len, pages[0].actual_len, rows
        )

    assert column(store) == [*range(10), *range(100, 104), *[None] * 5][: 10 + rows]
    assert store.verify(pages="all").ok


# replace_last


def test_the_last_page_gives_way_to_one_with_other_rows(store):
    pages = write_file(store.object_store, KEY, numbers(50, 53))
    before = store.snapshot()

    with store.transaction() as txn:
        txn.directory("t").register_batch([pending("n", KEY, pages, replace_last=True)])

    assert column(store) == [50, 51, 52]
    assert before.table("t").read().column("n").to_pylist() == list(range(10))


def test_a_page_of_the_same_batch_or_transaction_may_be_replaced(store):
    pages = write_file(store.object_store, KEY, numbers(50, 53), numbers(60, 62), numbers(70, 71))

    with store.transaction() as txn:
        txn.append("t", pa.table({"n": numbers(10, 12)}))
        directory = txn.directory("t")
        directory.register_batch(
            [pending("n", KEY, pages, 0, replace_last=True), pending("n", KEY, pages, 1)]
        )
        directory.register_batch([pending("n", KEY, pages, 2, replace_last=True)])

    assert column(store) == [*range(10), 50, 51, 52, 70]


def test_an_empty_page_is_legal_and_can_be_filled_later(store):
    pages = write_file(store.object_store, KEY, numbers(0, 0), numbers(70, 75))
    with store.transaction() as txn:
        txn.directory("t").register_batch([pending("n", KEY, pages, 0)])
    assert store.snapshot().table("t").directory.latest("n").entry_count == 0

    with store.transaction() as txn:
        txn.directory("t").register_batch([pending("n", KEY, pages, 1, replace_last=True)])

    assert column(store) == [*range(10), *range(70, 75)]
    store.checkpoint()
    assert column(sp_again(store)) == [*range(10), *range(70, 75)]


def sp_again(store: Store) -> Store:
    return Store(store.object_store)


def test_there_must_be_a_last_page_to_replace_and_else_nothing_of_the_batch_is_staged():
    store = store_with(schema=pa.schema([("n", pa.int64()), ("m", pa.int64())]))
    pages = write_file(store.object_store, KEY, numbers(50, 53))

    with store.transaction() as txn:
        directory = txn.directory("t")
        with pytest.raises(InvalidInputError, match="it has none that could be changed"):
            directory.register_batch([pending("n", KEY, pages), pending("m", KEY, pages, replace_last=True)])
        assert directory.latest("n") is None

    assert store.snapshot().table("t").num_rows == 0


def test_a_page_cannot_be_updated_and_replaced_in_one_transaction(store):
    pages = write_file(store.object_store, KEY, numbers(50, 60))

    txn = store.transaction()
    txn.update_rows("t", [3], {"n": [7]})
    txn.directory("t").register_batch([pending("n", KEY, pages, replace_last=True)])

    with pytest.raises(InvalidInputError, match="twice"):
        txn.commit()

    assert column(store) == list(range(10))


@pytest.mark.parametrize("when", ["before", "after"])
def test_pages_cannot_be_staged_on_a_table_that_the_transaction_truncates(store, when):
    pages = write_file(store.object_store, KEY, numbers(50, 60))

    with store.transaction() as txn:
        directory = txn.directory("t") if when == "before" else None
        txn.truncate_table("t")
        with pytest.raises(InvalidInputError, match="truncates"):
            (directory or txn.directory("t")).register_batch([pending("n", KEY, pages, replace_last=True)])

    assert column(store) == []


def test_a_directory_is_asked_for_again_once_its_table_has_changed(store):
    pages = write_file(store.object_store, KEY, numbers(50, 53))

    with store.transaction() as txn:
        stale = txn.directory("t")
        txn.rename_column("t", "n", "m")
        with pytest.raises(InvalidInputError, match="Ask for it again"):
            stale.register_batch([pending("n", KEY, pages)])
        txn.directory("t").register_batch([pending("m", KEY, pages)])
        txn.rename_table("t", "u")
        txn.directory("u").update_latest_entry_count("u", "m", 1)
    with store.transaction() as txn:
        txn.directory("u")
        txn.drop_table("u")
        with pytest.raises(TableNotFoundError):
            txn.directory("u")

    assert store.snapshot(version=3).table("u").read().column("m").to_pylist() == [*range(10), 50]


def test_a_page_of_a_column_that_is_new_in_the_transaction_may_be_registered(store):
    pages = write_file(store.object_store, KEY, numbers(50, 53))

    with store.transaction() as txn:
        txn.add_column("t", pa.field("m", pa.int64()), 7)
        directory = txn.directory("t")
        directory.register_batch([pending("n", KEY, pages), pending("m", KEY, pages)])
        directory.update_latest_entry_count("m", 2)
        directory.update_latest_entry_count("n", 2)

    assert store.snapshot().table("t").read().column("m").to_pylist() == [7] * 10 + [50, 51]
    assert store.snapshot().table("t").num_rows == 12


def test_a_page_that_the_transaction_has_compacted_cannot_be_replaced(store):
    with store.transaction() as txn:
        txn.append("t", pa.table({"n": noise(9_000)}))
    run = store.snapshot().table("t").directory.chain("n").all_pages()
    pages = write_file(store.object_store, KEY, numbers(50, 53))
    new = store.snapshot().table("t").directory.latest("n")
    kept = NewPage(
        new.entry_count, new.payload_entries, new.kind, new.disk_path, new.offset, new.alloc_len,
        new.actual_len, new.checksum, None, PageStats(0),
    )  # fmt: skip
    txn = store.transaction()
    txn.replace_pages(1, 1, run.num_rows - new.entry_count, [new.page_id], [kept])

    with pytest.raises(InvalidInputError, match="compacted it"):
        txn.directory("t").register_batch([pending("n", KEY, pages, replace_last=True)])
    txn.directory("t").register_batch([pending("n", KEY, pages)])
    txn.commit()

    assert column(store)[-3:] == [50, 51, 52]


# conflicts


def test_replacing_the_last_page_by_other_rows_conflicts_with_an_append_in_between(store):
    pages = write_file(store.object_store, KEY, numbers(50, 53))
    txn = store.transaction()
    txn.directory("t").register_batch([pending("n", KEY, pages, replace_last=True)])
    with store.transaction() as other:
        other.append("t", pa.table({"n": [10]}))

    with pytest.raises(CommitConflictError, match="change the number of rows"):
        txn.commit()

    assert column(store) == list(range(11))


def test_replacing_the_last_page_by_other_rows_conflicts_with_an_empty_page_behind_it(store):
    pages = write_file(store.object_store, KEY, numbers(50, 53), numbers(0, 0))
    txn = store.transaction()
    txn.directory("t").register_batch([pending("n", KEY, pages, 0, replace_last=True)])
    with store.transaction() as other:
        other.directory("t").register_batch([pending("n", KEY, pages, 1)])

    with pytest.raises(CommitConflictError, match="change the number of rows"):
        txn.commit()

    assert column(store) == list(range(10))


def test_replacing_the_last_page_by_as_many_rows_goes_with_an_append_in_between(store):
    pages = write_file(store.object_store, KEY, numbers(50, 60))
    txn = store.transaction()
    txn.directory("t").register_batch([pending("n", KEY, pages, replace_last=True)])
    with store.transaction() as other:
        other.append("t", pa.table({"n": [10]}))

    txn.commit()

    assert column(store) == [*range(50, 60), 10]


def test_two_that_replace_the_same_last_page_conflict(store):
    pages = write_file(store.object_store, KEY, numbers(50, 60))
    txn = store.transaction()
    txn.directory("t").register_batch([pending("n", KEY, pages, replace_last=True)])
    with store.transaction() as other:
        other.update_rows("t", [0], {"n": [7]})

    with pytest.raises(CommitConflictError, match="both replace"):
        txn.commit()


def test_registrations_never_conflict_with_appends(store):
    pages = write_file(store.object_store, KEY, numbers(50, 53))
    txn = store.transaction()
    txn.directory("t").register_batch([pending("n", KEY, pages)])
    with store.transaction() as other:
        other.append("t", pa.table({"n": [10]}))

    txn.commit()

    assert column(store) == [*range(11), 50, 51, 52]


# what a registration is told


def test_unknown_tables_and_columns_and_the_stores_own_table_are_refused(store):
    write_file(store.object_store, KEY, numbers(0, 3))

    with store.transaction() as txn:
        with pytest.raises(TableNotFoundError):
            txn.directory("u")
        with pytest.raises(InvalidInputError, match="the store's own"):
            txn.directory("system.catalog")
        with pytest.raises(ColumnNotFoundError):
            txn.directory("t").register_page("m", KEY, 0)


def test_a_page_of_another_type_is_refused(store):
    write_file(store.object_store, KEY, pa.array([1, 2], pa.int32()))

    with store.transaction() as txn, pytest.raises(SchemaMismatchError, match="int32"):
        txn.directory("t").register_page("n", KEY, 0)


def test_nulls_are_refused_where_the_column_may_have_none():
    store = store_with(schema=pa.schema([pa.field("n", pa.int64(), nullable=False)]))
    pages = write_file(store.object_store, KEY, pa.array([1, None]), numbers(0, 2))

    with store.transaction() as txn:
        directory = txn.directory("t")
        with pytest.raises(SchemaMismatchError, match="not nullable"):
            directory.register_batch([pending("n", KEY, pages, 0)])
        with pytest.raises(SchemaMismatchError, match="not nullable"):
            directory.register_batch([pending("n", KEY, pages, 1, rows=3)])
        directory.register_batch([pending("n", KEY, pages, 0, rows=1)])

    assert column(store) == [1]


def test_as_many_rows_as_could_never_be_read_are_refused(store):
    pages = write_file(store.object_store, KEY, numbers(0, 2), numbers(0, 0))

    with store.transaction() as txn:
        for index in (0, 1):
            with pytest.raises(InvalidInputError, match="2 GiB"):
                txn.directory("t").register_batch([pending("n", KEY, pages, index, rows=1 << 29)])


def test_a_thousand_registered_pages_are_listed_in_a_manifest():
    store = store_with(pa.table({"n": numbers(0, 1)}))
    pages = write_file(store.object_store, KEY, *(numbers(i, i + 2) for i in range(1001)))

    with store.transaction() as txn:
        txn.directory("t").register_batch([pending("n", KEY, pages, i) for i in range(1001)])

    assert [info.key for info in store.object_store.list("_log/manifests/")]
    assert column(sp_again(store))[-4:] == [999, 1000, 1000, 1001]
    store.checkpoint()
    assert store.verify(pages="all").ok


def test_a_page_of_each_type_that_is_stored_may_be_registered():
    values = {
        "f": pa.array([1.5, float("inf"), None]),
        "s": pa.array(["a", None, "c" * 100]),
        "l": pa.array([[1], [], None], pa.list_(pa.int32())),
        "st": pa.array([{"a": 1}, None, {"a": None}]),
        "d": pa.array(["x", "y", "x"]).dictionary_encode(),
        "b": pa.array([True, None, False]),
        "de": pa.array([Decimal("1.25"), None, None], pa.decimal128(20, 2)),
        "ls": pa.array(["a", None, "b" * 20], pa.large_string()),
        "ts": pa.array([1, None, 3], pa.timestamp("us", "UTC")),
        "z": pa.nulls(3),
        "fb": pa.array([b"ab", None, b"cd"], pa.binary(2)),
        "r": pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(["p", "q"])),
    }
    store = store_with(schema=pa.schema([pa.field(name, each.type) for name, each in values.items()]))
    with store.transaction() as txn:
        for name, each in values.items():
            write_file(store.object_store, f"imports/{name}.pages", each)
            txn.directory("t").register_page(name, f"imports/{name}.pages", 0)

    found = store.snapshot().table("t").read()

    assert found.to_pydict() == {name: each.to_pylist() for name, each in values.items()}
    assert store.verify(pages="all").ok


def test_numpy_numbers_do_as_sizes(store):
    pages = write_file(store.object_store, KEY, numbers(0, 3))
    sizes = np.array([pages[0].alloc_len, pages[0].actual_len, 3])

    with store.transaction() as txn:
        txn.directory("t").register_page_with_sizes("n", KEY, 0, *sizes)

    assert column(store) == [*range(10), 0, 1, 2]
