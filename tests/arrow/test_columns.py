from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_pages.arrow.columns import (
    no_bytes,
    number_column,
    numbers_of,
    optional_bytes,
    optional_flags,
    optional_numbers,
    optional_text,
    valid_of,
)
from tests.effort import examples
from tests.io.strategies import steady

KINDS = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}


def maybe(values: st.SearchStrategy[object]) -> st.SearchStrategy[list[object]]:
    """Lists with nulls in them, some longer than a machine word has bits."""
    return st.lists(st.none() | values, max_size=9) | st.lists(st.none() | values, min_size=65, max_size=80)


@settings(steady, max_examples=examples(100))
@given(st.data(), st.sampled_from(sorted(KINDS)))
def test_numbers_become_the_column_that_pyarrow_makes_and_come_back(data, bits):
    values = data.draw(maybe(st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)))
    start = data.draw(st.integers(0, len(values)))

    column = optional_numbers(values, KINDS[bits])

    assert column.equals(pa.array(values, KINDS[bits]))
    column.validate(full=True)
    part = column.slice(start)
    assert valid_of(part).tolist() == [value is not None for value in values[start:]]
    assert [n for n, ok in zip(numbers_of(part).tolist(), valid_of(part), strict=True) if ok] == [
        value for value in values[start:] if value is not None
    ]


@settings(steady, max_examples=examples(60))
@given(maybe(st.binary(max_size=5)), maybe(st.text(max_size=5)), maybe(st.booleans()))
def test_bytes_text_and_flags_become_the_columns_that_pyarrow_makes(raw, texts, flags):
    assert optional_bytes(raw).equals(pa.array(raw, pa.binary()))
    assert optional_text(texts).equals(pa.array(texts, pa.string()))
    assert optional_flags(flags).equals(pa.array(flags, pa.bool_()))
    for column in (optional_bytes(raw), optional_text(texts), optional_flags(flags)):
        column.validate(full=True)


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1])
def test_a_number_that_does_not_fit_the_type_is_refused(value):
    with pytest.raises(OverflowError):
        optional_numbers([1, value], pa.int32())
    with pytest.raises(OverflowError):
        optional_numbers([None, value], pa.int32())


@pytest.mark.parametrize("count", [0, 1, 100_000])
def test_a_column_of_nothing_is_all_null_and_takes_no_memory_of_its_own(count):
    one, two = no_bytes(count), no_bytes(count)

    one.validate(full=True)
    assert one.null_count == len(one) == count
    assert one.buffers()[1].address == two.buffers()[1].address


def test_a_column_stands_on_the_memory_of_its_array():
    values = np.arange(5, dtype=np.int64)

    column = number_column(values, pa.int64())

    assert column.buffers()[1].address == values.ctypes.data
