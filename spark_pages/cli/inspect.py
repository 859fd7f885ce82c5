"""The verbs that look at a version: ``info``, ``tables``, ``history``, ``pages``, ``locate`` and ``read``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from spark_pages.cli import output
from spark_pages.cli.arguments import (
    ColumnName,
    Json,
    Limit,
    Profile,
    RowNumber,
    TableName,
    Tag,
    Timestamp,
    Url,
    Version,
    open_stored,
)
from spark_pages.display.text import size
from spark_pages.errors import InvalidInputError

if TYPE_CHECKING:
    from spark_pages.query.snapshot import Snapshot
    from spark_pages.query.table import Table


def info(
    url: Url,
    version: Version = None,
    timestamp: Timestamp = None,
    tag: Tag = None,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """A store in a few lines: version, tables, rows, bytes, format, properties, claims, leases."""
    store = open_stored(url, profile)
    snapshot = store.snapshot(version, timestamp, tag)
    found = _described(snapshot)
    facts = {
        "url": url,
        "version": snapshot.version,
        "timestamp": snapshot.timestamp,
        "tables": len(found),
        **{key: sum(each[key] for each in found) for key in ("rows", "pages", "bytes")},
        **store.info().as_dict(),
    }
    if json:
        output.print_json(facts)
    else:
        told = {key: _in_words(value) for key, value in facts.items()}
        output.print_facts("Store", {**told, "bytes": size(facts["bytes"])})


def _in_words(fact: object) -> object:
    """A fact in one line: names and values of a mapping, how many there are of a long list."""
    match fact:
        case dict():
            return ", ".join(f"{name}={value}" for name, value in fact.items()) or "none"
        case [dict(), *_]:
            return len(fact)
        case list():
            return ", ".join(map(str, fact)) or "none"
    return fact


def tables(
    url: Url,
    version: Version = None,
    timestamp: Timestamp = None,
    tag: Tag = None,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """The tables, with their columns, rows, pages and bytes."""
    snapshot = open_stored(url, profile).snapshot(version, timestamp, tag)
    found = _described(snapshot)
    if json:
        output.print_json({"version": snapshot.version, "tables": found})
        return
    rows = [[*{**each, "columns": len(each["columns"])}.values()] for each in found]
    names = ["name", "columns", "rows", "pages", "bytes"]
    output.print_rows(f"Tables at version {snapshot.version}", names, rows)


def history(
    url: Url,
    limit: Annotated[int | None, typer.Option(min=1, help="Number of rows at most.")] = None,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """What was committed, newest first."""
    found = open_stored(url, profile).history(limit)
    if json:
        output.print_json({"history": found.to_pylist()})
        return
    names = ["version", "timestamp", "operation", "rows_added", "pages_added", "pages_removed", "writer"]
    output.print_table("History", found.select(names))


def pages(
    url: Url,
    table: TableName,
    column: Annotated[str | None, typer.Option(help="Of this column only.", show_default=False)] = None,
    version: Version = None,
    timestamp: Timestamp = None,
    tag: Tag = None,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """The page descriptors of a table, in row order."""
    snapshot = open_stored(url, profile).snapshot(version, timestamp, tag)
    found = output.with_shown_ids(snapshot.table(table).pages(column))
    if json:
        output.print_json({"version": snapshot.version, "pages": found.to_pylist()})
        return
    names = ["column", "position", "first_row", "entry_count", "page_id", "path", "offset", "actual_len"]
    output.print_table(f"Pages of {table} at version {snapshot.version}", found.select(names))


def locate(
    url: Url,
    table: TableName,
    column: ColumnName,
    row: RowNumber,
    version: Version = None,
    timestamp: Timestamp = None,
    tag: Tag = None,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Which page holds a row of a column, and where in it."""
    snapshot = open_stored(url, profile).snapshot(version, timestamp, tag)
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


def read(
    url: Url,
    table: TableName,
    columns: Annotated[
        str | None, typer.Option(help="a,b: which, in which order; all by default.", show_default=False)
    ] = None,
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
    limit: Limit = 20,
    version: Version = None,
    timestamp: Timestamp = None,
    tag: Tag = None,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Exact rows, and how many pages and bytes they took."""
    from spark_pages.cli.filters import joined_filter
    from spark_pages.io import ReadTrace

    snapshot = open_stored(url, profile).snapshot(version, timestamp, tag)
    source = snapshot.table(table)
    names = None if columns is None else [name.strip() for name in columns.split(",")]
    trace = ReadTrace()
    if rows is not None:
        if conditions or start or stop is not None:
            raise InvalidInputError(
                "Cannot read by --rows and by another choice of rows: --rows names them all.",
                hint="Leave out --start, --stop and --filter, or leave out --rows.",
            )
        found = source.take(_row_numbers(rows), names, trace=trace)
    else:
        wanted = joined_filter(conditions or [], source)
        if wanted is None and limit:  # what is not shown need not be read; one row more tells that there is
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
    output.print_table(f"{table} at version {snapshot.version}", shown)
    if shown.num_rows < found.num_rows:
        output.say(f"the first {shown.num_rows:,} rows; --limit 0 shows all")
    output.say(
        f"{len(trace.page_ids):,} pages touched, {trace.requests:,} requests, {size(trace.bytes_read)}"
    )


def bytes_of(table: Table) -> int:
    """How long the pages of a table are together, as they are stored."""
    runs = (table.directory.chain(column).all_pages() for column in table.columns)
    return sum(int(run.numbers("actual_len").sum()) for run in runs)


def _described(snapshot: Snapshot) -> list[dict[str, Any]]:
    return [_description(name, snapshot.table(name)) for name in snapshot.tables()]


def _description(name: str, table: Table) -> dict[str, Any]:
    return {
        "name": name,
        "columns": {field.name: str(field.type) for field in table.schema},
        "rows": table.num_rows,
        "pages": sum(table.directory.chain(column).num_pages for column in table.columns),
        "bytes": bytes_of(table),
    }


def _row_numbers(text: str) -> list[int]:
    try:
        return [int(each) for each in text.split(",")]
    except ValueError:
        raise InvalidInputError(
            f"Cannot use --rows {text!r}: it is not a list of row numbers.",
            hint="Write numbers from 0 with commas between them, such as --rows 1,5,7.",
        ) from None
