from __future__ import annotations

import json
from typing import Any, NoReturn

import pytest

from spark_pages.errors import CommitConflictError, CommitUnknownError, InvalidInputError, TableNotFoundError
from spark_pages.outcome import CONFLICT, FAILED, NOT_FOUND, OK, USAGE
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


def test_a_failure_of_spark_is_told_by_its_first_line(capsys: pytest.CaptureFixture[str]) -> None:
    ended = run_job(failing(RuntimeError("\nout of memory\n\tat java")))

    told = json.loads(capsys.readouterr().out)["error"]
    assert ended == FAILED
    assert (told["type"], told["message"]) == ("RuntimeError", "out of memory")
