"""``df.write.format("spark_pages")``: one commit of a table, or none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

import spark_pages as sp
from spark_pages.errors import CommitConflictError, SparkPagesError
from spark_pages.spark import reconstruct_snapshot
from spark_pages.spark.arrow_types import spark_schema
from spark_pages.spark.options import WriteOptions
from spark_pages.spark.writing import commit_write, plan_write, write_task
from tests.invariants import check_store
from tests.spark.conftest import FLIGHTS, flights

ROWS = 30_000


@pytest.fixture
def store(tmp_path: Path) -> sp.Store:
    store = sp.create(str(tmp_path / "store"), properties={"checkpoint_commits": "0"})
    with store.transaction() as txn:
        txn.create_table("flights", FLIGHTS, properties={"page_bytes": "8192", "bloom.carrier": "true"})
        txn.append("flights", flights(0, 10))
    return store


def frame(spark: SparkSession, first: int, count: int, parts: int = 3) -> DataFrame:
    """Flights in order, in so many partitions."""
    rows = flights(first, count)
    shown = rows.cast(spark_schema(rows.schema))
    made = spark.createDataFrame(shown, from_arrow_schema(shown.schema))
    return made.repartitionByRange(parts, "id").sortWithinPartitions("id")


def write(rows: DataFrame, store: sp.Store, mode: str = "append", **options: Any) -> None:
    rows.write.format("spark_pages").mode(mode).options(**{"table": "flights", **options}).save(store.url)


def page_files(store: sp.Store) -> set[str]:
    return {info.key for info in store.object_store.list("pages/")}


def test_an_append_is_one_commit_and_spark_reads_what_local_readers_read(
    spark: SparkSession, store: sp.Store
) -> None:
    before = store.snapshot()

    write(frame(spark, 10, ROWS), store)

    after = sp.open(store.url).snapshot()
    assert after.version == before.version + 1
    assert after.table("flights").read().equals(flights(0, ROWS + 10))
    assert before.table("flights").num_rows == 10
    found = spark.read.format("spark_pages").option("table", "flights").load(store.url)
    assert_df_equality(found.orderBy("id"), frame(spark, 0, ROWS + 10).orderBy("id"), ignore_nullable=True)
    assert store.verify("all").ok
    check_store(store)


def test_tasks_write_aligned_pages_with_statistics_and_bloom_filters(
    spark: SparkSession, store: sp.Store
) -> None:
    write(frame(spark, 10, ROWS), store)

    table = sp.open(store.url).snapshot().table("flights")
    files = table.pages().filter(pa.compute.equal(table.pages().column("kind"), "file"))
    plan = table.explain(filter=[("carrier", "==", "carrier-05x")])
    assert len(files.column("path").unique()) == 3
    assert set(pa.compute.bit_wise_and(files.column("offset"), 4095).to_pylist()) == {0}
    assert table.aggregate("id").pages_read == 0
    assert plan.rows < ROWS // 10


def test_pages_with_a_nan_are_skipped_and_told_apart_whoever_writes_them(
    spark: SparkSession, store: sp.Store
) -> None:
    with store.transaction() as txn:
        txn.create_table("floats", pa.schema([("x", pa.float64())]), properties={"page_bytes": "1024"})
    numbers = spark.range(0, ROWS, 1, 3).select(
        f.when(f.col("id") % 100 == 7, float("nan")).otherwise(f.col("id").cast("double")).alias("x")
    )

    write(numbers, store, table="floats")

    table = sp.open(store.url).snapshot().table("floats")
    found = spark.read.format("spark_pages").option("table", "floats")
    store.checkpoint()
    plan, whole = table.explain(filter=[("x", "<", 50.0)]), table.aggregate("x")
    assert store.snapshot().log.state.features.reader == ("nan-bounds",)
    assert plan.rows < ROWS // 10
    assert (whole.min.as_py(), whole.max.as_py(), whole.pages_read) == (0.0, ROWS - 1.0, 0)
    assert reconstruct_snapshot(spark, store.url)["equal_to_local"]
    assert found.load(store.url).where("x >= 29950").count() == 50 + ROWS // 100
    assert found.option("filter", "x < 50").load(store.url).count() == 49
    assert found.option("filter", "not (x >= 50)").load(store.url).count() == 49 + ROWS // 100
    assert store.verify("all").ok


def test_few_rows_ride_in_the_commit(spark: SparkSession, store: sp.Store) -> None:
    files = page_files(store)

    write(frame(spark, 10, 50), store)

    assert sp.open(store.url).snapshot().table("flights").read().equals(flights(0, 60))
    assert page_files(store) == files


def test_overwriting_leaves_only_the_new_rows_and_old_versions_keep_theirs(
    spark: SparkSession, store: sp.Store
) -> None:
    before = store.snapshot()

    write(frame(spark, 500, ROWS), store, "overwrite")

    assert sp.open(store.url).snapshot().table("flights").read().equals(flights(500, ROWS))
    assert before.table("flights").read().equals(flights(0, 10))


@pytest.mark.parametrize("count", [0, 10, ROWS])
def test_an_overwrite_conflicts_with_an_append_that_came_after_its_plan(store: sp.Store, count: int) -> None:
    rows = flights(500, count)
    plan = plan_write(store.url, rows.schema, True, WriteOptions("flights"))
    task = write_task(plan, 0, iter(rows.to_batches()))
    with store.transaction() as txn:
        txn.append("flights", flights(10, 1))

    with pytest.raises(CommitConflictError):
        commit_write([task])

    assert sp.open(store.url).snapshot().table("flights").read().equals(flights(0, 11))


@pytest.mark.parametrize("count", [0, 10, ROWS])
def test_of_two_jobs_that_make_one_table_the_second_is_told_of_a_conflict(
    store: sp.Store, count: int
) -> None:
    rows = flights(0, count)
    plan = plan_write(store.url, rows.schema, False, WriteOptions("made", create=True))
    tasks = [write_task(plan, 0, iter(rows.to_batches())) for _ in range(2)]
    commit_write(tasks[:1])

    with pytest.raises(CommitConflictError):
        commit_write(tasks[1:])

    assert sp.open(store.url).snapshot().table("made").read().equals(rows)


def test_a_missing_table_is_made_on_request_with_its_properties(spark: SparkSession, store: sp.Store) -> None:
    rows = frame(spark, 0, ROWS)

    write(rows, store, table="made", createTable="true", tableProperties='{"codec": "zstd"}')

    made = sp.open(store.url).snapshot().table("made")
    assert made.num_rows == ROWS
    assert made.definition.properties == {"codec": "zstd"}
    assert made.columns == FLIGHTS.names


def test_a_table_is_made_in_a_namespace_whatever_the_case_of_its_name(store: sp.Store) -> None:
    with store.transaction() as txn:
        txn.create_namespace("north")

    plan = plan_write(store.url, flights(0, 1).schema, False, WriteOptions("NORTH.made", create=True))

    assert (plan.definition.name, plan.creates) == ("north.made", True)


def test_a_missing_table_is_an_error_that_says_how_to_make_it(spark: SparkSession, store: sp.Store) -> None:
    with pytest.raises(Exception, match=r"TableNotFoundError: .*'flihgts'.*createTable=true"):
        write(frame(spark, 0, 1), store, table="flihgts")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows.withColumn("gate", f.lit(1)), "no column 'gate'"),
        (lambda rows: rows.drop("id"), "'id' is missing"),
        (
            lambda rows: rows.withColumn("departed", f.array(f.lit(1))),
            "column 'departed' holds timestamp",
        ),
        (lambda rows: rows.withColumn("id", f.when(f.col("id") > 20, f.col("id"))), "'id'.* is not nullable"),
        (lambda rows: rows.withColumn("seats", f.lit(-1)), "'seats' of 'flights': it holds uint16"),
        (
            lambda rows: rows.withColumn("seats", f.expr("interval '1' year")),
            "'seats': it is interval year, for which Arrow has no type",
        ),
    ],
    ids=["unknown", "missing", "type", "null", "value", "no such type"],
)
def test_rows_that_do_not_fit_the_catalog_are_refused_by_name(
    spark: SparkSession, store: sp.Store, change: Any, message: str
) -> None:
    before = store.snapshot().version

    with pytest.raises(Exception, match=f"SchemaMismatchError: .*{message}"):
        write(change(frame(spark, 10, 100)), store)

    assert sp.open(store.url).snapshot().version == before


def failing(partition: int, attempts: int) -> Any:
    """Raises in one partition, after all of its rows have been read, in so many attempts of its task."""

    def pass_on(batches: Any) -> Any:
        yield from batches
        context = TaskContext.get()
        if context.partitionId() == partition and context.attemptNumber() < attempts:
            raise OSError("the node is gone")

    return pass_on


def test_many_rows_of_a_table_with_a_primary_key_are_compared_before_the_commit(
    spark: SparkSession, store: sp.Store
) -> None:
    with store.transaction() as txn:
        txn.add_constraint("flights", "flights_key", primary_key=["id"])
    twice = frame(spark, 10, ROWS).unionAll(frame(spark, ROWS, 10, parts=1))

    with pytest.raises(Exception, match=r"ConstraintError.*more than once: {'id': 300\d\d}"):
        write(twice, store)
    orphans = page_files(store)
    write(frame(spark, 10, ROWS), store)

    assert orphans, "the tasks had written, and nothing names it"
    assert sp.open(store.url).snapshot().version == 3
    assert sp.open(store.url).snapshot().table("flights").read().equals(flights(0, ROWS + 10))


@pytest.mark.parametrize(("mode", "first"), [("append", 0), ("overwrite", 10)])
def test_a_task_that_is_repeated_writes_its_rows_once(
    spark: SparkSession, store: sp.Store, mode: str, first: int
) -> None:
    rows = frame(spark, 10, ROWS)

    write(rows.mapInArrow(failing(1, attempts=1), rows.schema), store, mode)

    read = sp.open(store.url).snapshot().table("flights").read()
    assert read.equals(flights(first, ROWS + 10 - first))


def test_a_job_that_fails_leaves_only_orphans(spark: SparkSession, store: sp.Store) -> None:
    rows, before, files = frame(spark, 10, ROWS), store.snapshot(), page_files(store)

    with pytest.raises(Exception, match="the node is gone"):
        write(rows.mapInArrow(failing(2, attempts=9), rows.schema), store)

    assert sp.open(store.url).snapshot().version == before.version
    orphans = page_files(store) - files
    assert orphans
    with store.transaction() as txn:
        txn.append("flights", flights(10, 1))
    store.vacuum(retention=1, orphans=True)
    assert not orphans & page_files(store)
    assert sp.open(store.url).snapshot().table("flights").read().equals(flights(0, 11))
    assert store.verify("all").ok


def test_a_job_of_the_same_application_and_number_adds_nothing_twice(
    spark: SparkSession, store: sp.Store
) -> None:
    rows = frame(spark, 10, ROWS)
    write(rows, store, appId="nightly", appVersion=7)
    files = page_files(store)

    write(rows, store, appId="nightly", appVersion=7)
    with pytest.raises(
        Exception, match=r"InvalidInputError: Cannot commit number 6 of application 'nightly'"
    ):
        write(rows, store, appId="nightly", appVersion=6)

    assert sp.open(store.url).snapshot().table("flights").num_rows == ROWS + 10
    assert page_files(store) == files


def test_an_application_without_a_number_is_refused_before_a_task_has_written(
    spark: SparkSession, store: sp.Store
) -> None:
    files = page_files(store)

    with pytest.raises(
        Exception, match=r"InvalidInputError: Cannot use application 'nightly' with number None"
    ):
        write(frame(spark, 10, ROWS), store, appId="nightly")

    assert page_files(store) == files


@pytest.mark.parametrize("name", ["nowhere.flights", "system.flights"])
def test_a_table_that_cannot_be_made_is_refused_before_a_task_has_written(store: sp.Store, name: str) -> None:
    options = WriteOptions(name, create=True)

    with pytest.raises(SparkPagesError, match="namespace"):
        plan_write(store.url, FLIGHTS, overwrite=False, options=options)

    assert store.snapshot().tables() == ["flights"]


def test_rows_are_not_written_on_an_old_version(spark: SparkSession, store: sp.Store) -> None:
    with pytest.raises(
        Exception,
        match=r"option 'versionasof' of a write.* on the newest version",
    ):
        write(frame(spark, 0, 1), store, versionAsOf=0)


def test_tasks_write_pages_as_the_namespace_says(store: sp.Store) -> None:
    with store.transaction() as txn:
        txn.create_namespace("small", {"page_bytes": "8192"})
        txn.create_table("small.flights", FLIGHTS)
    rows = flights(0, ROWS)
    plan = plan_write(store.url, rows.schema, False, WriteOptions("small.flights"))

    commit_write([write_task(plan, 0, iter(rows.to_batches()))])

    table = sp.open(store.url).snapshot().table("small.flights")
    assert table.read().equals(rows)
    assert table.pages("id").num_rows > ROWS * 8 // 64 // 1024 + 2, "pages of 8 KiB, not of 64"
