"""The frame of a job: one JSON line of result on stdout, talk on stderr, an exit code."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from spark_pages.errors import CommitConflictError, NotFoundError, SparkPagesError

OK, FAILED, CONFLICT, NOT_FOUND = 0, 1, 3, 4
"""Exit codes: done; an error; read again and retry; ask for something else."""


def run_job(work: Callable[[], dict[str, Any]]) -> int:
    """The exit code of `work`, whose result, or error, is the last line of stdout as JSON."""
    try:
        result = work()
    except SparkPagesError as error:
        said = {"error": type(error).__name__, "message": error.message, "hint": error.hint}
        code = _code(error)
    except Exception as error:  # noqa: BLE001 - Spark's own failures are told like ours, whatever their class
        lines = [line for line in str(error).splitlines() if line.strip()]
        said = {"error": type(error).__name__, "message": lines[0] if lines else "", "hint": None}
        print(error, file=sys.stderr)
        code = FAILED
    else:
        print(json.dumps(result), flush=True)
        return OK if result.get("ok", True) else FAILED
    print(json.dumps({"ok": False, **said}), flush=True)
    return code


def _code(error: SparkPagesError) -> int:
    match error:
        case CommitConflictError():
            return CONFLICT
        case NotFoundError():
            return NOT_FOUND
        case _:
            return FAILED
