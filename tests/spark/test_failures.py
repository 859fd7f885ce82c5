"""What Spark says when it fails, as errors of ours; the first tests need no Spark."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from spark_pages.cli.app import app
from spark_pages.errors import (
    DamageError,
    InvalidInputError,
    SparkFailedError,
    SparkPagesError,
    TableNotFoundError,
)
from spark_pages.job_result import FAILED, USAGE
from spark_pages.spark.compact import compact_pages
from spark_pages.spark.external import External
from spark_pages.spark.failures import spark_failing
from spark_pages.spark.transfer import export
from spark_pages.spark.verify import verify
from tests.spark.conftest import History

FROM_AN_EXECUTOR = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure
Traceback (most recent call last):
  File "storage.py", line 1, in get
spark_pages.errors.StorageError: later

The above exception was the direct cause of the following exception:

spark_pages.errors.DamageError: pages/x should have 7 bytes, found 6.

\tat org.apache.spark.api.python.BasePythonRunner
"""
CRASHED = "Python worker exited unexpectedly (crashed)"


def from_java(outermost: str, *causes: str) -> RuntimeError:
    """An error as Py4J tells it."""
    stack = "\n\tat org.apache.spark.A.b(A.scala:7)\n\t... 43 more"
    lines = [f": {outermost}{stack}", *(f"Caused by: {each}{stack}" for each in causes)]
    return RuntimeError("\n".join(["An error occurred while calling o72.getResult.", *lines]))


def raised_for(error: Exception) -> SparkPagesError:
    """What is raised in place of it."""
    with pytest.raises(SparkPagesError) as told, spark_failing():
        raise error
    assert told.value.__cause__ is error
    return told.value


def test_what_an_executor_raised_is_raised_as_if_the_driver_had() -> None:
    told = raised_for(RuntimeError(FROM_AN_EXECUTOR))

    assert (type(told), told.message) == (DamageError, "pages/x should have 7 bytes, found 6.")


@pytest.mark.parametrize(
    ("causes", "message"),
    [
        (
            [
                "SparkException: Exception thrown in awaitResult: ",
                "java.lang.OutOfMemoryError: Java heap\nspace",
            ],
            "Cannot complete the work in Spark: OutOfMemoryError: Java heap space.",
        ),
        (
            [
                "SparkException: [FAILED_READ_FILE.NO_HINT] While reading file s3a://b/a.csv.  SQLSTATE: 0",
                "java.io.IOException: connection reset",
            ],
            "Cannot read s3a://b/a.csv: IOException: connection reset.",
        ),
        (
            [
                "org.apache.spark.SparkException: Job aborted due to stage failure",
                "PythonException: [PYTHON_EXCEPTION] An exception was thrown from the Python worker: "
                "Traceback (most recent call last):\n  File 'a.py', line 1, in f\nValueError: seven\nlines\n "
                "SQLSTATE: 38000",
            ],
            "Cannot complete the work in Spark: ValueError: seven lines.",
        ),
        (["java.lang.StackOverflowError"], "Cannot complete the work in Spark: StackOverflowError."),
        (
            [f"org.apache.spark.SparkException: {CRASHED}.", "java.io.EOFException"],
            f"Cannot complete the work in Spark: SparkException: {CRASHED}.",
        ),
    ],
    ids=["no condition", "a file", "an executor", "no message", "the last has no message"],
)
def test_a_failure_is_told_by_the_innermost_cause_that_says_something(
    causes: list[str], message: str
) -> None:
    told = raised_for(from_java(*causes))

    assert (type(told), told.message) == (SparkFailedError, message)
    assert told.hint


@pytest.mark.parametrize(
    ("causes", "message"),
    [
        (
            [
                "SparkException: [FAILED_READ_FILE.NO_HINT] While reading file file:///a.csv.  SQLSTATE: 0",
                "SparkException: [MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION] Malformed: [null,b].\n"
                "Parse Mode: FAILFAST.  SQLSTATE: 22023",
                "java.lang.NumberFormatException: For input string: 'b'",
            ],
            "Cannot read file:///a.csv: [MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION] Malformed: "
            "[null,b]. Parse Mode: FAILFAST.",
        ),
        (
            [
                "SparkException: [FAILED_READ_FILE.PARQUET_COLUMN_DATA_TYPE_MISMATCH] Error while reading "
                "file file:///b.parquet. Expected Spark type int, not BINARY. SQLSTATE: KD001",
                "SchemaColumnConvertNotSupportedException: column: [n]",
            ],
            "Cannot complete the work in Spark: [FAILED_READ_FILE.PARQUET_COLUMN_DATA_TYPE_MISMATCH] Error "
            "while reading file file:///b.parquet. Expected Spark type int, not BINARY.",
        ),
        (
            [
                "SparkException: Exception thrown in awaitResult: ",
                "SparkIllegalArgumentException: CSV header does not conform to the schema.\n Header: text, n",
            ],
            "Cannot complete the work in Spark: SparkIllegalArgumentException: "
            "CSV header does not conform to the schema. Header: text, n.",
        ),
    ],
    ids=["a record", "a type", "a header"],
)
def test_rows_that_spark_finds_unfit_are_wrong_input(causes: list[str], message: str) -> None:
    told = raised_for(from_java(*causes))

    assert (type(told), told.message) == (InvalidInputError, message)
    assert told.hint


def test_a_value_that_pyspark_tells_of_itself_is_wrong_input_too() -> None:
    text = (
        "[CAST_INVALID_INPUT] The value 'x' cannot be cast to BIGINT. SQLSTATE: 22018\n\nJVM stacktrace:\n…"
    )

    told = raised_for(RuntimeError(text))

    expected = (
        "Cannot complete the work in Spark: [CAST_INVALID_INPUT] The value 'x' cannot be cast to BIGINT."
    )
    assert (type(told), told.message) == (InvalidInputError, expected)


def test_an_error_that_spark_has_no_part_in_stays_what_it_was() -> None:
    error = RuntimeError("\nout of memory\nsomewhere")

    with pytest.raises(RuntimeError) as told, spark_failing():
        raise error

    assert told.value is error


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"compression": "bogus"}, r"\[CODEC_NOT_AVAILABLE\S+ The codec bogus is not available"),
        ({"maxRecordsPerFile": "seven"}, 'NumberFormatException: For input string: "seven"'),
    ],
    ids=["a condition", "none"],
)
def test_an_option_that_spark_refuses_is_wrong_input(
    spark: Any, history: History, tmp_path: Path, option: dict[str, str], message: str
) -> None:
    target = External("parquet", str(tmp_path / "out"), option)

    with pytest.raises(InvalidInputError, match=message):
        export(spark, history.url, "flights", target)

    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def lost() -> subprocess.CompletedProcess[str]:
    """A process that has ended: it began a session of its own, and lost the JVM."""
    return subprocess.run(
        [sys.executable, "-m", "tests.spark.lost_jvm"], capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_a_jvm_that_is_gone_is_told_as_such(lost: subprocess.CompletedProcess[str]) -> None:
    assert lost.stdout.startswith(
        "SparkFailedError: Cannot complete the work in Spark: The JVM of Spark does not answer"
    ), lost.stderr


@pytest.mark.slow
def test_a_session_begins_without_talk_of_its_log(lost: subprocess.CompletedProcess[str]) -> None:
    assert "log level" not in lost.stderr


def test_a_verb_tells_a_failure_of_spark_as_the_job_does(
    spark: Any,
    history: History,
    tmp_path: Path,
) -> None:
    verb = ["export", history.url, "--table", "flights", "--output", f"{tmp_path}/out"]

    refused = CliRunner().invoke(app, [*verb, "--option", "compression=bogus", "--json"])
    failed = CliRunner().invoke(app, [*verb, "--option", "partitionOverwriteMode=bogus"])

    assert (refused.exit_code, failed.exit_code) == (USAGE, FAILED)
    assert json.loads(refused.stdout)["error"]["type"] == "InvalidInputError"
    assert failed.stderr.startswith(
        "error [SparkFailedError] Cannot complete the work in Spark: NoSuchElementException: No value"
    )


def test_a_table_that_the_source_does_not_find_is_not_found(spark: Any, history: History) -> None:
    reading = spark.read.format("spark_pages").option("table", "absent")

    with pytest.raises(TableNotFoundError, match="absent"), spark_failing():
        reading.load(history.url)


@pytest.mark.parametrize(
    ("work", "job"),
    [
        ("compact._Rewrite", lambda spark, url: compact_pages(spark, url, "flights")),
        ("verify._ReadParcels", lambda spark, url: verify(spark, url, "all")),
    ],
    ids=["compact_pages", "verify"],
)
def test_a_worker_that_dies_is_told_in_one_line(
    spark: Any, own_history: History, monkeypatch: pytest.MonkeyPatch, work: str, job: Any
) -> None:
    def die(_: Any) -> None:  # a function of a function travels whole, whatever workers can import
        os._exit(7)

    monkeypatch.setattr(f"spark_pages.spark.{work}", lambda *_: die)

    with pytest.raises(SparkFailedError, match=re.escape(CRASHED)) as told:
        job(spark, own_history.url)

    assert "\n" not in told.value.message
