"""This machine: interpreter, packages, Java, and what Spark would start."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version

from spark_pages.doctor.checks import Check, failed, ok, warning
from spark_pages.spark.session import find_java
from spark_pages.spark.versions import SPARK_SERIES

OLDEST_PYTHON = (3, 11)
OLDEST_JAVA = 17
DELTA_OF_SPARK = {"4.2.": "4.4."}
"""The delta-spark series that goes with a pyspark series."""

_NEEDED = ("pyarrow", "numpy", "lz4", "fastavro", "obstore", "xxhash")
_WAIT_S = 20.0


def check_machine() -> list[Check]:
    """Everything about this machine."""
    return [check_python(), check_packages(), check_java(), check_spark(), check_pyspark_python()]


def check_python() -> Check:
    """Whether the interpreter is new enough."""
    found = f"{platform.python_implementation()} {platform.python_version()}"
    if sys.version_info < OLDEST_PYTHON:
        return failed("python", found, f"Use Python {'.'.join(map(str, OLDEST_PYTHON))} or later.")
    return ok("python", found)


def check_packages() -> Check:
    """Whether what a store needs is installed, and in which versions."""
    found = {name: _version(name) for name in ("spark-pages", *_NEEDED)}
    missing = [name for name, number in found.items() if number is None]
    shown = ", ".join(f"{name} {number}" for name, number in found.items() if number)
    if missing:
        return failed("packages", f"{', '.join(missing)} missing", "pip install spark-pages")
    return ok("packages", shown)


def check_java() -> Check:
    """Whether there is a Java that Spark can use; a store needs none."""
    java = find_java()
    if java is None:
        return warning(
            "java", "none", f"Install a JDK {OLDEST_JAVA} or later to use Spark; a store needs none."
        )
    told = _output([java, "-version"])
    number = re.search(r'version "(\d+)(?:\.(\d+))?', told)
    if number is None:
        return warning("java", "does not tell its version", "Check that `java -version` works.")
    major = int(number[2] or 0) if number[1] == "1" else int(number[1])
    if major < OLDEST_JAVA:
        return warning("java", f"version {major}", f"Spark needs Java {OLDEST_JAVA} or later.")
    return ok("java", f"version {major}")


def check_spark(installed: dict[str, str | None] | None = None) -> Check:
    """Whether pyspark and delta-spark go with this release and with each other."""
    found = installed or {name: _version(name) for name in ("pyspark", "delta-spark")}
    pyspark, delta = found["pyspark"], found["delta-spark"]
    if pyspark is None:
        return ok("spark", "pyspark is not installed; a store needs none")
    shown = f"pyspark {pyspark}, delta-spark {delta or 'not installed'}"
    remedy = 'pip install "spark-pages[spark]"'
    if not pyspark.startswith(SPARK_SERIES):
        return warning("spark", shown, f"pyspark {SPARK_SERIES}x is needed: {remedy}")
    wanted = DELTA_OF_SPARK[SPARK_SERIES]
    if delta is not None and not delta.startswith(wanted):
        return warning("spark", shown, f"delta-spark {wanted}x goes with this pyspark: {remedy}")
    return ok("spark", shown)


def check_pyspark_python() -> Check:
    """Whether Spark's workers would run the same Python as this process."""
    name = "PYSPARK_PYTHON"
    given = os.environ.get(name)
    if not given:
        return ok(name, "not set; sessions of spark_pages use this interpreter")
    python = shutil.which(given)
    if python is None:
        return warning(name, f"{given} is not there", "Unset it, or name an interpreter.")
    theirs = _output([python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]).strip()
    ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if theirs != ours:
        found = f"Python {theirs or 'that does not start'}, but this is {ours}"
        return warning(name, found, "Spark needs one minor version on both sides: unset it, or change it.")
    return ok(name, f"Python {theirs}, as this one")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - the user's own Java or Python
            command, capture_output=True, text=True, timeout=_WAIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr
