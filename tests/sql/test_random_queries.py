"""Random simple queries give what DuckDB gives on the same rows as plain Arrow tables."""

# ruff: noqa: S608 - queries are what is made here
from __future__ import annotations

import math

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spark_pages as sp
from tests.effort import LONG, examples
from tests.transaction.stores import QUIET

NAN = float("nan")
T = pa.table(
    {
        "a": pa.array([1, 2, None, 4, 5, 5, 7, None, -3, 10, 11, 12], pa.int64()),
        "b": pa.array([0.5, NAN, None, -1.5, 2.0, NAN, 2.0, 1e300, -0.0, 0.0, None, 3.25]),
        "h": pa.array([0.1, 0.2, NAN, None, 0.1, 5, -5, 0, -0.0, 1e30, 2, 0.3], pa.float32()),
        "s": ["ab", "", None, "b%", "abc", "AB", "é", "ab", "zz", None, "a_c", "b"],
        "flag": [True, False, None, True] * 3,
        "m": pa.array([100, 250, None, 1, 2, 3] * 2, pa.decimal128(5, 2)),
        "day": pa.array([0, 1, 2, None] * 3, pa.date32()),
    }
)
U = pa.table(
    {
        "a": pa.array([2, 4, 5, None, 99], pa.int32()),
        "c": ["ab", "q", None, "b", "zz"],
        "b": pa.array([NAN, 2.0, None, 0.5, 0.0]),
    }
)


def build(url: str = "memory://random-queries") -> sp.Store:
    """Each few rows are pages of their own, so that statistics have something to rule out."""
    store = sp.create(url, properties=QUIET)
    for name, data, rows in (("t", T, 3), ("u", U, 2)):
        with store.transaction() as txn:
            txn.create_table(name, data.schema)
        for start in range(0, data.num_rows, rows):
            with store.transaction() as txn:
                txn.append(name, data.slice(start, rows))
    return store


@pytest.fixture(scope="module")
def store():
    return build()


@pytest.fixture(scope="module")
def plain():
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("t", T)
    connection.register("u", U)
    yield connection
    connection.close()


COMPARISONS = st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM"])
NUMBERS = st.sampled_from(["0", "1", "2", "-1.5", "2.0", "4.5", "5", "1e300", "0.1", "0.30000001", "100"])
TEXTS = st.sampled_from(["'ab'", "''", "'b%'", "'zz'", "'é'"])
PATTERNS = st.sampled_from(["'a%'", "'ab'", "'%b'", "'a_c%'", "''", "'b\\%%'"])


@st.composite
def conditions(draw: st.DrawFn, prefix: str = "", depth: int = 2) -> str:
    """A condition on columns of t."""
    column = draw(st.sampled_from(["a", "b", "h", "m"]))
    match draw(st.integers(0, 9 if depth else 7)):
        case 0 | 1:
            return f"{prefix}{column} {draw(COMPARISONS)} {draw(NUMBERS)}"
        case 2:
            return f"{draw(NUMBERS)} {draw(st.sampled_from(['<', '>=', '=']))} {prefix}{column}"
        case 3:
            low, high = draw(NUMBERS), draw(NUMBERS)
            return f"{prefix}{column} {draw(st.sampled_from(['', 'NOT ']))}BETWEEN {low} AND {high}"
        case 4:
            return f"{prefix}s {draw(st.sampled_from(['LIKE', 'NOT LIKE', 'ILIKE']))} {draw(PATTERNS)}"
        case 5:
            return f"{prefix}s {draw(COMPARISONS)} {draw(TEXTS)}"
        case 6:
            kind = draw(st.sampled_from(["IS NULL", "IS NOT NULL"]))
            return f"{prefix}{draw(st.sampled_from(['a', 'b', 's', 'flag', 'day']))} {kind}"
        case 7:
            return draw(
                st.sampled_from(
                    [
                        f"{prefix}flag",
                        f"NOT {prefix}flag",
                        f"{prefix}a IN (1, 5, NULL)",
                        f"{prefix}a NOT IN (1, 5)",
                        f"{prefix}s IN ('ab', 'b')",
                        f"{prefix}day >= DATE '1970-01-02'",
                        f"{prefix}day = '1970-01-03'",
                        f"{prefix}a % 2 = 0",
                        f"{prefix}b = 'nan'::DOUBLE",
                        f"isnan({prefix}h)",
                        f"{prefix}a + {prefix}b > 3",
                        f"length({prefix}s) = 2",
                    ]
                )
            )
        case _:
            inner = conditions(prefix=prefix, depth=depth - 1)
            joined = f"({draw(inner)} {draw(st.sampled_from(['AND', 'OR']))} {draw(inner)})"
            return f"{draw(st.sampled_from(['', 'NOT ']))}{joined}"


@st.composite
def queries(draw: st.DrawFn) -> str:
    """A query over t and u."""
    join = draw(st.sampled_from(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN"]))
    on = draw(st.sampled_from(["ON x.a = y.a", "USING (a)", "ON x.s = y.c AND y.b < 2", "ON x.b = y.b"]))
    match draw(st.integers(0, 7)):
        case 0 | 1:
            return f"SELECT a, b, h, s, m FROM t WHERE {draw(conditions())}"
        case 2:
            return f"SELECT s, count(*), sum(a), max(b), min(h) FROM t WHERE {draw(conditions())} GROUP BY s"
        case 3:
            one_sided = join in ("SEMI JOIN", "ANTI JOIN")
            columns = "x.a, x.b, x.s" if one_sided else "x.a, x.b, y.a, y.b, y.c"
            extra = (
                "" if one_sided or draw(st.booleans()) else f" AND y.b {draw(COMPARISONS)} {draw(NUMBERS)}"
            )
            return f"SELECT {columns} FROM t x {join} u y {on} WHERE {draw(conditions(prefix='x.'))}{extra}"
        case 4:
            return (
                f"SELECT x.a, x.s FROM t x WHERE {draw(st.sampled_from(['', 'NOT ']))}EXISTS "
                f"(SELECT 1 FROM u y WHERE y.a = x.a AND {draw(conditions(prefix='x.'))})"
            )
        case 5:
            return (
                f"WITH c AS (SELECT a AS p, b AS q, s FROM t WHERE {draw(conditions())}) "
                f"SELECT p, q FROM c WHERE q {draw(COMPARISONS)} {draw(NUMBERS)} UNION ALL "
                f"SELECT a, b FROM u"
            )
        case 6:
            return f"SELECT DISTINCT flag, b > 1 AS big FROM t WHERE {draw(conditions())}"
        case _:
            return (
                f"SELECT a, row_number() OVER (PARTITION BY flag ORDER BY a, b, h, s, m, day) AS r FROM t "
                f"WHERE {draw(conditions())} QUALIFY r <= 2"
            )


def rows(table: pa.Table) -> list[str]:
    """The rows in an order of their own; NaN equals NaN, and 0.0 equals -0.0."""

    def plain_value(value: object) -> object:
        if isinstance(value, float):
            return "NaN" if math.isnan(value) else value + 0.0
        return value

    columns = [[plain_value(value) for value in column.to_pylist()] for column in table.columns]
    return sorted(map(repr, zip(*columns, strict=True)))


@settings(
    max_examples=examples(5000) if LONG else examples(100),
    deadline=None,
)
@given(query=queries())
def test_a_query_gives_what_duckdb_gives_on_arrow_tables(store, plain, query):
    expected = plain.sql(query).to_arrow_table()

    found = store.sql(query)

    assert rows(found) == rows(expected), query
    assert found.schema.names == expected.schema.names or "(" in "".join(expected.schema.names)
