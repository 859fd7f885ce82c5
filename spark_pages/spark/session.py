"""A Spark session that is ready for spark_pages, and what must be there before one can start."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from spark_pages.errors import MissingDependencyError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK_SERIES = "4.2."
PROJECT = Path(__file__).resolve().parents[2]
"""Folder of the checkout, where `conf/` and `jobs/` are; of no use where only the package is installed."""

SHORT_RUN = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""A JVM for minutes on one machine: compiling less halves the processor time of a small job."""


def check_spark() -> None:
    """Nothing, if Java and the right pyspark are there.

    Raises
    ------
    MissingDependencyError
        If one of them is not; says which, and how to get it.
    """
    try:
        import pyspark
    except ImportError as error:
        raise MissingDependencyError(
            "Spark needs the package pyspark, which is not installed.",
            hint='Install it with: pip install "spark-pages[spark]".',
        ) from error
    if not pyspark.__version__.startswith(SPARK_SERIES):
        raise MissingDependencyError(
            f"Spark {SPARK_SERIES}x is needed, but pyspark {pyspark.__version__} is installed.",
            hint='Install the right one with: pip install "spark-pages[spark]".',
        )
    if find_java() is None:
        raise MissingDependencyError(
            "Spark needs Java, and there is none: no bin/java under JAVA_HOME, no java on the PATH.",
            hint="Install a JDK or JRE 17 or later. Everything but Spark works without it.",
        )


def find_java() -> str | None:
    """The Java that Spark would start, or None."""
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home, "bin", "java")
        return str(java) if java.is_file() else None
    return shutil.which("java")


def session(app_name: str = "spark_pages", master: str | None = "local[2]") -> SparkSession:
    """A session with the data source ``spark_pages``; the one that is running, if one is.

    Parameters
    ----------
    app_name
        Shown by Spark.
    master
        Where to run; None leaves it to ``spark-submit``.

    Raises
    ------
    MissingDependencyError

    Notes
    -----
    Starting takes 5 to 15 s. Workers run the interpreter of this process, also in an environment that is
    not activated. Nothing is written to the working directory; the warehouse is a temporary folder.
    """
    check_spark()
    from pyspark.sql import SparkSession

    from spark_pages.spark.source import SparkPagesDataSource

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    spark = SparkSession.getActiveSession()
    if spark is None:
        builder = SparkSession.builder.appName(app_name)
        for key, value in _settings(master).items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(SparkPagesDataSource)
    return spark


def _settings(master: str | None) -> dict[str, str]:
    scratch = tempfile.mkdtemp(prefix="spark_pages-")
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.pyspark.python": sys.executable,
        "spark.pyspark.driver.python": sys.executable,
    }
    if master is None:  # the rest comes from the properties file of spark-submit
        return settings
    settings["spark.master"] = master
    settings["spark.sql.shuffle.partitions"] = "4"
    if master.startswith("local"):
        settings["spark.driver.host"] = settings["spark.driver.bindAddress"] = "127.0.0.1"
        settings["spark.driver.extraJavaOptions"] = java_options()
    return settings


def java_options() -> str:
    """Options of a quiet JVM for a short run on this machine."""
    quiet = PROJECT / "conf" / "log4j2.properties"
    return f"{SHORT_RUN} -Dlog4j2.configurationFile={quiet.as_uri()}" if quiet.is_file() else SHORT_RUN
