"""Whole tables in and out: from what Spark reads into a table, in one commit, and from a table to what Spark
writes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spark_pages.errors import InvalidInputError
from spark_pages.spark.options import WriteOptions
from spark_pages.spark.shipping import store_of, store_url
from spark_pages.spark.writing import TaskRows, WritePlan, commit_write, plan_write, write_task
from spark_pages.tables.written_rows import WrittenRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SOURCES = ("parquet", "csv", "json", "delta", "jdbc", "orc")
TARGETS = ("parquet", "delta")


@dataclass(frozen=True, slots=True)
class External:
    """Data outside of the store.

    Attributes
    ----------
    format
        One of `SOURCES`, or of `TARGETS`.
    path
        Where it is; None for JDBC.
    options
        For Spark, under its names. A value ``env:NAME`` is what the environment variable holds, so that no
        password stands on a command line.
    schema
        Of CSV and JSON, as Spark's DDL; else it is inferred.
    """

    format: str
    path: str | None
    options: Mapping[str, str]
    schema: str | None = None

    def resolved(self) -> dict[str, str]:
        """The options with values from the environment.

        Raises
        ------
        InvalidInputError
            If a variable is not set.
        """
        return {name: _from_environment(name, value) for name, value in self.options.items()}


def ingest(
    spark: SparkSession,
    url: str,
    source: External,
    options: WriteOptions,
    *,
    overwrite: bool = False,
    dry_run: bool = False,
    profile: str | None = None,
) -> dict[str, Any]:
    """The rows of the source are in the table, by one commit.

    Parameters
    ----------
    spark, url, profile
        A session, and the store.
    source
        What to read.
    options
        The table, and whether it may be made; with an application and number a repeated job adds nothing
        twice.
    overwrite
        Whether the rows that are there go.
    dry_run
        Only read the source, count, and compare its columns with the table.

    Returns
    -------
    dict
        ``ok``, ``table``, ``rows``, ``pages``, ``bytes_written``, ``tasks``, ``version`` (None where nothing
        was to do), ``already_landed``, ``created``, ``seconds``.

    Raises
    ------
    SchemaMismatchError, TableNotFoundError, CommitConflictError
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    started = time.monotonic()
    if source.format not in SOURCES:
        raise InvalidInputError(f"{source.format!r} cannot be read: expected {', '.join(SOURCES)}.")
    rows = _read(spark, source)
    schema = to_arrow_schema(rows.schema, timezone="UTC")
    plan = plan_write(store_url(url, profile), schema, overwrite, options)
    told: dict[str, Any] = {"ok": True, "table": options.table, "created": plan.creates}
    if dry_run:
        told |= {"dry_run": True, "rows": rows.count(), "read_version": plan.read_version}
    else:
        tasks = [] if plan.landed else [TaskRows(*row) for row in _written(rows, plan)]
        version = commit_write(tasks, plan)
        written = [task.rows for task in tasks if isinstance(task.rows, WrittenRows)]
        few = [task.rows for task in tasks if isinstance(task.rows, bytes)]
        told |= {
            "rows": sum(each.num_rows for each in written)
            + sum(pa.ipc.open_stream(each).read_all().num_rows for each in few),
            "pages": sum(each.num_pages for each in written),
            "bytes_written": sum(each.page_bytes for each in written),
            "tasks": len(tasks),
            "version": version,
            "already_landed": plan.landed,
        }
    return {**told, "seconds": round(time.monotonic() - started, 3)}


def export(
    spark: SparkSession,
    url: str,
    table: str,
    target: External,
    *,
    version: int | None = None,
    mode: str = "errorifexists",
    dry_run: bool = False,
    profile: str | None = None,
) -> dict[str, Any]:
    """The rows of a table as of a version are at the target.

    Parameters
    ----------
    spark, url, profile, table
        A session, the store and the table.
    target
        Parquet or Delta.
    version
        The newest by default.
    mode
        ``errorifexists``, ``overwrite`` or ``append``, as Spark has them. A job that was killed is repeated
        with ``overwrite``.

    Returns
    -------
    dict
        ``ok``, ``table``, ``version``, ``rows``, ``output``, ``format``, ``seconds``.
    """
    started = time.monotonic()
    if target.format not in TARGETS or target.path is None:
        raise InvalidInputError(
            f"{target.format!r} cannot be written: expected {' or '.join(TARGETS)}, and a path."
        )
    snapshot = store_of(store_url(url, profile)).snapshot(version)
    reading = spark.read.format("spark_pages").option("table", table).option("versionAsOf", snapshot.version)
    if profile:
        reading = reading.option("profile", profile)
    told = {
        "ok": True,
        "table": table,
        "version": snapshot.version,
        "rows": snapshot.table(table).num_rows,
        "output": target.path,
        "format": target.format,
    }
    if dry_run:
        return {**told, "dry_run": True, "seconds": round(time.monotonic() - started, 3)}
    reading.load(url).write.format(target.format).mode(mode).options(**target.resolved()).save(target.path)
    return {**told, "seconds": round(time.monotonic() - started, 3)}


def _read(spark: SparkSession, source: External) -> DataFrame:
    reading = spark.read.format(source.format).options(**source.resolved())
    if source.schema is not None:
        reading = reading.schema(source.schema)
    return reading.load(source.path) if source.path else reading.load()


def _written(rows: DataFrame, plan: WritePlan) -> list[tuple[Any, ...]]:
    """What every task tells: one of them, whatever was repeated or speculated."""
    import pickle

    done = rows.mapInArrow(_WriteTask(plan), "task binary").toArrow()
    return [pickle.loads(each) for each in done.column(0).to_pylist()]  # noqa: S301 - made by our own executors


@dataclass(frozen=True, slots=True)
class _WriteTask:
    """Writes the rows of one partition on an executor."""

    plan: WritePlan

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pickle

        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        task = write_task(self.plan, context.partitionId(), iter(batches))
        packed = pickle.dumps((task.partition, task.plan, task.rows))
        yield pa.record_batch([pa.array([packed], pa.binary())], names=["task"])


def _from_environment(name: str, value: str) -> str:
    if not value.startswith("env:"):
        return value
    variable = value.removeprefix("env:")
    if variable not in os.environ:
        raise InvalidInputError(
            f"Option {name} is taken from the environment variable {variable}, which is not set."
        )
    return os.environ[variable]
