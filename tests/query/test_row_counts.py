"""Columns of an aligned table are equally long: who reads a table of a log that says otherwise is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from spark_pages.catalog.identifiers import PhysicalKey
from spark_pages.errors import DamageError, ObjectNotFoundError, RowOutOfRangeError
from spark_pages.model.actions import TransactionRecord
from spark_pages.model.chain import ColumnChain
from spark_pages.query.table import Table
from spark_pages.store import Store
from tests.maintenance.stores import forge, slot
from tests.transaction.stores import store_with

READS: dict[str, Callable[[Table], object]] = {
    "read": lambda table: table.read(),
    "the other column": lambda table: table.read(["b"]),
    "scan": lambda table: table.scan().read_all(),
    "take": lambda table: table.take([0, table.num_rows - 1]),
    "filter": lambda table: table.read(filter="b >= 0"),
    "aggregate": lambda table: table.aggregate("b"),
    "blocks": lambda table: table.blocks("a"),
}


def uneven(lacking: int, checkpoint: bool = False) -> Store:
    """A table to which the newest version has appended rows in all columns but one; in a tail run."""
    rows = pa.table(dict.fromkeys("xaby", np.arange(3)))
    store = store_with(*[rows] * 8)
    if checkpoint:
        store.checkpoint()
    with store.transaction() as txn:
        txn.append("t", rows)
    last = slot(store.object_store, 10)
    (record,) = last.records
    forge(store.object_store, replace(last, records=(without(record, lacking),)))
    if checkpoint:
        Store(store.object_store).checkpoint()
    return Store(store.object_store)


def without(record: TransactionRecord, lacking: int) -> TransactionRecord:
    return replace(record, splices=tuple(each for i, each in enumerate(record.splices) if i != lacking))


@pytest.mark.parametrize("lacking", [0, 2], ids=["x is shorter", "b is shorter"])
@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_who_reads_a_table_of_uneven_columns_is_told_how_long_they_are(read, lacking):
    table = uneven(lacking).snapshot().table("t")

    with pytest.raises(DamageError, match=r"equally long at version 10, but .* (24 .* 27|27 .* 24)[.]"):
        read(table)


@pytest.mark.parametrize("read", list(READS.values())[:-1], ids=list(READS)[:-1])
def test_rows_that_a_column_lacks_are_no_shorter_answer_where_its_tail_run_was_not_counted(read):
    table = uneven(2, checkpoint=True).snapshot().table("t")

    with pytest.raises((DamageError, RowOutOfRangeError)):
        read(table)


def test_the_version_before_is_read_and_can_be_restored():
    store = uneven(0)

    assert store.snapshot(version=9).table("t").num_rows == 24
    store.restore(version=9)

    assert store.snapshot().table("t").read().num_rows == 24


def test_a_chain_that_was_loaded_while_another_thread_reopened_the_version_is_not_kept(monkeypatch):
    directory = store_with(pa.table({"a": [1, 2], "b": [3, 4]})).snapshot().table("t").directory
    load, loaded = directory.chain_of, []

    def chain_of(key: PhysicalKey) -> ColumnChain:
        loaded.append(key)
        chain = load(key)
        if len(loaded) == 2:
            directory.reopen(ObjectNotFoundError("gone"))
        return chain

    monkeypatch.setattr(directory, "chain_of", chain_of)
    directory.chain("a")
    directory.chain("b")  # of the version as it was opened before
    directory.chain("a")

    directory.check_lengths(["a", "b"])
    assert directory.chain("b").num_rows == 2
    assert loaded == [directory.key(column) for column in "abab"]
