"""Only columns and pages that a query needs are read, counted in pages."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_pages.errors import InvalidInputError
from spark_pages.io import ReadTrace
from spark_pages.query.table import Table
from tests.transaction.stores import store_with

PAGES = 10
ROWS = 100  # of each page


def part(number: int) -> pa.Table:
    """Rows whose values tell of which page they are."""
    numbers = range(number * ROWS, (number + 1) * ROWS)
    return pa.table(
        {
            "n": pa.array(numbers, pa.int64()),
            "f": [float(n) for n in numbers],
            "g": pa.array([float(n) for n in numbers], pa.float32()),
            "s": [f"p{number} {n}" for n in numbers],
            "at": pa.array(numbers, pa.timestamp("us", "UTC")),
            "wide": ["x" * 50] * ROWS,
        }
    )


@pytest.fixture(scope="module")
def many_pages():
    """A table of which each column has ten pages."""
    return store_with(*map(part, range(PAGES)))


@pytest.fixture
def store(many_pages):
    """The same with empty caches."""
    return type(many_pages)(many_pages.object_store)


@pytest.fixture
def trace(monkeypatch):
    """Receives the pages that queries touch."""
    trace = ReadTrace()
    scan = Table._scan_few
    monkeypatch.setattr(Table, "_scan_few", lambda *args: scan(*args, trace=trace))
    return trace


@pytest.mark.parametrize(
    ("sql", "rows", "pages"),
    [
        ("SELECT n FROM t", 1000, 10),
        ("SELECT n, s FROM t", 1000, 20),
        ("SELECT count(*) FROM t", 1, 0),
        ("SELECT 1 FROM t", 1000, 0),
        ("SELECT max(n) FROM (SELECT * FROM t)", 1, 10),
        # conditions that DuckDB hands over
        ("SELECT n FROM t WHERE n = 250", 1, 1),
        ("SELECT s FROM t WHERE N BETWEEN 199 AND 200", 2, 4),
        ("SELECT n FROM t WHERE n IN (5, 905)", 2, 2),
        ("SELECT n FROM t WHERE n < 100 OR n >= 900", 200, 2),
        ("SELECT n FROM t WHERE s = 'p3 301'", 1, 2),
        ("SELECT n FROM t WHERE at < '1970-01-01 00:00:00.000060'", 60, 2),
        ("SELECT n FROM t WHERE n + 1 = 500", 1, 1),
        ("SELECT n FROM t WHERE n IS NULL", 0, 0),
        # conditions that DuckDB keeps
        ("SELECT n FROM t WHERE f > 949.5", 50, 2),
        ("SELECT n FROM t WHERE 99 > F", 99, 2),
        ("SELECT n FROM t WHERE f = 250", 1, 2),
        ("SELECT n FROM t WHERE g BETWEEN 250 AND 251", 2, 2),
        ("SELECT n FROM t WHERE f >= 250 AND f <= 260 AND length(s) > 0", 11, 3),
        ("SELECT n FROM t WHERE s LIKE 'p7%1'", 10, 2),
        ("SELECT n FROM t WHERE f < -1", 0, 0),
        # through subqueries, common table expressions and views of columns
        ("SELECT x.n FROM (SELECT n, wide FROM t) x WHERE x.n = 1", 1, 1),
        ("WITH c AS (SELECT n AS m, s FROM t) SELECT m FROM c WHERE m >= 950", 50, 1),
        ("SELECT m FROM (SELECT f AS m FROM t WHERE f > 899) WHERE m < 901", 1, 2),
        # on each side of a join
        ("SELECT a.n FROM t a JOIN t b ON a.n = b.n WHERE a.n < 100 AND b.n > 50", 49, 2),
        ("SELECT a.n FROM t a LEFT JOIN t b ON a.n = b.n AND b.n < 10 WHERE a.n < 100", 100, 2),
        ("SELECT a.n FROM t a JOIN t b USING (n) WHERE a.f < 10 AND b.f < 10", 10, 4),
    ],
)
def test_a_query_reads_what_it_needs(store, trace, sql, rows, pages):
    result = store.sql(sql)

    assert (result.num_rows, len(trace.page_ids)) == (rows, pages)


def test_a_condition_on_the_nearest_row_or_the_same_place_does_not_move_before_the_join(store):
    nearest = "SELECT a.n, b.n FROM t a ASOF JOIN t b ON a.f >= b.f WHERE b.f < 10 AND a.n < 20"
    placed = "SELECT a.n, b.n FROM t a POSITIONAL JOIN t b WHERE b.f >= 500"

    near, same = store.sql(nearest), store.sql(placed)

    assert near.num_rows == 10
    assert same.column(0) == same.column(1)


def test_rows_come_in_the_order_of_the_table(store):
    result = store.sql("SELECT n FROM t WHERE n % 7 = 0")

    assert result.column("n").to_pylist() == list(range(0, 1000, 7))


def test_an_older_version_is_read_from_its_own_pages(store, trace):
    store.sql("SELECT n FROM t VERSION AS OF 3")

    assert len(trace.page_ids) == 2


def test_columns_of_a_table_come_back_in_its_types(many_pages):
    kinds = pa.schema(
        [
            ("d", pa.dictionary(pa.int32(), pa.string())),
            ("big", pa.large_string()),
            ("ms", pa.timestamp("ms", "Europe/Berlin")),
            ("fixed", pa.binary(2)),
            ("t32", pa.time32("s")),
            ("l", pa.list_(pa.struct([("x", pa.int16())]))),
        ]
    )
    row = {"d": "a", "big": "b", "ms": 0, "fixed": b"xy", "t32": 1, "l": [{"x": 1}]}
    store = store_with(pa.Table.from_pylist([row], schema=kinds))

    result = store.sql("SELECT * FROM t")

    assert result.schema == kinds
    assert result.equals(store.snapshot().table("t").read())


def test_a_column_that_duckdb_cannot_read_does_no_harm_where_it_is_not_asked_for():
    store = store_with(pa.table({"n": [1, 2], "half": pa.array([0.5, 1.5], pa.float16())}))

    result = store.sql("SELECT n FROM t WHERE n > 1")

    assert result.to_pylist() == [{"n": 2}]
    with pytest.raises(InvalidInputError, match="Cannot run the query"):
        store.sql("SELECT half FROM t")


@pytest.fixture
def large():
    """A column of 60 pages with 8,000 rows each."""
    pages = [
        pa.table({"n": pa.array(range(page * 8000, (page + 1) * 8000), pa.int64())}) for page in range(60)
    ]
    made = store_with(*pages)
    return type(made)(made.object_store)


@pytest.mark.parametrize(
    "sql", ["SELECT * FROM t", "SELECT n + 1 FROM t WHERE n >= 0", "SELECT * FROM t LIMIT 400000"]
)
def test_a_limit_beside_the_query_stops_reading(large, trace, sql):
    found = large.sql(sql, limit=21)

    assert found.num_rows == 21
    assert len(trace.page_ids) <= 40
