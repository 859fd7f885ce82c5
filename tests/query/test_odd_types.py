"""Filters over columns without a type, over runs inside of other values, and text as times of day."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from spark_pages.errors import InvalidInputError
from tests.transaction.stores import store_with


@pytest.fixture(scope="module")
def nulls():
    rows = pa.table({"n": pa.nulls(3), "a": [1, 2, 3]})
    return store_with(rows, schema=rows.schema).snapshot().table("t")


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("n = 1", []),
        ("n = 'x'", []),
        ("n = n", []),
        ("n < n", []),
        ("n = null", []),
        ("n", []),
        ("not n", []),
        ("n is true", []),
        ("n is not true", [1, 2, 3]),
        ("n is null", [1, 2, 3]),
        ("n is not null", []),
        ("n is distinct from 1", [1, 2, 3]),
        ("n is not distinct from n", [1, 2, 3]),
        ("n in ('x', 'y')", []),
        ("n not in (1)", []),
        ("a in (1, n)", [1]),
        ("n between 1 and 2", []),
        ("n like 'a%'", []),
        ("n like '%a'", []),
        ("n ilike 'A%'", []),
        ("lower(n) = 'a'", []),
        ("length(n) is null", [1, 2, 3]),
        ("trim(n) = 'a'", []),
        ("n || 'x' is null", [1, 2, 3]),
        ("starts_with(n, 'a') or a = 2", [2]),
        ("ends_with(n, 'a')", []),
        ("contains(n, 'a')", []),
        ("coalesce(n, 1) = 1", [1, 2, 3]),
        ("coalesce(n, a) = 2", [2]),
        ("coalesce(n, n) is null", [1, 2, 3]),
        ("case when n then true else false end", []),
        ("case when a = 1 then n else a end = 2", [2]),
        ("extract(year from n) = 2024", []),
        ("abs(n) = 1", []),
        ("n + 1 > 2", []),
        ("cast(n as int) = 1", []),
        ("cast(n as time) = '10:00'", []),
        ("n and a = 1", []),
        ("n or a = 1", [1]),
        ("a = n or a = 3", [3]),
        ("null or a = 1", [1]),
    ],
)
def test_a_column_without_a_type_is_null_of_any(nulls, text, rows):
    assert nulls.read(["a"], filter=text).column("a").to_pylist() == rows


RUNS = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array([1, None]))
NESTED = pa.table(
    {
        "a": [1, 2, 3],
        "box": pa.StructArray.from_arrays([RUNS], ["x"], mask=pa.array([False, True, False])),
        "list": pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), RUNS),
    }
)


@pytest.mark.parametrize(
    ("filter", "rows"),
    [
        ("box is null", [2]),
        ("box is not null", [1, 3]),
        ("list is null", []),
        ("list is not null", [1, 2, 3]),
        ("box.x = 1", [1]),
        ([("box", "is null")], [2]),
    ],
)
def test_runs_inside_of_other_values_are_tested_as_what_they_stand_for(filter, rows):
    table = store_with(NESTED, schema=NESTED.schema).snapshot().table("t")

    assert table.read(["a"], filter=filter).column("a").to_pylist() == rows


@pytest.fixture
def times():
    rows = pa.table(
        {
            "s": ["10:00", "09:30:15.123456", None],
            "t": pa.array([dt.time(10), dt.time(9), None], pa.time64("us")),
            "fine": pa.array([dt.time(10), dt.time(9), None], pa.time64("ns")),
            "coarse": pa.array([dt.time(10), dt.time(9), None], pa.time32("s")),
        }
    )
    return store_with(rows, schema=rows.schema)


def test_text_becomes_a_time_of_day_in_filters(times):
    table = times.snapshot().table("t")

    assert table.read(["s"], filter="cast(s as time) = t").column("s").to_pylist() == ["10:00"]
    assert table.read(["s"], filter="cast(s as time) < '09:45'").column("s").to_pylist() == [
        "09:30:15.123456"
    ]


def test_text_becomes_a_time_of_day_where_sql_inserts_it(times):
    times.sql("INSERT INTO t VALUES ('x', '11:00', '11:00:00.000000001', '11:00:01')")
    times.sql("ALTER TABLE t ADD COLUMN later TIME DEFAULT '12:30'")

    found = times.sql("SELECT t, coarse, later FROM t WHERE s = 'x'")

    assert found.to_pylist() == [{"t": dt.time(11), "coarse": dt.time(11, 0, 1), "later": dt.time(12, 30)}]


def test_text_that_is_no_time_of_day_is_refused(times):
    with pytest.raises(InvalidInputError, match="Failed to parse"):
        times.snapshot().table("t").read(filter="cast('x' || s as time) = t")
