"""What callers give becomes the type of its column without losing anything, or is refused."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any
from uuid import uuid4

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

import spark_pages as sp
from spark_pages.errors import SchemaMismatchError
from spark_pages.format.inference import LossError
from spark_pages.format.values import convert, from_python, is_convertible
from tests.effort import examples

NOON = dt.datetime(2026, 1, 1, 12)
STRUCT = pa.struct([("a", pa.int64())])

LOST = [
    (pa.array(["7"]), pa.int64()),
    (pa.array([7]), pa.string()),
    (pa.array([5]), pa.bool_()),
    (pa.array([True]), pa.int64()),
    (pa.array([1.5]), pa.int64()),
    (pa.array([float("nan")]), pa.int64()),
    (pa.array([300]), pa.int8()),
    (pa.array([-1]), pa.uint64()),
    (pa.array([2**60 + 1]), pa.float64()),
    (pa.array([1e300]), pa.float32()),
    (pa.array([0.125]), pa.decimal128(5, 2)),
    (pa.array([Decimal("1.25")]), pa.decimal128(5, 1)),
    (pa.array([Decimal(10**30 + 1)], pa.decimal128(38)), pa.float64()),
    (pa.array([NOON]), pa.date32()),
    (pa.array([NOON]), pa.time64("us")),
    (pa.array([NOON]), pa.int64()),
    (pa.array([NOON]), pa.timestamp("us", "UTC")),
    (pa.array([NOON], pa.timestamp("us", "UTC")), pa.timestamp("us")),
    (pa.array([NOON.replace(microsecond=1)]), pa.timestamp("ms")),
    (pa.array([5]), pa.timestamp("us")),
    (pa.array([b"\xff"]), pa.string()),
    (pa.array([{"a": 5}]), pa.struct([("b", pa.int64())])),
    (pa.array([{"a": 5, "b": 1}]), STRUCT),
    (pa.array([[{"b": 1}]]), pa.list_(STRUCT)),
    (pa.array([[1e300]]), pa.list_(pa.float32())),
    (pa.array([{"a": 0.125}]), pa.struct([("a", pa.decimal128(5, 2))])),
    (pa.array([[("k", 1e300)]], pa.map_(pa.string(), pa.float64())), pa.map_(pa.string(), pa.float32())),
    (pa.array(["7"]).dictionary_encode(), pa.int64()),
    (pa.array(["x"]), pa.null()),
    (pa.array([300]), pa.run_end_encoded(pa.int32(), pa.int8())),
    (pa.array([300]), pa.dictionary(pa.int32(), pa.int8())),
    (pa.array(range(300)), pa.dictionary(pa.int8(), pa.int64())),
]

KEPT = [
    ([1, None], pa.int64(), pa.int8()),
    ([1], pa.int64(), pa.float32()),
    ([2.0], pa.float64(), pa.int32()),
    ([7], pa.int64(), pa.decimal128(5, 2)),
    ([2**64 - 1], pa.uint64(), pa.decimal128(20, 0)),
    ([Decimal(2**64 - 1)], pa.decimal128(20, 0), pa.uint64()),
    ([Decimal("1.20")], pa.decimal128(5, 2), pa.decimal128(4, 1)),
    ([0.1], pa.float64(), pa.decimal128(5, 2)),
    (["ab"], pa.string(), pa.large_string()),
    (["ab"], pa.string(), pa.binary(2)),
    (["ab", None], pa.string(), pa.dictionary(pa.int8(), pa.string())),
    ([7, None, 7], pa.int64(), pa.dictionary(pa.int8(), pa.int16(), ordered=True)),
    ([dt.date(2026, 1, 1)], pa.date32(), pa.timestamp("us")),
    ([NOON], pa.timestamp("us"), pa.timestamp("s")),
    ([NOON.replace(tzinfo=dt.UTC)], pa.timestamp("us", "Asia/Tokyo"), pa.timestamp("ms", "UTC")),
    ([dt.time(1, 2, 3)], pa.time64("us"), pa.time32("s")),
    ([[1, 2], None, []], pa.list_(pa.int64()), pa.list_(pa.int8())),
    ([[0.5]], pa.list_(pa.float64()), pa.list_(pa.float32(), 1)),
    ([{"a": 5}, None], STRUCT, pa.struct([("a", pa.int8()), ("b", pa.string())])),
    ([[("k", 1.5)], None, []], pa.map_(pa.string(), pa.float64()), pa.map_(pa.string(), pa.float32())),
    ([None], pa.null(), pa.int64()),
    ([None], pa.string(), pa.null()),
]


@pytest.mark.parametrize(("values", "wanted"), LOST, ids=lambda each: str(getattr(each, "type", each)))
def test_what_would_be_lost_is_refused(values: pa.Array, wanted: pa.DataType) -> None:
    for each in (
        values,
        pa.chunked_array([values.slice(0, 0), values]),
        pa.concat_arrays([values] * 3).slice(1),
    ):
        with pytest.raises((LossError, pa.ArrowException)):
            convert(each, wanted)


@pytest.mark.parametrize(("values", "kind", "wanted"), KEPT, ids=str)
def test_what_fits_is_the_same_afterwards(values: list[Any], kind: pa.DataType, wanted: pa.DataType) -> None:
    array = pa.array(values, kind)

    found = convert(array, wanted)

    assert found.type == wanted
    assert convert(pa.chunked_array([], kind), wanted).type == wanted
    assert (found if pa.types.is_null(kind) else found.cast(kind)).to_pylist() == values
    assert (
        convert(pa.concat_arrays([array] * 2).slice(1), wanted).to_pylist()[-len(values) :]
        == found.to_pylist()
    )


@pytest.mark.parametrize("kind", [pa.int64(), pa.float64(), pa.dictionary(pa.int32(), pa.int64())], ids=str)
def test_plain_values_fit_run_end_encoded_ones_and_back(kind: pa.DataType) -> None:
    plain = convert(pa.array([1, 1, None, 2, 2]), kind)
    runs = pa.run_end_encoded(pa.int16(), pa.int8())

    found = convert(plain, runs)

    assert (found.type, len(found.values)) == (runs, 3)
    assert convert(found[1:], kind).equals(plain[1:])
    longer = convert(
        found, pa.run_end_encoded(pa.int64(), kind.value_type if kind.num_fields else pa.int64())
    )
    assert longer.to_pylist() == plain.to_pylist()
    assert convert(pa.chunked_array([], kind), runs).type == runs


NUMBERS = [
    *(pa.int8(), pa.uint8(), pa.int32(), pa.int64(), pa.uint64(), pa.float32(), pa.float64()),
    *(pa.decimal128(5, 2), pa.decimal128(20, 0), pa.bool_(), pa.string()),
]


@settings(max_examples=examples(300), deadline=None)
@given(st.sampled_from(NUMBERS), st.sampled_from(NUMBERS), st.data())
def test_a_number_is_the_same_number_or_refused(kind: pa.DataType, wanted: pa.DataType, data: Any) -> None:
    some = st.one_of(
        st.integers(-(2**63), 2**64 - 1), st.integers(-9, 300), st.floats(width=32), st.booleans()
    )
    try:
        array = pa.array(data.draw(st.lists(some, max_size=4)), kind)
        found = convert(array, wanted)
    except (LossError, pa.ArrowException, OverflowError, TypeError):
        return
    for before, after in zip(array.to_pylist(), found.to_pylist(), strict=True):
        if isinstance(before, float) and math.isnan(before):
            assert math.isnan(after)
        else:
            assert after == before or float(after) == float(before)
            assert isinstance(after, bool) == isinstance(before, bool)
            assert isinstance(after, str) == isinstance(before, str)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1.5], pa.int64()),
        ([NOON], pa.date32()),
        (["7"], pa.int64()),
        ([{"b": 1}], STRUCT),
        ([5], pa.string()),
    ],
    ids=str,
)
def test_values_of_python_are_not_bent_either(values: list[Any], kind: pa.DataType) -> None:
    store = sp.create(f"memory://{uuid4().hex}")
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("x", kind)]))
        txn.append("t", pa.table({"x": pa.nulls(1, kind)}))

    with pytest.raises(SchemaMismatchError, match="do not fit"), store.transaction() as txn:
        txn.append("t", {"x": values})
    with pytest.raises(SchemaMismatchError, match="do not fit"), store.transaction() as txn:
        txn.update_rows("t", [0], {"x": values})

    assert store.snapshot().table("t").read()["x"].to_pylist() == [None]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([0.1, None], pa.float32()),
        ([[0.1]], pa.list_(pa.float32())),
        ([Decimal("1.5")], pa.decimal128(5, 2)),
        ([3], pa.decimal128(5, 2)),
        ([2**63], pa.uint64()),
        ([[("k", 1)]], pa.map_(pa.string(), pa.int8())),
        ([b"ab"], pa.binary(2)),
        ([{}], STRUCT),
        ([], pa.date32()),
    ],
    ids=str,
)
def test_values_of_python_need_no_types_of_their_own(values: list[Any], kind: pa.DataType) -> None:
    assert convert(from_python(values, kind), kind).equals(pa.array(values, kind))


def test_types_alone_tell_before_any_value_is_there() -> None:
    assert is_convertible(pa.decimal128(20, 0), pa.uint64())
    assert not is_convertible(pa.string(), pa.int64())
    assert not is_convertible(pa.month_day_nano_interval(), pa.duration("us"))
