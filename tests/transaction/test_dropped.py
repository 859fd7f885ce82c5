"""Transactions, scans and stores that nobody ends: lost rows are told, and nothing is left open."""

from __future__ import annotations

import gc
import os
import threading
import warnings
from contextlib import contextmanager

import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.errors import CommitConflictError, InvalidInputError, RaggedTableError
from tests.transaction.foreign import write_file
from tests.transaction.stores import QUIET, store_with

ROWS = pa.table({"n": pa.array(range(10), pa.int64())})


@pytest.fixture
def store():
    return store_with(ROWS)


@contextmanager
def told_of_drops(times: int):
    """So many transactions are told to be dropped in the block."""
    gc.collect()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        yield
        gc.collect()
    dropped = [str(each.message) for each in told if each.category is ResourceWarning]
    assert len(dropped) == times
    assert all("Transaction 'nightly load' was dropped without commit" in text for text in dropped)


CHANGES = {
    "append": lambda txn: txn.append("t", ROWS),
    "update": lambda txn: txn.update_rows("t", [1], {"n": [5]}),
    "truncate": lambda txn: txn.truncate_table("t"),
    "create": lambda txn: txn.create_table("u", ROWS.schema),
    "drop": lambda txn: txn.drop_table("t"),
    "rename": lambda txn: txn.rename_table("t", "u"),
    "read of what is staged": lambda txn: (txn.append("t", ROWS), txn.table("t").read()),
    "register": lambda txn: txn.directory("t").register_page("n", "imports/a.pages", 0),
    "entry count": lambda txn: txn.directory("t").update_latest_entry_count("n", 3),
}


def test_a_transaction_without_a_name_is_not_called_none(store):
    txn = store.transaction()
    txn.append("t", ROWS)

    with pytest.warns(ResourceWarning, match=r"^Transaction without a name was dropped"):
        del txn


@pytest.mark.parametrize("change", CHANGES)
def test_a_transaction_that_is_dropped_with_changes_warns_and_names_itself(store, change):
    write_file(store.object_store, "imports/a.pages", pa.array([1, 2], pa.int64()))
    with told_of_drops(1):
        txn = store.transaction(operation="nightly load")
        CHANGES[change](txn)
        del txn

    assert store.snapshot().table("t").num_rows == 10


ENDS = {
    "commit": lambda txn: txn.commit(),
    "rollback": lambda txn: txn.rollback(),
    "block": lambda txn: txn.__exit__(None, None, None),
    "block with an error": lambda txn: txn.__exit__(ValueError, ValueError(), None),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_transaction_that_has_ended_is_dropped_silently(store, end):
    with told_of_drops(0):
        txn = store.transaction()
        txn.append("t", ROWS)
        ENDS[end](txn)
        del txn


def test_a_transaction_without_changes_is_dropped_silently(store):
    with told_of_drops(0):
        txn = store.transaction()
        txn.table("t").read()
        txn.directory("t").latest("n")
        with pytest.raises(InvalidInputError):
            txn.append("t", {"n": ["text"]})
        del txn
        with pytest.raises(InvalidInputError):
            store.transaction(isolation="none")


def test_a_commit_that_failed_has_told_already(store):
    with told_of_drops(0):
        conflicting = store.transaction()
        conflicting.update_rows("t", [1], {"n": [5]})
        with store.transaction() as other:
            other.update_rows("t", [1], {"n": [6]})
        with pytest.raises(CommitConflictError):
            conflicting.commit()
        write_file(store.object_store, "imports/a.pages", pa.array([1, 2], pa.int64()))
        ragged = store.transaction()
        ragged.add_column("t", pa.field("m", pa.int64()))
        ragged.directory("t").register_page("n", "imports/a.pages", 0)
        with pytest.raises(RaggedTableError):
            ragged.commit()
        del conflicting, ragged


def test_stores_scans_and_transactions_that_are_dropped_leave_no_file_and_no_thread_open(tmp_path):
    url = str(tmp_path / "s")
    made = sp.create(url, properties=QUIET)
    with made.transaction() as txn:
        txn.create_table("t", ROWS.schema)
        txn.append("t", pa.table({"n": range(100_000)}))
    made.close()
    del made, txn
    gc.collect()
    before = len(os.listdir("/proc/self/fd")), threading.active_count()

    for _ in range(5):
        store = sp.open(url)
        scan = store.snapshot().table("t").scan(filter="n >= 0")
        scan.read_next_batch()
        txn = store.transaction(memory_bytes=1 << 16)
        txn.append("t", pa.table({"n": range(50_000)}))
        txn.update_rows("t", list(range(5_000)), {"n": list(range(5_000))})
        del store, scan, txn
    gc.collect()

    assert (len(os.listdir("/proc/self/fd")), threading.active_count()) == before
