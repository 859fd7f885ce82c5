"""Every type that a column can have is read, taken and scanned as Arrow holds it, however it was sliced."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spark_pages as sp
from spark_pages.arrow.join import join
from spark_pages.arrow.stored_types import stored_type
from spark_pages.query import concat as gather
from spark_pages.query.concat import gather_in_parts
from tests.effort import examples
from tests.io.strategies import steady
from tests.transaction.stores import store_with

TEXT = pa.dictionary(pa.int8(), pa.string())
BESIDE_NULL = pa.struct([("a", pa.string()), ("n", pa.null())])
VALUES: dict[str, tuple[pa.DataType, list[object]]] = {
    "null": (pa.null(), [None]),
    "bool": (pa.bool_(), [True, False, None]),
    "int8": (pa.int8(), [-128, 0, 127, None]),
    "uint64": (pa.uint64(), [0, 2**64 - 1, 5]),
    "half": (pa.float16(), [1.5, None]),
    "double": (pa.float64(), [0.1, -0.0, float("inf"), None]),
    "decimal": (pa.decimal128(9, 2), [Decimal("1.50"), None, Decimal("-7.00")]),
    "wide decimal": (pa.decimal256(60, 1), [Decimal("1.5"), None]),
    "narrow decimal": (pa.decimal32(7, 2), [Decimal("1.50"), None, Decimal("-99999.99")]),
    "decimal of hundreds": (pa.decimal128(10, -2), [Decimal(100), None, Decimal(-12300)]),
    "interval": (pa.month_day_nano_interval(), [pa.MonthDayNano([1, -2, 2**60]), None]),
    "date": (pa.date32(), [dt.date(2020, 2, 29), None]),
    "time": (pa.time64("us"), [dt.time(1, 2, 3), None]),
    "zoned": (pa.timestamp("us", "Europe/Paris"), [dt.datetime(2020, 1, 1, tzinfo=dt.UTC), None]),
    "duration": (pa.duration("ms"), [dt.timedelta(seconds=5), None]),
    "text": (pa.string(), ["", "a", "é" * 50, None]),
    "large text": (pa.large_string(), ["b", None, "c" * 300]),
    "text view": (pa.string_view(), ["short", "longer than twelve bytes", None]),
    "binary": (pa.binary(), [b"\0", None, b"xyz"]),
    "binary view": (pa.binary_view(), [b"\0", None, b"more than twelve bytes"]),
    "fixed": (pa.binary(3), [b"abc", None]),
    "list": (pa.list_(pa.int16()), [[1, None], [], None, [2] * 20]),
    "large list": (pa.large_list(pa.float32()), [[1.0, None], None, []]),
    "list view": (pa.list_view(pa.int8()), [[1, None], None, [], [5] * 30]),
    "list of views": (pa.list_(pa.string_view()), [["a"], None, ["more than twelve bytes", None]]),
    "fixed list": (pa.list_(pa.float32(), 2), [[1.0, 2.0], None]),
    "struct": (pa.struct([("x", pa.int32()), ("y", pa.string())]), [{"x": 1, "y": None}, None]),
    "empty struct": (pa.struct([]), [{}, None]),
    "map": (pa.map_(pa.string(), pa.int8()), [[("k", 1)], [], None]),
    "dictionary": (TEXT, ["red", "green", None]),
    "dictionary of decimals": (pa.dictionary(pa.int8(), pa.decimal128(5, 2)), [Decimal("1.50"), None]),
    "runs": (pa.run_end_encoded(pa.int16(), pa.string()), ["a", "b", None]),
    "tensor": (pa.fixed_shape_tensor(pa.float32(), [2]), [[1.0, 2.0], None]),
    "struct of dictionary": (pa.struct([("c", TEXT)]), [{"c": "red"}, {"c": None}, None]),
    "list of dictionary": (pa.list_(TEXT), [["red", "blue"], [None], None]),
    "nulls beside text": (BESIDE_NULL, [{"a": "x", "n": None}, {"a": None, "n": None}, None]),
    "list of nulls beside text": (pa.list_(BESIDE_NULL), [[{"a": "x", "n": None}] * 3, [], None]),
    "map to nulls": (pa.map_(pa.string(), pa.null()), [[("k", None), ("l", None)], [], None]),
    "fixed list of nulls beside text": (pa.list_(BESIDE_NULL, 2), [[{"a": "x", "n": None}] * 2, None]),
    "list view of nulls beside text": (pa.list_view(BESIDE_NULL), [[{"a": "x", "n": None}] * 3, [], None]),
    "uuid": (pa.uuid(), [b"0123456789abcdef", None]),
    "bool8": (pa.bool8(), [1, None]),
}
SCHEMA = pa.schema([(name, kind) for name, (kind, _) in VALUES.items()])
STORED = pa.schema([(name, stored_type(kind)) for name, (kind, _) in VALUES.items()])


@st.composite
def tables(draw: st.DrawFn) -> list[pa.Table]:
    """Tables of a few rows, each a slice of a longer one."""
    found = []
    for size in draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)):
        before, behind = draw(st.integers(0, 9)), draw(st.integers(0, 2))
        columns = [
            array_of(
                kind, draw(st.lists(st.sampled_from(values), min_size=size, max_size=size)), before, behind
            )
            for kind, values in VALUES.values()
        ]
        found.append(pa.table(columns, schema=SCHEMA))
    return found


def array_of(kind: pa.DataType, values: list[object], before: int, behind: int) -> pa.Array:
    """An array that begins inside of its buffers and ends before they do."""
    storage = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    given = [None] * before + values + [None] * behind
    if pa.types.is_run_end_encoded(storage):
        long = pc.run_end_encode(pa.array(given, storage.value_type), storage.run_end_type)
    elif pa.types.is_dictionary(storage):
        long = pa.array(given, storage.value_type).dictionary_encode().cast(storage)
    else:
        long = pa.array(given, storage)
    if isinstance(kind, pa.BaseExtensionType):
        long = pa.ExtensionArray.from_storage(kind, long)
    return long.slice(before, len(values))


@settings(steady, max_examples=examples(25))
@given(tables(), st.data())
def test_rows_of_every_type_are_those_that_were_appended(parts, data):
    whole = pa.concat_tables(parts)
    table = store_with(*parts, schema=SCHEMA).snapshot().table("t")
    start = data.draw(st.integers(0, whole.num_rows))
    stop = data.draw(st.integers(start, whole.num_rows))
    rows = data.draw(st.lists(st.integers(0, whole.num_rows - 1), max_size=12))
    expected = whole.slice(start, stop - start).to_pylist()

    assert repr(table.read(start=start, stop=stop).to_pylist()) == repr(expected)
    assert repr(table.scan(start=start, stop=stop, batch_rows=2).read_all().to_pylist()) == repr(expected)
    taken = table.take(rows)
    assert taken.schema == STORED
    assert repr(taken.to_pylist()) == repr([whole.to_pylist()[row] for row in rows])


@pytest.mark.parametrize("name", VALUES)
def test_a_wide_table_of_one_type_is_gathered_from_many_pages(name, monkeypatch):
    monkeypatch.setattr(gather, "_DENSE", 0)
    kind, values = VALUES[name]
    parts = [pa.table({"v": array_of(kind, [value] * 3, 1, 1)}) for value in values * 2]
    table = store_with(*parts).snapshot().table("t")
    rows = np.random.default_rng(1).permutation(table.num_rows)[: 2 * len(values)]

    taken = table.take(rows)

    whole = [value for part in parts for value in part["v"].to_pylist()]
    assert repr(taken["v"].to_pylist()) == repr([whole[row] for row in rows])
    taken.validate(full=True)


def dictionary(number: int) -> pa.Array:
    values = pa.array([f"{number}-{i}" for i in range(100)])
    return pa.DictionaryArray.from_arrays(pa.array(range(100), pa.int8()), values)


def test_dictionaries_too_many_for_one_array_come_in_several():
    parts = [pa.table({"v": dictionary(number)}) for number in range(3)]
    table = store_with(*parts).snapshot().table("t")
    rows = np.random.default_rng(2).permutation(300)

    assert table.take(rows)["v"].to_pylist() == [f"{row // 100}-{row % 100}" for row in rows]
    batches = list(table.scan())
    assert [value for b in batches for value in b["v"].to_pylist()] == [
        f"{n}-{i}" for n in range(3) for i in range(100)
    ]
    assert len(batches) == 3


def test_indices_at_nulls_that_point_nowhere_are_not_followed():
    stray = pa.Array.from_buffers(
        pa.int32(), 3, [pa.py_buffer(b"\1"), pa.py_buffer(np.array([0, 2**31 - 1, -(2**31)], np.int32))]
    )
    one = pa.DictionaryArray.from_arrays(stray, pa.array(["a"]), safe=False)
    other = pa.array(["b", None]).dictionary_encode()

    for kind, (first, second) in {
        one.type: (one, other),
        pa.struct([("c", one.type)]): [pa.StructArray.from_arrays([each], ["c"]) for each in (one, other)],
    }.items():
        joined = join([first, second], kind)
        joined.validate(full=True)
        assert joined.to_pylist() == [*first.to_pylist(), *second.to_pylist()]


def test_text_too_long_for_one_array_comes_in_several(monkeypatch):
    concat = pa.concat_arrays

    def narrow(arrays):
        if sum(len(value or "") for array in arrays for value in array.to_pylist()) > 10:
            raise pa.ArrowInvalid("offset overflow while concatenating arrays")
        return concat(arrays)

    monkeypatch.setattr(pa, "concat_arrays", narrow)
    arrays = [pa.array(["aaaa", "b"]), pa.array(["cccc", "dddd"]), pa.array(["eeee"])]
    bounds, offsets = np.array([0, 2, 4, 5]), np.array([0, 1, 0, 1, 0])

    found = gather_in_parts(arrays, bounds, offsets, np.array([4, 0, 3, 1, 2]), pa.string())

    assert found.to_pylist() == ["eeee", "aaaa", "dddd", "b", "cccc"]
    assert found.num_chunks > 1


def test_a_value_larger_than_a_window_is_scanned():
    values = ["x" * 100_000, "y", None, "z" * 300_000]
    table = store_with(*(pa.table({"v": [value], "n": [1]}) for value in values)).snapshot().table("t")

    assert table.scan().read_all()["v"].to_pylist() == values
    assert table.take([3, 0])["v"].to_pylist() == [values[3], values[0]]


@pytest.mark.parametrize("mode", ["sparse", "dense"])
def test_unions_come_back(mode):
    kinds, numbers = pa.array([0, 1, 1, 0, 1] * 40, pa.int8()), pa.array(range(200), pa.int32())
    children = [numbers, pa.array([f"text {i}" for i in range(200)])]
    if mode == "sparse":
        union = pa.UnionArray.from_sparse(kinds, children, ["a", "b"])
    else:
        union = pa.UnionArray.from_dense(kinds, numbers, children, ["a", "b"])
    parts = [pa.table({"v": union.slice(first, 50)}) for first in (3, 100, 53)]
    table = store_with(*parts).snapshot().table("t")
    whole = [value for part in parts for value in part["v"].to_pylist()]

    assert table.read()["v"].to_pylist() == whole
    assert table.take([149, 0, 60])["v"].to_pylist() == [whole[149], whole[0], whole[60]]
    assert table.scan(batch_rows=20).read_all()["v"].to_pylist() == whole


def test_pages_of_lists_of_nulls_are_read_however_they_are_cut():
    item = {"a": "some text", "n": None}
    values = pa.array([[item] * 2] * 400 + [[]] * 400, pa.list_(BESIDE_NULL))
    store = sp.create("memory://lists-of-nulls")
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("v", values.type)]), properties={"page_bytes": "1024"})
        txn.append("t", pa.table({"v": values}))

    table = store.snapshot().table("t")

    assert table.pages().num_rows > 1
    assert table.read()["v"].to_pylist() == values.to_pylist()
    assert table.take([799, 0])["v"].to_pylist() == [[], [item] * 2]
