"""Primary keys of floats: values that SQL calls equal are one key."""

from __future__ import annotations

import math
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_pages.errors import ConstraintError
from spark_pages.transaction.keys import first_repeated, first_repeated_of_many
from tests.effort import examples
from tests.io.strategies import steady
from tests.transaction.stores import store_with

OTHER_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0001))[0]
KINDS = [pa.float16(), pa.float32(), pa.float64()]


def keyed(kind: pa.DataType):
    store = store_with(schema=pa.schema([pa.field("k", kind, nullable=False)]))
    with store.transaction() as txn:
        txn.add_constraint("t", "key", primary_key=["k"])
    return store


def floats(kind: pa.DataType, values: list[float]) -> pa.Table:
    return pa.table({"k": pa.array(np.array(values, kind.to_pandas_dtype()), kind)})


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize(
    ("one", "two"), [(0.0, -0.0), (-0.0, 0.0), (float("nan"), OTHER_NAN)], ids=["zeros", "zeros too", "NaN"]
)
def test_a_key_that_sql_calls_equal_is_refused_in_one_append_and_in_two(kind, one, two):
    together, apart = keyed(kind), keyed(kind)
    with apart.transaction() as txn:
        txn.append("t", floats(kind, [one, 1.0]))

    with pytest.raises(ConstraintError, match="more than once"), together.transaction() as txn:
        txn.append("t", floats(kind, [one, 1.0, two]))
    with pytest.raises(ConstraintError, match="more than once"), apart.transaction() as txn:
        txn.append("t", floats(kind, [2.0, two]))

    assert together.snapshot().table("t").num_rows == 0
    assert apart.snapshot().table("t").num_rows == 2


@settings(steady, max_examples=examples(50))
@given(st.lists(st.sampled_from([0.0, -0.0, float("nan"), OTHER_NAN, 1.0, 2.0, -1.0, 5e-324]), max_size=5))
def test_both_ways_to_compare_keys_find_what_sql_calls_equal(values):
    keys = pa.table({"k": pa.array(np.array(values, np.float64))})
    different = {("nan" if math.isnan(value) else value + 0.0) for value in values}

    few = first_repeated(keys)
    many = first_repeated_of_many(len(values), lambda: iter([keys]), lambda: iter([]))

    assert (few is not None) == (many is not None) == (len(different) < len(values))
