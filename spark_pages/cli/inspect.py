"""Commands that read: info, tables, history, pages, locate, read, sql, and the HTML report."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import reduce
from operator import and_
from pathlib import Path
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
from spark_pages.errors import ColumnNotFoundError, InvalidInputError

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
    """Show a store: version, tables, rows, bytes, format, properties, claims, leases."""
    store = open_stored(url, profile)
    snapshot = store.snapshot(version, timestamp, tag)
    found = _described(snapshot)
    facts = {
        "url": store.url,
        "version": snapshot.version,
        "timestamp": snapshot.timestamp,
        "num_tables": len(found),
        **{key: sum(each[key] for each in found) for key in ("num_rows", "num_pages", "size_bytes")},
        **store.info().as_dict(),
    }
    if json:
        output.print_json(facts)
    else:
        told = {key: _in_words(value) for key, value in facts.items()}
        output.print_facts("Store", {**told, "size_bytes": size(facts["size_bytes"])})


def _in_words(fact: object) -> object:
    """Format a fact on one line: the items of a mapping, or the length of a long list."""
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
    limit: Limit = 0,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """List the tables, with their columns, rows, pages and bytes."""
    snapshot = open_stored(url, profile).snapshot(version, timestamp, tag)
    known = snapshot.tables()
    found = [_description(name, snapshot.table(name)) for name in known[: limit or None]]
    if json:
        output.print_json({"version": snapshot.version, "tables": found})
        return
    rows = [[*{**each, "columns": len(each["columns"])}.values()] for each in found]
    names = ["table", "columns", "num_rows", "num_pages", "size_bytes"]
    output.print_rows(f"Tables at version {snapshot.version}", names, rows)
    if len(found) < len(known):
        output.say(f"the first {len(found):,} tables of {len(known):,}; --limit 0 shows all")


def schema(
    url: Url,
    table: TableName,
    version: Version = None,
    timestamp: Timestamp = None,
    tag: Tag = None,
    limit: Limit = 0,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """List the columns of a table, with their types."""
    snapshot = open_stored(url, profile).snapshot(version, timestamp, tag)
    fields = list(snapshot.table(table).schema)
    found = [
        {"name": field.name, "type": str(field.type), "nullable": field.nullable}
        for field in fields[: limit or None]
    ]
    if json:
        output.print_json({"version": snapshot.version, "columns": found})
        return
    rows = [list(each.values()) for each in found]
    output.print_rows(f"{table} at version {snapshot.version}", ["name", "type", "nullable"], rows)
    if len(found) < len(fields):
        output.say(f"the first {len(found):,} columns of {len(fields):,}; --limit 0 shows all")


def head(
    url: Url,
    table: TableName,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="Show at most so many rows.")] = 10,
    columns: Annotated[
        str | None, typer.Option(help="a,b: which, in which order; all by default.", show_default=False)
    ] = None,
    version: Version = None,
    timestamp: Timestamp = None,
    tag: Tag = None,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Show the first rows of a table."""
    snapshot = open_stored(url, profile).snapshot(version, timestamp, tag)
    names = None if columns is None else [name.strip() for name in columns.split(",")]
    found = snapshot.table(table).read(names, limit=limit)
    if json:
        document = {"columns": output.columns_of(found.schema), "rows": output.records_of(found)}
        output.print_json({"version": snapshot.version, **document})
        return
    output.print_table(f"{table} at version {snapshot.version}", found)


def history(
    url: Url,
    limit: Annotated[int | None, typer.Option(min=1, help="Number of rows at most.")] = None,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """List commits and maintenance, newest first."""
    found = open_stored(url, profile).history(limit)
    if json:
        output.print_json({"history": output.records_of(found)})
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
    limit: Limit = 0,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """List the page descriptors of a table, in row order."""
    snapshot = open_stored(url, profile).snapshot(version, timestamp, tag)
    found = output.with_shown_ids(snapshot.table(table).pages(column))
    if json:
        shown = found.slice(0, limit or None)
        output.print_json({"version": snapshot.version, "pages": output.records_of(shown)})
        return
    names = ["column", "page_position", "first_row", "entry_count", "page_id", "path", "offset", "actual_len"]
    output.print_list(f"Pages of {table} at version {snapshot.version}", found.select(names), limit)


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
    """Find the page that holds a row of a column, and the offset in it."""
    snapshot = open_stored(url, profile).snapshot(version, timestamp, tag)
    found = snapshot.table(table).directory.locate_row(column, row)
    facts = {
        "version": snapshot.version,
        "page_id": found.page.id,
        "page_position": found.page_position,
        "row_in_page": found.row_in_page,
        "entry_count": found.page.entry_count,
        "kind": found.page.kind.name.lower(),
        "path": found.page.disk_path or None,
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
    """Print rows, and the number of pages and bytes that were read."""
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
            end = source.end_row if stop is None else stop
            stop = _end_of(source, start, end, limit + 1) if start <= end <= source.end_row else stop
        found = source.read(names, start, stop, wanted, trace=trace)
    shown = found.slice(0, limit) if limit else found
    if json:
        document = {
            "version": snapshot.version,
            "columns": output.columns_of(shown.schema),
            "rows": output.records_of(shown),
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


def _end_of(table: Table, start: int, stop: int, count: int) -> int:
    """Estimate the end of so many live rows of [start, stop)."""
    rows = count
    while start + rows < stop and table.read([], start, start + rows).num_rows < count:
        rows *= 2
    return min(stop, start + rows)


def bytes_of(table: Table) -> int:
    """How long the pages of a table are together, as they are stored."""
    runs = (table.directory.chain(column).all_pages() for column in table.columns)
    return sum(int(run.numbers("actual_len").sum()) for run in runs)


def _described(snapshot: Snapshot) -> list[dict[str, Any]]:
    return [_description(name, snapshot.table(name)) for name in snapshot.tables()]


def _description(name: str, table: Table) -> dict[str, Any]:
    return {
        "table": name,
        "columns": output.columns_of(table.schema),
        "num_rows": table.num_rows,
        "num_pages": sum(table.directory.chain(column).num_pages for column in table.columns),
        "size_bytes": bytes_of(table),
    }


def _row_numbers(text: str) -> list[int]:
    try:
        return [int(each) for each in text.split(",")]
    except ValueError:
        raise InvalidInputError(
            f"Cannot use --rows {text!r}: it is not a list of row numbers.",
            hint="Write numbers from 0 with commas between them, such as --rows 1,5,7.",
        ) from None


_FORM = "A filter is SQL, as behind WHERE: carrier in ('UA', 'DL') and distance > 1000."


def joined_filter(texts: Sequence[str], table: Table) -> Any:
    """Join conditions to a filter of `Table.read`; None if there are none.

    Each text is read by itself: parentheses and comments of one do not reach into the next.

    Parameters
    ----------
    texts
        Such as ``distance > 1000`` or ``carrier in ('UA', 'DL') or tailnum is null``.

    Raises
    ------
    ColumnNotFoundError
        If a text names a column that the table does not have; says that text is quoted.
    InvalidInputError
        If a text is no condition; says which part, and what one looks like.
    """
    read = [_expression(text, table) for text in texts]
    if len(texts) == 1:
        return texts[0]  # what is found wrong later is told in the caller's words
    return reduce(and_, read) if read else None


def _expression(text: str, table: Table) -> Any:
    from spark_pages.catalog.resolve import visible_table
    from spark_pages.query.predicates.sql_filter import parse_sql

    try:
        return parse_sql(text, table.schema, visible_table(table.definition))
    except ColumnNotFoundError as error:
        hint = _joined(error.hint, _quoted(text, str(error.context.get("column", ""))))
        raise ColumnNotFoundError(error.message, hint=hint, **error.context) from error
    except InvalidInputError as error:
        raise type(error)(error.message, hint=_joined(error.hint, _FORM), **error.context) from error


def _quoted(text: str, word: str) -> str | None:
    """How to say that a word behind an operator is a text and no column."""
    behind = rf"((?:[=<>,]|\bin\s*\(|\blike\b)\s*)[\"`]?{re.escape(word)}(?![\w.])[\"`]?"
    right = re.sub(behind, lambda found: f"{found[1]}'{word}'", text, flags=re.IGNORECASE)
    return None if right == text else f"Text is quoted: {right}"


def _joined(*sentences: str | None) -> str:
    return " ".join(each for each in sentences if each)


def sql(
    url: Url,
    text: Annotated[
        str, typer.Argument(metavar="STATEMENT", help="A query, DDL or INSERT.", show_default=False)
    ],
    version: Version = None,
    timestamp: Timestamp = None,
    tag: Tag = None,
    limit: Limit = 20,
    files: Annotated[
        bool, typer.Option("--files", help="Allow FROM 'x.csv', and COPY t TO 'x.csv'.")
    ] = False,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Run a query or another SQL statement."""
    most = limit + 1 if limit else None  # one more tells whether there are more
    store = open_stored(url, profile)
    found = store.sql(text, version=version, timestamp=timestamp, tag=tag, limit=most, files=files)
    shown = found.slice(0, limit) if limit else found
    truncated = shown.num_rows < found.num_rows
    if json:
        document = {
            "columns": output.columns_of(shown.schema),
            "rows": output.rows_of(shown),  # lists: two columns may have one name
            "num_rows": None if truncated else found.num_rows,  # counting would compute all of them
            "truncated": truncated,
        }
        output.print_json(document)
        return
    output.print_table("Result", shown)
    if truncated:
        output.say(f"the first {shown.num_rows:,} rows; --limit 0 shows all")


def report(
    url: Url,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Where the page goes; - is stdout.")
    ] = "spark-pages-report.html",
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Write an HTML page about a store, with pictures of log, tables, chains, caches and requests.

    The page needs nothing but itself, and the store is only read.
    """
    from spark_pages.pictures import report_page

    if file == "-" and json:
        raise InvalidInputError(
            "Cannot write the report to -: it is stdout, where --json puts its document.",
            hint="Name a file in place of -, or leave out --json.",
        )
    page = report_page(open_stored(url, profile)).encode()
    if file == "-":
        sys.stdout.buffer.write(page)
        return
    path = Path(file).expanduser()
    _write(path, page)
    if json:
        output.print_json({"output": str(path), "size_bytes": len(page)})
    else:
        output.say(f"{path}: {size(len(page))}")


def _write(path: Path, page: bytes) -> None:
    """Replace a file by the page, atomically."""
    if path.is_dir():
        raise InvalidInputError(
            f"Cannot write the report to {path}: it is a folder.",
            hint=f"Name a file in it, such as {path / 'report.html'}.",
        )
    if not path.parent.is_dir():
        raise InvalidInputError(
            f"Cannot write the report to {path}: there is no folder {path.parent}.",
            hint=f"Make the folder first: `mkdir -p {path.parent}`.",
        )
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_bytes(page)
        unfinished.replace(path)
    except OSError as error:
        raise InvalidInputError(
            f"Cannot write the report to {path}: {error.strerror}.",
            hint=f"Name another file in place of {path}, or - for stdout.",
        ) from error
    finally:
        with suppress(OSError):
            unfinished.unlink()
