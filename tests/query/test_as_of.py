"""Lookups as of a time follow tables and columns by id, whatever they were called then."""

from __future__ import annotations

from uuid import uuid4

import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.errors import ColumnNotFoundError, TableNotFoundError
from spark_pages.query.directory import PageDirectory
from spark_pages.store import Store
from tests.transaction.stores import QUIET


def micros(store: Store, version: int) -> int:
    return store.snapshot(version=version).log.state.timestamp_us


@pytest.fixture
def renamed() -> Store:
    """``t`` of version 1 is ``was_t`` now, with the names of its columns swapped; another table is ``t``."""
    store = sp.create(f"memory://{uuid4().hex}", properties=QUIET)
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("a", pa.int64()), ("b", pa.int64())]))
        txn.append("t", {"a": [1, 1], "b": [2, 2]})
    with store.transaction() as txn:
        txn.rename_table("t", "was_t")
        txn.rename_column("was_t", "a", "c")
        txn.rename_column("was_t", "b", "a")
        txn.rename_column("was_t", "c", "b")
        txn.create_table("t", pa.schema([("a", pa.int64()), ("late", pa.int64())]))
        txn.append("t", {"a": [9, 9], "late": [9, 9]})
    with store.transaction() as txn:
        txn.add_column("was_t", pa.field("new", pa.int64()), default=0)
    return store


def page_ids(pages: list[sp.PageDescriptor]) -> list[int]:
    return [page.page_id for page in pages]


def first_page(store: Store, version: int, table: str, column: str) -> list[int]:
    return page_ids(store.snapshot(version=version).table(table).directory.range(column, 0, 2))


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_renamed_table_and_swapped_columns_are_found_by_id(renamed, checkpoint):
    if checkpoint:
        renamed.checkpoint()
    directory = Store(renamed.object_store).snapshot().table("was_t").directory
    then = micros(renamed, 1)

    assert page_ids(directory.range("b", 0, 2, then)) == first_page(renamed, 1, "t", "a")
    assert page_ids(directory.get_ranged_pages_meta("a", 0, 2, then)) == first_page(renamed, 1, "t", "b")


def test_a_table_that_was_not_there_is_not_another_one_of_its_name(renamed):
    with pytest.raises(TableNotFoundError, match="table 't' at version 1: it was not there"):
        renamed.snapshot().table("t").directory.get_ranged_pages_meta("a", 0, 2, micros(renamed, 1))


def test_a_column_that_was_not_there_is_named(renamed):
    with pytest.raises(ColumnNotFoundError, match="column 'new' of table 'was_t' at version 1"):
        renamed.snapshot().table("was_t").directory.range("new", 0, 1, micros(renamed, 1))


@pytest.mark.parametrize("ts", [None, 0])
def test_without_a_time_and_with_the_zero_of_the_seed_it_is_this_version(renamed, ts):
    directory = renamed.snapshot().table("was_t").directory

    assert page_ids(directory.range("a", 0, 2, ts=ts)) == page_ids(directory.range("a", 0, 2))


def test_a_transaction_looks_up_the_table_that_it_has_renamed(renamed):
    txn = renamed.transaction()
    txn.rename_table("t", "newer")
    txn.rename_table("was_t", "t")
    txn.rename_column("t", "b", "first")

    directory: PageDirectory = txn.directory("t")

    assert page_ids(directory.range("first", 0, 2, micros(renamed, 1))) == first_page(renamed, 1, "t", "a")
    txn.rollback()


def test_a_table_that_came_back_is_looked_up_in_the_versions_that_had_it(renamed):
    then = micros(renamed, 1)
    with renamed.transaction() as txn:
        txn.drop_table("was_t")
    gone = micros(renamed, 4)
    renamed.restore(version=1)
    directory = renamed.snapshot().table("t").directory

    assert page_ids(directory.range("a", 0, 2, then)) == first_page(renamed, 1, "t", "a")
    with pytest.raises(TableNotFoundError, match="'t' at version 4"):
        directory.range("a", 0, 2, gone)
