"""Fields inside of a type that are not nullable hold no null."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_pages.arrow.nested import null_of_required
from spark_pages.errors import SchemaMismatchError
from tests.transaction.stores import store_with

X = pa.field("x", pa.int64(), nullable=False)
VALUES = pa.array([None, 1])
HIDDEN = pa.array([True, False])
STRUCT = pa.StructArray.from_arrays([VALUES], fields=[X])
ENDS = pa.array([0, 1, 2], pa.int32())
TO_X = pa.map_(pa.string(), X)
ARRAYS = {
    "struct": STRUCT,
    "list": pa.ListArray.from_arrays(ENDS, VALUES, type=pa.list_(X)),
    "large list": pa.LargeListArray.from_arrays(ENDS.cast(pa.int64()), VALUES, type=pa.large_list(X)),
    "list of a fixed size": pa.FixedSizeListArray.from_arrays(VALUES, type=pa.list_(X, 1)),
    "map": pa.MapArray.from_arrays(ENDS, pa.array(["k", "l"]), VALUES, TO_X),
    "list of structs": pa.ListArray.from_arrays(ENDS, STRUCT),
    "dictionary of structs": pa.DictionaryArray.from_arrays(pa.array([0, 1]), STRUCT),
    "list view": pa.ListViewArray.from_arrays(
        ENDS[:2], pa.array([1, 1], pa.int32()), VALUES, type=pa.list_view(X)
    ),
}
SHOWN = {
    "struct": pa.StructArray.from_arrays([VALUES], fields=[X], mask=HIDDEN),
    "list": pa.ListArray.from_arrays(ENDS, VALUES, type=pa.list_(X), mask=HIDDEN),
    "list of a fixed size": pa.FixedSizeListArray.from_arrays(VALUES, type=pa.list_(X, 1), mask=HIDDEN),
    "map": ARRAYS["map"].slice(1),
    "slice": ARRAYS["list"].slice(1),
}
SHOWN["list of structs"] = pa.ListArray.from_arrays(ENDS, SHOWN["struct"])


@pytest.mark.parametrize("what", ARRAYS)
def test_a_null_of_a_field_that_is_not_nullable_is_refused_by_name(what):
    store = store_with(schema=pa.schema([("c", ARRAYS[what].type)]))

    with store.transaction() as txn, pytest.raises(SchemaMismatchError, match=r"'x' inside of column 'c'"):
        txn.append("t", pa.table({"c": ARRAYS[what]}))


@pytest.mark.parametrize("what", SHOWN)
def test_a_null_below_a_null_or_outside_of_a_slice_is_none(what):
    store = store_with(schema=pa.schema([("c", SHOWN[what].type)]))

    with store.transaction() as txn:
        txn.append("t", pa.table({"c": SHOWN[what]}))

    assert store.snapshot().table("t").read()["c"].to_pylist() == SHOWN[what].to_pylist()


def test_lists_of_another_type_are_looked_at_as_well():
    store = store_with(schema=pa.schema([("c", pa.list_(X))]))

    with store.transaction() as txn, pytest.raises(SchemaMismatchError, match="not nullable"):
        txn.append("t", {"c": [[None]]})


rows = st.lists(st.none() | st.lists(st.none() | st.integers(0, 9), max_size=3), max_size=6)


@given(rows, st.integers(0, 3))
def test_a_null_is_found_where_python_sees_one(values, first):
    array = pa.array(values, pa.list_(pa.int64())).cast(pa.list_(pa.int64()))
    strict = pa.Array.from_buffers(
        pa.list_(X), len(array), array.buffers()[:2], array.null_count, 0, [array.values]
    ).slice(first)

    has_null = any(None in each for each in values[first:] if each is not None)

    assert (null_of_required(strict) == "x") == has_null
