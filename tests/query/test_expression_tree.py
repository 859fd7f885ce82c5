"""Arrow expressions are looked into: no page is skipped that holds a row for which the expression is true."""

from __future__ import annotations

import datetime as dt
import math

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_pages.io import ReadTrace
from spark_pages.query.predicates.expression_tree import expression_parts
from spark_pages.query.predicates.predicate import ANY_ROW
from tests.effort import examples
from tests.io.strategies import steady
from tests.query.test_filters import ASKED, VALUES, batches, same_rows
from tests.transaction.stores import store_with

COMPARE = [
    pc.Expression.__eq__,
    pc.Expression.__ne__,
    pc.Expression.__lt__,
    pc.Expression.__le__,
    pc.Expression.__gt__,
    pc.Expression.__ge__,
]


@st.composite
def leaves(draw: st.DrawFn) -> pc.Expression:
    name = draw(st.sampled_from(list(VALUES)))
    column, kind = pc.field(name), VALUES[name][0]
    value = draw(ASKED[name])
    literal = (
        pc.scalar(pa.scalar(value, kind)) if isinstance(value, dt.datetime | dt.date) else pc.scalar(value)
    )
    compared = draw(st.sampled_from(COMPARE))
    forms = [
        compared(column, literal),
        compared(literal, column),
        column.is_null(),
        column.is_null(nan_is_null=True) if name in "fg" else column.is_valid(),
        column.isin([value] if name in "ntbd" else [value, None])
        if not isinstance(value, float)
        else column.is_valid(),
        column == pc.scalar(pa.scalar(None, kind)),
    ]
    if name == "b":
        forms += [column]
    if name == "s":
        forms += [pc.starts_with(column, draw(st.sampled_from(["", "a", "é", "\U0010ffff", "a" * 33])))]
    if name == "n":
        forms += [(column + 1) > 2, pc.if_else(column > 0, True, False)]
    return draw(st.sampled_from(forms))


expressions = st.recursive(
    leaves() | st.sampled_from([pc.scalar(True), pc.scalar(False), pc.scalar(pa.scalar(None, pa.bool_()))]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda two: two[0] & two[1]),
        st.tuples(inner, inner).map(lambda two: two[0] | two[1]),
        inner.map(lambda one: ~one),
    ),
    max_leaves=6,
)


@settings(steady, max_examples=examples(60))
@given(batches(), st.lists(expressions, min_size=1, max_size=8))
def test_an_expression_gives_the_rows_that_arrow_gives(tables, asked):
    table = store_with(*tables).snapshot().table("t")
    whole = pa.concat_tables(tables)

    for expression in asked:
        try:
            expected = whole.filter(expression)
        except pa.ArrowException:  # an integer that no float is, and the like: Arrow refuses some values
            continue
        assert same_rows(table.read(filter=expression), expected), str(expression)


@pytest.mark.parametrize("compared", COMPARE)
@pytest.mark.parametrize("flipped", [False, True])
@pytest.mark.parametrize("inverted", [False, True])
def test_a_page_whose_bound_is_the_value_is_not_skipped(compared, flipped, inverted):
    parts = [
        pa.table({"n": pa.array(values, pa.int64())}) for values in ([5], [4, 5], [5, 6], [None, 5], [None])
    ]
    table = store_with(*parts).snapshot().table("t")
    whole = pa.concat_tables(parts)

    for value in (4, 5, 6):
        sides = (pc.scalar(value), pc.field("n")) if flipped else (pc.field("n"), pc.scalar(value))
        expression = ~compared(*sides) if inverted else compared(*sides)
        assert table.read(filter=expression) == whole.filter(expression).combine_chunks()


N, S = pc.field("n"), pc.field("s")


@pytest.mark.parametrize(
    ("expression", "pages"),
    [
        (N == 7, 1),
        (pc.scalar(5) > N, 1),
        (~(N >= 5), 1),
        (~((N < 5) | (N > 9)), 1),
        ((N == 7) & (S == "n7"), 2),
        ((N == 7) | (N == 27), 2),
        (N.isin([3, 27]), 2),
        (pc.if_else(N.is_valid(), N.isin([3, 27]), pa.scalar(None, pa.bool_())), 2),
        (pc.if_else(N.is_valid(), N.isin([3, 27]), pa.scalar(True)), 3),
        (~N.is_valid(), 0),
        (N.is_null(), 0),
        (pc.starts_with(S, "n2"), 2),
        ((N == 7) & (pc.abs(N) == 7), 1),
        (pc.abs(N) == 7, 3),
        (N.cast(pa.float64()) < 1, 3),
        ((N == 7) & pc.scalar(False), 0),
    ],
)
def test_pages_that_cannot_hold_a_row_for_which_it_is_true_are_not_read(expression, pages):
    parts = [
        pa.table({"n": list(range(start, start + 5)), "s": [f"n{i}" for i in range(start, start + 5)]})
        for start in (0, 5, 25)
    ]
    table = store_with(*parts).snapshot().table("t")
    trace = ReadTrace()

    table.read([], filter=expression, trace=trace)

    assert len(trace.page_ids) == pages


def test_only_columns_that_an_expression_names_are_read():
    parts = expression_parts(
        (pc.field("a") > 1) & ~pc.field("inner", "x").is_null() & (pc.field("a") < pc.field("z"))
    )

    assert parts.columns == ("a", "inner", "z")


@pytest.mark.parametrize("unknown", [pc.field(0) > 1, pc.field("a").cast(pa.bool_())])
def test_an_expression_that_cannot_be_looked_into_skips_nothing(unknown):
    assert expression_parts(unknown).tree == ANY_ROW
    table = store_with(pa.table({"a": [0, 1, 2]})).snapshot().table("t")
    assert table.read(filter=unknown).num_rows < 3


def test_a_release_of_arrow_that_writes_expressions_another_way_skips_nothing(monkeypatch):
    monkeypatch.setattr(
        "spark_pages.query.predicates.expression_tree._metadata", lambda _: [("call", "new"), ("word", "x")]
    )

    parts = expression_parts(pc.field("a") == math.pi)

    assert parts.columns is None
    assert parts.tree == ANY_ROW
