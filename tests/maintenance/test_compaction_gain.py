"""A page compaction leaves nothing to compact, whatever the type and the shape of the pages."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spark_pages as sp
from spark_pages.io import PageHandler
from spark_pages.maintenance.compaction_plan import plan_compaction
from tests.effort import examples
from tests.io.strategies import steady

QUIET = {"tail_page_bytes": "0", "checkpoint_commits": "0", "log_compaction_commits": "0"}

VALUES = {
    pa.null(): lambda _: None,
    pa.bool_(): lambda n: n % 3 == 0,
    pa.int8(): lambda n: n % 100,
    pa.int64(): lambda n: n,
    pa.float16(): lambda n: np.float16(n % 7),
    pa.float64(): lambda n: n / 7,
    pa.decimal128(20, 2): Decimal,
    pa.date32(): lambda n: dt.date(2000, 1, 1) + dt.timedelta(n % 1_000),
    pa.timestamp("us", "UTC"): lambda n: dt.datetime(2000, 1, 1, tzinfo=dt.UTC) + dt.timedelta(n % 1_000),
    pa.string(): lambda n: "the same long text again and again " * (n % 4),
    pa.large_string(): lambda n: "the same long text again and again " * (n % 4),
    pa.string_view(): lambda n: "the same long text again and again " * (n % 4),
    pa.binary(): lambda n: bytes(n % 90),
    pa.binary(24): lambda _: bytes(24),
    pa.dictionary(pa.int32(), pa.string()): lambda n: f"one of a few values {n % 5}",
    pa.list_(pa.int64()): lambda n: [7] * (n % 9),
    pa.large_list(pa.string()): lambda n: ["alike"] * (n % 5),
    pa.list_(pa.int32(), 4): lambda n: [n, 0, 0, 0],
    pa.map_(pa.string(), pa.int64()): lambda n: {"key": n} if n % 2 else {},
    pa.struct([("a", pa.int64()), ("b", pa.string())]): lambda n: {"a": 1, "b": "b" * (n % 30)},
    pa.list_(pa.dictionary(pa.int8(), pa.string())): lambda n: ["x", "y"][: n % 3],
    pa.run_end_encoded(pa.int32(), pa.int64()): lambda n: n // 50,
}
SIZES = st.sampled_from([1, 2, 7, 40, 300])


def column(kind: pa.DataType, start: int, rows: int, nulls: bool) -> pa.Table:
    plain = kind.value_type if pa.types.is_run_end_encoded(kind) else kind
    made = [None if nulls and n % 5 == 0 else VALUES[kind](n) for n in range(start, start + rows)]
    array = pa.array(made, plain)
    return pa.table({"c": pa.compute.run_end_encode(array) if plain != kind else array})


def store_of(kind: pa.DataType, appends, page_bytes: int):
    """A store of pages as they were cut for another size, one commit after another."""
    store = sp.create(f"memory://{uuid4().hex}", properties=QUIET)
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("c", kind)]), properties={"page_bytes": str(page_bytes)})
    start = 0
    for rows, nulls in appends:
        with store.transaction() as txn:
            txn.append("t", column(kind, start, rows, nulls))
        start += rows
    return store


@pytest.mark.parametrize("kind", VALUES, ids=str)
@settings(steady, max_examples=examples(8))
@given(
    appends=st.lists(st.tuples(SIZES, st.booleans()), min_size=1, max_size=5),
    sizes=st.tuples(st.sampled_from([1_024, 8_192]), st.sampled_from([1_024, 4_096])),
)
def test_after_a_compaction_the_plan_is_empty_and_the_rows_are_the_same(kind, appends, sizes):
    store = store_of(kind, appends, sizes[0])
    with store.transaction() as txn:
        txn.set_table_properties("t", {"page_bytes": str(sizes[1])})
    before = store.snapshot().table("t").read().to_pylist()

    store.compact_pages("t")

    after = store.snapshot().table("t")
    assert after.read().to_pylist() == before
    assert plan_compaction(after) == []
    (again,) = store.compact_pages("t")
    assert (again["runs"], again["version"]) == (0, None)


def test_pages_with_different_metadata_are_no_run():
    store = store_of(pa.int64(), [(10, False)], 4_096)
    for number in range(5):
        with store.transaction() as txn:
            meta = {"c": {"number": str(number)}}
            txn.append("t", pa.table({"c": [number]}), page_metadata=meta)

    assert plan_compaction(store.snapshot().table("t")) == []


def test_full_pages_beside_small_ones_are_not_written_again():
    store = store_of(pa.large_string(), [(1_500, False)] * 4, 4_096)
    full = store.snapshot().table("t").pages("c").num_rows
    store.compact_pages("t")
    for _ in range(3):
        with store.transaction() as txn:
            txn.append("t", column(pa.large_string(), 0, 2, nulls=False))

    (done,) = store.compact_pages("t")

    assert full > 30
    assert done["pages_before"] <= 4
    assert plan_compaction(store.snapshot().table("t")) == []


def test_a_run_that_gains_is_read_at_its_ends_alone(monkeypatch):
    store = store_of(pa.string(), [(2, False)] * 60, 65_536)
    read: list[int] = []
    get_values = PageHandler.get_values

    def counted(self, runs, **given):
        read.append(sum(run.num_pages for run in runs))
        return get_values(self, runs, **given)

    monkeypatch.setattr(PageHandler, "get_values", counted)

    (task,) = plan_compaction(store.snapshot().table("t"))

    assert task.run.num_pages == 60
    assert read == [2, 2]
