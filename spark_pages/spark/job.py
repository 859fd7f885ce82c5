"""The frame of a job: one JSON line of result on stdout, messages on stderr, and an exit code."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec

from spark_pages.arguments import shortened
from spark_pages.boundary import guard
from spark_pages.errors import InvalidInputError, SparkPagesError
from spark_pages.job_result import USAGE, exit_code, exit_code_of, failure_document
from spark_pages.progress import MODES, reporting, stderr_apart
from spark_pages.spark.failures import spark_failing
from spark_pages.spark.serialization import store_of, store_url
from spark_pages.spark.task_counts import spark_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Asked = ParamSpec("Asked")

JOBS = (
    "checkpoint",
    "compact_log",
    "compact_pages",
    "delete_rows",
    "export",
    "ingest",
    "publish_delta",
    "reconstruct_snapshot",
    "vacuum",
    "verify",
)
"""Names of the jobs, each a module of `spark_pages.spark.jobs`."""

Start = Callable[[], "SparkSession"]
"""Gives a session, when one is needed."""


def report_as(job: str) -> Callable[[Callable[Asked, dict[str, Any]]], Callable[Asked, dict[str, Any]]]:
    """Add ``ok``, ``job``, ``version`` and ``seconds`` to the report of a function.

    Failures of Spark become errors of this package, as in `spark_failing`.

    Parameters
    ----------
    job
        Its name, one of `JOBS`. The function itself tells ``version``: the one that it made, or
        that it looked at where nothing was to do; and ``ok`` where that may be false.
    """

    def decorate(work: Callable[Asked, dict[str, Any]]) -> Callable[Asked, dict[str, Any]]:
        @wraps(work)
        def telling(*args: Asked.args, **kwargs: Asked.kwargs) -> dict[str, Any]:
            started = time.monotonic()
            with spark_failing():
                told = work(*args, **kwargs)
            head = {"ok": True, "job": job, "version": told["version"]}
            return {**head, **told, "seconds": round(time.monotonic() - started, 3)}

        return guard(telling)

    return decorate


def check_session(spark: SparkSession | None) -> None:
    """Raise InvalidInputError if this is neither a session of Spark, by its class, nor None."""
    if spark is not None and not any(kind.__module__.startswith("pyspark.") for kind in type(spark).__mro__):
        raise InvalidInputError(
            f"Cannot use {shortened(spark)} ({type(spark).__name__}) as spark: expected a session, or None.",
            hint="Pass `spark_pages.spark.session()`, or None to work in this process alone.",
        )


def starting(spark: SparkSession | Start | None) -> Start | None:
    """Return a function that provides the session, given a session or such a function; None for None."""
    if spark is None or callable(spark):
        return spark
    check_session(spark)
    return lambda: spark


class JobParser(argparse.ArgumentParser):
    """Tells wrong arguments as JSON, too."""

    def error(self, message: str) -> NoReturn:
        """Say on stderr how the job is called, and end it."""
        stderr_apart()
        self.print_usage(sys.stderr)
        print(json.dumps(failure_document("UsageError", message, f"{self.prog} --help lists its arguments.")))
        self.exit(USAGE)


def arguments(job: str, description: str) -> argparse.ArgumentParser:
    """Return a parser that knows what every job takes: ``URL``, ``--profile``, ``--progress``."""
    parser = JobParser(prog=job, description=description)
    parser.add_argument("url", help="address of the store")
    parser.add_argument("--profile", help="storage options by name; see docs/storage.md")
    parser.add_argument(
        "--progress",
        choices=MODES,
        default="auto",
        help="on stderr: bars, a log line every ten seconds, or nothing; by default bars on a terminal alone",
    )
    parser.add_argument("--json", action="store_true", help="as of spark-pages; a job always prints JSON")
    return parser


def add_version_choice(parser: argparse.ArgumentParser) -> None:
    """Add ``--version``, ``--timestamp`` and ``--tag``, of which one at most may be given."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--version", type=int, help="the newest by default")
    which.add_argument("--timestamp", help="the last version not later than this, ISO 8601")
    which.add_argument("--tag", help="the version that this tag names")


def chosen_version(given: argparse.Namespace) -> int | None:
    """Return the version that the arguments of `add_version_choice` name; None for the newest."""
    if given.timestamp is None and given.tag is None:
        return given.version  # type: ignore[no-any-return]
    store = store_of(store_url(given.url, given.profile))
    return store.snapshot(timestamp=given.timestamp, tag=given.tag).version


def named_options(texts: Sequence[str]) -> dict[str, str]:
    """Parse repeated ``--option NAME=VALUE`` arguments.

    Raises
    ------
    InvalidInputError
        If one of them is not of that form; does not show it, for it may be a secret.
    """
    pairs = [text.partition("=") for text in texts]
    if not all(name and separator for name, separator, _ in pairs):
        raise InvalidInputError(
            "Cannot use an --option: it is not of the form NAME=VALUE.",
            hint="Write it like --option header=true.",
        )
    return {name: value for name, _, value in pairs}


def run_job(job: str, given: argparse.Namespace, work: Callable[[], dict[str, Any]]) -> int:
    """Run a job, print its result or error as the last line of stdout, and return the exit code.

    Parameters
    ----------
    job, given
        Its name, and what `arguments` has parsed.
    work
        Does it, and returns the result.
    """
    stderr_apart()
    try:
        with reporting(given.progress, job, spark_tasks):
            result = work()
    except Exception as error:  # noqa: BLE001 - a job ends with a line of JSON, whatever happened
        if error.__cause__ is not None:
            print(error.__cause__, file=sys.stderr)
        print(json.dumps(_error_document(error)), flush=True)
        return exit_code(error)
    print(json.dumps(result), flush=True)
    return exit_code_of(result)


def _error_document(error: Exception) -> dict[str, Any]:
    kind = type(error).__name__
    if isinstance(error, SparkPagesError):
        return failure_document(kind, error.message, error.hint)
    lines = [line for line in str(error).splitlines() if line.strip()]
    return failure_document(kind, lines[0] if lines else "", None)
