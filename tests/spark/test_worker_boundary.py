"""What is refused in workers of Spark reaches who calls it in one sentence with its hint."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

import spark_pages as sp
from spark_pages.errors import InternalError, InvalidInputError
from spark_pages.spark.failures import our_error
from spark_pages.spark.session import find_java
from spark_pages.spark.worker_boundary import StderrWithoutBrokenPipes, worker_boundary
from tests import PROJECT

needs_java = pytest.mark.skipif(find_java() is None, reason="Spark needs Java, and there is none")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = str(tmp_path_factory.mktemp("refused") / "store")
    rows = pa.table({"id": pa.array([1, 2], pa.int64())})
    with sp.create(url).transaction() as txn:
        txn.create_table("t", rows.schema)
        txn.append("t", rows)
    return url


Call = Callable[[SparkSession, str], object]


def read(**options: str) -> Call:
    return lambda spark, url: spark.read.format("spark_pages").options(**options).load(url)


def write(mode: str | None = "append", **options: str) -> Call:
    def call(spark: SparkSession, url: str) -> None:
        writer = spark.range(1).write.format("spark_pages").options(table="t", **options)
        (writer.mode(mode) if mode else writer).save(url)

    return call


def stream(**options: str) -> Call:
    def call(spark: SparkSession, url: str) -> None:
        frame = spark.readStream.format("spark_pages").options(**options).load(url)
        frame.writeStream.format("noop").trigger(availableNow=True).start().awaitTermination()

    return call


REFUSED: dict[str, tuple[Call, str]] = {
    "a table that is not there": (read(table="nope"), "'nope'.* lists the tables"),
    "an option that is misspelled": (
        read(table="t", colums="id"),
        "option 'colums' .*Did you mean columns?",
    ),
    "a filter on no column": (read(table="t", filter="nope = 1"), "column 'nope'.* There are id"),
    "saving as a table of the catalog": (
        lambda spark, _: spark.range(1).write.format("spark_pages").mode("append").saveAsTable("x"),
        r"passes none of its options on.*`save\(…\)`",
    ),
    "saving as a table of the catalog with a path": (
        lambda spark, url: spark.range(1).write.saveAsTable(
            "x", format="spark_pages", mode="append", path=url, table="t"
        ),
        r"passes none of its options on.*`save\(…\)`",
    ),
    "making a table of the catalog by writeTo": (
        lambda spark, _: spark.range(1).writeTo("x").using("spark_pages").create(),
        r"passes none of its options on.*`save\(…\)`",
    ),
    "the mode that is the default": (write(None), '"ErrorIfExists" mode.*"Append" or "Overwrite"'),
    "the mode errorifexists": (write("errorifexists"), '"ErrorIfExists" mode.*"Append" or "Overwrite"'),
    "the mode ignore": (write("ignore"), '"Ignore" mode.*"Append" or "Overwrite"'),
    "merging of schemas": (write(mergeSchema="true"), "option 'mergeschema' .* Add the columns first"),
    "overwriting the schema": (write("overwrite", overwriteSchema="true"), "'overwriteschema'.*createTable"),
    "replacing by a condition": (
        write("overwrite", replaceWhere="id = 1"),
        "'replacewhere'.*transaction.delete",
    ),
    "a stream of pages": (
        stream(view="pages", table="t"),
        r"view 'pages' as a stream.*\.option\(\"view\", \"changes\"\)",
    ),
    "a stream of no table": (stream(view="changes", table="nope"), "'nope'.* lists the tables"),
    "history of no store": (
        lambda spark, _: spark.sql("SELECT * FROM spark_pages_history('/nowhere')").collect(),
        "file:///nowhere.*spark-pages create",
    ),
}


@pytest.mark.parametrize(("call", "said"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused_is_told_in_one_sentence(
    spark: SparkSession, url: str, call: Call, said: str
) -> None:
    with pytest.raises(Exception, match=said) as refused:
        call(spark, url)

    told = str(refused.value).partition("\n=== Streaming Query ===")[0]
    assert len(told.splitlines()) <= 2
    assert "Traceback" not in told


def test_an_error_without_traceback_is_still_known_as_ours(spark: SparkSession, url: str) -> None:
    with pytest.raises(Exception, match="nope") as refused:
        read(table="nope")(spark, url)

    assert isinstance(our_error(refused.value), sp.TableNotFoundError)


Part = Callable[[DataFrameWriter], DataFrameWriter]
PARTS: dict[str, Part] = {
    "partitionBy": lambda writer: writer.partitionBy("id"),
    "bucketBy": lambda writer: writer.bucketBy(2, "id"),
    "clusterBy": lambda writer: writer.clusterBy("id"),
}


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_columns_by_which_to_part_a_table_are_refused(spark: SparkSession, url: str, part: Part) -> None:
    writer = spark.range(1).write.format("Spark_Pages").mode("append").option("table", "t")

    with pytest.raises(InvalidInputError, match=r"no partitions.*sort the frame"):
        part(writer).save(url)


def test_columns_by_which_to_part_a_table_are_refused_as_arguments_too(spark: SparkSession, url: str) -> None:
    writer = spark.range(1).write

    with pytest.raises(InvalidInputError, match=r"no partitions.*sort the frame"):
        writer.save(url, format="spark_pages", mode="append", partitionBy="id", table="t")


def test_files_of_other_formats_are_parted_as_ever(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(2).selectExpr("id", "id AS n")

    frame.write.save(str(tmp_path / "out"), format="parquet", partitionBy="id")

    assert {each.name for each in (tmp_path / "out").glob("id=*")} == {"id=0", "id=1"}


LIMITED = """
import sys
from spark_pages.spark import session

frame = session("limited").read.format("spark_pages").option("table", "wide").load(sys.argv[1])
print([len(frame.limit(5).collect()) for _ in range(3)], len(frame.take(2_000)), frame.head() is not None)
"""


@needs_java
@pytest.mark.slow
def test_a_query_with_a_limit_prints_nothing(url: str) -> None:
    # given
    rows = pa.table({f"c{index}": pa.array(range(1_000_000), pa.int64()) for index in range(4)})
    sp.open(url).append("wide", rows, create=True)
    # when
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, url],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
    )
    # then
    assert done.stdout == "[5, 5, 5] 2000 True\n"
    assert [line for line in done.stderr.splitlines() if "incubator" not in line] == []


@worker_boundary
class Refusing:
    """Raises what it is given."""

    def call(self, error: Exception) -> None:
        raise error

    def values(self, error: Exception) -> Iterator[int]:
        yield 1
        raise error


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process that Spark runs for its own code, as far as can be told."""
    monkeypatch.setitem(sys.modules, "pyspark.worker_util", ModuleType("worker_util"))
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")
    yield
    monkeypatch.undo()


@pytest.mark.parametrize(
    "act", [lambda r, e: r.call(e), lambda r, e: list(r.values(e))], ids=["call", "values"]
)
@pytest.mark.parametrize(("error", "hidden"), [(InvalidInputError("x"), "1"), (InternalError("x"), "")])
@pytest.mark.usefixtures("worker")
def test_a_worker_hides_what_leads_to_an_error_but_not_to_a_fault_of_ours(
    act: Callable[[Refusing, Exception], Any], error: Exception, hidden: str
) -> None:
    with pytest.raises(type(error)):
        act(Refusing(), error)

    assert os.environ["SPARK_HIDE_TRACEBACK"] == hidden


def test_no_other_process_hides_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HIDE_TRACEBACK", raising=False)

    with pytest.raises(InvalidInputError):
        Refusing().call(InvalidInputError("x"))

    assert "SPARK_HIDE_TRACEBACK" not in os.environ


def fail(error: Exception) -> None:
    try:
        raise error
    except Exception:  # noqa: BLE001 - whatever it was given
        traceback.print_exc()


def test_a_worker_says_nothing_of_a_connection_that_is_closed_and_all_else() -> None:
    # given
    shown = io.StringIO()
    with contextlib.redirect_stderr(StderrWithoutBrokenPipes(shown)):  # type: ignore[type-var]
        # when
        print("before", file=sys.stderr)
        fail(BrokenPipeError(32, "Broken pipe"))
        print(
            f"PySpark daemon failed to flush the output:\nTraceback\n{BrokenPipeError()!r}", file=sys.stderr
        )
        fail(ConnectionResetError(104, "reset"))
        fail(KeyError("kept"))
        print("after", file=sys.stderr, flush=True)
    # then
    lines = shown.getvalue().splitlines()
    assert (lines[0], lines[-2], lines[-1]) == ("before", "KeyError: 'kept'", "after")
    assert sum(line.startswith("Traceback") for line in lines) == 1
    assert "Broken" not in shown.getvalue()


def view(spark: SparkSession, name: str, url: str, options: str = "", kind: str = "TEMPORARY") -> None:
    spark.sql(
        f"CREATE OR REPLACE {kind} VIEW {name} USING spark_pages OPTIONS (path '{url}', table 't' {options})"
    )


def numbers(frame: DataFrame) -> list[int]:
    return sorted(row[0] for row in frame.collect())


@pytest.fixture
def own_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = str(tmp_path_factory.mktemp("inserted") / "store")
    rows = pa.table({"id": pa.array([1, 2], pa.int64())})
    sp.create(url).append("t", rows, create=True)
    return url


def test_a_row_that_is_inserted_into_a_view_is_seen_and_frames_stay_as_they_were(
    spark: SparkSession, own_url: str
) -> None:
    # given
    view(spark, "seen", own_url)
    before = spark.table("seen")
    assert numbers(before) == [1, 2]
    # when
    spark.sql("INSERT INTO seen VALUES (3)")
    # then
    assert numbers(spark.table("seen")) == [1, 2, 3]
    assert numbers(before) == [1, 2]
    assert sp.open(own_url).snapshot().table("t").num_rows == 3


def test_rows_replace_those_of_a_view_whoever_made_it(spark: SparkSession, own_url: str) -> None:
    # given
    frame = spark.read.format("spark_pages").option("table", "t").load(own_url)
    frame.createOrReplaceTempView("made_of_a_frame")
    view(spark, "everywhere", own_url, kind="GLOBAL TEMPORARY")
    assert numbers(spark.table("made_of_a_frame")) == numbers(spark.table("global_temp.everywhere"))
    # when
    spark.sql("INSERT OVERWRITE made_of_a_frame SELECT 7L UNION ALL SELECT 8L")
    spark.sql("INSERT INTO global_temp.everywhere VALUES (9)")
    # then
    assert numbers(spark.table("made_of_a_frame")) == [7, 8]
    assert numbers(spark.table("global_temp.everywhere")) == [7, 8, 9]


def test_rows_that_a_frame_inserts_are_seen_too(spark: SparkSession, own_url: str) -> None:
    # given
    view(spark, "by_frame", own_url)
    view(spark, "by_frame", own_url, kind="GLOBAL TEMPORARY")
    assert numbers(spark.table("by_frame")) == numbers(spark.table("global_temp.by_frame")) == [1, 2]
    # when
    spark.range(3, 4).write.insertInto("by_frame")
    spark.range(4, 5).write.insertInto("global_temp.`by_frame`", overwrite=True)
    # then
    assert numbers(spark.table("by_frame")) == [1, 2, 3]
    assert numbers(spark.table("global_temp.by_frame")) == [4]


def test_an_insert_by_another_object_of_the_session_is_seen(spark: SparkSession, own_url: str) -> None:
    # given
    view(spark, "by_active", own_url)
    active = SparkSession.getActiveSession()
    other = spark.newSession()
    view(other, "by_other", own_url)
    assert numbers(spark.table("by_active")) == numbers(other.table("by_other")) == [1, 2]
    # when
    active.sql("INSERT INTO by_active VALUES (3)")
    other.sql("INSERT INTO by_other VALUES (4)")
    # then
    assert numbers(spark.table("by_active")) == [1, 2, 3]
    assert numbers(other.table("by_other")) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (", versionAsOf 1", "'versionasof'.*newest version"),
        (", filter 'id > 1'", "'filter'.*whole rows"),
        (", columns 'id'", "'columns'.*whole rows"),
    ],
)
def test_a_view_of_a_version_or_of_some_rows_takes_no_rows(
    spark: SparkSession, own_url: str, options: str, said: str
) -> None:
    view(spark, "pinned", own_url, options)

    with pytest.raises(Exception, match=said):
        spark.sql("INSERT INTO pinned VALUES (3)")

    assert sp.open(own_url).snapshot().version == 1


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE made (id bigint) USING spark_pages OPTIONS (path '{url}', table 't')",
        "CREATE TABLE made USING Spark_Pages OPTIONS (path '{url}', table 't')",
        "create table if not exists made using spark_pages options (path '{url}', table 't') as select 1L id",
        "CREATE OR REPLACE TABLE made (id bigint) USING spark_pages",
    ],
)
def test_a_table_of_the_catalog_that_nobody_could_read_is_not_made(
    spark: SparkSession, url: str, statement: str
) -> None:
    with pytest.raises(InvalidInputError, match=r"passes none of its options on.*CREATE TEMPORARY VIEW"):
        spark.sql(statement.format(url=url))

    assert not spark.catalog.tableExists("made")


def test_other_statements_are_left_to_spark(spark: SparkSession) -> None:
    spark.sql("CREATE TABLE others (id bigint) USING parquet")
    spark.sql("INSERT INTO others VALUES (1)")
    spark.sql("CREATE OR REPLACE TEMPORARY VIEW one AS SELECT {n} AS n", n=1)

    assert numbers(spark.table("others")) == numbers(spark.table("one")) == [1]
    with pytest.raises(Exception, match="PARSE_SYNTAX_ERROR"):
        spark.sql("CREATE nothing at all")
    spark.sql("DROP TABLE others")
