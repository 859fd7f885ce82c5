"""The verbs about versions: tags, restore, the change feed and blame."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

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

TagName = Annotated[str, typer.Argument(metavar="NAME", help="Of the tag.", show_default=False)]


class Granularity(StrEnum):
    """How finely changes are told."""

    ROWS = "rows"
    PAGES = "pages"


def tag(
    url: Url,
    name: TagName,
    version: Annotated[
        int | None, typer.Option("--version", help="The newest one by default.", show_default=False)
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Move a tag that is there already.")] = False,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Name a version. Retention keeps it until the tag is deleted."""
    tagged = open_stored(url, profile).tag(name, version, replace)
    if json:
        output.print_json({"tag": name, "version": tagged})
    else:
        output.say(f"{name} is version {tagged}")


def untag(url: Url, name: TagName, profile: Profile = None, json: Json = False) -> None:
    """Delete a tag. The version remains until retention removes it."""
    version = open_stored(url, profile).delete_tag(name)
    if json:
        output.print_json({"tag": name, "version": version, "deleted": True})
    else:
        output.say(f"{name} was version {version}")


def tags(url: Url, limit: Limit = 0, profile: Profile = None, json: Json = False) -> None:
    """List the tags and the versions that they name."""
    import pyarrow as pa

    named = open_stored(url, profile).tags()
    if json:
        output.print_json({"tags": dict(list(named.items())[: limit or None])})
        return
    schema = pa.schema([("tag", pa.string()), ("version", pa.int64())])
    output.print_list("Tags", pa.table([list(named), list(named.values())], schema=schema), limit)


def restore(
    url: Url,
    version: Version = None,
    timestamp: Timestamp = None,
    tag: Tag = None,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Restore the store to a version by a new commit, so that nothing is lost."""
    store = open_stored(url, profile)
    before = store.snapshot().version
    then = store.snapshot(version, timestamp, tag).version
    after = store.restore(version, timestamp, tag)
    if json:
        output.print_json({"restored": then, "version": after, "changed": after > before})
    elif after > before:
        output.say(f"version {after} is like version {then}")
    else:
        output.say(f"version {after} is like version {then} already")


def reset_clock(url: Url, profile: Profile = None, json: Json = False) -> None:
    """Correct the times of new versions after a commit with a clock far ahead."""
    store = open_stored(url, profile)
    before = store.snapshot().version
    version = store.reset_clock()
    if json:
        output.print_json({"version": version, "changed": version > before})
    elif version > before:
        output.say(f"version {version} has reset the clock of the store")
    else:
        output.say(f"version {version} is not far ahead of the clock: nothing was changed")


def changes(
    url: Url,
    start: Annotated[
        int, typer.Option("--start", min=0, help="First version, included; 0 created the store.")
    ],
    end: Annotated[
        int | None,
        typer.Option("--end", help="Last version, included; the newest by default.", show_default=False),
    ] = None,
    table: Annotated[str | None, typer.Option(help="Of this table only.", show_default=False)] = None,
    granularity: Annotated[
        Granularity, typer.Option(help="Ranges of rows that all of them changed, or pages commit by commit.")
    ] = Granularity.ROWS,
    values: Annotated[
        bool, typer.Option("--values", help="The changed rows of a table with their values.")
    ] = False,
    limit: Limit = 0,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """List what a range of versions changed."""
    store = open_stored(url, profile)
    end = store.snapshot().version if end is None else end
    if values:
        rows = store.changes(start, end, table, values=True).read_all()
        if json:
            found = output.records_of(rows.slice(0, limit or None))
            output.print_json({"start_version": start, "end_version": end, "rows": found})
        else:
            output.print_list(f"Changed rows of versions {start} to {end}", rows, limit)
        return
    found = store.changes(start, end, table, granularity.value)
    found = output.with_shown_ids(found)
    if json:
        shown = output.records_of(found.slice(0, limit or None))
        output.print_json({"start_version": start, "end_version": end, "changes": shown})
        return
    if granularity is Granularity.ROWS:
        found = found.drop_columns(["table_id", "field_id"])
    output.print_list(f"Changes of versions {start} to {end}", found, limit)


def blame(
    url: Url,
    table: TableName,
    column: ColumnName,
    row: RowNumber,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Find the commit that last wrote a row of a column."""
    found = open_stored(url, profile).blame(table, column, row)
    facts = {
        "version": found.version,
        "timestamp": found.timestamp,
        "operation": found.operation,
        "writer": found.writer,
        "exact": found.exact,
    }
    if (by := found.deleted_by) is not None:
        facts |= {
            "deleted_version": by.version,
            "deleted_operation": by.operation,
            "deleted_writer": by.writer,
        }
    if json:
        output.print_json(facts)
    else:
        output.print_facts(f"{table}.{column}, row {row:,}", facts)
