"""Filters of many conditions take time in proportion to them; filters nested too deep are refused by name."""

from __future__ import annotations

from functools import reduce
from operator import and_, or_

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_pages.errors import InvalidInputError
from spark_pages.query.page_bounds import PageBounds
from spark_pages.query.predicates.expression_tree import expression_parts
from spark_pages.query.predicates.filters import parse_filter
from spark_pages.query.predicates.large_predicates import JoinedPredicate
from tests.effort import SLOW, examples
from tests.transaction.stores import store_with

ROWS = pa.table({"a": list(range(100)), "b": [None if row % 5 == 0 else row % 7 for row in range(100)]})


@pytest.fixture(scope="module")
def table():
    return store_with(ROWS, schema=ROWS.schema).snapshot().table("t")


MANY = 10_000 if SLOW else 2_500
CHAINS = {
    "text, or of equal": (" or ".join(f"a = {n * 3}" for n in range(MANY)), list(range(0, 100, 3))),
    "text, or of greater": (" or ".join(f"a > {n + 95}" for n in range(500)), [96, 97, 98, 99]),
    "text, and": (" and ".join(f"a <> {n * 2}" for n in range(500)), list(range(1, 100, 2))),
    "text, parentheses": (" or ".join(f"(a > {n + 95})" for n in range(400)), [96, 97, 98, 99]),
    "text, not": ("not (" + " or ".join(f"a > {n + 1}" for n in range(400)) + ")", [0, 1]),
    "text, in": (f"a in ({', '.join(str(n * 3) for n in range(MANY))})", list(range(0, 100, 3))),
    "expression, from the left": (
        reduce(or_, [pc.field("a") == n * 3 for n in range(MANY)]),
        list(range(0, 100, 3)),
    ),
    "expression, from the right": (
        reduce(lambda one, two: two & one, [pc.field("a") != n * 2 for n in range(500)]),
        list(range(1, 100, 2)),
    ),
    "expression, not": (~reduce(or_, [pc.field("a") > n + 1 for n in range(400)]), [0, 1]),
    "list": ([("a", "!=", n * 2) for n in range(500)], list(range(1, 100, 2))),
    "lists": ([[("a", "==", n * 3)] for n in range(500)], list(range(0, 100, 3))),
    "lists of two": ([[("a", ">", n), ("b", "<", 1)] for n in range(90, 300)], [91, 98]),
}


@pytest.mark.sampled
@pytest.mark.parametrize("given", CHAINS)
def test_a_filter_of_thousands_of_conditions_finds_its_rows(table, given):
    filter, rows = CHAINS[given]

    found = table.read(["a"], filter=filter)

    assert found.column("a").to_pylist() == rows


def test_statistics_are_asked_once_for_each_condition(table, monkeypatch):
    asked = []
    may_match = PageBounds.may_match
    monkeypatch.setattr(PageBounds, "may_match", lambda *given: asked.append(1) or may_match(*given))

    table.read(filter=" or ".join(f"a > {n} and b > {n}" for n in range(160)))

    assert len(asked) <= 2 * 320  # once before bloom filters, and once beside them


def test_values_that_a_column_may_be_equal_to_are_one_condition(table):
    parsed = table._parse(reduce(or_, [pc.field("a") == n for n in range(50)]))

    assert (parsed.tree.operator, len(parsed.tree.value)) == ("in", 50)


DEEP = {
    "text, parentheses": "(" * MANY + "a = 1" + ")" * MANY,
    "text, not": "not " * MANY + "a = 1",
    "text, calls": "abs(" * MANY + "a" + ")" * MANY + " = 1",
    "text, case": "case when a = 1 then true else " * MANY + "false" + " end" * MANY,
    "text, sum": "0 < " + " + ".join(["a"] * MANY),
    "text, alternating": "".join(f"a = {n} {'or' if n % 2 else 'and'} (" for n in range(MANY))
    + "a = 1"
    + ")" * MANY,
    "expression, not": reduce(lambda inner, _: ~inner, range(MANY), pc.field("a") == 1),
    "expression, sum": reduce(lambda inner, _: inner + 1, range(MANY), pc.field("a")) > 1,
    "expression, alternating": reduce(
        lambda inner, n: (inner | (pc.field("a") == n)) if n % 2 else (inner & (pc.field("a") != n)),
        range(MANY),
        pc.field("a") == 1,
    ),
}


@pytest.mark.sampled
@pytest.mark.parametrize("given", DEEP)
def test_a_filter_that_is_nested_too_deep_is_refused(table, given):
    with pytest.raises(InvalidInputError, match=r"nested|levels"):
        table.read(filter=DEEP[given])


@st.composite
def predicates(draw: st.DrawFn) -> pc.Expression:
    """Chains in chains, some under NOT, which are larger than one Arrow expression may be."""
    leaves = [
        pc.field(draw(st.sampled_from(["a", "b"]))) > draw(st.integers(-1, 99))
        for _ in range(draw(st.integers(1, 40)))
    ]
    parts = [reduce(draw(st.sampled_from([and_, or_])), leaves) for _ in range(draw(st.integers(2, 6)))]
    flipped = [~part if draw(st.booleans()) else part for part in parts]
    joined = reduce(draw(st.sampled_from([and_, or_])), flipped)
    return ~joined if draw(st.booleans()) else joined


@settings(max_examples=examples(60), deadline=None)
@given(expression=predicates())
def test_a_large_predicate_is_true_of_the_same_rows_in_parts(expression):
    parsed = parse_filter(expression, ROWS.schema)

    assert parsed.passing(ROWS, "t") == ROWS.filter(expression)


def test_the_parts_of_a_large_predicate_are_small():
    predicate = expression_parts(reduce(or_, [pc.field("a") == n for n in range(300)])).predicate

    assert isinstance(predicate, JoinedPredicate)
    assert len(predicate.parts) == 5
