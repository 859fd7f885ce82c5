"""Candidates are found over the filter's own columns, at a cost that updates of rows do not change."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_pages.model.run import PageRun
from spark_pages.query.page_bounds import PageBounds
from tests.effort import examples
from tests.io.strategies import steady
from tests.transaction.stores import metered, store_with

ROWS = 2_000


@lru_cache
def store_after_updates(count: int, columns: str = "v"):
    """A checkpoint of 40 pages of ``id`` and of ``v``, and then so many rows updated far from each other."""
    table = pa.table({"id": np.arange(ROWS), "v": np.zeros(ROWS, np.int64)})
    store = store_with(*(table.slice(start, 50) for start in range(0, ROWS, 50)))
    store.checkpoint()
    rows = np.arange(count) * (ROWS // max(1, count))
    with store.transaction() as txn:
        for column in columns:
            txn.update_rows("t", rows, {{"i": "id"}.get(column, column): pa.array(rows)})
    return store


@pytest.fixture
def counted(monkeypatch):
    """Names of what was called."""
    calls: list[str] = []

    def count(kind, name):
        method = getattr(kind, name)
        monkeypatch.setattr(kind, name, lambda *given: (calls.append(name), method(*given))[1])

    count(PageBounds, "may_match")
    return calls


QUESTIONS = {
    "lookup": lambda t: t.read(filter=[("id", "==", 1_234)]),
    "list": lambda t: t.read(filter=[("id", "in", list(range(0, ROWS, 20)))]),
    "scan": lambda t: t.scan(filter="id > 100 and v < 5000").read_all(),
    "explain": lambda t: t.explain(filter="id = 1234"),
    "rows_to_read": lambda t: t.rows_to_read("id = 1234"),
    "batches": lambda t: list(t.scan(filter="id % 7 = 1")),
}


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("columns", ["v", "i", "vi"])
def test_statistics_are_looked_at_as_often_after_updates_as_before(question, columns, counted):
    asked = []
    for count in (0, 5, 20):
        table = store_after_updates(count, columns).snapshot().table("t")
        counted.clear()
        QUESTIONS[question](table)
        asked.append(len(counted))

    assert asked[0] <= 2
    assert asked == [asked[0]] * 3


def test_windows_of_a_scan_do_not_grow_with_updates():
    windows = [store_after_updates(count).snapshot().table("t").explain().windows for count in (0, 5, 20)]

    assert windows == [windows[0]] * 3


def test_an_aggregate_joins_the_pieces_of_a_chain_once(monkeypatch):
    table = store_after_updates(20).snapshot().table("t")
    table.aggregate("v")
    joined = []
    concat = PageRun.concat
    monkeypatch.setattr(PageRun, "concat", lambda runs: (joined.append(len(runs)), concat(runs))[1])

    found = table.aggregate("v")

    assert found.max.as_py() == 1_900
    assert max(joined) <= 2


def test_a_filter_loads_segments_of_other_columns_only_where_there_are_candidates(small_trees):
    wide = ["x" * 3_000 + str(n) for n in range(400)]
    table = pa.table({"id": np.arange(400), "text": wide})
    store = store_with(*(table.slice(start, 10) for start in range(0, 400, 10)))
    store.checkpoint()
    cold, meter = metered(store)
    rows = cold.snapshot().table("t")
    list(rows.directory.chain("id").runs())
    before = meter.counts

    found = rows.read(["id", "text"], filter="id = 395")

    segments = [key for key in (meter.counts - before).keys if key.startswith("_log/segments")]
    assert found.column("text").to_pylist() == wide[395:396]
    assert len(segments) == 1


@settings(steady, max_examples=examples(12))
@given(st.data())
def test_filters_give_the_same_rows_whatever_was_updated(data):
    values = np.arange(60)
    store = store_with(
        *(pa.table({"id": values[i : i + 5], "v": values[i : i + 5]}) for i in range(0, 60, 5))
    )
    if data.draw(st.booleans()):
        store.checkpoint()
    expected = {"id": values.copy(), "v": values.copy()}
    for _ in range(data.draw(st.integers(0, 6))):
        column = data.draw(st.sampled_from(["id", "v"]))
        rows = np.array(sorted(data.draw(st.sets(st.integers(0, 59), min_size=1, max_size=4))))
        with store.transaction() as txn:
            txn.update_rows("t", rows, {column: pa.array(rows * 2)})
        expected[column][rows] = rows * 2
    low, members = data.draw(st.integers(0, 120)), data.draw(st.lists(st.integers(0, 120), max_size=80))
    passing = (expected["id"] >= low) | np.isin(expected["v"], members)

    found = store.snapshot().table("t").read(filter=[[("id", ">=", low)], [("v", "in", members)]])

    assert found.column("id").to_pylist() == expected["id"][passing].tolist()
    assert found.column("v").to_pylist() == expected["v"][passing].tolist()
