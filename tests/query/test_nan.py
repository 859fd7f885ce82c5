"""Filters and keys where pages have NaN: what is skipped, and that no form of a filter misses a row."""

from __future__ import annotations

import math
from collections.abc import Sequence

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_pages.errors import ConstraintError
from spark_pages.io import ReadTrace
from spark_pages.model.page import PageStats
from spark_pages.query.page_bounds import PageBounds
from spark_pages.query.table import Table
from spark_pages.store import Store
from tests.effort import examples
from tests.io.strategies import steady
from tests.query.test_aggregate import foreign
from tests.transaction.stores import store_with

NAN, INF = math.nan, math.inf
KINDS = [pa.float16(), pa.float32(), pa.float64(), pa.dictionary(pa.int8(), pa.float64())]
PLAIN = [pa.float32(), pa.float64()]
VALUES = [-INF, -1.5, -0.0, 0.0, 1.5, 2.0, INF, NAN]
COMPARISONS = ["==", "!=", "<", "<=", ">", ">="]

asked = st.sampled_from([*VALUES, 0.5])
pages_of_floats = st.lists(
    st.lists(st.none() | st.sampled_from(VALUES), min_size=1, max_size=4), min_size=1, max_size=5
)


@st.composite
def expressions(draw: st.DrawFn, depth: int = 2) -> pc.Expression:
    field = pc.field("x")
    if depth and draw(st.booleans()):
        one, two = draw(expressions(depth - 1)), draw(expressions(depth - 1))
        return draw(st.sampled_from([~one, one & two, one | two, ~(one & two), ~(one | two)]))
    value = pa.scalar(draw(asked), pa.float64())
    return draw(
        st.sampled_from(
            [
                *(field == value, field != value, field < value, field <= value, field > value),
                *(field >= value, value > field, field.isin(pa.array([value.as_py(), 2.0]))),
                *(field.is_null(), field.is_valid(), field.is_null(nan_is_null=True), pc.is_nan(field)),
            ]
        )
    )


@st.composite
def texts(draw: st.DrawFn, depth: int = 2) -> str:
    """Conditions of SQL."""
    if depth and draw(st.booleans()):
        one, two = draw(texts(depth - 1)), draw(texts(depth - 1))
        return draw(
            st.sampled_from(
                [f"not ({one})", f"({one}) and ({two})", f"({one}) or ({two})", f"not (({one}) or ({two}))"]
            )
        )
    operator = draw(st.sampled_from(["=", "<>", "<", "<=", ">", ">="]))
    number = draw(st.sampled_from(["-1.5", "0", "0.5", "1.5", "2", "'nan'::DOUBLE", "'inf'::DOUBLE"]))
    low, high = draw(st.sampled_from(["-1.5", "0"])), draw(st.sampled_from(["0.5", "2"]))
    return draw(
        st.sampled_from(
            [
                *(f"x {operator} {number}", f"x between {low} and {high}", f"x not between {low} and {high}"),
                *(f"x in ({low}, {high})", f"x not in ({low}, {high})", "x is null", "x is not null"),
            ]
        )
    )


@st.composite
def lists(draw: st.DrawFn) -> list[list[tuple[object, ...]]]:
    def condition() -> tuple[object, ...]:
        operator = draw(st.sampled_from([*COMPARISONS, "in", "not in", "is null", "is not null"]))
        members = draw(st.lists(st.none() | asked, min_size=1, max_size=3))
        return ("x", operator, members if operator.endswith("in") else draw(asked))

    return [[condition() for _ in range(draw(st.integers(1, 2)))] for _ in range(draw(st.integers(1, 2)))]


def made(pages: Sequence[Sequence[float | None]], kind: pa.DataType) -> Store:
    """A store whose table ``t`` has a column ``x`` with these pages."""
    tables = [pa.table({"x": pa.array(page, kind)}) for page in pages]
    return store_with(*tables, schema=pa.schema([("x", kind)]))


def unskipped(store: Store, monkeypatch: pytest.MonkeyPatch, filter: object) -> pa.Table:
    """What the filter gives where no page is ruled out."""
    with monkeypatch.context() as nothing_known:
        nothing_known.setattr(PageBounds, "may_match", lambda pages, _: np.ones(len(pages.entries), bool))
        return store.snapshot().table("t").read(filter=filter)


def shown(rows: pa.Table) -> list[str]:
    return sorted(repr(value) for value in rows.column(0).to_pylist())


@pytest.mark.parametrize("kind", KINDS, ids=str)
@settings(steady, max_examples=examples(15))
@given(pages=pages_of_floats, filters=st.lists(expressions() | texts() | lists(), min_size=4, max_size=8))
def test_no_filter_misses_a_row_for_what_statistics_say(kind, pages, filters):
    store = made(pages, kind)
    table = store.snapshot().table("t")
    with pytest.MonkeyPatch.context() as monkeypatch:
        for filter in filters:
            if pa.types.is_dictionary(kind) and isinstance(filter, pc.Expression):
                continue  # Arrow compares no dictionaries
            expected = unskipped(store, monkeypatch, filter)

            assert shown(table.read(filter=filter)) == shown(expected)
            assert shown(table.scan(filter=filter).read_all()) == shown(expected)


@pytest.mark.parametrize("kind", PLAIN, ids=str)
@settings(steady, max_examples=10)
@given(pages=pages_of_floats, conditions=st.lists(texts(), min_size=2, max_size=5))
def test_queries_of_duckdb_miss_no_row_either(kind, pages, conditions):
    store = made(pages, kind)
    rows = store.snapshot().table("t").read()
    for condition in conditions:
        found = store.sql(f"SELECT x FROM t WHERE {condition}")  # noqa: S608

        with duckdb.connect() as other:
            expected = other.from_arrow(rows).filter(condition).to_arrow_table()
        assert shown(found) == shown(expected)


FOUR = [[1.0, NAN], [5.0, NAN, 7.0], [NAN, NAN, None], [2.0, 3.0]]


@pytest.mark.parametrize(
    ("filter", "pages"),
    [
        ([("x", ">", 4.0)], 1),
        ([("x", "<", 1.5)], 1),
        ([("x", "==", 6.0)], 1),
        ([("x", "in", [2.5, 6.0])], 2),
        ([("x", "==", 9.0)], 0),
        ([("x", "!=", 9.0)], 4),
        ([("x", "!=", 1.0)], 4),
        ([("x", "not in", [1.0])], 4),
        ([("x", "in", [1.0, NAN])], 3),
        ([("x", "==", NAN)], 3),
        ([("x", "is null")], 1),
        ("x > 4", 1),
        ("not (x <= 4)", 3),
        ("not (x > 4)", 4),
        ("x between 2 and 3", 1),
        (pc.field("x") > 4.0, 1),
        (~(pc.field("x") > 8.0), 4),
        (~(pc.field("x") < 2.5), 4),
        (pc.is_nan(pc.field("x")), 4),
    ],
    ids=str,
)
def test_pages_with_a_nan_are_skipped_for_their_other_values(filter, pages):
    table = made(FOUR, pa.float64()).snapshot().table("t")
    trace = ReadTrace()

    table.read(filter=filter, trace=trace)

    assert len(trace.page_ids) == pages


@pytest.mark.parametrize(
    ("condition", "pages"),
    [("x < 1.5", 1), ("x between 5 and 8", 1), ("x = 7", 1), ("x > 4", 3), ("x >= 8", 3)],
)
def test_a_query_of_duckdb_reads_pages_with_a_nan_where_that_is_greater(monkeypatch, condition, pages):
    trace, scan = ReadTrace(), Table._scan_few
    monkeypatch.setattr(Table, "_scan_few", lambda *args: scan(*args, trace=trace))

    made(FOUR, pa.float64()).sql(f"SELECT x FROM t WHERE {condition}")  # noqa: S608

    assert len(trace.page_ids) == pages


@pytest.mark.parametrize("nan", [False, True])
def test_a_page_of_another_writer_with_a_nan_and_without_bounds_is_never_skipped(nan):
    store = store_with(pa.table({"c": [3.0, NAN, 1.0]}))
    foreign(store, [3.0, NAN, 1.0], PageStats(0, None, None, False, 3, nan=nan))
    table = store.snapshot().table("t")

    for filter in ([("c", ">", 2.0)], [("c", "==", 3.0)], ~(pc.field("c") < 9.0)):
        assert table.read(filter=filter).num_rows == 1
    assert (table.aggregate("c").max.as_py(), table.aggregate("c").pages_read) == (3.0, 1)


@pytest.mark.parametrize("columns", [["x"], ["x", "y"]])
@pytest.mark.parametrize("many", [1, 1200])
def test_a_key_that_is_nan_is_found_among_pages_with_other_bounds(columns, many):
    schema = pa.schema([pa.field(name, pa.float64(), nullable=False) for name in columns])
    store = store_with(pa.table({name: [1.0, NAN] for name in columns}, schema=schema))
    with store.transaction() as txn:
        txn.add_constraint("t", "t_key", primary_key=columns)

    new = [*(100.0 + np.arange(many)).tolist(), NAN]
    with pytest.raises(ConstraintError, match="more than once"), store.transaction() as txn:
        txn.append("t", pa.table(dict.fromkeys(columns, new)))
