from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

import spark_pages as sp
from spark_pages.errors import TableNotFoundError
from spark_pages.spark import compact_pages
from spark_pages.spark.compact import plan_compact_pages
from tests.spark.conftest import History


def test_compaction_keeps_the_rows_and_leaves_fewer_pages(spark: SparkSession, own_history: History) -> None:
    before = own_history.store.snapshot().table("flights")
    rows, pages = before.read(), before.pages().num_rows

    result = compact_pages(spark, own_history.url, "flights")

    after = sp.open(own_history.url).snapshot()
    assert result["ok"]
    assert result["version"] == after.version == own_history.latest + 1
    assert result["pages_after"] < result["pages_before"]
    assert after.table("flights").pages().num_rows == pages - result["pages_before"] + result["pages_after"]
    assert after.table("flights").read().equals(rows)
    assert before.read().equals(rows)


def test_a_table_of_full_pages_is_left_alone(spark: SparkSession, own_history: History) -> None:
    compact_pages(spark, own_history.url, "flights")

    again = compact_pages(spark, own_history.url, "flights")

    assert again["runs"] == 0
    assert again["version"] is None
    assert sp.open(own_history.url).snapshot().version == own_history.latest + 1


def test_a_plan_changes_nothing(own_history: History) -> None:
    plan = plan_compact_pages(own_history.url, "flights")

    assert plan["runs"] > 0
    assert sp.open(own_history.url).snapshot().version == own_history.latest


def test_a_table_that_is_not_there_is_not_found(spark: SparkSession, own_history: History) -> None:
    with pytest.raises(TableNotFoundError):
        compact_pages(spark, own_history.url, "absent")
