"""Which versions go together, and which of those found do not. `wrong_pair` is pure."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

SPARK_SERIES = "4.2."
DELTA = "4.4.0"
"""delta-spark 4.4.1 exists, but its JAR for Spark 4.2 does not."""
LEAST_JAVA = 17


@dataclass(frozen=True, slots=True)
class Versions:
    """What is installed; None where it is not, or does not tell.

    Attributes
    ----------
    pyspark, delta, pandas
        Python packages.
    java
        The first number of the Java that Spark would start.
    jvm
        The version of the Spark that runs: another than `pyspark` where a cluster brings its own.
    """

    pyspark: str | None = None
    delta: str | None = None
    pandas: str | None = None
    java: int | None = None
    jvm: str | None = None


def wrong_pair(found: Versions, *, delta: bool = False) -> tuple[str, str] | None:
    """Return the first two incompatible versions, and the remedy; None if all are compatible.

    Parameters
    ----------
    delta
        Whether Delta tables are to be read and written.
    """
    if found.pyspark is not None and not found.pyspark.startswith(SPARK_SERIES):
        return (
            f"Spark {SPARK_SERIES}x is needed, but pyspark {found.pyspark} is installed.",
            'Install the right one with: pip install "spark-pages[spark]".',
        )
    if found.java is not None and found.java < LEAST_JAVA:
        return (
            f"pyspark {found.pyspark} needs Java {LEAST_JAVA} or later, but Java {found.java} would start.",
            "Install a newer JDK or JRE, and point JAVA_HOME at it.",
        )
    if found.jvm is not None and found.jvm != found.pyspark:
        return (
            f"pyspark {found.pyspark} talks to a Spark {found.jvm}.",
            "Use the same version on both sides: SPARK_HOME, or the image of the cluster, names another one.",
        )
    if found.pandas is not None and int(found.pandas.partition(".")[0]) >= 3:
        return (
            f"pyspark {found.pyspark} does not go together with pandas {found.pandas}.",
            'Install an older one with: pip install "pandas<3".',
        )
    if delta and found.delta is None:
        return (
            f"Delta tables need delta-spark {DELTA} beside pyspark {found.pyspark}, and it is not installed.",
            'Install it with: pip install "spark-pages[spark]".',
        )
    if delta and found.delta != DELTA:
        return (
            f"pyspark {found.pyspark} and delta-spark {found.delta} do not go together: Spark "
            f"{SPARK_SERIES}x takes delta-spark {DELTA}.",
            f"Install it with: pip install delta-spark=={DELTA}.",
        )
    return None


def installed(java: str | None = None) -> Versions:
    """Return the versions that this interpreter would use, with the Java of this path."""
    return Versions(_pyspark(), _package("delta-spark"), _package("pandas"), _java(java))


def _pyspark() -> str | None:
    """Spark brings its own to a driver on a cluster, as a zip file of which no installed package tells."""
    told = _package("pyspark")
    if told is not None:
        return told
    try:
        from pyspark.version import __version__
    except ImportError:
        return None
    return str(__version__)


def _package(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _java(path: str | None) -> int | None:
    if path is None:
        return None
    try:
        told = subprocess.run(  # noqa: S603 - the Java that Spark would start, too
            [path, "-version"], capture_output=True, text=True, check=False, timeout=60
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', told)
    return int(found[1]) if found else None
