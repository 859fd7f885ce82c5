"""Queries of one ``load``: whatever filters the others have, each gives its own rows.

Spark 4.2 keeps what a Python source has planned for one query of a ``load`` for all the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import spark_pages as sp

ROWS = 6_000
SWITCH = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> sp.Store:
    store = sp.create(str(tmp_path_factory.mktemp("one_load") / "store"))
    rows = pa.table({"n": range(ROWS)})
    with store.transaction() as txn:
        txn.create_table("t", rows.schema, properties={"page_bytes": "1024"})
        txn.append("t", rows)
    return store


@pytest.fixture(params=["as the session is", "switched on for other sources"])
def loaded(request: pytest.FixtureRequest, spark: SparkSession, store: sp.Store) -> Iterator[DataFrame]:
    """The table by one load, on a session that pushes no filters down, and on one that does."""
    before = spark.conf.get(SWITCH)
    if request.param != "as the session is":
        spark.conf.set(SWITCH, "true")
    yield spark.read.format("spark_pages").option("table", "t").load(store.url)
    spark.conf.set(SWITCH, str(before))


def test_a_session_pushes_no_filters_down_by_itself(spark: SparkSession) -> None:
    assert spark.conf.get(SWITCH) == "false"


def test_queries_one_after_another_give_their_own_rows(loaded: DataFrame) -> None:
    first = loaded.where("n < 10").count()
    every = loaded.count()
    last = loaded.where("n >= 5990").count()
    either = loaded.where("n < 10 or n >= 5990").count()

    assert (first, every, last, either, loaded.count()) == (10, ROWS, 10, 20, ROWS)


def test_a_plan_that_is_only_explained_takes_no_rows_from_a_query(
    loaded: DataFrame, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded.where("n < 10").explain()

    assert "Filter" in capsys.readouterr().out
    assert loaded.count() == ROWS


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        (lambda t: t.where("n < 10").union(t), 10 + ROWS),
        (lambda t: t.union(t.where("n < 10")), ROWS + 10),
        (lambda t: t.where("n < 10").union(t.where("n >= 5990")), 20),
        (lambda t: t.join(t.where("n < 10"), "n", "left_anti"), ROWS - 10),
        (lambda t: t.join(t.where("n < 10").select("n"), "n"), 10),
        (lambda t: t.subtract(t.where("n < 10")), ROWS - 10),
    ],
    ids=["union", "union, the other way round", "two filters", "anti-join", "join", "subtract"],
)
def test_branches_of_one_plan_give_their_own_rows(
    loaded: DataFrame, query: Callable[[DataFrame], DataFrame], rows: int
) -> None:
    found = query(loaded)

    assert found.count() == rows


def test_queries_in_sql_of_one_view_give_their_own_rows(spark: SparkSession, loaded: DataFrame) -> None:
    loaded.createOrReplaceTempView("of_a_frame")

    few = spark.sql("select count(*) from of_a_frame where n < 10").first()
    all_of_it = spark.sql("select count(*) from of_a_frame").first()
    even = spark.sql("select count(*) from of_a_frame where n % 2 = 0").first()
    both = spark.sql("select (select count(*) from of_a_frame where n < 10), count(*) from of_a_frame")

    assert (few, all_of_it, even) == ((10,), (ROWS,), (ROWS // 2,))
    assert both.first() == (10, ROWS)


def test_a_view_that_sql_makes_gives_each_query_its_own_rows(
    spark: SparkSession, loaded: DataFrame, store: sp.Store
) -> None:
    made = "create or replace temporary view of_sql using spark_pages options (path '{}', table 't')"
    spark.sql(made.format(store.url))

    few = spark.sql("select count(*) from of_sql where n < 10").first()
    all_of_it = spark.sql("select count(*) from of_sql").first()

    assert (few, all_of_it) == ((10,), (ROWS,))
    assert loaded.count() == ROWS


def test_two_loads_with_an_option_filter_each_do_not_meet(
    spark: SparkSession, loaded: DataFrame, store: sp.Store
) -> None:
    few, last = (
        spark.read.format("spark_pages").options(table="t", filter=text).load(store.url)
        for text in ("n < 10", "n >= 5990")
    )

    assert few.union(last).union(loaded).count() == 10 + 10 + ROWS
    assert (few.count(), few.where("n = 3").count(), few.count()) == (10, 1, 10)


def test_a_view_that_sql_makes_with_a_filter_holds_the_rows_of_it(
    spark: SparkSession, loaded: DataFrame, store: sp.Store
) -> None:
    options = f"path '{store.url}', table 't', filter 'n >= 10 and n < 20'"
    spark.sql(f"create or replace temporary view ten using spark_pages options ({options})")

    few = spark.sql("select count(*) from ten where n < 15").first()
    all_of_it = spark.sql("select count(*), min(n) from ten").first()

    assert (few, all_of_it) == ((5,), (10, 10))
    assert loaded.count() == ROWS
