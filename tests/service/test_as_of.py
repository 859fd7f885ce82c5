"""Lookups as of a time through a service follow tables and columns by id, as those of an opened store do."""

from __future__ import annotations

import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.errors import ColumnNotFoundError, TableNotFoundError


@pytest.fixture
def renamed(url: str) -> sp.Store:
    """``t`` of version 1 is ``sales.was_t`` now, the names of its columns swapped; another table is ``t``."""
    store = sp.create(url)
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("a", pa.int64()), ("b", pa.int64())]))
        txn.append("t", {"a": [1, 1], "b": [2, 2]})
    with store.transaction() as txn:
        txn.create_namespace("sales")
        txn.rename_table("t", "sales.was_t")
        txn.rename_column("sales.was_t", "a", "c")
        txn.rename_column("sales.was_t", "b", "a")
        txn.rename_column("sales.was_t", "c", "b")
        txn.add_column("sales.was_t", pa.field("new", pa.int64()))
        txn.create_table("t", pa.schema([("a", pa.int64())]))
        txn.append("t", {"a": [9, 9]})
    return store


def test_tables_and_columns_are_followed_by_id(renamed, serve):
    then = renamed.snapshot(version=1)
    time_us = then.log.state.timestamp_us
    directory = serve(renamed).connect().snapshot().table("sales.was_t").directory

    found = {name: directory.get_ranged_pages_meta(name, 0, 2, time_us) for name in ("b", "a")}

    expected = [then.table("t").directory.range(name, 0, 2) for name in ("a", "b")]
    assert [[p.page_id for p in pages] for pages in found.values()] == [
        [p.page_id for p in e] for e in expected
    ]
    assert directory.range("a", 0, 2, ts=0) == directory.range("a", 0, 2)
    with pytest.raises(ColumnNotFoundError, match=r"'new' of table 'sales\.was_t' at version 1"):
        directory.range("new", 0, 1, time_us)


def test_a_table_that_was_not_there_is_not_another_one_of_its_name(renamed, serve):
    time_us = renamed.snapshot(version=1).log.state.timestamp_us

    with pytest.raises(TableNotFoundError, match="table 't' at version 1: it was not there"):
        serve(renamed).connect().snapshot().table("t").directory.range("a", 0, 2, time_us)
