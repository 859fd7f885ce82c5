"""Times and durations on their way into Spark, which counts microseconds: the same ones, or a refusal."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_pages.errors import InvalidInputError
from spark_pages.spark.arrow_types import spark_schema, to_spark
from tests.effort import examples
from tests.io.strategies import steady

LIMIT = 2**63 - 1
FACTORS = {"s": 1_000_000, "ms": 1000, "us": 1}
KINDS = {
    "with a zone": (lambda unit: pa.timestamp(unit, "UTC"), pa.timestamp("us", "UTC")),
    "without": (pa.timestamp, pa.timestamp("us")),
    "durations": (pa.duration, pa.duration("us")),
}


def array_of(kind: pa.DataType, numbers: list[int | None]) -> pa.Array:
    return pa.array(numbers, pa.int64()).view(kind)


UNITS = st.sampled_from(sorted(FACTORS))


def batch_and_target(name: str, unit: str, numbers: list[int | None], in_a_list: bool):
    make, wanted = KINDS[name]
    values = array_of(make(unit), numbers)
    column = pa.ListArray.from_arrays([0, len(values)], values) if in_a_list else values
    target = pa.list_(wanted) if in_a_list else wanted
    return pa.record_batch({"never": column}), pa.schema([("never", target)])


@settings(steady, max_examples=examples(40))
@given(st.sampled_from(sorted(KINDS)), UNITS, st.booleans(), st.data())
def test_a_time_that_microseconds_hold_is_the_same_in_spark(name, unit, in_a_list, data):
    most = LIMIT // FACTORS[unit]
    numbers = data.draw(st.lists(st.one_of(st.none(), st.integers(-most, most)), max_size=3))
    batch, target = batch_and_target(name, unit, numbers, in_a_list)

    found = to_spark(batch, target).column(0)

    exact = [None if number is None else number * FACTORS[unit] for number in numbers]
    assert (found.flatten() if in_a_list else found).cast(pa.int64()).to_pylist() == exact


@settings(steady, max_examples=examples(40))
@given(st.sampled_from(sorted(KINDS)), st.sampled_from(["s", "ms"]), st.booleans(), st.data())
def test_a_time_that_microseconds_do_not_hold_is_refused_by_column_and_value(name, unit, in_a_list, data):
    beyond = data.draw(st.integers(LIMIT // FACTORS[unit] + 1, LIMIT)) * data.draw(st.sampled_from([1, -1]))
    batch, target = batch_and_target(name, unit, [None, 0, beyond], in_a_list)

    with pytest.raises(InvalidInputError, match=f"'never'.*{beyond}"):
        to_spark(batch, target)


@pytest.mark.parametrize("unit", ["s", "ms"])
def test_spark_is_told_of_microseconds(unit):
    schema = pa.schema([("t", pa.timestamp(unit, "UTC")), ("d", pa.list_(pa.duration(unit)))])

    assert spark_schema(schema).types == [pa.timestamp("us", "UTC"), pa.list_(pa.duration("us"))]


def test_nanoseconds_are_cut():
    batch = pa.record_batch({"t": array_of(pa.timestamp("ns"), [1999, -1])})

    found = to_spark(batch, pa.schema([("t", pa.timestamp("us"))])).column(0)

    assert found.cast(pa.int64()).to_pylist() == [1, 0]
