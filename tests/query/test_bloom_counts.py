"""What bloom filters take is in traces, in the counts of a store, and in `explain`."""

from __future__ import annotations

from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.storage import MeteredStore
from spark_pages.store import Store

KEYS = np.random.default_rng(5).permutation(200_000)[:30_000]
ABSENT = [("k", "==", int(np.setdiff1d(np.arange(200_000), KEYS)[1_000]))]


@pytest.fixture(scope="module")
def lookup() -> str:
    url = f"memory://{uuid4().hex}"
    store = sp.create(url, properties={"checkpoint_commits": "0", "log_compaction_commits": "0"})
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("k", pa.int64())]), properties={"bloom.k": "0.001"})
        txn.append("t", pa.table({"k": KEYS}))
    return url


@pytest.fixture
def opened(lookup) -> tuple[Store, MeteredStore]:
    """The store, whose log and descriptors are loaded, and what counts its requests from now on."""
    meter = MeteredStore(sp.open(lookup).object_store)
    store = Store(meter)
    store.snapshot().table("t").directory.chain("k").all_pages()
    return store, meter


WAYS = {
    "read": lambda t, trace: t.read(filter=ABSENT, trace=trace),
    "scan": lambda t, trace: t.scan(filter=ABSENT, trace=trace).read_all(),
    "scan of one thread": lambda t, trace: t.scan(filter=ABSENT, trace=trace, prefetch=False).read_all(),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_trace_has_every_request_and_byte_with_those_of_bloom_filters(opened, way):
    store, meter = opened
    table, before, trace = store.snapshot().table("t"), meter.counts, sp.ReadTrace()

    WAYS[way](table, trace)

    spent = meter.counts - before
    assert trace.bloom_requests > 0
    assert trace.bloom_bytes + trace.bytes_read == spent.bytes_read
    assert trace.requests == len(trace.page_ids) == 0
    assert "bloom filters: 0 in memory, others in 1 request of" in repr(trace)


def test_filters_that_are_in_memory_are_hits(opened):
    table, trace = opened[0].snapshot().table("t"), sp.ReadTrace()
    table.read(filter=ABSENT)

    table.read(filter=ABSENT, trace=trace)

    assert (trace.bloom_hits, trace.bloom_requests, trace.bloom_bytes) == (table.pages().num_rows, 0, 0)


def test_counts_of_the_store_have_bloom_filters_too(opened):
    store, _ = opened
    table, before = store.snapshot().table("t"), store.cache_stats

    table.read(filter=ABSENT)

    spent = store.cache_stats - before
    assert (spent.bloom_requests, spent.requests) == (1, 0)
    assert "bloom filters" in repr(spent)
    assert "bloom filters, 1 request" in spent._repr_html_()


def test_explain_tells_what_its_bloom_filters_took(opened):
    store, meter = opened
    table, before = store.snapshot().table("t"), meter.counts

    plan, again = table.explain(filter=ABSENT), table.explain(filter=ABSENT)

    assert (plan.bloom_hits, plan.bloom_requests) == (0, 1)
    assert plan.bloom_bytes == (meter.counts - before).bytes_read
    assert (again.bloom_hits, again.bloom_requests, again.bloom_bytes) == (table.pages().num_rows, 0, 0)
    assert f"blooms   0 in memory, others in 1 request, {plan.bloom_bytes:,} bytes" in repr(plan)
    assert "bloom filters: " in plan._repr_html_()


def test_without_bloom_filters_nothing_is_told_of_them(opened):
    table, trace = opened[0].snapshot().table("t"), sp.ReadTrace()

    table.read(filter="k < 5", trace=trace)

    assert "bloom" not in repr(trace) + repr(table.explain(filter="k < 5"))
