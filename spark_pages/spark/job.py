"""The frame of a job: one JSON line of result on stdout, talk on stderr, an exit code."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from spark_pages import errors
from spark_pages.errors import InvalidInputError, SparkPagesError
from spark_pages.outcome import USAGE, ended, exit_code, failure
from spark_pages.progress import on_terminal, stderr_apart, watched
from spark_pages.spark.failures import why_spark_failed

_LAST_LINE = re.compile(rf"^{re.escape(errors.__name__)}\.(\w+): (.+)$", re.MULTILINE)
"""How a traceback ends where one of our errors was raised."""


class _Arguments(argparse.ArgumentParser):
    """Tells wrong arguments as JSON, too."""

    def error(self, message: str) -> NoReturn:
        """Say on stderr how the job is called, and end it."""
        stderr_apart()
        self.print_usage(sys.stderr)
        print(json.dumps(failure("UsageError", message, f"{self.prog} --help lists its arguments.")))
        self.exit(USAGE)


def arguments(description: str) -> argparse.ArgumentParser:
    """A parser that knows the store: ``URL`` and ``--profile``."""
    parser = _Arguments(description=description)
    parser.add_argument("url", help="address of the store")
    parser.add_argument("--profile", help="storage options by name; see docs/storage.md")
    parser.add_argument("--json", action="store_true", help="as of spark-pages; a job always prints JSON")
    return parser


def named_options(texts: Sequence[str]) -> dict[str, str]:
    """What ``--option NAME=VALUE`` said, several times.

    Raises
    ------
    InvalidInputError
        If one of them is not of that form; does not show it, for it may be a secret.
    """
    pairs = [text.partition("=") for text in texts]
    if not all(name and separator for name, separator, _ in pairs):
        raise InvalidInputError("An --option is not of the form NAME=VALUE.")
    return {name: value for name, _, value in pairs}


def run_job(work: Callable[[], dict[str, Any]]) -> int:
    """The exit code of `work`, whose result, or error, is the last line of stdout as JSON."""
    stderr_apart()
    try:
        with watched(on_terminal()):
            result = work()
    except Exception as error:  # noqa: BLE001 - Spark's own failures are told like ours, whatever their class
        ours = our_error(error)
        if ours is not error:
            print(error, file=sys.stderr)
        print(json.dumps(_told(ours or error)), flush=True)
        return exit_code(ours)
    print(json.dumps(result), flush=True)
    return ended(result)


def our_error(error: Exception) -> SparkPagesError | None:
    """The error as one of ours, or None; what an executor raised comes from Spark as text in another."""
    if isinstance(error, SparkPagesError):
        return error
    for name, message in reversed(_LAST_LINE.findall(str(error))):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, SparkPagesError):
            return kind(message)
    return None


def _told(error: Exception) -> dict[str, Any]:
    kind = type(error).__name__
    if isinstance(error, SparkPagesError):
        return failure(kind, error.message, error.hint)
    failed = why_spark_failed(error)
    if failed is not None:
        return failure(failed.kind, failed.message, None)
    lines = [line for line in str(error).splitlines() if line.strip()]
    return failure(kind, lines[0] if lines else "", None)
