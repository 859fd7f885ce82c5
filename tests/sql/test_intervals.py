"""Durations and intervals of nanoseconds, and extension types over large storage, in queries."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_pages.errors import InvalidInputError
from spark_pages.sql.engine import check_intervals
from tests.transaction.stores import store_with

FINE, WHOLE = pa.array([0, 1, None], pa.duration("ns")), pa.array([0, 1000, None], pa.duration("ns"))
INTERVAL = pa.array([(1, 2, 3), None, (0, 0, 0)], pa.month_day_nano_interval())
ENDS = pa.array([0, 2, 2, 3], pa.int32())


@pytest.mark.parametrize(
    "values",
    [
        FINE,
        INTERVAL,
        FINE.dictionary_encode(),
        pa.StructArray.from_arrays([FINE], ["x"]),
        pa.ListArray.from_arrays(ENDS, INTERVAL),
        pa.MapArray.from_arrays(ENDS, pa.array(["k", "l", "m"]), FINE),
    ],
    ids=lambda values: str(values.type),
)
def test_nanoseconds_that_a_query_would_drop_are_refused_by_the_name_of_their_column(values):
    store = store_with(pa.table({"n": [1, 2, 3], "c": values}))

    assert store.sql("SELECT n FROM t").num_rows == 3
    with pytest.raises(InvalidInputError, match="Cannot query column 'c': DuckDB keeps microseconds"):
        store.sql("SELECT count(*) FROM t WHERE c = (SELECT min(c) FROM t)")


def test_whole_microseconds_are_compared_as_they_are():
    store = store_with(pa.table({"c": WHOLE}))

    assert store.sql("SELECT count(*) AS n FROM t WHERE c > INTERVAL 0 SECOND").to_pydict() == {"n": [1]}


@given(st.lists(st.none() | st.integers(-2000, 2000), max_size=9), st.integers(0, 9))
def test_only_values_that_are_shown_count(values, first):
    shown = pa.array(values, pa.duration("ns")).slice(first)
    has_rest = any(each % 1000 for each in values[first:] if each is not None)

    try:
        check_intervals("c", shown)
    except InvalidInputError:
        assert has_rest
    else:
        assert not has_rest


def test_an_extension_type_over_large_bytes_keeps_its_type_in_a_query():
    kind = pa.opaque(pa.large_binary(), "bignum", "DuckDB")
    values = pa.ExtensionArray.from_storage(kind, pa.array([b"\x80\x00\x01\x05", None], pa.large_binary()))
    store = store_with(pa.table({"c": values}))

    found = store.sql("SELECT c FROM t")

    assert found.schema.field("c").type == kind
    assert found["c"].to_pylist() == values.to_pylist()
