"""Page compaction by Spark beside other compactions, appends, updates and readers."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from pyspark.sql import SparkSession

import spark_pages as sp
from spark_pages.spark import compact_pages
from tests.invariants import check_store
from tests.spark.conftest import History, flights

LATER = 100_000


def test_two_compactions_at_once_do_each_run_once_and_change_no_row(
    spark: SparkSession, own_history: History
) -> None:
    before = own_history.store.snapshot().table("flights")
    small = {name: before.pages(name).num_rows for name in before.columns}

    with ThreadPoolExecutor(2) as pool:
        begun = [pool.submit(compact_pages, spark, own_history.url, "flights") for _ in range(2)]
        done = [each.result() for each in begun]

    after = own_history.store.snapshot()
    assert sum(each["runs"] > 0 for each in done) >= 1
    assert all(after.table("flights").pages(name).num_rows <= small[name] for name in small)
    assert sum(each["pages_before"] - each["pages_after"] for each in done) == sum(small.values()) - sum(
        after.table("flights").pages(name).num_rows for name in small
    )
    assert after.table("flights").read().equals(before.read())
    assert after.log.state.claims == ()
    check_store(own_history.store)


def test_a_compaction_beside_appends_updates_and_readers_loses_and_changes_nothing(
    spark: SparkSession, own_history: History
) -> None:
    with own_history.store.transaction() as txn:  # the small pages lie where no later append takes them along
        txn.append("flights", flights(40_000, 40_000))
    first = own_history.store.snapshot().table("flights").num_rows
    ended = threading.Event()

    def write() -> int:
        store, number = sp.open(own_history.url), 0
        while not (ended.is_set() and number >= 4):
            with store.transaction() as txn:
                txn.append("flights", flights(LATER + 10 * number, 10))
            with store.transaction() as txn:
                txn.update_rows("flights", [number], {"delay": [-float(number)]})
            number += 1
        return number

    def read() -> int:
        store, looks = sp.open(own_history.url), 0
        while not (ended.is_set() and looks >= 4):
            ids = store.snapshot().table("flights").read(["id", "seats"])
            assert ids.num_rows % 5 == 0, "an append is seen whole"
            assert np.array_equal(ids["id"].to_numpy() % 60_000, ids["seats"].to_numpy())
            looks += 1
        return looks

    with ThreadPoolExecutor(2) as pool:
        writing, reading = pool.submit(write), pool.submit(read)
        try:
            done = [compact_pages(spark, own_history.url, "flights") for _ in range(2)]
        finally:
            ended.set()
        appended = writing.result()
        reading.result()

    table = own_history.store.snapshot().table("flights")
    expected = flights(LATER, 10 * appended)
    assert done[0]["runs"] > 0
    assert table.num_rows == first + 10 * appended
    assert table.read(start=first).equals(expected)
    delays = table.read(["delay"], stop=appended).column("delay").to_pylist()
    assert delays == [-float(number) for number in range(appended)]
    check_store(own_history.store)
