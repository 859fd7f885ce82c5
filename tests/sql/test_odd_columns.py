"""Columns that DuckDB cannot take as they are: decimals of negative scale, and names with NUL."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from spark_pages.errors import InvalidInputError
from tests.transaction.stores import store_with

HUNDREDS = pa.decimal128(5, -2)


@pytest.fixture
def store():
    rows = pa.table(
        {
            "d": pa.array([Decimal(100), Decimal(-1200), None], HUNDREDS),
            "list": pa.array([[Decimal(100)], None, []], pa.list_(HUNDREDS)),
            "box": pa.array([{"x": Decimal(300)}, None, {"x": None}], pa.struct([("x", HUNDREDS)])),
        }
    )
    return store_with(rows, schema=rows.schema)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT d FROM t WHERE d > 50", [Decimal(100)]),
        ("SELECT d FROM t WHERE d = 100", [Decimal(100)]),
        ("SELECT sum(d) FROM t", [Decimal(-1100)]),
        ("SELECT d + 1 FROM t WHERE d < 0", [Decimal(-1199)]),
        ("SELECT box.x FROM t WHERE box.X > 0", [Decimal(300)]),
        ("SELECT list FROM t", [[Decimal(100)], None, []]),
    ],
)
def test_decimals_of_negative_scale_are_whole_numbers_to_a_query(store, text, expected):
    assert store.sql(text).column(0).to_pylist() == expected


def test_decimals_of_negative_scale_keep_their_type(store):
    found = store.sql("SELECT * FROM t")

    assert found.schema.types == [HUNDREDS, pa.list_(HUNDREDS), pa.struct([("x", HUNDREDS)])]
    assert store.sql("INSERT INTO t SELECT * FROM t").to_pylist()[0]["rows"] == 3


def test_a_decimal_of_more_digits_than_duckdb_has_is_refused_by_name():
    rows = pa.table({"d": pa.array([Decimal("1E+30")], pa.decimal128(20, -20)), "a": [1]})
    made = store_with(rows, schema=rows.schema)

    assert made.sql("SELECT a FROM t").num_rows == 1
    with pytest.raises(InvalidInputError, match="Cannot query column 'd': DuckDB has decimals of up to 38"):
        made.sql("SELECT d FROM t")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('SELECT "a\0b" FROM t WHERE "a\0b" > 1', [2]),
        ('SELECT a FROM t WHERE "a\0b" = 2', [4]),
        ('SELECT "v\0"."a\0b" FROM t AS "v\0" ORDER BY 1', [1, 2]),
        ('WITH "w\0" AS (SELECT 1 AS "q\0") SELECT "q\0" FROM "w\0"', [1]),
        ("SELECT a FROM t WHERE 'x\0y' = 'x'", []),
    ],
)
def test_names_with_nul_are_names_like_any_other(text, expected):
    rows = pa.table({"a\0b": [1, 2], "a": [3, 4], "a?b": [5, 6]})
    made = store_with(rows, schema=rows.schema)

    assert made.sql(text).column(0).to_pylist() == expected


@pytest.mark.parametrize(
    "text", ['SELECT box."X" FROM t', "SELECT box FROM t", "SELECT a FROM t WHERE box['X'] = 2"]
)
def test_fields_that_differ_by_case_only_are_refused_and_not_taken_for_each_other(text):
    rows = pa.table({"box": [{"x": 1, "X": 2}], "a": [1]})
    made = store_with(rows, schema=rows.schema)

    assert made.sql("SELECT a FROM t").num_rows == 1
    with pytest.raises(InvalidInputError, match="differ by case only"):
        made.sql(text)


def test_a_field_whose_name_holds_nul_is_refused_and_not_read_as_null():
    rows = pa.table({"c": [{"x\0y": 1}], "a": [1]})
    made = store_with(rows, schema=rows.schema)

    assert made.sql("SELECT a FROM t").num_rows == 1
    with pytest.raises(InvalidInputError, match="name of a field holds NUL"):
        made.sql("SELECT c FROM t")


@pytest.mark.parametrize("pattern", ["b\\%", "b\\\\%", "b\\x", "%\\%", "b_", "B\\%", "\\", "b%\\%_"])
@pytest.mark.parametrize("operator", ["like", "ilike", "not like"])
def test_a_pattern_means_the_same_in_a_filter_and_in_a_query(pattern, operator):
    rows = pa.table({"s": ["b%", "b\\x", "bx", "b\\%", "b\\\\", "\\", None]})
    made = store_with(rows, schema=rows.schema)
    condition = f"s {operator} '{pattern}'"

    found = made.snapshot().table("t").read(filter=condition)

    assert found == made.sql(f"SELECT s FROM t WHERE {condition}")  # noqa: S608 - made here
