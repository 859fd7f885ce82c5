from __future__ import annotations

import json
from typing import Any, NoReturn

import pytest

from spark_pages.errors import CommitConflictError, CommitUnknownError, InvalidInputError, TableNotFoundError
from spark_pages.outcome import CONFLICT, FAILED, NOT_FOUND, OK, USAGE
from spark_pages.spark.failures import reading_rows
from spark_pages.spark.job import run_job

FROM_AN_EXECUTOR = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure
Traceback (most recent call last):
  File "storage.py", line 1, in get
spark_pages.errors.StorageError: later

The above exception was the direct cause of the following exception:

spark_pages.errors.DamageError: pages/x should have 7 bytes, found 6.

\tat org.apache.spark.api.python.BasePythonRunner
"""


def from_java(outermost: str, *causes: str) -> RuntimeError:
    """An error as Py4J tells it."""
    stack = "\n\tat org.apache.spark.A.b(A.scala:7)\n\t... 43 more"
    lines = [f": {outermost}{stack}", *(f"Caused by: {each}{stack}" for each in causes)]
    return RuntimeError("\n".join(["An error occurred while calling o72.getResult.", *lines]))


def failing(error: Exception) -> Any:
    def work() -> NoReturn:
        raise error

    return work


@pytest.mark.parametrize(("result", "code"), [({"rows": 7}, OK), ({"ok": True}, OK), ({"ok": False}, FAILED)])
def test_the_result_is_one_line_of_json(
    result: dict[str, Any], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_job(lambda: result) == code
    assert capsys.readouterr().out == json.dumps(result) + "\n"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CommitConflictError("overtaken", hint="Retry."), CONFLICT),
        (CommitUnknownError("silence", hint="Look."), FAILED),
        (InvalidInputError("no such format", hint="Look."), USAGE),
        (TableNotFoundError("no such table", hint="Look."), NOT_FOUND),
    ],
)
def test_an_error_is_told_by_class_and_exit_code(
    error: Any, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = run_job(failing(error))

    told = json.loads(capsys.readouterr().out)
    assert ended == code
    assert told == {
        "ok": False,
        "error": {"type": type(error).__name__, "message": error.message, "hint": error.hint},
    }


def test_what_an_executor_raised_is_told_as_if_the_driver_had(capsys: pytest.CaptureFixture[str]) -> None:
    ended = run_job(failing(RuntimeError(FROM_AN_EXECUTOR)))

    said = capsys.readouterr()
    told = json.loads(said.out)["error"]
    assert ended == FAILED
    assert (told["type"], told["message"]) == ("DamageError", "pages/x should have 7 bytes, found 6.")
    assert "Job aborted" in said.err


@pytest.mark.parametrize(
    ("causes", "kind", "message"),
    [
        (
            [
                "SparkException: Exception thrown in awaitResult: ",
                "java.lang.OutOfMemoryError: Java heap\nspace",
            ],
            "OutOfMemoryError",
            "OutOfMemoryError: Java heap space",
        ),
        (
            [
                "SparkException: [FAILED_READ_FILE.NO_HINT] While reading file s3a://b/a.csv.  SQLSTATE: 0",
                "java.io.IOException: connection reset",
            ],
            "IOException",
            "Cannot read s3a://b/a.csv: IOException: connection reset",
        ),
        (
            [
                "org.apache.spark.SparkException: Job aborted due to stage failure",
                "PythonException: [PYTHON_EXCEPTION] An exception was thrown from the Python worker: "
                "Traceback (most recent call last):\n  File 'a.py', line 1, in f\nValueError: seven\n "
                "SQLSTATE: 38000",
            ],
            "PythonException",
            "ValueError: seven",
        ),
        (["java.lang.StackOverflowError"], "StackOverflowError", "StackOverflowError"),
    ],
    ids=["no condition", "a file", "an executor", "no message"],
)
def test_a_failure_of_spark_is_told_by_the_innermost_cause_that_says_something(
    causes: list[str], kind: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    error = from_java(*causes)

    ended = run_job(failing(error))

    said = capsys.readouterr()
    told = json.loads(said.out)["error"]
    assert ended == FAILED
    assert (told["type"], told["message"]) == (kind, message)
    assert "getResult" in said.err


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
            "[FAILED_READ_FILE.PARQUET_COLUMN_DATA_TYPE_MISMATCH] Error while reading file "
            "file:///b.parquet. Expected Spark type int, not BINARY.",
        ),
        (
            [
                "SparkException: Exception thrown in awaitResult: ",
                "SparkIllegalArgumentException: CSV header does not conform to the schema.\n Header: text, n",
            ],
            "SparkIllegalArgumentException: CSV header does not conform to the schema. Header: text, n",
        ),
    ],
    ids=["a record", "a type", "a header"],
)
def test_rows_that_spark_finds_unfit_are_wrong_input(causes: list[str], message: str) -> None:
    with pytest.raises(InvalidInputError) as told, reading_rows():
        raise from_java(*causes)

    assert told.value.message == message
    assert told.value.hint
    assert "getResult" in str(told.value.__cause__)


def test_a_value_that_pyspark_tells_of_itself_is_wrong_input_too() -> None:
    text = (
        "[CAST_INVALID_INPUT] The value 'x' cannot be cast to BIGINT. SQLSTATE: 22018\n\nJVM stacktrace:\n…"
    )

    with pytest.raises(InvalidInputError) as told, reading_rows():
        raise RuntimeError(text)

    assert told.value.message == "[CAST_INVALID_INPUT] The value 'x' cannot be cast to BIGINT."


def test_a_failure_that_is_not_of_the_rows_stays_what_it_was() -> None:
    error = from_java("SparkException: Job aborted", "java.io.IOException: No space left on device")

    with pytest.raises(RuntimeError) as told, reading_rows():
        raise error

    assert told.value is error


def test_an_error_that_java_has_no_part_in_is_told_by_its_first_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ended = run_job(failing(RuntimeError("\nout of memory\nsomewhere")))

    told = json.loads(capsys.readouterr().out)["error"]
    assert ended == FAILED
    assert (told["type"], told["message"]) == ("RuntimeError", "out of memory")


@pytest.mark.parametrize(
    ("types", "code"),
    [
        ([None, "CommitConflictError"], CONFLICT),
        (["CommitConflictError", "CommitConflictError"], CONFLICT),
        (["CommitConflictError", "DamageError"], FAILED),
        ([], FAILED),
    ],
)
def test_of_several_tables_conflicts_alone_say_run_it_again(
    types: list[str | None], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = [{"ok": False, "error": {"type": each}} if each else {"ok": True} for each in types]

    ended = run_job(lambda: {"ok": False, "tables": tables})

    assert ended == code
    assert json.loads(capsys.readouterr().out)["tables"] == tables
