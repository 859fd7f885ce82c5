from __future__ import annotations

import weakref

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_pages.io.cache_tiers import ENTRY_OVERHEAD_BYTES, DecodedTier
from spark_pages.io.page_cache import PageCache
from spark_pages.io.single_flight import LoadedPage, PendingLoad, StoredBlock
from spark_pages.memory_budget import CacheBudgets
from tests.io.strategies import steady

BATCH = pa.record_batch({"data": pa.array([1])})
PACKED = 1000
WHOLE = 3000
"""Bytes of a compressed page, and of a page in the decoded cache with its compressed bytes."""

keys = st.integers(0, 9)
steps = st.lists(
    st.tuples(st.sampled_from(["load", "scan", "hit", "pin", "unpin", "forget", "clear"]), keys), max_size=60
)


def key(number: int, path: str = "a"):
    return (path, number * 4096, 4096, PACKED, number, 1)


def put(cache: PageCache, *numbers: int, admit: bool = True, path: str = "a", packed: bool = True) -> None:
    """The pages go through the cache as a call of the handler takes them."""
    pending = PendingLoad()
    cache.lookup([key(number, path) for number in numbers], pending, admit)
    for each in pending.keys:
        pending.complete(each, LoadedPage(BATCH, WHOLE, memoryview(bytes(PACKED)) if packed else None))
    cache.store_loaded(pending, admit)
    pending.finish()


def has(cache: PageCache, *numbers: int, path: str = "a") -> str:
    """U for each page in the decoded cache, C for one in the compressed cache, - neither; changes none."""
    found = cache.lookup([key(number, path) for number in numbers], pending := PendingLoad(), False)
    cache.store_loaded(pending, False)
    pending.finish()
    return "".join(
        "U" if each in found.ready else "C" if each in found.packed else "-"
        for each in (key(number, path) for number in numbers)
    )


def test_the_least_recently_used_page_leaves_the_decoded_cache_for_the_compressed_one():
    cache = PageCache(CacheBudgets(2 * WHOLE, 10 * WHOLE))
    put(cache, 1, 2)
    cache.hit(key(1))

    put(cache, 3)

    assert has(cache, 1, 2, 3) == "UCU"
    assert cache.counts().demotions == 1
    assert cache.counts().evictions == 0
    assert cache.counts().compressed_bytes == PACKED + ENTRY_OVERHEAD_BYTES


def test_a_page_that_comes_back_from_the_compressed_cache_is_in_one_tier_only():
    cache = PageCache(CacheBudgets(WHOLE, 10 * WHOLE))
    put(cache, 1, 2)

    put(cache, 1)

    assert has(cache, 1, 2) == "UC"
    assert cache.counts().compressed_bytes == PACKED + ENTRY_OVERHEAD_BYTES


def test_what_leaves_the_compressed_cache_has_left_memory():
    cache = PageCache(CacheBudgets(WHOLE, PACKED + ENTRY_OVERHEAD_BYTES))

    put(cache, 1, 2, 3)

    assert has(cache, 1, 2, 3) == "-CU"
    assert cache.counts().evictions == 1


def test_a_page_without_compressed_bytes_is_not_demoted():
    cache = PageCache(CacheBudgets(WHOLE, 10 * WHOLE))
    put(cache, 1, packed=False)

    put(cache, 2)

    assert has(cache, 1, 2) == "-U"


def test_a_page_too_large_for_the_decoded_cache_is_kept_compressed_and_displaces_nothing():
    cache = PageCache(CacheBudgets(2 * WHOLE, 10 * WHOLE))
    put(cache, 1)
    pending = PendingLoad()
    cache.lookup([key(2)], pending, True)
    pending.complete(key(2), LoadedPage(BATCH, 3 * WHOLE, memoryview(bytes(PACKED))))
    cache.store_loaded(pending, True)

    assert has(cache, 1, 2) == "UC"


def test_a_scan_neither_keeps_pages_nor_changes_the_order_of_use():
    cache = PageCache(CacheBudgets(2 * WHOLE, 0))
    put(cache, 1, 2)

    put(cache, 1, 5, 6, 7, admit=False)
    put(cache, 3)

    assert has(cache, 1, 2, 3, 5) == "-UU-"


def test_a_scan_does_not_promote_what_it_finds_compressed():
    cache = PageCache(CacheBudgets(WHOLE, 10 * WHOLE))
    put(cache, 1, 2)

    put(cache, 1, admit=False)

    assert has(cache, 1, 2) == "CU"


def test_a_page_that_a_scan_loads_is_kept_if_another_call_waits_for_it_to_keep_it():
    cache = PageCache(CacheBudgets(2 * WHOLE, 0))
    scan, reader = PendingLoad(), PendingLoad()
    cache.lookup([key(1), key(2)], scan, False)

    found = cache.lookup([key(1)], reader, True)
    scan.complete(key(1), LoadedPage(BATCH, WHOLE, None))
    scan.complete(key(2), LoadedPage(BATCH, WHOLE, None))
    cache.store_loaded(scan, False)

    assert (list(found.awaited.values()), reader.keys) == ([scan], [])
    assert has(cache, 1, 2) == "U-"


def test_a_pinned_page_outlives_what_is_used_later():
    cache = PageCache(CacheBudgets(2 * WHOLE, 0))
    put(cache, 1)
    cache.pin([key(1)])

    put(cache, 2, 3, 4)

    assert has(cache, 1, 2, 3, 4) == "U--U"


def test_pins_are_counted():
    cache = PageCache(CacheBudgets(WHOLE, 0))
    put(cache, 1)
    cache.pin([key(1)])
    cache.pin([key(1)])
    cache.unpin([key(1)])

    put(cache, 2)
    still = has(cache, 1, 2)
    cache.unpin([key(1)])
    put(cache, 2)

    assert (still, has(cache, 1, 2)) == ("U-", "-U")


def test_a_page_pinned_before_it_is_loaded_is_pinned_when_it_comes():
    cache = PageCache(CacheBudgets(2 * WHOLE, 0))
    cache.pin([key(1)])
    put(cache, 1)

    put(cache, 2, 3)

    assert has(cache, 1, 2, 3) == "U-U"


def test_pinned_pages_hold_the_budget_too():
    cache = PageCache(CacheBudgets(2 * WHOLE, 0))
    cache.pin([key(1), key(2), key(3)])

    put(cache, 1, 2, 3)

    assert has(cache, 1, 2, 3) == "UU-"
    assert cache.counts().decoded_bytes == 2 * WHOLE


def test_the_pages_of_a_forgotten_file_are_gone_from_both_tiers():
    cache = PageCache(CacheBudgets(WHOLE, 10 * WHOLE))
    put(cache, 1, 2)
    put(cache, 3, path="b")

    gone = cache.forget({"a"})

    assert (gone, has(cache, 1, 2), has(cache, 3, path="b")) == (2, "--", "U")
    assert (cache.counts().decoded_bytes, cache.counts().compressed_bytes) == (WHOLE, 0)


def test_a_pinned_page_of_a_forgotten_file_goes_with_its_last_pin():
    cache = PageCache(CacheBudgets(5 * WHOLE, 0))
    put(cache, 1)
    cache.pin([key(1)])

    cache.forget({"a"})
    meanwhile = has(cache, 1)
    cache.unpin([key(1)])

    assert (meanwhile, has(cache, 1), cache.counts().decoded_bytes) == ("U", "-", 0)


def test_a_page_that_is_being_loaded_while_its_file_is_forgotten_is_not_kept():
    cache = PageCache(CacheBudgets(5 * WHOLE, 5 * WHOLE))
    pending = PendingLoad()
    cache.lookup([key(1)], pending, True)

    cache.forget({"a"})
    pending.complete(key(1), LoadedPage(BATCH, WHOLE, memoryview(bytes(PACKED))))
    cache.store_loaded(pending, True)

    assert has(cache, 1) == "-"


def test_a_signal_while_pages_land_leaves_no_wrong_sizes_and_no_page_behind(monkeypatch):
    cache, pending, landed = PageCache(CacheBudgets(3 * WHOLE, 0)), PendingLoad(), []
    cache.lookup([key(number) for number in range(4)], pending, True)
    for each in pending.keys:
        pending.complete(each, LoadedPage(pa.record_batch({"data": pa.array([1])}), WHOLE, None))
    last = weakref.ref(pending.loaded[key(3)].content)
    real = DecodedTier.put

    def signal_behind_the_second(self, *page):
        real(self, *page)
        landed.append(page)
        if len(landed) == 2:
            self.held_bytes -= WHOLE  # it came before the last line
            raise KeyboardInterrupt

    monkeypatch.setattr(DecodedTier, "put", signal_behind_the_second)
    with pytest.raises(KeyboardInterrupt):
        cache.store_loaded(pending, True)
    pending.finish()
    del pending

    put(cache, 5, 6)

    assert has(cache, *range(7)) == "-U---UU"
    assert cache.counts().decoded_bytes == 3 * WHOLE
    assert last() is None


@steady
@given(steps, st.integers(0, 5 * WHOLE), st.integers(0, 5 * PACKED))
def test_the_budgets_hold_and_the_sizes_add_up_whatever_is_done(steps, decoded_bytes, compressed_bytes):
    cache = PageCache(CacheBudgets(decoded_bytes, compressed_bytes))
    pins: list[int] = []
    for what, number in steps:
        if what in ("load", "scan"):
            put(cache, number, admit=what == "load")
        elif what == "hit":
            cache.hit(key(number))
        elif what == "pin":
            pins.append(number)
            cache.pin([key(number)])
        elif what == "unpin" and pins:
            cache.unpin([key(pins.pop())])
        elif what == "forget":
            cache.forget({"a"})
        elif what == "clear":
            cache.clear()

        counts, held = cache.counts(), has(cache, *range(10))

        assert counts.decoded_bytes == WHOLE * held.count("U") <= decoded_bytes
        assert (
            counts.compressed_bytes == (PACKED + ENTRY_OVERHEAD_BYTES) * held.count("C") <= compressed_bytes
        )


def scan(cache: PageCache, *numbers: int) -> None:
    """The pages go through the cache as a scan takes them, which has read those that it lacks together."""
    pending = PendingLoad()
    found = cache.lookup([key(number) for number in numbers], pending, False)
    memory = memoryview(bytes(PACKED * len(found.unread)))
    parts = {each: memory[n * PACKED : (n + 1) * PACKED] for n, each in enumerate(found.unread)}
    for each in pending.keys:
        pending.complete(each, LoadedPage(BATCH, WHOLE, None))
    pending.spare += [StoredBlock(len(memory), parts)] if parts else []
    cache.store_loaded(pending, False)
    pending.finish()


BLOCK = 3 * (PACKED + ENTRY_OVERHEAD_BYTES)
"""What three scanned pages take together."""


def test_what_a_scan_has_read_is_found_compressed_by_the_next_one():
    cache = PageCache(CacheBudgets(WHOLE, BLOCK))

    scan(cache, 1, 2, 3)

    assert has(cache, 1, 2, 3) == "CCC"
    assert cache.counts().compressed_bytes == BLOCK


def test_a_scan_evicts_nothing_where_there_is_no_free_room():
    cache = PageCache(CacheBudgets(WHOLE, BLOCK))
    put(cache, 1, 2)

    scan(cache, 3, 4, 5)

    assert has(cache, 1, 2, 3, 4, 5) == "CU---"
    assert cache.counts().evictions == 0


def test_what_a_scan_left_goes_before_what_point_reads_used_and_with_all_of_its_memory():
    cache = PageCache(CacheBudgets(WHOLE, BLOCK + PACKED + ENTRY_OVERHEAD_BYTES))
    put(cache, 1, 2)
    scan(cache, 3, 4, 5)

    put(cache, 6)

    assert has(cache, 1, 2, 3, 4, 5, 6) == "CC---U"
    assert cache.counts().compressed_bytes == 2 * (PACKED + ENTRY_OVERHEAD_BYTES)


def test_the_memory_of_scanned_pages_counts_until_the_last_of_them_is_gone():
    cache = PageCache(CacheBudgets(5 * WHOLE, BLOCK))
    scan(cache, 1, 2, 3)

    put(cache, 1, 2)
    both_promoted = cache.counts().compressed_bytes
    put(cache, 3)

    assert (both_promoted, cache.counts().compressed_bytes) == (3 * PACKED + ENTRY_OVERHEAD_BYTES, 0)
    assert has(cache, 1, 2, 3) == "UUU"


def test_stores_that_share_a_budget_evict_what_any_of_them_used_longest_ago():
    budgets = CacheBudgets(2 * WHOLE, 0)
    one, other = PageCache(budgets), PageCache(budgets)
    put(one, 1)
    put(other, 2)
    one.hit(key(1))

    put(other, 3)

    assert (has(one, 1), has(other, 2, 3)) == ("U", "-U")


def test_a_cache_that_is_dropped_gives_its_bytes_back():
    budgets = CacheBudgets(2 * WHOLE, 0)
    one, other = PageCache(budgets), PageCache(budgets)
    put(one, 1, 2)

    del one
    put(other, 3, 4)

    assert has(other, 3, 4) == "UU"


kinds = st.sampled_from(["load", "scan", "pin", "unpin", "forget", "clear", "drop"])
moves = st.lists(st.tuples(kinds, keys, st.booleans()), max_size=40)


@steady
@given(moves, st.integers(0, 5 * WHOLE), st.integers(0, 9 * PACKED))
def test_many_stores_stay_within_the_budgets_together_and_the_sizes_add_up(moves, decoded, compressed):
    budgets = CacheBudgets(decoded, compressed)
    caches = [PageCache(budgets), PageCache(budgets)]
    pins: list[tuple[PageCache, int]] = []
    for what, number, which in moves:
        cache = caches[which]
        if what == "load":
            put(cache, number, number + 1)
        elif what == "scan":
            scan(cache, *range(number, number + 3))
        elif what == "pin":
            pins.append((cache, number))
            cache.pin([key(number)])
        elif what == "unpin" and pins:
            pinned, last = pins.pop()
            pinned.unpin([key(last)])
        elif what == "forget":
            cache.forget({"a"})
        elif what == "clear":
            cache.clear()
        elif what == "drop" and not pins:
            caches[which] = PageCache(budgets)

        counts = [each.counts() for each in caches]
        held = [(each.decoded_bytes, each.compressed_bytes) for each in counts]
        for each in caches:
            each._decoded.recount()
            each._compressed.recount()
        again = [each.counts() for each in caches]

        assert sum(each.decoded_bytes for each in counts) <= decoded
        assert sum(each.compressed_bytes for each in counts) <= compressed
        assert held == [(each.decoded_bytes, each.compressed_bytes) for each in again]
