"""Verbs that do by themselves what is small, and by Spark what is large, where Spark is installed.

The jobs of the same names do it by ``spark-submit``, with the same flags.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from spark_pages.cli.arguments import DryRun, Json, Profile, Tag, Timestamp, Url, Version, open_stored
from spark_pages.cli.inspect import bytes_of
from spark_pages.cli.output import exit_unless, print_result, say
from spark_pages.display.text import size

if TYPE_CHECKING:
    from spark_pages.spark.external import External
    from spark_pages.spark.reconstruct import Form

SMALL_BYTES = 1 << 30
"""So much one process reads or writes in less time than Spark takes to start and do it."""

SMALL_PAGES = 2_000_000
"""So many descriptors are held in memory."""

Table = Annotated[str, typer.Option(help="The table.", show_default=False)]
Options = Annotated[
    list[str] | None, typer.Option("--option", help="NAME=VALUE for Spark; env:NAME as value.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="What is there goes.")]


def checkpoint(
    url: Url,
    publish: Annotated[bool, typer.Option("--publish", help="As a commit of the Delta tables, too.")] = False,
    local: Annotated[bool, typer.Option("--local", help="In one process, however large it is.")] = False,
    dry_run: DryRun = False,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Write a checkpoint, so that the newest version opens without earlier commits."""
    from spark_pages.spark.checkpoints import checkpoint as write

    start = None if local or not _has_spark() else partial(_session, "checkpoint")
    told = write(url, start, publish=publish, dry_run=dry_run, profile=profile)
    print_result("Checkpoint", told, json)


def ingest(
    url: Url,
    table: Table,
    path: Annotated[str | None, typer.Option(help="What to read; none for jdbc.", show_default=False)] = None,
    format: Annotated[
        str | None,
        typer.Option(
            help="parquet, csv, json, ipc, orc, delta or jdbc; else what the path ends with.",
            show_default=False,
        ),
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option(help="Of csv and json, as DDL: 'id long, name string'.", show_default=False),
    ] = None,
    option: Options = None,
    create: Annotated[bool, typer.Option("--create", help="Make the table if it is not there.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="The rows that are there go.")] = False,
    app_id: Annotated[
        str | None, typer.Option(help="With --app-version: repeated, it adds nothing twice.")
    ] = None,
    app_version: Annotated[int | None, typer.Option(help="A number that grows.")] = None,
    dry_run: DryRun = False,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Read rows of files or of a database into a table, in one commit.

    Files are read by this process, without Spark. Spark reads with --option and --schema, jdbc, and Parquet
    of more than 1 GiB where it is installed.
    """
    from spark_pages.spark.external import External
    from spark_pages.spark.job import named_options
    from spark_pages.spark.options import WriteOptions
    from spark_pages.spark.transfer import ingest as bring

    source = External.source(format, path, named_options(option or []), schema)
    options = WriteOptions(table, create=create, operation="ingest", app_id=app_id, app_version=app_version)
    options.check_pair()
    source.check_there()
    spark, source = _reader_of(source)
    told = bring(spark, url, source, options, overwrite=overwrite, dry_run=dry_run, profile=profile)
    print_result("Ingest", told, json)


def delete_rows(
    url: Url,
    table: Table,
    path: Annotated[
        str | None, typer.Option(help="What holds the keys; none for jdbc.", show_default=False)
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(
            help="parquet, csv, json, orc, delta or jdbc; else what the path ends with.", show_default=False
        ),
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option(help="Of csv and json, as DDL: 'id long, name string'.", show_default=False),
    ] = None,
    option: Options = None,
    dry_run: DryRun = False,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Delete rows whose keys are in a source of any size, in one commit, by Spark.

    Each column of the source is one of the table. To delete by a condition, use the command delete.
    """
    from spark_pages.spark.delete import delete_rows as delete
    from spark_pages.spark.external import External
    from spark_pages.spark.job import named_options

    keys = External.source(format, path, named_options(option or []), schema)
    keys.check_there()
    spark = _session("delete_rows", delta=keys.format == "delta", source=True)
    print_result("Deletion", delete(spark, url, table, keys, dry_run=dry_run, profile=profile), json)


def export(
    url: Url,
    table: Table,
    output: Annotated[str, typer.Option(help="A folder; or a file, such as rows.csv.", show_default=False)],
    format: Annotated[
        str | None,
        typer.Option(
            help="parquet, csv, json, ipc, orc or delta; else what the output ends with, or parquet.",
            show_default=False,
        ),
    ] = None,
    version: Version = None,
    timestamp: Timestamp = None,
    tag: Tag = None,
    overwrite: Overwrite = False,
    option: Options = None,
    dry_run: DryRun = False,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Write the rows of a table as files or as a Delta table.

    Tables up to 1 GiB, single files and Arrow IPC are written by this process, without Spark.
    """
    from spark_pages.query.output_files import format_of_name
    from spark_pages.spark.external import External
    from spark_pages.spark.job import named_options
    from spark_pages.spark.output_folder import OutputFolder
    from spark_pages.spark.transfer import export as bring

    format = format or format_of_name(output) or "parquet"
    target = External(format, output, named_options(option or []))
    folder = OutputFolder(format, target.check_target(), overwrite, target.options)
    folder.check(url)
    if timestamp is not None or tag is not None:
        version = open_stored(url, profile).snapshot(version, timestamp, tag).version
    small = dry_run or (
        folder.is_local
        and (
            folder.takes_no_spark
            or not _has_spark()
            or _table_bytes(url, table, version, profile) <= SMALL_BYTES
        )
    )
    spark = None if small else _session("export", delta=format == "delta", source=True)
    told = bring(
        spark, url, table, target, version=version, overwrite=overwrite, dry_run=dry_run, profile=profile
    )
    print_result("Export", told, json)


def reconstruct_snapshot(
    url: Url,
    version: Version = None,
    timestamp: Timestamp = None,
    tag: Tag = None,
    output: Annotated[
        str | None, typer.Option(help="A folder for the descriptors.", show_default=False)
    ] = None,
    format: Annotated[
        str | None, typer.Option(help="parquet, delta or checkpoint.", show_default="parquet")
    ] = None,
    overwrite: Overwrite = False,
    check: Annotated[bool, typer.Option(help="Compare with the local snapshot.")] = True,
    dry_run: DryRun = False,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Compute the page descriptors of a version from checkpoint and commits, and compare them.

    Exit code 1 where they differ.
    """
    from spark_pages.spark.reconstruct import Output
    from spark_pages.spark.reconstruct import reconstruct_snapshot as rebuild

    made: Output | None = None
    if output or format:
        made = Output(cast("Form", format or "parquet"), output, overwrite)
        made.folder(url)
    shown = open_stored(url, profile).snapshot(version, timestamp, tag).log
    pages = sum(shown.chain(key).num_pages for key in shown.chain_keys())
    small = dry_run or (format != "delta" and pages <= SMALL_PAGES)
    spark = None if small else _session("reconstruct_snapshot", delta=format == "delta")
    told = rebuild(spark, url, shown.state.version, made, check, profile, dry_run=dry_run)
    print_result("Reconstruction", told, json)
    exit_unless(told["ok"])


def _reader_of(source: External) -> tuple[Any, External]:
    """Choose what reads a source: a session of Spark, or None for this process."""
    from spark_pages.errors import MissingDependencyError

    if source.is_stream and (source.format != "delta" or find_spec("deltalake") is not None):
        _advise(source)
        return None, source
    why = None if source.local_path is None else source.why_spark()
    if source.local_path is not None:
        small = _file_bytes(source.local_path) <= SMALL_BYTES
        if why is None and (small or not _has_spark()):
            _advise(source)
            return None, source
        if why is not None and not _has_spark():
            say(f"read as Arrow reads it, for Spark is not installed, and may read it otherwise: {why}")
            return None, replace(source, as_arrow=True)
    try:
        return _session("ingest", delta=source.format == "delta"), source
    except MissingDependencyError as error:
        why = why or "only Spark knows jdbc, hdfs, s3a, --option and --schema"
        raise MissingDependencyError(
            f"Cannot ingest {source.path or 'by jdbc'} without Spark: {why}. {error.message}", hint=error.hint
        ) from None


def _advise(source: External) -> None:
    """Say that Spark is the better choice for a source of this size, where its size is known."""
    from spark_pages.spark.output_folder import path_here

    path = path_here(source.path or "")
    size_bytes = _file_bytes(path) if path is not None and os.path.exists(path) else 0
    if size_bytes > SMALL_BYTES:
        say(
            f"{size(size_bytes)} by one process; several machines are faster: submit the job `ingest` to "
            "Spark, see docs/spark-jobs.md"
        )


def _session(name: str, *, delta: bool, source: bool = False) -> Any:
    from spark_pages.spark.session import session

    return session(name, "local[*]", delta=delta, source=source)


def _has_spark() -> bool:
    from spark_pages.errors import MissingDependencyError
    from spark_pages.spark.session import check_spark

    try:
        check_spark()
    except MissingDependencyError:
        return False
    return True


def _file_bytes(path: str) -> int:
    """Bytes of a file, or of all files in a folder."""
    root = Path(path)
    files = [root] if root.is_file() else [each for each in root.rglob("*") if each.is_file()]
    return sum(each.stat().st_size for each in files)


def _table_bytes(url: str, table: str, version: int | None, profile: str | None) -> int:
    from spark_pages.spark.serialization import store_of, store_url

    shown = store_of(store_url(url, profile)).snapshot(version).table(table)
    return bytes_of(shown)
