from __future__ import annotations

import argparse
import json
from typing import Any, NoReturn

import pytest

from spark_pages.errors import (
    CommitConflictError,
    CommitUnknownError,
    InvalidInputError,
    SparkFailedError,
    TableNotFoundError,
)
from spark_pages.job_result import CONFLICT, FAILED, NOT_FOUND, OK, USAGE
from spark_pages.spark.job import run_job


def run(work: Any) -> int:
    return run_job("verify", argparse.Namespace(progress="none"), work)


def failing(error: Exception) -> Any:
    def work() -> NoReturn:
        raise error

    return work


@pytest.mark.parametrize(("result", "code"), [({"rows": 7}, OK), ({"ok": True}, OK), ({"ok": False}, FAILED)])
def test_the_result_is_one_line_of_json(
    result: dict[str, Any], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(lambda: result) == code
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
    ended = run(failing(error))

    told = json.loads(capsys.readouterr().out)
    assert ended == code
    assert told == {
        "ok": False,
        "error": {"type": type(error).__name__, "message": error.message, "hint": error.hint},
    }


def test_why_an_error_was_raised_is_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    error = SparkFailedError("IOException: no space left.", hint="Look.")
    error.__cause__ = RuntimeError("An error occurred while calling o72.getResult.")

    ended = run(failing(error))

    said = capsys.readouterr()
    assert ended == FAILED
    assert json.loads(said.out)["error"]["message"] == "IOException: no space left."
    assert "getResult" in said.err


def test_an_error_of_nobodys_is_told_by_its_first_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ended = run(failing(RuntimeError("\nout of memory\nsomewhere")))

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

    ended = run(lambda: {"ok": False, "tables": tables})

    assert ended == code
    assert json.loads(capsys.readouterr().out)["tables"] == tables
