"""Appends of any length and type: streams, budgets, options, and values that come back as they were."""

from __future__ import annotations

import datetime as dt
import random
import time
from decimal import Decimal
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import spark_pages as sp
from spark_pages.arrow.stored_types import stored_type
from spark_pages.errors import InvalidInputError, SchemaMismatchError, StorageError
from spark_pages.io import Codec, parse_header
from spark_pages.model.actions import Commit
from spark_pages.storage import MeteredStore
from spark_pages.storage.store import ObjectStore
from spark_pages.store import Store
from spark_pages.transaction import rewritten_pages
from spark_pages.transaction.transaction import Transaction
from tests.effort import examples
from tests.invariants import check_store
from tests.io.strategies import NESTED, ORDERED, arrays
from tests.transaction.stores import QUIET, store_with

NUMBERS = pa.schema([("n", pa.int64())])


def noise(count: int, seed: int = 1) -> pa.Array:
    return pa.array(np.random.default_rng(seed).integers(-(2**62), 2**62, count))


def pages_of(store: Store, column: str) -> pa.Table:
    return store.snapshot().table("t").pages(column)


def small(store: Store, memory_bytes: int) -> Transaction:
    """A transaction that writes pages early."""
    return store.transaction("ingest", memory_bytes=memory_bytes)


# streams and small appends


def test_many_appends_of_one_transaction_make_the_pages_of_one():
    store, bulk = store_with(schema=NUMBERS), store_with(schema=NUMBERS)
    values = noise(20_000)

    with store.transaction() as txn:
        for start in range(0, 20_000, 250):
            txn.append("t", {"n": values.slice(start, 250)})
    with bulk.transaction() as txn:
        txn.append("t", {"n": values})

    counts = [pages_of(each, "n")["entry_count"].to_pylist() for each in (store, bulk)]
    assert counts[0] == counts[1] == [8192, 8192, 3616]
    assert pages_of(store, "n")["checksum"].equals(pages_of(bulk, "n")["checksum"])
    check_store(store)


def test_a_stream_is_never_read_as_a_whole_and_makes_the_same_pages():
    store, bulk = store_with(schema=NUMBERS), store_with(schema=NUMBERS)
    values = noise(400_000)
    most = [0]

    def batches():
        for start in range(0, len(values), 10_000):
            yield pa.record_batch([values.slice(start, 10_000)], ["n"])
            written = sum(info.size_bytes for info in store.object_store.list("pages/"))
            most[0] = max(most[0], start * 8 - written)

    txn = small(store, memory_bytes=1 << 20)
    txn.append("t", pa.RecordBatchReader.from_batches(NUMBERS, batches()))
    txn.commit()
    with bulk.transaction() as whole:
        whole.append("t", {"n": values})

    assert most[0] < 1 << 20, "what was read and not yet written never exceeds the budget"
    assert pages_of(store, "n")["checksum"].equals(pages_of(bulk, "n")["checksum"])
    assert store.snapshot().table("t").read()["n"].combine_chunks().equals(values)
    check_store(store)


def test_pages_that_were_written_early_bear_the_newest_version_and_are_durable_before_the_commit():
    store = store_with(pa.table({"n": noise(10)}))
    txn = small(store, memory_bytes=1 << 18)
    with Store(store.object_store).transaction() as other:
        other.append("t", {"n": [5]})

    txn.append("t", {"n": noise(100_000)})
    early = [info.key for info in store.object_store.list("pages/")]
    txn.commit()

    assert early
    assert {key[:26] for key in early} == {f"pages/{other.version:020d}"}
    assert store.snapshot().table("t").num_rows == 100_011
    check_store(store)


def test_a_crash_after_pages_were_written_leaves_orphans_that_vacuum_finds():
    store = store_with(pa.table({"n": noise(10)}))
    txn = small(store, memory_bytes=1 << 18)
    txn.append("t", {"n": noise(100_000)})
    txn.rollback()
    orphans = {info.key for info in store.object_store.list("pages/")}
    with store.transaction() as other:
        other.append("t", {"n": [1]})

    store.vacuum(retention=1, orphans=True)

    assert orphans
    assert not orphans & {info.key for info in store.object_store.list("pages/")}
    assert store.snapshot().table("t").num_rows == 11


class Full(MeteredStore):
    """Storage that takes no more page files."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.full = False

    def put(self, key, data):
        if self.full and key.startswith("pages/"):
            raise StorageError("the disk is full")
        return super().put(key, data)


def test_an_early_page_file_that_cannot_be_written_fails_the_transaction_and_nothing_is_seen():
    objects = Full(store_with(pa.table({"n": noise(10)})).object_store)
    store = Store(objects)
    txn = small(store, memory_bytes=1 << 18)
    objects.full = True

    with pytest.raises(StorageError, match="full"):
        txn.append("t", {"n": noise(100_000)})  # the second file finds out that the first has failed

    assert store.snapshot().table("t").num_rows == 10


class Slow(MeteredStore):
    """Storage that takes its time for page files, and remembers in which order it was done."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.done: list[str] = []

    def put(self, key, data):
        time.sleep(0.05)
        super().put(key, data)
        self.done.append(key)

    def create(self, key, data):
        self.done.append(key)
        return super().create(key, data)


def test_no_commit_names_a_page_file_that_is_not_durable_yet():
    objects = Slow(store_with(pa.table({"n": noise(10)})).object_store)
    txn = small(Store(objects), memory_bytes=1 << 19)
    txn.append("t", {"n": noise(16_384)})

    txn.commit()

    assert [key.split("/")[0] for key in objects.done] == ["pages", "_log"]


def test_a_failing_append_leaves_the_transaction_as_it_was():
    store = store_with(schema=pa.schema([("n", pa.int64()), ("s", pa.string())]))
    txn = small(store, memory_bytes=128)  # so that each batch is taken for itself
    txn.append("t", {"n": [1], "s": ["a"]})

    def batches():
        yield pa.record_batch({"n": [2, 3], "s": ["b", "c"]})
        raise OSError("the source broke")

    reader = pa.RecordBatchReader.from_batches(pa.schema([("n", pa.int64()), ("s", pa.string())]), batches())
    with pytest.raises(InvalidInputError, match="Cannot read batch 1 of a stream: the source broke"):
        txn.append("t", reader)
    with pytest.raises(SchemaMismatchError):
        txn.append("t", {"n": ["no number"], "s": ["x"]})
    txn.append("t", {"n": [6], "s": ["d"]})
    txn.commit()

    assert store.snapshot().table("t").read().to_pydict() == {"n": [1, 6], "s": ["a", "d"]}
    check_store(store)


def test_what_a_caller_does_with_its_memory_after_an_append_changes_nothing():
    store = store_with(schema=NUMBERS)
    buffer = np.zeros(5, np.int64)

    with store.transaction() as txn:
        for number in range(3):
            buffer[:] = number
            txn.append("t", pa.table({"n": buffer}))
        buffer[:] = 99

    assert store.snapshot().table("t").read()["n"].to_pylist() == [0] * 5 + [1] * 5 + [2] * 5


# options


def test_codec_and_size_of_pages_are_properties_of_the_table_and_of_its_columns():
    store = sp.create(f"memory://{uuid4().hex}", properties=QUIET)
    text = pa.array([f"value {i % 1000}" for i in range(40_000)])
    properties = {"codec": "zstd", "codec.b": "none", "page_bytes": "32768", "page_bytes.c": "131072"}
    with store.transaction() as txn:
        schema = pa.schema([(name, pa.string()) for name in "abc"])
        txn.create_table("t", schema, properties=properties)
        txn.append("t", pa.table([text, text, text], schema=schema))

    def first(column: str):
        page = store.snapshot().table("t").directory.locate_row(column, 0).page
        return parse_header(store.object_store.get_range(page.disk_path, page.offset, 64))

    assert [first(column).codec for column in "abc"] == [Codec.ZSTD, Codec.NONE, Codec.ZSTD]
    sizes = [first(column).arrow_size for column in "abc"]
    assert sizes == pytest.approx([32_768, 32_768, 131_072], rel=0.03)
    with store.transaction() as txn:
        txn.update_rows("t", [1], {"b": ["x"]})
    for _ in range(2):
        with store.transaction() as txn:
            txn.append("t", pa.table([text.slice(0, 300)] * 3, schema=schema))
    store.compact_pages("t")
    last = store.snapshot().table("t").directory.latest("b")
    compacted = store.object_store.get_range(last.disk_path, last.offset, 64)
    assert (last.entry_count, parse_header(compacted).codec) == (600, Codec.NONE)
    assert first("b").codec == Codec.NONE, "an update keeps it"


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        (
            {"codec": "lz5"},
            "'codec' of table 'x' with value 'lz5': it is not a codec. Set it to 'lz4' or 'none' or 'zstd'",
        ),
        ({"codec.m": "lz4"}, "'codec.m' of table 'x': it ends in no column of the table. End it in one of n"),
        ({"page_bytes": "many"}, "'page_bytes' of table 'x' with value 'many'"),
        ({"page_bytes.n": "12"}, "from 1024"),
    ],
)
def test_an_option_that_cannot_be_is_refused_when_the_table_is_created(properties, message):
    txn = store_with(schema=NUMBERS).transaction()

    with pytest.raises(InvalidInputError, match=message):
        txn.create_table("x", NUMBERS, properties=properties)


# updates of several columns


def test_an_update_of_several_columns_touches_each_page_once_and_all_or_none():
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.int64())])
    store = store_with(
        pa.table([noise(20_000), [f"{i}" for i in range(20_000)], noise(20_000)], schema=schema)
    )
    before = {name: pages_of(store, name)["page_id"].to_pylist() for name in "abc"}

    with store.transaction() as txn:
        txn.update_rows("t", [5, 19_000, 6], {"a": [1, 2, 3], "b": ["x", "y", None]})
        txn.update_rows("t", [5], pa.table({"a": [4]}))
        with pytest.raises(SchemaMismatchError):
            txn.update_rows("t", [7], {"a": [9], "c": ["no number"]})

    after = {name: pages_of(store, name)["page_id"].to_pylist() for name in "abc"}
    table = store.snapshot().table("t")
    changed = {name: len(set(after[name]) - set(before[name])) for name in "abc"}
    assert table.take([5, 6, 19_000], ["a", "b"]).to_pydict() == {"a": [4, 3, 2], "b": ["x", None, "y"]}
    assert changed == {"a": 2, "b": 2, "c": 0}
    assert table.take([7], ["a"])["a"].to_pylist() != [9]
    check_store(store)


@pytest.mark.parametrize("values", [[1, 2], None, {"a": [1, 2]}, {"nothing": [1]}])
def test_an_update_without_a_column_wants_values_by_column(values):
    store = store_with(pa.table({"a": [1, 2, 3]}))

    with pytest.raises(sp.errors.SparkPagesError):
        store.transaction().update_rows("t", [0], values)


def test_an_update_of_a_whole_table_stays_in_its_budget():
    store = store_with(pa.table({"n": noise(300_000)}))
    new = noise(300_000, seed=2)
    txn = small(store, memory_bytes=1 << 20)
    txn.update_rows("t", np.arange(300_000), {"n": new})

    txn.commit()

    assert len(store.object_store.list("pages/")) > 4, "pages were written in several files, as they came"
    assert store.snapshot().table("t").read()["n"].combine_chunks().equals(new)
    check_store(store)


def test_pages_that_are_updated_are_rewritten_together_and_neighbours_are_one_splice(monkeypatch):
    store = store_with(schema=NUMBERS)
    with store.transaction() as txn:
        txn._page_bytes = 64
        txn.create_table("small", NUMBERS)
        txn.append("small", {"n": range(4_000)})
    staged = []
    stage_pages = rewritten_pages.stage_pages
    monkeypatch.setattr(
        rewritten_pages, "stage_pages", lambda *given: staged.append(1) or stage_pages(*given)
    )
    apart = np.arange(0, 800, 16)

    with store.transaction() as txn:
        txn.update_rows("small", [*apart, *range(1_000, 1_800), 1_808], {"n": [-1] * (len(apart) + 801)})

    expected = np.arange(4_000)
    expected[[*apart, *range(1_000, 1_800), 1_808]] = -1
    splices = [splice for record in newest(store).records for splice in record.splices]
    assert store.snapshot().table("small").read()["n"].to_numpy().tolist() == expected.tolist()
    assert len(staged) == 2, "150 pages and more, of which 128 are rewritten at a time"
    assert len(splices) == len(apart) + 3, "the stretch of a hundred pages lies in two of these"
    assert splices[-1].touched[-1] == (1_808, 1_809)
    assert {len(splice.removed) for splice in splices[: len(apart)]} == {1}
    check_store(store)


def test_pages_of_large_values_are_rewritten_few_at_a_time(monkeypatch):
    large = [random.Random(number).randbytes(300_000) for number in range(24)]
    store = store_with(pa.table({"v": large}))
    at_once = []
    stage_pages = rewritten_pages.stage_pages
    monkeypatch.setattr(
        rewritten_pages,
        "stage_pages",
        lambda values, *rest: at_once.append(len(values)) or stage_pages(values, *rest),
    )
    txn = small(store, memory_bytes=8_000_000)
    new = [each[:-1] for each in large]

    txn.update_rows("t", np.arange(24), {"v": new})
    txn.commit()

    assert at_once == [3] * 8, "of a megabyte, an eighth of the memory"
    assert store.snapshot().table("t").read()["v"].to_pylist() == new


def test_rows_on_both_sides_of_an_empty_page_are_told_by_the_splices_of_their_own_pages():
    rows = np.array([8, 9, 10, 11, 13])
    touched = rewritten_pages.TouchedPages(
        np.array([3, 5]), np.array([0, 2, 5]), rows, rows % 5, pa.array(rows)
    )

    assert list(touched.neighbours()) == [(0, 1, ((8, 10),)), (1, 2, ((10, 12), (13, 14)))]


def newest(store: Store) -> Commit:
    version = store.snapshot().version
    return store._log.commits(version, version + 1)[0]


# every type

DAYS = [dt.date(2013, 1, 1) + dt.timedelta(i) for i in range(300)]
TYPES = {
    "null": pa.nulls(300),
    "half": pa.array(np.arange(300, dtype=np.float16)),
    "decimal": pa.array([Decimal(i) / 100 for i in range(300)], pa.decimal128(12, 2)),
    "decimal256": pa.array([Decimal(i) for i in range(300)], pa.decimal256(50, 2)),
    "day": pa.array(DAYS),
    "day64": pa.array(DAYS, pa.date64()),
    "time": pa.array([dt.time(i % 24, i % 60) for i in range(300)], pa.time64("ns")),
    "moment": pa.array(
        [dt.datetime(2020, 1, 1) + dt.timedelta(i) for i in range(300)], pa.timestamp("ms", "Europe/Paris")
    ),
    "duration": pa.array([dt.timedelta(seconds=i * i) for i in range(300)], pa.duration("s")),
    "interval": pa.array([(i, 2, 3) for i in range(300)], pa.month_day_nano_interval()),
    "large text": pa.array([f"value {i}" for i in range(300)], pa.large_string()),
    "text view": pa.array([f"a value longer than twelve {i}" for i in range(300)], pa.string_view()),
    "binary view": pa.array([bytes([i % 256]) * (i % 30) for i in range(300)], pa.binary_view()),
    "fixed binary": pa.array([i.to_bytes(16, "big") for i in range(300)], pa.binary(16)),
    "list": pa.array([[i, None, i + 1][: i % 4] for i in range(300)], pa.list_(pa.int64())),
    "large list": pa.array([[f"{i}"] * (i % 3) for i in range(300)], pa.large_list(pa.string())),
    "fixed list": pa.array([[i, i + 1, i + 2] for i in range(300)], pa.list_(pa.int32(), 3)),
    "struct": pa.array([{"a": i, "b": {"c": [f"{i}"]}} for i in range(300)]),
    "map": pa.array([[(f"k{i % 7}", i)] for i in range(300)], pa.map_(pa.string(), pa.int64())),
    "dictionary": pa.array([f"v{i % 50}" for i in range(300)]).dictionary_encode(),
    "small dictionary": pa.DictionaryArray.from_arrays(
        pa.array([i % 3 for i in range(300)], pa.int8()), pa.array([1.5, 2.5, 3.5])
    ),
    "run ends": pc.run_end_encode(pa.array([i // 20 for i in range(300)])),
}


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("seed", range(3))
def test_rows_of_many_pages_of_every_type_are_updated(name, seed):
    values = TYPES[name]
    rng = random.Random(seed)
    store = sp.create(f"memory://{uuid4().hex}", properties=QUIET)
    with store.transaction() as txn:
        txn._page_bytes = 128
        txn.create_table("t", pa.schema([("v", values.type)]))
        txn.append("t", pa.table({"v": values}))
    whole = range(*sorted(rng.sample(range(300), 2)))
    rows = sorted({*rng.sample(range(300), 30), *(whole if seed else ())})
    new = values.slice(rng.randrange(301 - len(rows)), len(rows))
    expected = values.to_pylist()
    for row, value in zip(rows, new.to_pylist(), strict=True):
        expected[row] = value

    with store.transaction() as txn:
        txn.update_rows("t", rows, {"v": new})

    found = store.snapshot().table("t")
    assert found.read()["v"].to_pylist() == expected
    assert found.read()["v"].type == stored_type(values.type)
    check_store(store)


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("name", TYPES)
def test_every_type_comes_back_with_its_type_over_tiny_appends_updates_and_compaction(name):
    values = TYPES[name]
    given = pa.table({"v": values})
    store = sp.create(f"memory://{uuid4().hex}", properties=QUIET | {"tail_page_bytes": "8192"})
    with store.transaction() as txn:
        txn.create_table("t", given.schema)
    for start in (*range(20), 20, 150):
        with store.transaction() as txn:
            txn.append("t", given.slice(start, 1 if start < 20 else 130 if start == 20 else 150))
    expected = values.to_pylist()

    found = [store.snapshot().table("t").read()["v"]]
    with store.transaction() as txn:
        txn.update_rows("t", [3, 200], {"v": values.slice(100, 2)})
    expected[3], expected[200] = expected[100], expected[101]
    updated = [store.snapshot().table("t").read()["v"]]
    store.compact_pages()
    updated.append(store.snapshot().table("t").read()["v"])
    store.checkpoint()
    updated.append(Store(store.object_store).snapshot().table("t").read()["v"])

    assert [each.to_pylist() == values.to_pylist() for each in found] == [True]
    assert [each.to_pylist() == expected for each in updated] == [True] * 3
    assert {each.type for each in (*found, *updated)} == {stored_type(values.type)}
    check_store(store)


def test_values_larger_than_a_page_have_pages_of_their_own():
    big = [random.Random(i).randbytes(200_000) for i in range(3)]
    store = store_with(pa.table({"v": pa.array([b"small", big[0], None, big[1], b"", big[2]])}))

    assert store.snapshot().table("t").read()["v"].to_pylist() == [
        b"small",
        big[0],
        None,
        big[1],
        b"",
        big[2],
    ]
    assert len(pages_of(store, "v")) >= 3
    check_store(store)


def test_dictionaries_of_different_batches_that_do_not_fit_together_are_pages_of_their_own():
    kind = pa.dictionary(pa.int8(), pa.string())
    parts = [
        pa.DictionaryArray.from_arrays(
            pa.array(range(100), pa.int8()), pa.array([f"{part}-{i}" for i in range(100)])
        )
        for part in range(3)
    ]
    store = store_with(schema=pa.schema([("v", kind)]))

    with store.transaction() as txn:
        for part in parts:
            txn.append("t", pa.table({"v": part}))

    expected = [f"{part}-{i}" for part in range(3) for i in range(100)]
    assert store.snapshot().table("t").read()["v"].to_pylist() == expected
    assert store.snapshot().table("t").schema.field("v").type == kind


@settings(
    max_examples=examples(40),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data())
def test_anything_appended_comes_back_whatever_is_done_to_its_pages(data):
    whole = data.draw(arrays({**ORDERED, **NESTED}, min_size=1))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=4)))
    tail = data.draw(st.sampled_from(["0", "300", "8192"]))
    store = sp.create(f"memory://{uuid4().hex}", properties=QUIET | {"tail_page_bytes": tail})
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("v", whole.type)]))
    for low, high in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        with store.transaction() as txn:
            txn._page_bytes = data.draw(st.sampled_from([16, 65_536]))
            txn.append("t", pa.table({"v": whole.slice(low, high - low)}))
    expected = whole.to_pylist()
    for _ in range(data.draw(st.integers(0, 2))):
        row, value = (data.draw(st.integers(0, len(whole) - 1)) for _ in range(2))
        with store.transaction() as txn:
            txn.update_rows("t", [row], {"v": whole.slice(value, 1)})
        expected[row] = whole[value].as_py()
    if data.draw(st.booleans()):
        store.compact_pages()

    found = store.snapshot().table("t").read()["v"]
    assert found.to_pylist() == expected
    assert found.type == stored_type(whole.type)
    check_store(store)
