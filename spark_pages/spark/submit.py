"""Running a job by ``spark-submit``, as an operator would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

from spark_pages import errors
from spark_pages.arguments import as_list, as_path, as_str
from spark_pages.boundary import guard
from spark_pages.errors import InternalError, InvalidInputError, SparkPagesError
from spark_pages.spark.job import JOBS
from spark_pages.spark.output_folder import SCHEME
from spark_pages.spark.package_files import DEFAULTS, ENTRY
from spark_pages.spark.session import DELTA_JARS, check_spark, java_options

_TAIL_LINES = 20
_PATHS = ("--output", "--path")


@guard
def submit(job: str, arguments: list[str], conf: str | None = None) -> dict[str, Any]:
    """Run a job in a process of its own; gives the result that it printed.

    Parameters
    ----------
    job
        Its name, such as ``compact_pages``.
    arguments
        What the job takes, the address of the store first. Paths in the first argument and after
        ``--output`` and ``--path`` are made absolute, because the job runs in a temporary folder.
    conf
        Properties file; the profile ``spark-defaults.conf`` of the package by default.

    Raises
    ------
    InvalidInputError
        If there is no job of that name.
    MissingDependencyError
        If Spark or Java is not there.
    SparkPagesError
        The error that the job reported, as the class that it was.
    InternalError
        If the job ended without a result; holds the end of what it said.
    """
    job, arguments = as_str(job, "job"), as_list(arguments, str, "arguments", "texts")
    conf = None if conf is None else as_path(conf, "conf")
    if job not in JOBS:
        raise InvalidInputError(
            f"Cannot submit job {job!r}: there is no job of that name.",
            hint=f"Name one of {', '.join(JOBS)}.",
        )
    delta = "--format=delta" in arguments or ("--format", "delta") in pairwise(arguments)
    check_spark(delta)
    command = _command(conf, ["--packages", DELTA_JARS] if delta else [])
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    environment.pop("SPARK_HOME", None)  # another Spark's jars would be used
    environment.pop("PYSPARK_SUBMIT_ARGS", None)
    with tempfile.TemporaryDirectory(prefix="spark_pages-") as folder:
        done = subprocess.run(  # noqa: S603 - our own job, no shell
            [*command, job, *_absolute(arguments)],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    return _result(job, done)


def _command(conf: str | None, packages: list[str]) -> list[str]:
    import pyspark

    properties = Path(conf).resolve() if conf else DEFAULTS
    return [
        str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
        *("--properties-file", str(properties), *packages),
        *("--driver-java-options", java_options(), str(ENTRY)),
    ]


def _absolute(arguments: list[str]) -> list[str]:
    made = list(arguments)
    paths = {0} | {index + 1 for index, argument in enumerate(arguments) if argument in _PATHS}
    for index in paths & set(range(len(made))):
        if SCHEME.match(made[index]) is None and not made[index].startswith("-"):
            made[index] = os.path.abspath(os.path.expanduser(made[index]))
    return made


def _result(job: str, done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    lines = done.stdout.strip().splitlines()
    try:
        result = json.loads(lines[-1]) if lines else None
    except ValueError:
        result = None
    if not isinstance(result, dict):
        said = "\n".join((done.stderr or done.stdout).strip().splitlines()[-_TAIL_LINES:])
        raise InternalError(
            f"Cannot finish job {job}: it ended with exit code {done.returncode} and no result:\n{said}"
        )
    if "error" not in result:
        return result
    name, message, hint = (result["error"][key] for key in ("type", "message", "hint"))
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, SparkPagesError):
        raise kind(message, hint=hint)
    said = "\n".join(done.stderr.strip().splitlines()[-_TAIL_LINES:])
    raise InternalError(f"Cannot finish job {job}: it failed with {name}: {message}\n{said}")
