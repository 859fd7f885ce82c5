"""A Spark session that is ready for spark_pages, and what must be there before one can start."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spark_pages.arguments import as_flag, as_str
from spark_pages.boundary import guard
from spark_pages.changes.feed import find_table_id
from spark_pages.changes.history import HISTORY_SCHEMA
from spark_pages.errors import InvalidInputError, MissingDependencyError
from spark_pages.progress import is_reporting, on_terminal, phase
from spark_pages.query.table_names import spelled
from spark_pages.spark.arrow_types import spark_schema
from spark_pages.spark.failures import spark_failing
from spark_pages.spark.feed import FEED_SCHEMAS, Feed, version_range
from spark_pages.spark.package_files import LOGGING
from spark_pages.spark.serialization import store_of, store_url
from spark_pages.spark.sql_statements import follow_statements
from spark_pages.spark.versions import DELTA, installed, wrong_pair
from spark_pages.spark.worker_boundary import worker_boundary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SHORT_RUN = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""A JVM for minutes on one machine: compiling less halves the processor time of a small job."""

ARROW_IN_JVM = "-Darrow.enable_unsafe_memory_access=true"
"""Arrow in the JVM does not look at the bounds of a buffer for each value, a tenth of the processor time of a
read: Spark asks for rows that the batch has."""

KEEPS_FREED_MEMORY = {"spark.executorEnv.MIMALLOC_PURGE_DELAY": "1000"}
"""What Arrow frees in a worker it keeps for a second (in ms): the next window goes there, and the kernel need
not clear other memory for it, a fifth of what a worker computes."""


DELTA_JARS = f"io.delta:delta-spark_4.2_2.13:{DELTA}"
"""What ``spark-submit`` takes as ``--packages`` for Delta tables."""

DELTA_CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.jars.packages": DELTA_JARS,
}
"""What a session needs for Delta tables; the JARs come from Maven Central, once."""


def check_spark(delta: bool = False) -> None:
    """Nothing, if Java and packages that go together are there.

    Parameters
    ----------
    delta
        Whether Delta tables are to be read and written by Spark.

    Raises
    ------
    MissingDependencyError
        If something is missing, or two versions do not go together; says which, and what to do.
    """
    java = find_java()
    found = installed(java)
    if found.pyspark is None:
        raise MissingDependencyError(
            "Cannot start Spark: the package pyspark is not installed.",
            hint='Install it: `pip install "spark-pages[spark]"`.',
        )
    wrong = wrong_pair(found, delta=delta)
    if wrong is not None:
        raise MissingDependencyError(f"Cannot start Spark: {wrong[0]}", hint=wrong[1])
    if java is None:
        raise MissingDependencyError(
            "Cannot start Spark: there is no Java, neither bin/java under JAVA_HOME nor java on the PATH.",
            hint="Install a JDK or JRE 17 or later. Everything but Spark works without it.",
        )


def find_java() -> str | None:
    """Return the Java that Spark would start, or None."""
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home, "bin", "java")
        return str(java) if java.is_file() else None
    return shutil.which("java")


@guard
def session(
    app_name: str = "spark_pages",
    master: str | None = "local[2]",
    delta: bool = False,
    *,
    source: bool = True,
    large: bool = False,
) -> SparkSession:
    """Return a session with the data source ``spark_pages`` and its SQL functions, running or new.

    Parameters
    ----------
    app_name
        Shown by Spark.
    master
        Where to run; None leaves it to ``spark-submit``.
    delta
        Whether it reads and writes Delta tables too. A session that is running must have been made so.
    source
        Whether the data source and the functions are registered: a job that uses neither starts some seconds
        sooner.
    large
        Whether a JVM on this machine compiles as much as on a cluster: for reads of tens of millions of rows,
        of which it then takes half the time. Small jobs take twice the processor time.

    Raises
    ------
    MissingDependencyError
        If something is missing, or two versions do not go together; says which. Also where the session that
        is running was made without Delta, and is asked for it, or ``spark-submit`` began without its JARs.
    SparkFailedError
        If it does not start.

    Notes
    -----
    Starting takes 5 to 15 s. Workers run the interpreter of this process, also in an environment that is
    not activated; with `master` None that of ``PYSPARK_PYTHON``, where it is set. Nothing is written to the
    working directory; the warehouse is a temporary folder.
    """
    app_name = as_str(app_name, "app_name")
    master = None if master is None else as_str(master, "master")
    delta, source, large = as_flag(delta, "delta"), as_flag(source, "source"), as_flag(large, "large")
    check_spark(delta)
    from pyspark.sql import SparkSession

    if master is not None or "PYSPARK_PYTHON" not in os.environ:  # spark-submit may have named one
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    spark = _running()
    if spark is None:
        phase("starting Spark")
        builder = SparkSession.builder.appName(app_name)
        for key, value in {**_settings(master, large), **(DELTA_CONF if delta else {})}.items():
            builder = builder.config(key, value)
        with spark_failing():
            spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        if delta:
            _check_jars(spark)
    elif delta:
        _check_delta(spark)
    wrong = wrong_pair(replace(installed(), jvm=spark.version), delta=delta)
    if wrong is not None:
        raise MissingDependencyError(f"Cannot use this Spark: {wrong[0]}", hint=wrong[1])
    if source:
        _register(spark)
        follow_statements(spark)
    return spark


def _running() -> SparkSession | None:
    """Return the running session. Spark calls none active in a thread that has not used it yet."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is None and SparkContext._active_spark_context is not None:
        return SparkSession.builder.getOrCreate()
    return active


def _check_delta(spark: SparkSession) -> None:
    extension = DELTA_CONF["spark.sql.extensions"]
    if extension not in (spark.conf.get("spark.sql.extensions", None) or ""):
        raise MissingDependencyError(
            "Cannot read or write Delta tables: the Spark session that is running was made without "
            f"Delta. {extension} is not among its spark.sql.extensions, and Spark takes none up later.",
            hint="Call `session(delta=True)` first in a new process, whose JVM begins with its JARs; or "
            "give the session that you make yourself the properties of "
            "`spark_pages.spark.session.DELTA_CONF`.",
        )


def _check_jars(spark: SparkSession) -> None:
    """Nothing, if the JVM has Delta; ``spark-submit`` starts it, and fetches JARs, before it runs a job."""
    extension = DELTA_CONF["spark.sql.extensions"]
    try:
        spark._jvm.Thread.currentThread().getContextClassLoader().loadClass(extension)  # type: ignore[union-attr]
    except Exception as error:  # Py4J's
        raise MissingDependencyError(
            f"Cannot read or write Delta tables: they need the JARs of delta-spark {DELTA}, and "
            f"spark-submit has begun without them, so there is no {extension}.",
            hint=f"Submit the job with: --packages {DELTA_JARS}.",
        ) from error


def _register(spark: SparkSession) -> None:
    from spark_pages.spark.source import SparkPagesDataSource

    spark.dataSource.register(SparkPagesDataSource)
    register(spark)


def _settings(master: str | None, large: bool) -> dict[str, str]:
    scratch = tempfile.mkdtemp(prefix="spark_pages-")
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": str(on_terminal() and not is_reporting()).lower(),
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.pyspark.python": os.environ["PYSPARK_PYTHON"],
        "spark.pyspark.driver.python": sys.executable,
    }
    if master is None:  # the rest comes from the properties file of spark-submit
        return settings
    settings.update(KEEPS_FREED_MEMORY)
    settings["spark.master"] = master
    settings["spark.sql.shuffle.partitions"] = "4"
    if master.startswith("local"):
        settings["spark.driver.host"] = settings["spark.driver.bindAddress"] = "127.0.0.1"
        settings["spark.driver.extraJavaOptions"] = java_options(large)
    return settings


def java_options(large: bool = False) -> str:
    """Options of a quiet JVM on this machine, for a short run if not for a `large` one."""
    logging = [f"-Dlog4j2.configurationFile={LOGGING.as_uri()}"] if LOGGING.is_file() else []  # no zip file
    return " ".join([*([] if large else [SHORT_RUN]), ARROW_IN_JVM, *logging])


@worker_boundary
class History:
    """A row for each transaction and each upkeep of the log, newest first."""

    def eval(
        self, url: str | None, limit: int | None = None, profile: str | None = None
    ) -> Iterator[tuple[Any, ...]]:
        """Yield the newest `limit` rows, or all."""
        yield from _rows(store_of(_address(url, profile)).history(limit))


@worker_boundary
class Changes:
    """Changes of rows by the versions from `starting_version` to `ending_version`, both included."""

    def eval(
        self,
        url: str | None,
        starting_version: int | None = None,
        ending_version: int | None = None,
        table: str | None = None,
        profile: str | None = None,
    ) -> Iterator[tuple[Any, ...]]:
        """By default of all versions that can be read, and of all tables."""
        address = _address(url, profile)
        store = store_of(address)
        start, end = version_range(store.snapshot().log, starting_version, ending_version)
        table_id: int | None = None
        if table is not None:
            now = store.snapshot(end)
            then = store.snapshot(start - 1).log if start else None
            table_id = find_table_id(now.log, then, spelled(now, table.split(".")))
        yield from _rows(Feed(address, "rows", table_id).read(start, end))


def register(spark: SparkSession) -> None:
    """Add the SQL functions ``spark_pages_history`` and ``spark_pages_changes`` to a session."""
    from pyspark.sql.functions import udtf  # without pyspark this module tells that it is missing
    from pyspark.sql.pandas.types import from_arrow_schema

    for name, function, schema in (
        ("spark_pages_history", History, HISTORY_SCHEMA),
        ("spark_pages_changes", Changes, FEED_SCHEMAS["rows"]),
    ):
        made: Any = udtf(function, returnType=from_arrow_schema(spark_schema(schema)))
        spark.udtf.register(name, made)


def _address(url: str | None, profile: str | None) -> str:
    if url is None:  # what SQL gives is not checked before
        raise InvalidInputError(
            "Cannot open a store: its address is NULL.",
            hint="Pass its URL as text, such as 'file:///data/store'.",
        )
    return store_url(url, profile)


def _rows(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    for batch in table.to_batches(max_chunksize=4096):
        yield from zip(*map(_values, batch.columns), strict=True)


def _values(column: pa.Array) -> list[Any]:
    """Return the values of a column as Spark takes them from Python: maps as dicts."""
    values: list[Any] = column.to_pylist()
    if pa.types.is_map(column.type):
        return [None if value is None else dict(value) for value in values]
    return values
