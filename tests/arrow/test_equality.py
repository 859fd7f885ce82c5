"""Equality of entries of every type."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_pages.arrow.equality import equal_entries

NAN = float("nan")
VALUES = {
    "int": (pa.int64(), [1, 2, None, 0]),
    "half": (pa.float16(), [np.float16(1), np.float16(NAN), None, np.float16(0)]),
    "double": (pa.float64(), [1.5, NAN, None, 0.0, -0.0]),
    "bool": (pa.bool_(), [True, False, None]),
    "text": (pa.string(), ["a", "", None, "ab"]),
    "text view": (pa.string_view(), ["a", "", None, "a long text that is stored elsewhere"]),
    "decimal": (pa.decimal128(5, 2), [None, 1, 2]),
    "interval": (pa.month_day_nano_interval(), [(1, 2, 3), None, (1, 2, 4)]),
    "nothing": (pa.null(), [None]),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), ["a", "b", None]),
    "list": (pa.list_(pa.float64()), [[1.0, NAN], [1.0], [], None, [NAN, 1.0], [None, 1.0]]),
    "large list": (pa.large_list(pa.string()), [["a", "b"], ["ab"], [], None, [None]]),
    "fixed list": (pa.list_(pa.int32(), 2), [[1, 2], [2, 1], None, [1, None]]),
    "list view": (pa.list_view(pa.int32()), [[1, 2], [2], [], None]),
    "struct": (pa.struct({"x": pa.float64(), "y": pa.string()}), [{"x": NAN, "y": "a"}, {"x": None}, None]),
    "map": (pa.map_(pa.string(), pa.int64()), [[("a", 1)], [("a", None)], [], None, [("b", 1)]]),
    "lists of lists": (pa.list_(pa.list_(pa.int8())), [[[1], [2]], [[1, 2]], [[], [1, 2]], [], None]),
}


@pytest.mark.parametrize(("kind", "values"), VALUES.values(), ids=VALUES)
@given(data=st.data())
def test_entries_are_equal_where_their_texts_are(kind, values, data):
    picks = data.draw(st.lists(st.tuples(*[st.integers(0, len(values) - 1)] * 2), max_size=9))
    skip = data.draw(st.integers(0, len(picks)))
    one, other = (pa.array([values[pick[side]] for pick in picks], kind) for side in (0, 1))

    equal = equal_entries(one.slice(skip), other.slice(skip))

    assert equal.tolist() == [repr(values[a]) == repr(values[b]) for a, b in picks[skip:]]


def test_run_ends_and_unions_are_compared_by_their_values():
    encoded = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(["a", "b"]))
    other = pa.RunEndEncodedArray.from_arrays(pa.array([1, 3], pa.int32()), pa.array(["a", "b"]))
    codes, offsets = pa.array([0, 1, 0], pa.int8()), pa.array([0, 0, 1], pa.int32())
    dense = pa.UnionArray.from_dense(codes, offsets, [pa.array([1, 2]), pa.array(["x"])])
    changed = pa.UnionArray.from_dense(codes, offsets, [pa.array([1, 3]), pa.array(["x"])])
    sparse = pa.UnionArray.from_sparse(codes, [pa.array([1, 0, 2]), pa.array(["", "x", ""])])
    hidden = pa.UnionArray.from_sparse(codes, [pa.array([1, 9, 2]), pa.array(["", "x", "?"])])

    assert equal_entries(encoded, other).tolist() == [True, False, True]
    assert equal_entries(dense, changed).tolist() == [True, True, False]
    assert equal_entries(sparse, hidden).tolist() == [True, True, True]


def test_values_under_a_null_struct_do_not_count():
    def struct(hidden: float) -> pa.Array:
        return pa.StructArray.from_arrays([pa.array([1.0, hidden])], ["x"], mask=pa.array([False, True]))

    assert equal_entries(struct(1.0), struct(2.0)).tolist() == [True, True]
