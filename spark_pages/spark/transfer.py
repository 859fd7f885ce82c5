"""Load whole tables with Spark in one commit, and export tables to what Spark writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_pages.arguments import as_flag, check_kind
from spark_pages.changes.history import HISTORY_SCHEMA, history_of
from spark_pages.log.log import Log
from spark_pages.progress import advance, phase
from spark_pages.runtime import Runtime
from spark_pages.spark.arrow_types import spark_schema, to_spark
from spark_pages.spark.external import External, FileRows, LocalRows, SparkRows
from spark_pages.spark.job import check_session, report_as
from spark_pages.spark.options import WriteOptions
from spark_pages.spark.output_folder import OutputFolder
from spark_pages.spark.serialization import objects_of, store_of, store_url
from spark_pages.spark.task_counts import following_jobs
from spark_pages.spark.writing import commit_write, plan_write
from spark_pages.transaction.written_rows import WrittenRows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@report_as("ingest")
def ingest(
    spark: SparkSession | None,
    url: str,
    source: External,
    options: WriteOptions,
    *,
    overwrite: bool = False,
    dry_run: bool = False,
    profile: str | None = None,
) -> dict[str, Any]:
    """Load the rows of a source into the table by one commit.

    Parameters
    ----------
    spark, url, profile
        A session, or None for this process alone (see `External.is_stream`); and the store.
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
        ``ok``, ``table``, ``rows``, ``pages``, ``bytes_written``, ``tasks``, ``version`` (where they landed),
        ``already_landed``, ``created``, ``seconds``; pages and bytes are those of the commit.

    Raises
    ------
    InvalidInputError
        If Spark finds rows that are not of the schema or format that was named.
    SchemaMismatchError, TableNotFoundError, CommitConflictError
    """
    check_session(spark)
    check_kind(source, External, "source", "an External")
    check_kind(options, WriteOptions, "options", "WriteOptions")
    overwrite, dry_run = as_flag(overwrite, "overwrite"), as_flag(dry_run, "dry_run")
    source.check_source()
    options.check_pair()
    rows: FileRows | LocalRows | SparkRows
    if source.format == "ipc" or (spark is None and source.is_stream):
        rows = FileRows(source)
    else:
        rows = LocalRows.of(source) if spark is None else SparkRows(spark, source)
    if not isinstance(rows, SparkRows):
        options = replace(options, engine="python")
    plan = plan_write(store_url(url, profile), rows.schema, overwrite, options)
    told: dict[str, Any] = {"ok": True, "table": options.table, "created": plan.creates}
    if dry_run:
        told |= {"dry_run": True, "version": plan.read_version, "num_rows": rows.count()}
    else:
        if not isinstance(rows, FileRows):  # whose stream begins a phase when it is read
            num_rows, size_bytes = rows.expected()
            phase(f"writing rows into {options.table}", num_rows, "rows", size_bytes)
        tasks = [] if plan.is_applied else rows.write(plan)
        phase("committing")
        version = commit_write(tasks, plan)
        written = [task.rows for task in tasks if isinstance(task.rows, WrittenRows)]
        few = [task.rows for task in tasks if isinstance(task.rows, bytes)]
        num_rows = sum(each.num_rows for each in written)
        num_rows += sum(pa.ipc.open_stream(each).read_all().num_rows for each in few)
        made = _history_of(plan.url, version if num_rows else None)
        told |= {
            "version": version,
            "num_rows": num_rows,
            "num_pages": pc.sum(made.column("pages_added"), min_count=0).as_py(),
            "bytes_written": pc.sum(made.column("bytes_added"), min_count=0).as_py(),
            "tasks": len(tasks),
            "already_landed": plan.is_applied,
        }
    return told


def _history_of(url: str, version: int | None) -> pa.Table:
    """Return the history of one commit; no rows for no version."""
    if version is None:
        return HISTORY_SCHEMA.empty_table()
    return history_of(Log(objects_of(url), Runtime()), version, version)


@report_as("export")
def export(
    spark: SparkSession | None,
    url: str,
    table: str,
    target: External,
    *,
    version: int | None = None,
    overwrite: bool = False,
    dry_run: bool = False,
    profile: str | None = None,
) -> dict[str, Any]:
    """Write the rows of a table at a version to the target.

    Parameters
    ----------
    spark, url, profile, table
        A session, or None for this process alone (see `OutputFolder.is_local`); the store and the table.
    target
        A folder, or a file where its name ends in that of a format other than Delta.
    version
        The newest by default.
    overwrite
        Whether what is there goes; else nothing may be there.

    Returns
    -------
    dict
        ``ok``, ``table``, ``version``, ``rows``, ``output``, ``format``, ``bytes`` (of what was written),
        ``seconds``.

    Raises
    ------
    InvalidInputError
        If something is at the target, and must stay; or if the target has anything in common with the store.

    Notes
    -----
    May be killed at any point and run again, and two may run at once: see `OutputFolder`.
    """
    check_session(spark)
    check_kind(target, External, "target", "an External")
    overwrite, dry_run = as_flag(overwrite, "overwrite"), as_flag(dry_run, "dry_run")
    stored = store_url(url, profile)
    folder = OutputFolder(target.format, target.check_target(), overwrite, target.resolved())
    folder.check(url)
    snapshot = store_of(stored).snapshot(version)
    told: dict[str, Any] = {
        "ok": True,
        "table": table,
        "version": snapshot.version,
        "num_rows": snapshot.table(table).num_rows,
        "output": target.path,
        "format": target.format,
    }
    if dry_run:
        return {**told, "dry_run": True}
    writing = phase(f"writing rows of {table}", told["num_rows"], "rows")
    if spark is None or folder.takes_no_spark:
        rows = snapshot.table(table).scan()
        schema = spark_schema(rows.schema) if target.format in ("parquet", "delta") else rows.schema
        told["bytes_written"] = folder.write_here(
            schema,
            (to_spark(batch, schema) if schema is not rows.schema else batch for batch in _counted(rows)),
        )
    else:
        reading = spark.read.format("spark_pages").options(table=table, versionAsOf=snapshot.version)
        reading = reading.option("profile", profile) if profile else reading
        with following_jobs(spark, writing, "output"):
            told["bytes_written"] = folder.write(reading.load(url))
    return told


def _counted(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch
        advance(batch.num_rows, batch.nbytes)
