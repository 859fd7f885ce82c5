"""Budgets of what a process caches: all kinds, shared by its stores, emptied by one call."""

from __future__ import annotations

import os
import signal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import spark_pages as sp
from spark_pages.io.cache_config import budgets_of
from spark_pages.memory_budget import CacheBudgets, LruCache
from tests.io.strategies import steady
from tests.transaction.stores import QUIET

ROWS = 40_000


@pytest.fixture
def url(tmp_path):
    """Address of a store of a table with statistics and a checkpoint."""
    store = sp.create(str(tmp_path / "s"), properties=QUIET)
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("n", pa.int64())]))
        txn.append("t", {"n": np.random.default_rng(1).integers(0, 2**60, ROWS)})
    store.checkpoint()
    return store.url


def test_each_budget_has_a_count_and_one_call_empties_all(url):
    store = sp.open(url)
    store["t"].take([1])
    list(store["t"].scan(filter="n = 5"))
    held = store.cache_stats

    store.clear_caches()

    empty = store.cache_stats
    assert held.decoded_bytes > 0
    assert held.statistics_bytes > 0
    assert held.node_bytes > 0
    assert (empty.decoded_bytes, empty.compressed_bytes, empty.bloom_cache_bytes) == (0, 0, 0)
    assert (empty.statistics_bytes, empty.node_bytes) == (0, 0)
    assert store["t"].take([1]).num_rows == 1


def test_the_picture_of_the_counts_shows_each_budget(url):
    store = sp.open(url)
    store["t"].take([1])

    picture = store.cache_stats._repr_html_()

    for kind in ("decoded", "compressed", "bloom filters", "statistics", "log nodes"):
        assert kind in picture


def test_nodes_and_statistics_without_a_budget_are_read_again_and_not_kept(url):
    store = sp.open(url, cache=sp.CacheConfig(statistics_bytes=0, node_bytes=0))

    list(store["t"].scan(filter="n = 5"))

    assert (store.cache_stats.statistics_bytes, store.cache_stats.node_bytes) == (0, 0)


def test_many_stores_of_one_process_hold_together_what_one_may_hold(url):
    config = {"decoded_bytes": 1, "compressed_bytes": 300_000, "node_bytes": 40_000}
    stores = [sp.open(url, cache=sp.CacheConfig(**config)) for _ in range(8)]

    for store in stores:
        sum(batch.num_rows for batch in store["t"].scan())
        store["t"].take([1, ROWS // 2])

    held = [store.cache_stats for store in stores]
    assert 0 < sum(each.compressed_bytes for each in held) <= 300_000
    assert sum(each.node_bytes for each in held) <= 40_000


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_forked_while_a_thread_holds_the_locks_reads_on_its_own(url):
    store = sp.open(url)
    store["t"].take([1])
    budgets = budgets_of(store._pages.config)
    locks = [budgets.decoded.lock, budgets.blooms.lock, budgets.statistics.lock, budgets.nodes.lock]
    [lock.acquire() for lock in locks]

    child = os.fork()
    if child == 0:
        signal.alarm(60)  # a child that waits for a lock for ever must not hang the run
        os._exit(0 if store["t"].take([1]).num_rows + len(list(store["t"].scan(filter="n = 5"))) else 1)
    [lock.release() for lock in locks]

    assert os.waitpid(child, 0)[1] == 0


sizes = st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.integers(0, 40)), max_size=30)


@steady
@given(sizes, st.integers(0, 100))
def test_caches_of_one_budget_stay_within_it_together(puts, most_bytes):
    budget = CacheBudgets(node_bytes=most_bytes).nodes
    caches = [LruCache(budget), LruCache(budget)]
    for which, key, size in puts:
        caches[which].put(key, (which, key), size)

        assert sum(each.held_bytes for each in caches) <= most_bytes
        assert caches[which].get(key) == ((which, key) if size <= most_bytes else None)
        assert caches[not which].get(key) in (None, (not which, key))


def test_the_value_that_any_cache_used_longest_ago_is_evicted():
    budget = CacheBudgets(node_bytes=2).nodes
    one, other = LruCache(budget), LruCache(budget)
    one.put("a", "a", 1)
    other.put("b", "b", 1)
    one.get("a")

    other.put("c", "c", 1)

    assert (one.get("a"), other.get("b"), other.get("c")) == ("a", None, "c")
