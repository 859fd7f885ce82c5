"""How a job, and the verb of its name, ends: one document with keys that all have, and an exit code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_pages.errors import CommitConflictError, InvalidInputError, NotFoundError

OK, FAILED, USAGE, CONFLICT, NOT_FOUND = 0, 1, 2, 3, 4
"""Exit codes: done; an error; mend the call; read again and retry; ask for something else."""


def failure_document(kind: str, message: str, hint: str | None) -> dict[str, Any]:
    """Describe an error as jobs and verbs report it."""
    return {"ok": False, "error": {"type": kind, "message": message, "hint": hint}}


def exit_code_of(told: Mapping[str, Any]) -> int:
    """Return the exit code for the report of a job or verb; of several tables, the failed ones decide."""
    if told.get("ok", True):
        return OK
    failed = [each["error"]["type"] for each in told.get("tables", ()) if not each["ok"]]
    return CONFLICT if failed and set(failed) == {CommitConflictError.__name__} else FAILED


def exit_code(error: Exception | None) -> int:
    """Return the exit code for the kind of an error."""
    match error:
        case NotFoundError():
            return NOT_FOUND
        case CommitConflictError():
            return CONFLICT
        case InvalidInputError():
            return USAGE
        case _:
            return FAILED
