"""The verbs of ``spark-pages``, one function each."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from spark_pages.cli import jobs, output, retention, upkeep, versions
from spark_pages.cli.arguments import Json, Profile, Url, options_of, stored
from spark_pages.cli.compact_log import compact_log
from spark_pages.cli.doctor import doctor
from spark_pages.cli.repair import repair
from spark_pages.cli.report import report
from spark_pages.cli.serve import serve
from spark_pages.cli.sql import sql
from spark_pages.cli.verify import verify
from spark_pages.errors import InvalidInputError, SparkPagesError
from spark_pages.outcome import USAGE, exit_code, failure
from spark_pages.progress import watched
from spark_pages.show.text import size

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_pages.tables.snapshot import Snapshot

_UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # typer has had its own click since 0.26


class _Verbs(TyperGroup):
    """Tells errors of spark_pages without a traceback, and every error as JSON where JSON was asked for."""

    def main(self, args: Sequence[str] | None = None, *more: Any, **extra: Any) -> Any:
        """See `TyperGroup.main`."""
        given = list(sys.argv[1:] if args is None else args)
        as_json = "--json" in given
        if as_json:
            extra["standalone_mode"] = False
        try:
            with watched(sys.stderr.isatty() and not as_json):
                result = super().main(given, *more, **extra)
        except (SparkPagesError, OSError) as error:
            output.print_error(error, as_json)
            sys.exit(exit_code(error))
        except _UsageError as error:  # comes here only where JSON was asked for
            message = getattr(error, "format_message", error.__str__)()
            hint = "spark-pages --help lists the verbs; spark-pages VERB --help its arguments."
            output.print_json(failure("UsageError", message, hint))
            sys.exit(USAGE)
        if as_json:
            sys.exit(result if isinstance(result, int) else 0)
        return result


app = typer.Typer(
    cls=_Verbs,
    name="spark-pages",
    help="Exact rows out of column pages in object storage, as of any version.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

TableName = Annotated[
    str, typer.Argument(metavar="TABLE", help="table, or namespace.table.", show_default=False)
]
Version = Annotated[int | None, typer.Option("--version", help="As of this version.", show_default=False)]
Timestamp = Annotated[
    str | None,
    typer.Option(
        "--timestamp", help="As of this time, ISO 8601; UTC if no zone is given.", show_default=False
    ),
]


@app.command()
def demo(
    folder: Annotated[Path, typer.Option(help="Made anew; nothing outside is written.")] = Path(
        "spark-pages-demo"
    ),
    no_spark: Annotated[bool, typer.Option("--no-spark", help="Leave out the part that needs Java.")] = False,
    json: Json = False,
) -> None:
    """The guided tour: real flights, from the first page to a Spark job."""
    started_at = time.perf_counter()
    from spark_pages.demo import run_demo

    result = run_demo(folder, spark=not no_spark, quiet=json, started_at=started_at)
    if json:
        output.print_json(result)
    output.end(result["ok"])


@app.command()
def create(url: Url, profile: Profile = None, json: Json = False) -> None:
    """Make an empty store."""
    import spark_pages

    store = spark_pages.create(url, options_of(url, profile))
    version = store.snapshot().version
    if json:
        output.print_json({"url": store.url, "version": version})
    else:
        output.say(f"created {store.url}")


@app.command()
def info(
    url: Url,
    version: Version = None,
    timestamp: Timestamp = None,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """A store in a few lines: version, time, tables, rows, pages, bytes."""
    snapshot = _snapshot(url, version, timestamp, profile)
    tables = [_describe(snapshot, name) for name in snapshot.tables()]
    facts = {
        "url": url,
        "version": snapshot.version,
        "timestamp": snapshot.timestamp,
        "tables": len(tables),
        **{key: sum(each[key] for each in tables) for key in ("rows", "pages", "bytes")},
    }
    if json:
        output.print_json(facts)
    else:
        output.print_facts("Store", {**facts, "bytes": size(facts["bytes"])})


@app.command()
def tables(
    url: Url,
    version: Version = None,
    timestamp: Timestamp = None,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """The tables, with their columns, rows, pages and bytes."""
    snapshot = _snapshot(url, version, timestamp, profile)
    found = [_describe(snapshot, name) for name in snapshot.tables()]
    if json:
        output.print_json({"version": snapshot.version, "tables": found})
        return
    names = ["name", "columns", "rows", "pages", "bytes"]
    rows = [[each["name"], len(each["columns"]), *(each[key] for key in names[2:])] for each in found]
    output.print_rows(f"Tables at version {snapshot.version}", names, rows)


@app.command()
def history(
    url: Url,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many versions.")] = None,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """What was committed, newest first."""
    found = stored(url, profile).history(limit)
    if json:
        output.print_json({"history": found.to_pylist()})
        return
    names = ["version", "timestamp", "operation", "writer", "pages_added", "pages_removed", "rows_added"]
    _print_table("History", found.select(names))


@app.command()
def pages(
    url: Url,
    table: TableName,
    column: Annotated[str | None, typer.Option(help="Of this column only.", show_default=False)] = None,
    version: Version = None,
    timestamp: Timestamp = None,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """The page descriptors of a table, in row order."""
    import pyarrow as pa

    snapshot = _snapshot(url, version, timestamp, profile)
    found = snapshot.table(table).pages(column)
    ids = pa.array([f"{number:016x}" for number in found.column("page_id").to_pylist()], pa.string())
    found = found.set_column(found.schema.get_field_index("page_id"), "page_id", ids)
    if json:
        output.print_json({"version": snapshot.version, "pages": found.to_pylist()})
        return
    names = ["column", "position", "first_row", "entry_count", "page_id", "path", "offset", "actual_len"]
    _print_table(f"Pages of {table} at version {snapshot.version}", found.select(names))


@app.command()
def locate(
    url: Url,
    table: TableName,
    column: Annotated[str, typer.Argument(metavar="COLUMN", show_default=False)],
    row: Annotated[int, typer.Argument(metavar="ROW", help="Row number, from 0.", show_default=False)],
    version: Version = None,
    timestamp: Timestamp = None,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Which page holds a row of a column, and where in it."""
    snapshot = _snapshot(url, version, timestamp, profile)
    found = snapshot.table(table).directory.locate_row(column, row)
    facts = {
        "version": snapshot.version,
        "page_id": found.page.id,
        "page_position": found.page_position,
        "row_in_page": found.row_in_page,
        "entry_count": found.page.entry_count,
        "kind": found.page.kind.name.lower(),
        "disk_path": found.page.disk_path,
        "offset": found.page.offset,
        "actual_len": found.page.actual_len,
    }
    if json:
        output.print_json(facts)
    else:
        output.print_facts(f"{table}.{column}, row {row:,}", facts)


@app.command()
def read(
    url: Url,
    table: TableName,
    columns: Annotated[str | None, typer.Option(help="a,b: which, in which order; all by default.")] = None,
    start: Annotated[int, typer.Option(help="First row.")] = 0,
    stop: Annotated[int | None, typer.Option(help="One past the last row.", show_default=False)] = None,
    rows: Annotated[
        str | None, typer.Option(help="1,5,7: exactly these, in this order.", show_default=False)
    ] = None,
    conditions: Annotated[
        list[str] | None,
        typer.Option(
            "--filter",
            "--where",
            help="SQL: \"carrier in ('UA', 'DL') and distance > 1000\"; repeat it, and all must hold.",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="Show at most so many rows; 0 shows all.")] = 20,
    version: Version = None,
    timestamp: Timestamp = None,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Exact rows, and how many pages and bytes they took."""
    from spark_pages.cli.filters import joined_filter
    from spark_pages.io import ReadTrace

    snapshot = _snapshot(url, version, timestamp, profile)
    source = snapshot.table(table)
    names = None if columns is None else [name.strip() for name in columns.split(",")]
    trace = ReadTrace()
    if rows is not None:
        if conditions or start or stop is not None:
            raise InvalidInputError("--rows names the rows: leave out --start, --stop and --filter.")
        found = source.take(_row_numbers(rows), names, trace=trace)
    else:
        wanted = joined_filter(conditions or [], source)
        if (
            wanted is None and limit
        ):  # what is not shown need not be read; one row more tells that there is more
            end = source.num_rows if stop is None else stop
            stop = min(end, start + limit + 1) if start <= end <= source.num_rows else stop
        found = source.read(names, start, stop, wanted, trace=trace)
    shown = found.slice(0, limit) if limit else found
    if json:
        document = {
            "version": snapshot.version,
            "columns": {field.name: str(field.type) for field in shown.schema},
            "rows": shown.to_pylist(),
            "truncated": shown.num_rows < found.num_rows,
            "pages_touched": len(trace.page_ids),
            "requests": trace.requests,
            "bytes_read": trace.bytes_read,
        }
        output.print_json(document)
        return
    _print_table(f"{table} at version {snapshot.version}", shown)
    if shown.num_rows < found.num_rows:
        output.say(f"the first {shown.num_rows:,} rows; --limit 0 shows all")
    output.say(
        f"{len(trace.page_ids):,} pages touched, {trace.requests:,} requests, {size(trace.bytes_read)}"
    )


app.command()(sql)
app.command()(compact_log)
app.command()(verify)
app.command()(repair)
app.command()(report)
app.command()(doctor)
app.command()(serve)
versions.register(app)
retention.register(app)
upkeep.register(app)
jobs.register(app)

_PANELS = {
    "Begin": "demo create",
    "Look": "info tables history pages locate read sql changes blame tags leases report",
    "Change": "tag untag restore",
    "Keep in order": "checkpoint compact-log compact-pages publish-delta vacuum verify repair doctor "
    "reconstruct-snapshot",
    "In and out": "ingest export",
}
"""How ``--help`` groups the verbs."""

for _command in app.registered_commands:
    _verb = _command.name or getattr(_command.callback, "__name__", "").replace("_", "-")
    _command.rich_help_panel = next((p for p, verbs in _PANELS.items() if _verb in verbs.split()), "More")
app.registered_commands.sort(key=lambda command: [*_PANELS, "More"].index(str(command.rich_help_panel)))


def _snapshot(url: str, version: int | None, timestamp: str | None, profile: str | None) -> Snapshot:
    return stored(url, profile).snapshot(version, timestamp)


def _describe(snapshot: Snapshot, name: str) -> dict[str, Any]:
    import pyarrow.compute as pc

    table = snapshot.table(name)
    descriptors = table.pages()
    return {
        "name": name,
        "columns": {field.name: str(field.type) for field in table.schema},
        "rows": table.num_rows,
        "pages": descriptors.num_rows,
        "bytes": pc.sum(descriptors.column("actual_len")).as_py() or 0,
    }


def _row_numbers(text: str) -> list[int]:
    try:
        return [int(each) for each in text.split(",")]
    except ValueError:
        raise InvalidInputError(f"--rows {text!r} is not a list of row numbers such as 1,5,7.") from None


def _print_table(title: str, table: pa.Table) -> None:
    columns = [column.to_pylist() for column in table.columns]
    output.print_rows(title, table.column_names, list(zip(*columns, strict=True)))
