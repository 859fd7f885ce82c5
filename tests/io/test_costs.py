"""What the page handler asks of storage and of the system, counted."""

from __future__ import annotations

import os
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.errors import DamageError, ObjectNotFoundError
from spark_pages.io import CacheConfig, PageHandler, ReadTrace
from spark_pages.io.read_plan import plan_spans
from spark_pages.storage import MeteredStore, open_object_store
from tests.io.fakes import FolderStore, MemoryStore, write_pages

ARRAYS = [pa.array(np.random.default_rng(n).integers(0, 2**62, 8000)) for n in range(64)]


@pytest.fixture
def meter():
    return MeteredStore(open_object_store(f"memory://{uuid4().hex}"))


@pytest.fixture
def pages(meter):
    return write_pages(meter, ARRAYS)


@pytest.mark.parametrize("chosen", [slice(None), slice(0, 64, 2), slice(0, 64, 7), slice(5, 6)])
def test_requests_are_runs_and_bytes_are_at_most_a_tenth_more_than_the_pages(meter, pages, chosen):
    asked = pages[chosen]
    trace = ReadTrace()

    PageHandler(meter).get_pages(asked, trace=trace)

    counts, used = meter.counts, sum(page.actual_len for page in asked)
    assert counts.ranges == trace.requests <= len(plan_spans([key(page) for page in asked], 8 << 20))
    assert used <= counts.bytes_read <= 1.1 * used
    assert counts.bytes_read == trace.bytes_read
    assert trace.coalesced == len(asked) - trace.requests


def test_gaps_are_read_across_when_that_is_cheap_and_when_it_is_asked_for(meter):
    pages = write_pages(meter, [ARRAYS[n] if n % 8 else pa.array([n]) for n in range(64)])
    large = [page for page in pages if page.entry_count > 1]
    cheap, never, always = ReadTrace(), ReadTrace(), ReadTrace()

    PageHandler(meter).get_pages(large, trace=cheap)
    PageHandler(meter, CacheConfig(gap_bytes=0)).get_pages(large, trace=never)
    PageHandler(meter, CacheConfig(gap_bytes=1 << 20)).get_pages(pages[::16], trace=always)

    assert (cheap.requests, never.requests, always.requests) == (1, 8, 1)


def test_a_short_answer_of_a_store_is_damage(meter, pages):
    class Short(MemoryStore):
        def get_range(self, key, offset, length):
            return super().get_range(key, offset, length)[:-1]

    store = Short()

    with pytest.raises(DamageError, match=r"Cannot read bytes 0 to .* 'pages/a\.pages'"):
        PageHandler(store).get_pages(write_pages(store, ARRAYS[:3]))


def test_no_more_requests_are_in_flight_than_allowed():
    class Counting(MemoryStore):
        most = now = 0

        def get_range(self, key, offset, length):
            self.now += 1
            self.most = max(self.most, self.now)
            os.sched_yield()
            found = super().get_range(key, offset, length)
            self.now -= 1
            return found

    store = Counting()
    pages = write_pages(store, ARRAYS)

    PageHandler(store, CacheConfig(threads=3, gap_bytes=0)).get_pages(pages[::2])

    assert 1 <= store.most <= 3


def test_a_hit_asks_the_system_for_nothing(tmp_path, monkeypatch):
    store = FolderStore(tmp_path)
    handler = PageHandler(store)
    pages = write_pages(store, ARRAYS[:4])
    handler.get_pages(pages)
    asked = []
    with monkeypatch.context() as patch:
        for call in ("open", "preadv", "fstat", "stat", "lstat"):
            patch.setattr(os, call, lambda *_, **__: asked.append(1))
        one, all_of_them = handler.get_page(pages[2]), handler.get_pages(pages)

    assert asked == []
    assert one.column("data") == ARRAYS[2]
    assert len(all_of_them) == 4


def test_a_warm_file_is_read_without_being_opened_again(tmp_path, monkeypatch):
    store = FolderStore(tmp_path)
    handler = PageHandler(store, decoded_bytes=0, compressed_bytes=0)
    pages = write_pages(store, ARRAYS)
    handler.get_pages(pages[:8])
    opened = []
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", lambda *_, **__: opened.append(1))
        found = handler.get_pages(pages[::3])

    assert (opened, len(found)) == ([], 22)


def test_a_scan_of_ten_times_the_cache_leaves_the_hot_pages_in_it(meter, pages):
    handler = PageHandler(meter, decoded_bytes=6 * 66_000, compressed_bytes=0)
    hot, cold = pages[:5], pages[5:]
    handler.get_pages(hot)
    before = handler.stats()

    for first in range(0, len(cold), 8):
        handler.get_pages(cold[first : first + 8], admit=False)
        handler.get_pages(hot)

    assert (handler.stats() - before).decoded_hits == 8 * 5
    assert (handler.stats() - before).evictions == 0


def test_pinned_pages_stay_while_others_come_and_go(meter, pages):
    handler = PageHandler(meter, decoded_bytes=6 * 66_000, compressed_bytes=0)

    with handler.pinned(pages[:3]) as held:
        handler.get_pages(pages[3:])
        before = handler.stats()
        again = handler.get_pages(pages[:3])
        spent = handler.stats() - before
    handler.get_pages(pages[3:])
    before = handler.stats()
    handler.get_pages(pages[:3])

    assert again == held
    assert (spent.decoded_hits, spent.requests) == (3, 0)
    assert (handler.stats() - before).decoded_hits == 0


def test_what_leaves_the_decoded_cache_is_found_compressed(meter, pages):
    handler = PageHandler(meter, decoded_bytes=3 * 66_000)
    handler.get_pages(pages[:10])
    requests = meter.counts.requests
    trace = ReadTrace()

    handler.get_pages(pages[:10], trace=trace)

    assert meter.counts.requests == requests
    assert trace.compressed_hits + trace.decoded_hits == 10
    assert trace.compressed_hits >= 7
    assert handler.stats().demotions >= 7


def test_vacuum_takes_the_pages_of_what_it_deletes_out_of_the_caches(tmp_path):
    store = sp.create(str(tmp_path / "s"))
    rows = np.random.default_rng(0).integers(0, 2**62, 100_000)
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("x", pa.int64())]))
        txn.append("t", pa.table({"x": rows}))
    old = store.snapshot().table("t")
    old.read()
    with store.transaction() as txn:
        txn.update_rows("t", list(range(0, 100_000, 500)), {"x": [1] * 200})
    store.snapshot().table("t").read()
    held = store.cache_stats.decoded_bytes

    store.checkpoint()
    store.vacuum(retention=0)

    assert store.cache_stats.decoded_bytes < 0.6 * held
    assert len(store.snapshot().table("t").read()) == 100_000
    with pytest.raises((sp.SparkPagesError, ObjectNotFoundError)):
        old.read()


def key(page):
    return (page.disk_path, page.offset, page.alloc_len, page.actual_len, page.checksum, page.payload_entries)
