from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spark_pages.io.page_cache import ByteBudgetCache
from tests.io.strategies import steady

steps = st.lists(st.tuples(st.booleans(), st.integers(0, 9), st.integers(0, 60)), max_size=60)


@steady
@given(steps, st.integers(0, 100))
def test_the_budget_is_never_exceeded_and_the_sizes_add_up(steps, budget):
    cache: ByteBudgetCache[int, int] = ByteBudgetCache(budget)
    sizes = {}
    for is_put, key, size in steps:
        cache.put(key, size, size) if is_put else cache.get(key)
        sizes.update({key: size} if is_put else {})

        counts = cache.counts()
        held = cache.get_many(range(10))

        assert counts.size_bytes <= budget
        assert counts.size_bytes == sum(held.values())
        assert counts.entries == len(held)
        assert all(sizes[each] == size for each, size in held.items())


def test_the_least_recently_used_entry_leaves_first():
    cache: ByteBudgetCache[str, int] = ByteBudgetCache(20)
    cache.put_many([("a", 1, 10), ("b", 2, 10)])
    cache.get("a")

    cache.put("c", 3, 10)

    assert cache.get_many("abc") == {"a": 1, "c": 3}
    assert cache.counts().evictions == 1


def test_an_entry_above_the_budget_is_not_admitted_and_evicts_nothing():
    cache: ByteBudgetCache[str, int] = ByteBudgetCache(20)
    cache.put("a", 1, 10)

    cache.put("b", 2, 21)

    assert cache.get_many("ab") == {"a": 1}
    assert cache.counts().evictions == 0


def test_hits_and_misses_are_counted():
    cache: ByteBudgetCache[str, int] = ByteBudgetCache(20)
    cache.put("a", 1, 10)

    cache.get_many("abc")

    assert (cache.counts().hits, cache.counts().misses) == (1, 2)
