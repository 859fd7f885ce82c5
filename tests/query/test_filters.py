"""Filters give what Arrow gives, and never read a page that statistics rule out."""

from __future__ import annotations

import datetime as dt
import math

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_pages.errors import ColumnNotFoundError, InvalidInputError
from spark_pages.io import ReadTrace
from spark_pages.query.predicates.filters import parse_filter
from spark_pages.query.predicates.predicate import OPERATORS
from tests.effort import examples
from tests.io.strategies import steady
from tests.transaction.stores import store_with

DAY = dt.datetime(2020, 1, 1)
VALUES = {
    "n": (pa.int64(), st.integers(-5, 5)),
    "f": (pa.float64(), st.sampled_from([-1.5, -0.0, 0.0, 1.5, math.nan, math.inf])),
    "g": (pa.float32(), st.sampled_from([-1.5, 0.0, float(pa.scalar(0.1, pa.float32()).as_py()), math.nan])),
    "s": (pa.string(), st.sampled_from(["", "a", "b", "é", "a" * 40, "a" * 32 + "b", "\U0010ffff" * 9])),
    "b": (pa.bool_(), st.booleans()),
    "t": (
        pa.timestamp("s"),
        st.sampled_from([DAY, DAY + dt.timedelta(seconds=1), DAY - dt.timedelta(days=1)]),
    ),
    "d": (pa.date32(), st.sampled_from([dt.date(2020, 1, 1), dt.date(1969, 12, 31)])),
}
SCHEMA = pa.schema([(name, kind) for name, (kind, _) in VALUES.items()])
ASKED = {
    **{name: values for name, (_, values) in VALUES.items()},
    "n": st.integers(-6, 6) | st.sampled_from([1.5, -0.5]),
    "g": st.sampled_from([0.0, 0.1, -1.5]),
    "t": st.sampled_from([DAY, DAY + dt.timedelta(microseconds=500_000)]),
}


@st.composite
def batches(draw: st.DrawFn) -> list[pa.Table]:
    """What is appended: each table of few rows becomes a page of each column."""
    tables = []
    for size in draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)):
        columns = [
            pa.array(draw(st.lists(st.none() | values, min_size=size, max_size=size)), kind)
            for kind, values in VALUES.values()
        ]
        tables.append(pa.table(columns, schema=SCHEMA))
    return tables


@st.composite
def conditions(draw: st.DrawFn) -> tuple[object, ...]:
    column = draw(st.sampled_from(list(ASKED)))
    operator = draw(st.sampled_from(OPERATORS))
    if operator in ("is null", "is not null"):
        return (column, operator)
    if operator in ("in", "not in"):
        value = VALUES[column][1]
        return (column, operator, draw(st.lists(st.none() | value, min_size=1, max_size=3)))
    if column == "b" and operator not in ("==", "!="):
        operator = "=="
    return (column, operator, draw(ASKED[column]))


@settings(steady, max_examples=examples(50))
@given(batches(), st.lists(st.lists(conditions(), min_size=1, max_size=2), min_size=1, max_size=2))
def test_a_filter_gives_the_rows_that_arrow_gives(tables, condition_lists):
    table = store_with(*tables).snapshot().table("t")
    expected = pa.concat_tables(tables).filter(parse_filter(condition_lists).expression)

    found = table.read(filter=condition_lists)

    assert same_rows(found, expected)
    assert same_rows(table.scan(filter=condition_lists, batch_rows=3).read_all(), expected)


def same_rows(one: pa.Table, two: pa.Table) -> bool:
    return one.schema == two.schema and repr(one.to_pydict()) == repr(two.to_pydict())


@pytest.mark.parametrize(
    ("condition", "data", "matches"),
    [
        (("n", "not in", [1]), {"n": [None, None]}, 2),
        (("n", "in", [1, None]), {"n": [None, None]}, 2),
        (("n", "<", 1.5), {"n": [1, 1]}, 2),
        (("n", "<", 2**70), {"n": [1, None]}, 1),
        (("g", ">", 0.1), {"g": [pa.scalar(0.1, pa.float32()).as_py()]}, 1),
        (("t", "<", DAY + dt.timedelta(microseconds=1)), {"t": [DAY]}, 1),
        (("f", "!=", 1.0), {"f": [1.0, math.nan]}, 1),
        (("f", "==", 0.0), {"f": [-0.0]}, 1),
        (("n", "in", []), {"n": [1]}, 0),
        (("n", "==", None), {"n": [None, 1]}, 0),
    ],
)
def test_values_that_a_page_s_statistics_cannot_rule_out_are_found(condition, data, matches):
    columns = {name: pa.array(values, SCHEMA.field(name).type) for name, values in data.items()}

    found = store_with(pa.table(columns), schema=SCHEMA).snapshot().table("t").read(filter=[condition])

    assert found.num_rows == matches


@pytest.mark.parametrize(
    ("condition", "pages"),
    [
        (("n", "==", 7), 1),
        (("n", "<", 5), 1),
        (("n", "<=", 5), 2),
        (("n", ">=", 25), 1),
        (("n", ">", 100), 0),
        (("n", "in", [3, 27]), 2),
        (("n", "!=", 3), 3),
        (("n", "is null"), 0),
        (("n", "is not null"), 3),
        (("n", "in", []), 0),
    ],
)
def test_pages_that_statistics_rule_out_are_not_touched(condition, pages):
    tables = [pa.table({"n": list(range(start, start + 5))}) for start in (0, 5, 25)]
    table = store_with(*tables).snapshot().table("t")
    trace = ReadTrace()

    table.read(filter=[condition], trace=trace)

    assert len(trace.page_ids) == pages


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        (("at", ">", DAY), "on table 't', which has at: timestamp"),
        (("n", "==", object()), "has a value that Arrow cannot hold"),
    ],
)
def test_a_value_that_cannot_be_compared_is_refused_before_a_page_is_read(condition, message):
    rows = pa.table({"n": [1], "at": pa.array([0], pa.timestamp("us", "UTC"))})
    table = store_with(rows).snapshot().table("t")

    with pytest.raises(InvalidInputError, match=message):
        table.explain(filter=[condition])


def test_other_columns_are_read_only_where_a_row_passes():
    tables = [pa.table({"n": [i, i + 10], "s": ["x", "y"]}) for i in range(5)]
    table = store_with(*tables).snapshot().table("t")
    trace = ReadTrace()

    assert table.read(["s"], filter=[("n", "==", 13)], trace=trace).to_pydict() == {"s": ["y"]}

    assert len(trace.page_ids) < 2 * 5


def test_alternatives_read_the_pages_of_each():
    tables = [pa.table({"n": [i]}) for i in range(6)]
    table = store_with(*tables).snapshot().table("t")
    trace = ReadTrace()

    found = table.read(filter=[[("n", "==", 1)], [("n", ">=", 4), ("n", "<", 5)]], trace=trace)

    assert found.to_pydict() == {"n": [1, 4]}
    assert len(trace.page_ids) == 2


def test_an_arrow_expression_is_taken_as_it_is():
    table = store_with(pa.table({"n": [1, 2, 3]})).snapshot().table("t")

    assert table.read(filter=pa.compute.field("n") > 1).num_rows == 2


def test_a_filter_on_a_range_keeps_to_the_range():
    table = store_with(pa.table({"n": list(range(20))})).snapshot().table("t")

    assert table.read(start=5, stop=9, filter=[("n", ">", 6)]).to_pydict() == {"n": [7, 8]}


@pytest.mark.parametrize(
    "wrong", ["", "n >", [], [()], [("n",)], [("n", "like", "a")], [("n", "==", 1), "x"], 5]
)
def test_what_is_no_filter_is_refused(wrong):
    table = store_with(pa.table({"n": [1]})).snapshot().table("t")

    with pytest.raises(InvalidInputError, match="filter"):
        table.read(filter=wrong)


@pytest.mark.parametrize(
    "misfit",
    [
        [("n", "==", "x")],
        [("s", "==", 5)],
        [("n", "in", ["x"])],
        [("n", "in", 5)],
        pa.compute.field("n") == "x",
        pa.compute.field("n") + 1,
        pa.compute.field("s"),
        "n = 'x'",
        "n + 1",
        "s",
    ],
)
def test_a_filter_that_does_not_fit_the_columns_is_refused_before_any_page_is_read(misfit):
    table = store_with(pa.table({"n": [1], "s": ["a"]})).snapshot().table("t")
    trace = ReadTrace()

    with pytest.raises(InvalidInputError, match=r"filter|list of values"):
        table.scan(filter=misfit, trace=trace)
    assert not trace.page_ids


@pytest.mark.parametrize(
    "wrong",
    [[("distanc", "==", 1)], pa.compute.field("distanc") == 1, "distanc = 1", "not (distanc > 2 or 1 = 1)"],
)
def test_a_filter_on_an_unknown_column_suggests_the_right_one(wrong):
    table = store_with(pa.table({"distance": [1]})).snapshot().table("t")

    with pytest.raises(ColumnNotFoundError, match="Did you mean 'distance'"):
        table.read(filter=wrong)
