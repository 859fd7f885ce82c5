"""What is recognised is carried over: each piece of a statement reaches DuckDB, or is refused."""

# ruff: noqa: E501, S608 - queries are what is tried here
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from sqlglot import exp

import spark_pages as sp
from spark_pages.errors import InvalidInputError, SparkPagesError
from spark_pages.query.predicates.nodes import NODES
from spark_pages.query.predicates.parsing import for_duckdb, parse, rewritten
from spark_pages.query.predicates.vocabulary import FUNCTIONS, check
from tests.effort import examples
from tests.sql.logic import records
from tests.sql.test_random_queries import T, U, build, queries, rows
from tests.transaction.stores import QUIET

ROWS = pa.table({"a": [1, 2, None, 4], "b": [0.5, None, 2.0, -1.5], "s": ["ab", "", None, "b%"]})

EXAMPLES = [
    "SELECT a AS x, b FROM t AS u WHERE a > 1 GROUP BY a, b HAVING count(*) > 0 ORDER BY a DESC NULLS FIRST LIMIT 2",
    "SELECT a FROM t QUALIFY row_number() OVER (PARTITION BY s ORDER BY a ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) = 1",
    "SELECT sum(a) FILTER (WHERE a > 1), first(a IGNORE NULLS) OVER w FROM t WINDOW w AS (ORDER BY a)",
    "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 3) SELECT n FROM c",
    "SELECT DISTINCT ON (s) s, a FROM t ORDER BY s, a",
    "SELECT x.a FROM t x LEFT JOIN t y USING (a) CROSS JOIN t z ASOF JOIN t w ON x.a >= w.a",
    "SELECT * EXCLUDE (b) REPLACE (a + 1 AS a) FROM t UNION BY NAME SELECT a, s FROM t",
    "SELECT CASE a WHEN 1 THEN 'x' ELSE s END, CAST(a AS DECIMAL(10, 2)), TRY_CAST(s AS INT) FROM t",
    "SELECT a IN (1, 2), a NOT BETWEEN 1 AND 2, s LIKE 'a!%' ESCAPE '!', s IS NULL, EXISTS (SELECT 1) FROM t",
    "SELECT [a, 1][1:2], {'k': a}.k, MAP {'k': a}['k'], list_transform([1], lambda x: x + a), [v FOR v IN [1] IF v > 0]",
    "SELECT extract(year FROM DATE '2020-01-01'), INTERVAL 1 DAY, substring(s, 1, 2), trim(s, 'a') FROM t",
    "SELECT string_agg(DISTINCT s, ',' ORDER BY s), quantile_cont(a, 0.5) FROM t GROUP BY ROLLUP (s), CUBE (a)",
    "SELECT a FROM t USING SAMPLE reservoir(2 ROWS) REPEATABLE (3)",
    "SELECT n.i FROM range(3) AS n(i), unnest([1, 2]) AS u(v), (VALUES (1, 'x')) AS p(q, r) OFFSET 1",
]  # fmt: skip

_TEXT_ONLY = {"typed", "safe", "quoted", "is_string", "nested", "recursive", "over"}
"""Flags of the text that sqlglot writes in any case, or that say how a neighbour is written."""


def pieces(tree: exp.Expr) -> Iterator[tuple[exp.Expr, str]]:
    """Each argument that a node of the tree has."""
    for node in tree.walk():
        for key, value in node.args.items():
            if value not in (None, False, []) and key not in _TEXT_ONLY:
                yield node, key


@pytest.mark.parametrize("text", EXAMPLES)
def test_each_argument_of_a_recognised_node_is_said_to_duckdb(text):
    tree = parse(text)
    whole = rewritten(tree)

    silent = []
    for node, key in list(pieces(tree)):
        kept = node.args.pop(key)
        try:
            if rewritten(tree) == whole:
                silent.append((type(node).__name__, key))
        except Exception:  # noqa: BLE001, S110 - sqlglot cannot write it without: it needs the argument
            pass
        node.args[key] = kept

    assert set(silent) <= {("Union", "distinct"), ("Join", "kind"), ("Ordered", "nulls_first")}


def test_duckdb_calls_each_function_that_may_be_called_a_pure_one():
    found = duckdb.sql(
        "SELECT lower(function_name), bool_or(stability IN ('VOLATILE', 'CONSISTENT_WITHIN_QUERY')) "
        "FROM duckdb_functions() GROUP BY ALL"
    ).fetchall()
    impure = {name for name, volatile in found if volatile}

    assert impure & FUNCTIONS == set()


IMPURE = sorted(
    row[0]
    for row in duckdb.sql("SELECT DISTINCT function_name FROM duckdb_functions()").fetchall()
    if row[0].lower() not in FUNCTIONS and row[0].replace("_", "").isalnum()
)


def test_every_other_function_of_duckdb_is_refused():
    store = sp.create("memory://impure", properties=QUIET)

    run = []
    for name in IMPURE:
        for text in (f"SELECT {name}()", f"SELECT {name}(1)", f"SELECT * FROM {name}('x')"):
            try:
                store.sql(text)
                run.append(text)
            except SparkPagesError:
                pass

    assert run == []


WORDS = [
    word
    for path in sorted(Path(__file__).parent.glob("*.test"))
    for record in records(path)
    for word in record.sql.split()
] + [
    "?",
    "$x",
    "@v1",
    "t@v1",
    ":y",
    "FINAL",
    "PIVOT",
    "TABLESAMPLE",
    "FOR",
    "VERSION",
    "HINT",
    "|>",
    "@",
    "LATERAL",
]


@st.composite
def disturbed(draw: st.DrawFn) -> str:
    """A query that DuckDB runs, with one word more, less, or in place of another."""
    words = draw(queries()).split(" ")
    place = draw(st.integers(0, len(words) - 1))
    match draw(st.integers(0, 2)):
        case 0:
            words.insert(place, draw(st.sampled_from(WORDS)))
        case 1:
            words[place] = draw(st.sampled_from(WORDS))
        case _:
            del words[place]
    return " ".join(words)


@pytest.fixture(scope="module")
def both():
    plain = duckdb.connect()
    plain.execute("SET TimeZone = 'UTC'")
    plain.register("t", T)
    plain.register("u", U)
    yield build("memory://disturbed-queries"), plain
    plain.close()


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(query=disturbed())
def test_a_disturbed_query_is_refused_or_gives_what_duckdb_gives(both, query):
    store, plain = both
    assume("VERSION" not in query and "@v" not in query)  # which DuckDB does not know
    try:
        found = store.sql(query)
    except SparkPagesError:
        return  # refused

    expected = plain.sql(for_duckdb(query, parse(query))).to_arrow_table()

    assert rows(found) == rows(expected), query


@st.composite
def nodes(draw: st.DrawFn) -> exp.Expr:
    """A node of any class of sqlglot, in a place of a query where an expression may stand."""
    kind = draw(st.sampled_from(sorted((each for each in exp.ALL_FUNCTIONS), key=lambda each: each.__name__)))
    keys = [key for key, needed in kind.arg_types.items() if needed or draw(st.booleans())]
    return kind(**{key: exp.Literal.number(1) for key in keys})


@settings(max_examples=examples(200), deadline=None)
@given(node=nodes())
def test_nodes_that_are_not_in_the_vocabulary_are_refused_by_the_walk(node):
    assume(type(node) not in NODES)
    tree = exp.select(node).from_("t")

    with pytest.raises(InvalidInputError, match=type(node).__name__):
        check(tree, NODES, lambda found, _: InvalidInputError(type(found).__name__))
