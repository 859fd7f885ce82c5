"""The views of metadata tell what the local reader tells, at several versions."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

import spark_pages as sp
from spark_pages.spark import views
from spark_pages.spark.arrow_types import spark_schema
from spark_pages.spark.feed import Feed
from spark_pages.spark.options import VIEW_NAMES, ViewQuery
from spark_pages.spark.rows import RowsPartition, RowsReader
from spark_pages.spark.views import VIEWS
from tests.spark.conftest import History


def view(spark: SparkSession, history: History, name: str, **options: Any) -> DataFrame:
    return spark.read.format("spark_pages").options(view=name, **options).load(history.url)


def as_frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    shown = table.combine_chunks().cast(spark_schema(table.schema))
    return spark.createDataFrame(shown, from_arrow_schema(shown.schema))


def local_pages(history: History, version: int) -> pa.Table:
    snapshot = history.store.snapshot(version)
    parts = []
    for name in snapshot.tables():
        pages = snapshot.table(name).pages()
        parts.append(pages.add_column(0, "table", pa.repeat(pa.scalar(name), pages.num_rows)))
    return pa.concat_tables(parts)


def test_every_view_that_is_promised_is_there() -> None:
    assert {*VIEWS, "rows"} == set(VIEW_NAMES)


def test_pages_of_all_tables_are_those_of_the_local_reader(spark: SparkSession, history: History) -> None:
    for version in (history.before_checkpoint, history.latest):
        found = view(spark, history, "pages", versionAsOf=version)
        expected = as_frame(spark, local_pages(history, version)).select(found.columns)
        assert_df_equality(found, expected, ignore_nullable=True, ignore_row_order=True)


def test_chains_add_up_to_their_pages(spark: SparkSession, history: History) -> None:
    pages = local_pages(history, history.latest)
    expected = pages.group_by(["table", "column"]).aggregate(
        [("entry_count", "sum"), ("actual_len", "sum"), ("page_id", "count")]
    )

    found = view(spark, history, "chains").filter("num_pages > 0").toArrow()

    keys = ["table", "column"]
    sums = ["num_rows", "size_bytes", "num_pages"]
    assert found.select([*keys, *sums]).sort_by([(key, "ascending") for key in keys]).to_pydict() == {
        **expected.sort_by([(key, "ascending") for key in keys]).select(keys).to_pydict(),
        **dict(
            zip(
                sums,
                expected.sort_by([(key, "ascending") for key in keys])
                .select(["entry_count_sum", "actual_len_sum", "page_id_count"])
                .to_pydict()
                .values(),
                strict=True,
            )
        ),
    }


def test_the_pages_of_a_long_chain_are_cut_into_tasks_and_a_chain_is_told_stretch_by_stretch(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = ViewQuery("pages", history.latest)
    chains = VIEWS["chains"].show(history.url, query, VIEWS["chains"].cut(history.url, query)[0])
    longest = max(chains.column("num_pages").to_pylist())
    assert longest > 12
    monkeypatch.setattr(views, "PAGES_OF_A_TASK", 4)

    pages = [VIEWS["pages"].show(history.url, query, each) for each in VIEWS["pages"].cut(history.url, query)]
    again = [
        VIEWS["chains"].show(history.url, query, each) for each in VIEWS["chains"].cut(history.url, query)
    ]

    whole = local_pages(history, history.latest)
    assert pa.concat_tables(pages).equals(whole.select(pages[0].column_names).cast(pages[0].schema))
    assert max(each.num_rows for each in pages) < 2 * 4 <= longest
    assert pa.concat_tables(again).equals(chains)


def test_columns_segments_and_history_tell_what_the_store_tells(
    spark: SparkSession, history: History
) -> None:
    snapshot = history.store.snapshot()
    checkpoint = snapshot.log.checkpoint
    assert checkpoint is not None

    columns = view(spark, history, "columns", table="flights").orderBy("position").collect()
    segments = view(spark, history, "segments").collect()
    commits = view(spark, history, "history").toArrow()

    schema = snapshot.table("flights").schema
    assert [(row["column"], row["type"], row["nullable"]) for row in columns] == [
        (field.name, str(field.type), field.nullable) for field in schema
    ]
    assert sum(row["num_pages"] for row in segments) == sum(
        node.pages for parts in checkpoint.levels().values() for node in parts
    )
    local = history.store.history()
    told = local.filter(local.column("version").is_valid())
    order = [("version", "descending"), ("timestamp", "descending")]
    assert commits.sort_by(order).equals(told.sort_by(order).cast(commits.schema))


def test_changes_are_those_of_the_feed(spark: SparkSession, history: History) -> None:
    table_id = history.store.snapshot().table("flights").definition.table_id
    expected = Feed(history.url, "rows", table_id).read(history.checkpoint, history.latest)

    found = view(
        spark, history, "changes", table="flights", startingVersion=history.checkpoint, granularity="rows"
    )
    pages = view(spark, history, "changes", granularity="pages")

    of_pages = as_frame(spark, history.store.changes(0, history.latest, granularity="pages"))
    assert_df_equality(found, as_frame(spark, expected), ignore_nullable=True, ignore_row_order=True)
    assert_df_equality(pages, of_pages, ignore_nullable=True, ignore_row_order=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"granularity": "cells"}, "Cannot use 'cells' as granularity"),
        ({"endingVersion": "99"}, "endingVersion 99"),
        ({"startingVersion": "9", "endingVersion": "3"}, "startingVersion is after endingVersion"),
    ],
)
def test_changes_of_versions_that_make_no_sense_are_refused(
    spark: SparkSession, history: History, options: dict[str, str], message: str
) -> None:
    with pytest.raises(Exception, match=message):
        view(spark, history, "changes", **options).count()


@pytest.mark.parametrize(("name", "rows"), [("pages", 0), ("chains", 1)])
def test_a_table_without_pages_has_chains(
    spark: SparkSession, history: History, name: str, rows: int
) -> None:
    assert view(spark, history, name, table="empty").count() == rows


def test_a_tag_names_the_version_that_is_read(spark: SparkSession, own_history: History) -> None:
    own_history.store.tag("start", 2)

    found = view(spark, own_history, "tables", tag="start").filter("table = 'flights'").first()

    assert found["num_rows"] == own_history.store.snapshot(2).table("flights").num_rows


def test_a_filter_asks_bloom_filters_too_and_tasks_are_even_in_bytes(url: str) -> None:
    store = sp.create(url)
    n = 40_000
    words = [f"{(i * 7919) % n:08d}" for i in range(n)]
    texts = ["" if i < n // 2 else f"{i:050d}" for i in range(n)]
    rows = pa.table({"word": words, "text": texts})
    with store.transaction() as txn:
        txn.create_table("t", rows.schema, properties={"page_bytes": "4096", "bloom.word": "true"})
        txn.append("t", rows)
    table = store.snapshot().table("t")
    schema = from_arrow_schema(spark_schema(table.schema))

    whole = RowsReader(url, table, schema, 4)
    narrow = RowsReader(url, table, schema, rows=f"word = '{words[n // 3]}'")

    by_statistics = table.candidate_rows([("word", "==", words[n // 3])]).num_rows
    left = sum(_rows(part) for part in narrow.partitions())
    assert 0 < left < by_statistics // 10
    sizes = [_rows(part) for part in whole.partitions()]
    assert sum(sizes) == n
    assert sizes[0] > 1.5 * sizes[-1]  # the rows behind are larger


def _rows(part: Any) -> int:
    assert isinstance(part, RowsPartition)
    return sum(stop - start for start, stop in part.ranges)
