"""Vacuum and files that this project did not name: they are never deleted."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.transaction.foreign import pending, write_file
from tests.transaction.stores import store_with

FOREIGN = ["imports/day-1.pages", "pages/mine.pages", "zz/00000000000000000000-x-0.pages"]


def keys(store):
    return {info.key for info in store.object_store.list("") if not info.key.startswith("_log/")}


@pytest.mark.parametrize("key", FOREIGN)
def test_a_registered_file_stays_after_every_version_that_named_it_is_gone(key):
    store = store_with(pa.table({"n": [1]}))
    pages = write_file(store.object_store, key, pa.array([2, 3]), pa.array([4]))
    with store.transaction() as txn:
        txn.directory("t").register_batch([pending("n", key, pages)])
    with store.transaction() as txn:
        txn.update_rows("t", [1], {"n": [20]})
    store.checkpoint()
    for number in range(3):
        with store.transaction() as txn:
            txn.append("t", pa.table({"n": [number]}))

    done = store.vacuum(retention=1, orphans=True)

    assert done.objects > 0
    assert key in keys(store)
    assert store.snapshot().table("t").read().column("n").to_pylist() == [1, 20, 3, 0, 1, 2]


@pytest.mark.parametrize("key", FOREIGN)
def test_a_foreign_file_that_nobody_ever_registered_is_no_orphan(key):
    store = store_with(pa.table({"n": [1]}))
    write_file(store.object_store, key, pa.array([2, 3]))
    with store.transaction() as txn:
        txn.append("t", pa.table({"n": [2]}))

    plan = store.vacuum_plan(retention=1, orphans=True)

    assert key not in plan.objects.column("key").to_pylist()


def test_a_file_that_the_transaction_named_goes_when_no_version_needs_it_and_not_before():
    store = store_with(pa.table({"n": [1]}))
    with store.transaction() as txn:
        directory = txn.directory("t")
        key = txn.next_page_file()
        write_file(txn.store, key, pa.array([2, 3]))
        directory.register_page("n", key, 0)
    store.vacuum(retention=1, orphans=True)
    assert key in keys(store)
    assert store.snapshot().table("t").read().column("n").to_pylist() == [1, 2, 3]
    with store.transaction() as txn:
        txn.update_rows("t", [1], {"n": [20]})

    store.vacuum(retention=1, orphans=True)

    assert key not in keys(store)
    assert store.snapshot().table("t").read().column("n").to_pylist() == [1, 20, 3]
