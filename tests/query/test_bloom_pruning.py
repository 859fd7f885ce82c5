"""Bloom filters of pages: fewer pages are read for a key, and no row is ever missed."""

from __future__ import annotations

import datetime as dt
import math
import re
from dataclasses import replace
from decimal import Decimal
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import spark_pages as sp
from spark_pages.errors import InvalidInputError
from spark_pages.io import ReadTrace, page_stats
from spark_pages.maintenance.verify.faults import FaultKind
from spark_pages.maintenance.verify.page_values import check_blooms
from spark_pages.model.added_pages import NewPage
from spark_pages.model.page import BloomLocation, PageStats
from spark_pages.model.page_schema import OPTIONAL_STATS
from spark_pages.model.run import PageRun
from spark_pages.query.predicates.filters import parse_filter
from spark_pages.store import Store
from tests.invariants import check_store
from tests.io.strategies import steady
from tests.transaction.foreign import pending, write_file
from tests.transaction.stores import QUIET, metered

KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "n": (pa.int64(), list(range(-3, 40))),
    "w": (pa.int16(), list(range(-3, 40))),
    "f": (pa.float64(), [-0.0, 0.0, math.nan, 1.5, math.inf, *(n / 3 for n in range(30))]),
    "s": (pa.string(), ["", "é", *(f"{n}{'x' * (n * 7 % 150)}" for n in range(40))]),
    "d": (pa.decimal128(9, 1), [Decimal(n) / 2 for n in range(40)]),
    "t": (pa.timestamp("us"), [dt.datetime(2020, 1, 1) + n * dt.timedelta(hours=7) for n in range(40)]),
    "x": (pa.dictionary(pa.int8(), pa.string()), [f"v{n}" for n in range(40)]),
}
SCHEMA = pa.schema([(name, kind) for name, (kind, _) in KINDS.items()])


def new_store(schema: pa.Schema, bloom: str = "0.1", **properties: str) -> Store:
    store = sp.create(f"memory://{uuid4().hex}", properties=QUIET)
    with store.transaction() as txn:
        txn.create_table("t", schema, properties={"bloom": bloom, "codec": "none", **properties})
    return store


def append(store: Store, rows: pa.Table, page_bytes: int = 1 << 16) -> None:
    with store.transaction() as txn:
        txn._page_bytes = page_bytes
        txn.append("t", rows)


def pages_of(store: Store, column: str) -> PageRun:
    return store.snapshot().table("t").directory.chain(column).all_pages()


def same_rows(one: pa.Table, two: pa.Table) -> bool:
    return one.schema == two.schema and repr(one.to_pydict()) == repr(two.to_pydict())


@pytest.fixture
def in_files():
    """No page rides in a commit."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spark_pages.transaction.page_writer.INLINE_TRANSACTION_BYTES", 0)
        yield


@settings(
    steady, max_examples=8, suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.generate]
)
@given(st.data())
def test_a_filter_misses_no_row_whatever_has_happened_to_the_pages(in_files, data):
    store = new_store(SCHEMA)
    for seed in data.draw(st.lists(st.integers(0, 99), min_size=1, max_size=3), label="seeds"):
        append(store, some_rows(seed), page_bytes=data.draw(st.sampled_from([200, 2_000])))
    for step in data.draw(
        st.lists(st.sampled_from(["update", "compact", "checkpoint", "restore"]), max_size=3)
    ):
        if step == "update":
            name = data.draw(st.sampled_from(sorted(KINDS)))
            with store.transaction() as txn:
                txn.update_rows("t", [3, 40], {name: pa.array(KINDS[name][1][:2], KINDS[name][0])})
        elif step == "compact":
            store.compact_pages("t")
        elif step == "checkpoint":
            store.checkpoint()
        else:
            store.restore(version=2)
    table = store.snapshot().table("t")
    rows = table.read()

    for _ in range(6):
        names = data.draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=2))
        conditions = [[condition(data, name)] for name in names]
        asked = conditions if data.draw(st.booleans(), label="any of") else [[each for (each,) in conditions]]
        found = table.read(filter=asked)

        assert same_rows(found, rows.filter(parse_filter(asked, SCHEMA).expression)), asked
    assert pages_of(store, "n").stats.column("bloom_offset").null_count < pages_of(store, "n").num_pages
    assert store.verify(pages="all").ok


def some_rows(seed: int, count: int = 60) -> pa.Table:
    generator = np.random.default_rng(seed)
    columns = []
    for kind, values in KINDS.values():
        chosen = [values[index] for index in generator.integers(0, len(values) - 6, count)]
        columns.append(pa.array([None if generator.random() < 0.1 else value for value in chosen], kind))
    return pa.table(columns, schema=SCHEMA)


def condition(data: st.DataObject, name: str) -> tuple[str, str, Any]:
    value = st.sampled_from(KINDS[name][1])
    if name != "x" and data.draw(st.booleans(), label="in"):
        return (name, "in", data.draw(st.lists(st.none() | value, min_size=1, max_size=3)))
    return (name, "==", data.draw(value))


@pytest.fixture(scope="module")
def keys() -> np.ndarray:
    return np.random.default_rng(5).permutation(200_000)[:60_000]


@pytest.fixture(scope="module")
def lookup(keys) -> Store:
    """Keys in no order, with filters and without."""
    store = new_store(
        pa.schema([("k", pa.int64()), ("plain", pa.int64())]), "0.001", **{"bloom.plain": "false"}
    )
    append(store, pa.table({"k": keys, "plain": keys}), page_bytes=16_000)
    return store


def test_a_key_in_no_order_is_found_in_its_page_alone(lookup, keys):
    table = lookup.snapshot().table("t")
    with_filters, without = ReadTrace(), ReadTrace()

    for row in range(0, 60_000, 3_000):
        assert table.read(["k"], filter=[("k", "==", int(keys[row]))], trace=with_filters).num_rows == 1
        assert table.read(["plain"], filter=[("plain", "==", int(keys[row]))], trace=without).num_rows == 1

    assert len(without.page_ids) == 20 * 30
    assert len(with_filters.page_ids) <= 22


def test_of_alternatives_each_is_looked_for(lookup, keys):
    table = lookup.snapshot().table("t")
    trace = ReadTrace()

    found = table.read(["k"], filter=[[("k", "==", int(keys[row]))] for row in (5, 59_000)], trace=trace)

    assert found.column("k").to_pylist() == [keys[5], keys[59_000]]
    assert len(trace.page_ids) <= 3


def test_the_filters_of_a_column_are_fetched_by_one_request_and_kept(lookup, keys):
    store, meter = metered(lookup)
    table = store.snapshot().table("t")
    absent = int(np.setdiff1d(np.arange(200_000), keys)[5])
    table.read(["k"], 0, 1)
    before = meter.counts

    table.read(["k"], filter=[("k", "==", absent)])
    once = meter.counts
    table.read(["k"], filter=[("k", "==", absent + 1)])

    lengths = pages_of(lookup, "k").stats.column("bloom_length")
    assert (once - before).bytes_read <= sum(lengths.to_pylist()) + 2 * 20_000
    assert (once - before).requests <= 3
    assert (meter.counts - once).requests <= 2


def test_columns_without_filters_and_other_comparisons_ask_for_none(lookup, keys):
    store, _ = metered(lookup)
    table = store.snapshot().table("t")
    reader = table.page_handler._blooms
    asked = []
    reader._fetch = lambda path, places, _: asked.append(path) or dict.fromkeys(places, b"")  # type: ignore[method-assign]

    for operator in ("!=", "<", ">="):
        table.read(["k"], filter=[("k", operator, 70_000)])
    for which in ([("plain", "==", 5)], [("k", "in", [5, None])], [("k", "==", -1)], [("k", "==", 5.5)]):
        table.read(["k"], filter=which)

    assert asked == []


def test_filters_lie_behind_the_pages_of_their_column(lookup):
    run = pages_of(lookup, "k")
    offsets, lengths = (run.stats.column(f"bloom_{name}").to_numpy() for name in ("offset", "length"))

    assert (offsets[1:] == (offsets + lengths)[:-1]).all()
    assert offsets[0] == (run.numbers("offset") + run.numbers("alloc_len"))[-1]
    assert (lengths % 32 == 0).all()
    assert (lengths < run.numbers("actual_len")).all()


def test_small_pages_and_pages_smaller_than_their_filter_have_none():
    store = new_store(pa.schema([("k", pa.int64())]), "1e-9", codec="lz4")

    append(store, pa.table({"k": [1, 2, 3]}))
    append(store, pa.table({"k": np.arange(60_000)}))

    run = pages_of(store, "k")
    assert run.stats.column("bloom_offset").null_count == run.num_pages


@pytest.mark.parametrize("name", ["checkpoint", "compact", "restore", "vacuum", "log"])
def test_filters_survive_what_is_done_to_a_store(name, keys):
    store = new_store(pa.schema([("k", pa.int64())]))
    for start in range(0, 60_000, 12_000):
        append(store, pa.table({"k": keys[start : start + 12_000]}), page_bytes=24_000)
    before = pages_of(store, "k").stats

    if name == "checkpoint":
        store.checkpoint()
        store = Store(store.object_store)
    elif name == "log":
        store.compact_log()
        store = Store(store.object_store)
    elif name == "restore":
        with store.transaction() as txn:
            txn.update_rows("t", range(0, 60_000, 2_000), {"k": [0] * 30})
        store.restore(version=6)
    elif name == "vacuum":
        store.checkpoint()
        store.vacuum(retention=0)
        store = Store(store.object_store)
    else:
        store.compact_pages("t")

    run = pages_of(store, "k")
    trace = ReadTrace()
    assert run.stats.column("bloom_offset").null_count == 0
    assert name == "compact" or run.stats.equals(before)
    table = store.snapshot().table("t")
    assert table.read(filter=[("k", "==", int(keys[777]))], trace=trace).num_rows == 1
    assert len(trace.page_ids) < run.num_pages / 2
    if name != "vacuum":  # after which the whole log cannot be replayed
        check_store(store)
    assert store.verify(pages="all").ok


def test_a_page_that_an_update_rewrites_has_a_filter_of_its_new_values(in_files, keys):
    store = new_store(pa.schema([("k", pa.int64())]))
    append(store, pa.table({"k": keys[:12_000]}), page_bytes=24_000)

    with store.transaction() as txn:
        txn.update_rows("t", [5], {"k": [123_456_789 % 200_000]})

    run = pages_of(store, "k")
    assert run.stats.column("bloom_offset").null_count == 0
    assert store.snapshot().table("t").read(filter=[("k", "==", 123_456_789 % 200_000)]).num_rows >= 1
    assert store.verify(pages="all").ok


def wipe(store: Store, start: int, length: int) -> None:
    """Bytes of the only page file are zero: a filter of zeros denies everything."""
    (key,) = [entry.key for entry in store.object_store.list("pages/")]
    data = bytearray(store.object_store.get(key))
    data[start : start + length] = bytes(length)
    store.object_store.delete(key)
    store.object_store.put(key, bytes(data))


def one_file(keys: np.ndarray) -> Store:
    store = new_store(pa.schema([("k", pa.int64())]))
    append(store, pa.table({"k": keys[:24_000]}), page_bytes=24_000)
    return store


def test_a_damaged_filter_costs_a_page_and_verify_tells_of_it(keys):
    store = one_file(keys)
    where = pages_of(store, "k").stats.slice(1, 1).to_pylist()[0]
    damaged = Store(store.object_store)
    trace = ReadTrace()

    wipe(store, where["bloom_offset"], where["bloom_length"])
    found = damaged.snapshot().table("t").read(filter=[("k", "==", int(keys[3_500]))], trace=trace)

    assert found.num_rows == 1
    assert trace.page_ids
    told = damaged.verify(pages="all")
    assert told.ok
    (notice,) = told.notices
    assert notice.kind is FaultKind.BLOOM
    assert "holds damaged bloom filters: page" in notice.what


def with_statistics(store: Store, stats: PageStats) -> Store:
    """The first page of ``t.k`` described anew."""
    table = store.snapshot().table("t")
    page = pages_of(store, "k").descriptor(0)
    new = NewPage(
        page.entry_count, page.payload_entries, page.kind, page.disk_path, page.offset, page.alloc_len,
        page.actual_len, page.checksum, None, stats,
    )  # fmt: skip
    txn = store.transaction()
    txn.replace_pages(table.definition.table_id, table.definition.field_ids["k"], 0, [page.page_id], [new])
    txn.commit()
    return store


def first_stats(store: Store) -> dict[str, Any]:
    return pages_of(store, "k").stats.slice(0, 1).to_pylist()[0]


@pytest.mark.parametrize(
    "where", [(1 << 40, 64, 5), (0, 31, 5), (0, 0, 5), (-32, 64, 5), (0, 1 << 30, 5), (2**63 - 8, 64, 5)]
)
def test_a_place_where_no_filter_can_be_changes_no_answer(keys, where):
    store = one_file(keys)
    told = first_stats(store)
    stats = PageStats(told["null_count"], told["min"], told["max"], told["exact"], 1, BloomLocation(*where))

    with_statistics(store, stats)

    assert store.snapshot().table("t").read(filter=[("k", "==", int(keys[7]))]).num_rows == 1
    assert [notice.kind for notice in store.verify(pages="all").notices] == [FaultKind.BLOOM]


def test_a_filter_of_another_page_is_told_by_verify(keys):
    store = one_file(keys)
    told, other = pages_of(store, "k").stats.slice(0, 2).to_pylist()
    bloom = BloomLocation(other["bloom_offset"], other["bloom_length"], other["bloom_checksum"] % 2**64)

    with_statistics(store, PageStats(told["null_count"], told["min"], told["max"], told["exact"], 1, bloom))

    (fault,) = store.verify(pages="all").faults
    assert fault.kind is FaultKind.CONTRADICTION
    assert "deny values of their pages" in fault.what


def test_a_filter_that_another_writer_names_is_not_believed():
    store = new_store(pa.schema([("k", pa.int64())]))
    values = pa.array([5, 7])
    pages = write_file(store.object_store, "elsewhere.pages", values)
    stats = replace(page_stats(values), bloom=BloomLocation(0, 64, 1))

    with store.transaction() as txn:
        txn.directory("t").register_batch([pending("k", "elsewhere.pages", pages, stats=stats)])

    assert first_stats(store)["bloom_offset"] is None
    assert first_stats(store)["distinct"] == 2


def test_inline_pages_have_no_filter_and_none_when_they_get_a_home():
    store = new_store(pa.schema([("s", pa.string())]), "0.5")
    append(store, pa.table({"s": [f"{n:030d}" for n in range(200)]}))

    store.checkpoint()

    stats = Store(store.object_store).snapshot().table("t").directory.chain("s").all_pages().stats
    assert all(stats.column(name).null_count == 1 for name in OPTIONAL_STATS[1:])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("bloom", "yes"),
        ("bloom.k", "0"),
        ("bloom.k", "1"),
        ("bloom.k", "-0.1"),
        ("bloom.x", "true"),
        ("bloom", "nan"),
    ],
)
def test_a_property_that_makes_no_sense_is_refused(name, value):
    store = sp.create(f"memory://{uuid4().hex}")

    with pytest.raises(InvalidInputError, match=name), store.transaction() as txn:
        txn.create_table("t", pa.schema([("k", pa.int64())]), properties={name: value})


def file_with_filters(worn: bool) -> tuple[Store, str]:
    """A page file of four pages and their filters; worn, nobody names one of both any more."""
    store = new_store(pa.schema([("k", pa.int64()), ("s", pa.string())]))
    append(store, pa.table({"k": range(40), "s": [f"{n}" for n in range(40)]}), page_bytes=256)
    (key,) = {*pages_of(store, "s").paths()}
    if worn:
        with store.transaction() as txn:
            txn.update_rows("t", [35], {"k": [7]})
        store.checkpoint()
        store.vacuum(retention=0)
    return Store(store.object_store), key


@pytest.mark.slow
def test_every_flipped_bit_of_filters_and_of_what_is_behind_them_is_found(in_files):
    store, key = file_with_filters(worn=False)
    data = store.object_store.get(key)
    run, values = pages_of(store, "k"), values_of(store)
    first = first_stats(store)["bloom_offset"] * 8
    behind = first + sum(place["bloom_length"] for place in run.stats.to_pylist()) * 8

    missed = []
    for bit in [*range(first, behind), *range(behind, first + 4096 * 8, 7)]:
        store.object_store.put(key, flipped(data, bit))
        flaws = check_blooms(store.object_store, run, values)
        missed += [] if (flaws.damaged | flaws.littered).any() else [bit]

    assert not missed


def test_a_filter_that_nobody_names_any_more_is_no_damage_and_a_bit_behind_it_is(in_files):
    store, key = file_with_filters(worn=True)
    run, where = pages_of(store, "k"), first_stats(store)
    behind = where["bloom_offset"] + where["bloom_length"]
    data = store.object_store.get(key)
    assert any(data[behind : behind + where["bloom_length"]])
    assert not check_blooms(store.object_store, run, values_of(store)).littered.any()

    store.object_store.put(key, flipped(data, (behind + 1000) * 8))
    flaws = check_blooms(store.object_store, run, values_of(store))

    assert flaws.littered.tolist() == [True, False]


def values_of(store: Store) -> dict[int, pa.Array]:
    pages = pages_of(store, "k").descriptors(0, 2)
    return dict(enumerate(store.snapshot().table("t").page_values("k", pages)))


@pytest.mark.slow
def test_a_flipped_bit_anywhere_in_a_page_file_with_filters_is_told_by_verify_with_file_and_page(in_files):
    store, key = file_with_filters(worn=False)
    data = store.object_store.get(key)
    assert store.verify(pages="all").ok

    for bit in np.random.default_rng(3).choice(len(data) * 8, 60, replace=False).tolist():
        store.object_store.put(key, flipped(data, bit))
        (fault,) = store.verify(pages="all").faults
        assert fault.key == key
        assert re.search("page [0-9a-f]{16} of t[.][ks]|[0-9]+ pages of t[.][ks]", fault.what)


def flipped(data: bytes, bit: int) -> bytes:
    spoilt = bytearray(data)
    spoilt[bit // 8] ^= 1 << bit % 8
    return bytes(spoilt)
