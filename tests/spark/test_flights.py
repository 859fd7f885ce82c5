"""Flights of the first days of 2013 at several versions: Spark tells what the local reader tells."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

import spark_pages as sp
from spark_pages.cli.demo.flights import load_flights
from spark_pages.spark import compact_pages, reconstruct_snapshot
from spark_pages.spark.arrow_types import spark_schema

DAYS = range(1, 5)
AT = {"before upkeep": 4, "corrected": 5, "newest": None}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> sp.Store:
    """A commit for each day, then late flights corrected, a checkpoint, one more day."""
    january = load_flights().of_month(1)["flights"]
    store = sp.create(str(tmp_path_factory.mktemp("flights")))
    with store.transaction() as txn:
        txn.create_table("flights", january.schema, properties={"page_bytes": "4096"})
    for day in DAYS[:-1]:
        with store.transaction() as txn:
            txn.append("flights", january.filter(pc.equal(january.column("day"), day)))
    with store.transaction() as txn:
        txn.update_rows("flights", [0, 900, 1800], {"dep_delay": [1, None, -3]})
    store.checkpoint()
    with store.transaction() as txn:
        txn.append("flights", january.filter(pc.equal(january.column("day"), DAYS[-1])))
    return store


def by_spark(spark: SparkSession, store: sp.Store, view: str, version: int | None) -> DataFrame:
    reading = spark.read.format("spark_pages").options(table="flights", view=view)
    return (reading if version is None else reading.option("versionAsOf", version)).load(store.url)


def as_frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    shown = table.combine_chunks().cast(spark_schema(table.schema))
    return spark.createDataFrame(shown, from_arrow_schema(shown.schema))


@pytest.mark.parametrize("version", AT.values(), ids=AT)
def test_rows_and_pages_of_flights_are_those_of_the_local_reader(
    spark: SparkSession, store: sp.Store, version: int | None
) -> None:
    table = store.snapshot(version).table("flights")

    rows, pages = (by_spark(spark, store, view, version) for view in ("rows", "pages"))

    assert table.num_rows > 2_000
    assert_df_equality(rows, as_frame(spark, table.read()))
    expected = as_frame(spark, table.pages()).select([name for name in pages.columns if name != "table"])
    assert_df_equality(pages.drop("table"), expected, ignore_nullable=True, ignore_row_order=True)


def test_flights_stay_what_they_are_when_their_pages_are_compacted_and_reconstructed(
    spark: SparkSession, store: sp.Store
) -> None:
    before = as_frame(spark, store.snapshot().table("flights").read())
    pages = store.snapshot().table("flights").pages().num_rows
    with store.transaction() as txn:
        txn.set_table_properties("flights", {"page_bytes": "65536"})

    compact_pages(spark, store.url, "flights")
    rebuilt = reconstruct_snapshot(spark, store.url)

    assert store.snapshot().table("flights").pages().num_rows < pages
    assert rebuilt["equal_to_local"], rebuilt["differences"]
    assert_df_equality(by_spark(spark, store, "rows", None), before)
