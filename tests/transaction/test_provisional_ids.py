"""Staged pages have ids of their own, which are no ids of pages in the log, and by which they are found."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spark_pages as sp
from spark_pages.errors import InvalidInputError, PageNotFoundError
from spark_pages.model.ids import parse_page_id
from tests.effort import examples
from tests.io.strategies import steady
from tests.transaction.foreign import pending, write_file
from tests.transaction.stores import store_with

KEY = "imports/day-1.pages"


def numbers(start: int, stop: int) -> pa.Array:
    return pa.array(range(start, stop), pa.int64())


@pytest.fixture
def store():
    return store_with(pa.table({"n": numbers(0, 10), "m": numbers(0, 10)}))


def test_every_registered_page_has_an_id_of_its_own_by_which_it_is_found(store):
    pages = write_file(store.object_store, KEY, numbers(0, 3), numbers(3, 6), numbers(0, 6))
    with store.transaction() as txn:
        directory = txn.directory("t")
        found = directory.register_batch(
            [pending("n", KEY, pages, 0), pending("n", KEY, pages, 1), pending("m", KEY, pages, 2)]
        )

        assert [page.page_id for page in found] == [-1, -2, -3]
        assert [directory.lookup(page.page_id) for page in found] == found
        assert [directory.lookup(page.id) for page in found] == found
        assert [parse_page_id(page.id) for page in found] == [-1, -2, -3]
        assert directory.latest("n") == found[1]
        assert [piece.page for piece in directory.locate_range("n", 9, 16)][1:] == found[:2]
        assert directory.locate_row("m", 12).page == found[2]

    for page in store.snapshot().table("t").pages().column("page_id").to_pylist():
        assert page >= 0


def test_an_id_stays_while_more_is_staged_and_goes_with_the_page(store):
    pages = write_file(store.object_store, KEY, numbers(0, 3), numbers(3, 6))
    with store.transaction() as txn:
        directory = txn.directory("t")
        first = directory.register_page_with_sizes("n", KEY, 0, 4096, pages[0].actual_len, 3)
        txn.append("t", pa.table({"n": [1], "m": [2]}))
        txn.create_table("a_table_before", pa.schema([("x", pa.int64())]))
        txn.append("a_table_before", pa.table({"x": [5]}))
        directory.register_page_with_sizes("m", KEY, 0, 4096, pages[0].actual_len, 3)
        assert directory.lookup(first.page_id, "n") == first

        second = directory.register_batch(
            [sp.PendingPage("m", KEY, 4096, 4096, pages[1].actual_len, 3, replace_last=True)]
        )[0]

        assert directory.lookup(second.id) == second
        with pytest.raises(PageNotFoundError):
            directory.lookup(-99)
    assert store.snapshot().table("t").num_rows == 14


def test_no_staged_page_has_the_id_of_a_page_that_another_transaction_commits_meanwhile(store):
    with store.transaction() as txn:
        txn.append("t", pa.table({"n": [1], "m": [1]}))
        shown = txn.directory("t").latest("n")
        with store.transaction() as other:
            other.append("t", pa.table({"n": [2], "m": [2]}))
        committed = store.snapshot().table("t").directory.latest("n")

        assert shown.page_id < 0 <= committed.page_id
        with pytest.raises(PageNotFoundError):
            txn.directory("t").lookup(committed.id)


def test_nulls_of_a_new_column_have_provisional_ids_too(store):
    with store.transaction() as txn:
        txn.add_column("t", pa.field("later", pa.int64()))
        txn.append("t", pa.table({"n": [1], "m": [1], "later": [1]}))

        shown = txn.directory("t").range("later", 0, 11)

        assert all(page.page_id < 0 for page in shown)
        assert len({page.page_id for page in shown}) == len(shown)


@settings(steady, max_examples=examples(15))
@given(st.lists(st.tuples(st.sampled_from("nm"), st.integers(0, 3), st.booleans()), max_size=8))
def test_the_chain_shows_what_was_registered_under_the_ids_that_were_given(steps):
    store = store_with(pa.table({"n": numbers(0, 4), "m": numbers(0, 4)}))
    pages = write_file(store.object_store, KEY, *(numbers(0, count) for count in (1, 2, 3, 4)))
    expected = {"n": [None], "m": [None]}
    txn = store.transaction()
    directory = txn.directory("t")
    for column, index, replace_last in steps:
        (found,) = directory.register_batch(
            [
                sp.PendingPage(
                    column, KEY, 4096 * index, 4096, pages[index].actual_len, index + 1, None, replace_last
                )
            ]
        )
        expected[column] = [*(expected[column][:-1] if replace_last else expected[column]), found]

    for column, registered in expected.items():
        run = directory.chain(column).all_pages().descriptors()
        assert [page for page in run if page.page_id < 0] == [page for page in registered if page]


def test_a_page_whose_number_of_rows_changes_keeps_its_id(store):
    write_file(store.object_store, KEY, numbers(0, 3))
    with store.transaction() as txn:
        directory = txn.directory("t")
        ids = [directory.register_page(name, KEY, 0).page_id for name in ("n", "m")]

        directory.update_latest_entry_count("n", 2)
        directory.update_latest_entry_count("m", 2)

        assert [directory.lookup(each).entry_count for each in ids] == [2, 2]


def test_a_page_with_the_rows_of_the_one_that_it_replaces_takes_its_place(store):
    write_file(store.object_store, KEY, numbers(0, 10))
    with store.transaction() as txn:
        directory = txn.directory("t")
        actual = directory.register_page("m", KEY, 0).actual_len
        page = directory.register_page_with_sizes("n", KEY, 0, 4096, actual, 10, replace_last=True)
        assert directory.lookup(page.page_id, "n") == page
        directory.register_page("n", KEY, 0)

    assert store.snapshot().table("t").pages("n").column("path").to_pylist() == [KEY, KEY]


def test_what_a_page_reserves_covers_no_other_page(store):
    pages = write_file(store.object_store, KEY, numbers(0, 3), numbers(3, 6))
    actual = pages[0].actual_len
    with (
        pytest.raises(InvalidInputError, match="covers other data, which begins at 4096"),
        store.transaction() as txn,
    ):
        txn.directory("t").register_page_with_sizes("n", KEY, 0, 8192, actual, 3)

    with pytest.raises(InvalidInputError, match="alloc_len of 8192 bytes covers"), store.transaction() as txn:
        txn.directory("t").register_batch(
            [sp.PendingPage("n", KEY, 0, 8192, actual, 3), sp.PendingPage("m", KEY, 4096, 4096, actual, 3)]
        )
    assert store.snapshot().table("t").num_rows == 10


@pytest.mark.parametrize("more", [1, 3])
def test_a_page_may_reserve_zeros_behind_it_and_be_registered_for_several_columns(store, more):
    (page,) = write_file(store.object_store, "imports/one.pages", numbers(0, 3))
    data = bytes(store.object_store.get("imports/one.pages")) + bytes(4096 * more)
    store.object_store.put(KEY, data)

    with store.transaction() as txn:
        txn.directory("t").register_batch(
            [sp.PendingPage(name, KEY, 0, 4096 * (1 + more), page.actual_len, 3) for name in ("n", "m")]
        )

    assert store.snapshot().table("t").read(start=10).to_pydict() == {"n": [0, 1, 2], "m": [0, 1, 2]}
    assert store.verify("all").ok
