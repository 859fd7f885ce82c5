"""A list of any length is compared with the bounds of every page, of every type."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_pages.io import ReadTrace
from spark_pages.query.predicates.predicate import AllOf, AnyOf, Condition
from spark_pages.query.pruning import merged
from tests.effort import examples
from tests.io.strategies import steady
from tests.transaction.stores import store_with

KINDS = {
    pa.int8(): lambda n: n % 100,
    pa.int64(): lambda n: n * 10**15,
    pa.uint64(): lambda n: n + 2**63,
    pa.float32(): float,
    pa.float64(): lambda n: n / 2,
    pa.string(): lambda n: f"{n:05d}",
    pa.large_string(): lambda n: "long and alike " * 4 + f"{n:05d}",
    pa.string_view(): lambda n: f"{n:05d}",
    pa.binary(): lambda n: n.to_bytes(2, "big"),
    pa.binary(4): lambda n: n.to_bytes(4, "big"),
    pa.dictionary(pa.int32(), pa.string()): lambda n: f"{n:05d}",
    pa.decimal128(20, 2): lambda n: Decimal(n) / 4,
    pa.decimal256(50, -2): lambda n: Decimal(n) * 100,
    pa.decimal32(7, 2): lambda n: Decimal(n) / 4,
    pa.date32(): lambda n: dt.date(2000, 1, 1) + dt.timedelta(n),
    pa.time64("us"): lambda n: (dt.datetime(2000, 1, 1) + dt.timedelta(seconds=n)).time(),
    pa.timestamp("ns"): lambda n: dt.datetime(2000, 1, 1) + dt.timedelta(hours=n),
    pa.timestamp("us", "UTC"): lambda n: dt.datetime(2000, 1, 1, tzinfo=dt.UTC) + dt.timedelta(hours=n),
    pa.duration("ms"): lambda n: dt.timedelta(seconds=n),
}
DISTINCT_BOUNDS = [kind for kind in KINDS if kind not in (pa.int8(), pa.large_string())]


def in_pages(kind: pa.DataType, pages: int, rows: int) -> pa.Table:
    make = KINDS[kind]
    return pa.table({"c": pa.array([make(n) for n in range(pages * rows)], kind)})


def pages_read(table, condition: object) -> tuple[int, list[object]]:
    trace = ReadTrace()
    rows = table.read(filter=condition, trace=trace)
    return len(trace.page_ids), rows.column("c").to_pylist()


@pytest.mark.parametrize("kind", DISTINCT_BOUNDS, ids=str)
@pytest.mark.parametrize("asked", [64, 65, 200])
def test_a_list_reads_the_pages_whose_bounds_hold_one_of_its_values_however_long_it_is(kind, asked):
    whole = in_pages(kind, 12, 40)
    table = store_with(*(whole.slice(40 * page, 40) for page in range(12))).snapshot().table("t")
    make = KINDS[kind]
    values = [make(n) for n in [*range(40), *range(400, 440)][:asked]] + [
        make(4_000 + n) for n in range(asked)
    ]

    pages, found = pages_read(table, [("c", "in", values)])

    assert pages == 1 + (asked > 40)
    assert found == [each for each in whole.column("c").to_pylist() if each in set(values)]


FLOATS = [-math.inf, -1.5, -0.0, 0.0, 2.0, 3.5, math.inf, math.nan]


@settings(steady, max_examples=examples(30))
@given(
    pages=st.lists(
        st.lists(st.none() | st.sampled_from(FLOATS), min_size=1, max_size=4), min_size=1, max_size=5
    ),
    values=st.lists(st.none() | st.sampled_from([*FLOATS, 1.0, 2.5]), max_size=6),
)
def test_a_list_with_null_and_nan_finds_what_arrow_finds(pages, values):
    tables = [pa.table({"c": pa.array(page, pa.float64())}) for page in pages]
    table = store_with(*tables).snapshot().table("t")
    condition = [("c", "in", values)]

    _, found = pages_read(table, condition)

    expected = pa.concat_tables(tables).filter(table._parse_one(condition).expression)
    assert repr(found) == repr(expected.column("c").to_pylist())


def test_null_and_nan_in_a_list_read_no_page_without_them():
    pages = [[1.0, None], [2.0, math.nan], [3.0, 4.0], [7.0, 8.0]]
    table = store_with(*(pa.table({"c": page}) for page in pages)).snapshot().table("t")

    assert pages_read(table, [("c", "in", [None, 3.5])])[0] == 2
    assert pages_read(table, [("c", "in", [math.nan, 7.5])])[0] == 2
    assert pages_read(table, [("c", "in", [None])])[0] == 1


def test_text_of_cut_bounds_is_found_in_a_long_list():
    text = ["x" * 40 + f"{n:04d}" for n in range(300)]
    tables = [pa.table({"c": text[first : first + 100]}) for first in (0, 100, 200)]
    table = store_with(*tables, pa.table({"c": ["z" * 50]})).snapshot().table("t")

    pages, found = pages_read(table, [("c", "in", text[50:150])])

    assert (pages, found) == (3, text[50:150])  # of three pages alike, and not the one of z


leaves = st.builds(Condition, st.sampled_from("ab"), st.sampled_from(["==", "<"]), st.integers(0, 4)) | (
    st.builds(Condition, st.sampled_from("ab"), st.just("in"), st.lists(st.integers(0, 4), max_size=3))
)
trees = st.recursive(
    leaves,
    lambda part: (
        st.lists(part, max_size=4).map(lambda parts: AllOf(tuple(parts)))
        | st.lists(part, max_size=4).map(lambda parts: AnyOf(tuple(parts)))
    ),
    max_leaves=12,
)


def holds(tree, row: dict[str, int]) -> bool:
    if isinstance(tree, AllOf):
        return all(holds(part, row) for part in tree.parts)
    if isinstance(tree, AnyOf):
        return any(holds(part, row) for part in tree.parts)
    value = row[tree.column]
    tests = {
        "==": lambda: value == tree.value,
        "<": lambda: value < tree.value,
        "in": lambda: value in tree.value,
    }
    return tests[tree.operator]()


@settings(steady, max_examples=examples(150))
@given(trees)
def test_a_merged_tree_holds_for_the_same_rows(tree):
    rows = [{"a": a, "b": b} for a in range(5) for b in range(5)]

    assert [holds(merged(tree), row) for row in rows] == [holds(tree, row) for row in rows]


def test_alternatives_of_one_column_are_one_list_however_deep_they_are_nested():
    tree = Condition("a", "==", 0)
    for n in range(1, 5_000):
        tree = AnyOf((tree, Condition("a", "==", n)))

    assert merged(tree) == Condition("a", "in", list(range(5_000)))
