"""The verbs about what is held and what goes: vacuum, leases, claims."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

import typer

from spark_pages.cli import output
from spark_pages.cli.arguments import Json, Profile, TableName, Url, open_stored

OwnerName = Annotated[str, typer.Argument(metavar="OWNER", help="Who claimed rows.", show_default=False)]


def vacuum(
    url: Url,
    retention: Annotated[
        str | None,
        typer.Option(
            help="What stays: 30 (so many versions) or 7d, 12h, 30m (readable until so long ago).",
            show_default="as the store's properties say, else 7d",
        ),
    ] = None,
    orphans: Annotated[
        bool, typer.Option("--orphans", help="List the store for objects that no commit ever named.")
    ] = False,
    apply: Annotated[bool, typer.Option("--apply", help="Delete; without it the plan is shown.")] = False,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """What no version that is kept needs goes: shown first, deleted with --apply."""
    from spark_pages.log.retention import parse_retention
    from spark_pages.spark.vacuum import vacuum as clear

    keep = None if retention is None else parse_retention(retention)
    told = clear(None, url, keep, orphans=orphans, listed=True, apply=apply, profile=profile)
    title = "Vacuum" if apply else "Plan of a vacuum"
    output.print_result(title, told, json, hidden=("applied", "orphans", "orphan_bytes", "reasons", "plan"))
    if not json and not apply:
        _show(told["plan"])


def leases(url: Url, profile: Profile = None, json: Json = False) -> None:
    """Who holds which version readable, and until when."""
    found = open_stored(url, profile).leases()
    if json:
        output.print_json({"leases": found.to_pylist()})
        return
    output.print_table("Leases", found)


def claims(url: Url, profile: Profile = None, json: Json = False) -> None:
    """List who has claimed which rows, and until when."""
    found = open_stored(url, profile).claims()
    if json:
        output.print_json({"claims": found.to_pylist()})
        return
    output.print_table("Claims", found)


def claim(
    url: Url,
    table: TableName,
    owner: Annotated[str, typer.Option(help="Under which name.", show_default=False)],
    column: Annotated[str | None, typer.Option(help="All columns by default.", show_default=False)] = None,
    start: Annotated[int, typer.Option(help="The first row.")] = 0,
    stop: Annotated[int | None, typer.Option(help="The row after the last.", show_default="the end")] = None,
    seconds: Annotated[int, typer.Option(help="For how long.")] = 600,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Claim rows, so that others that claim rows, and page compaction, leave them alone."""
    columns = None if column is None else [column]
    lasting = timedelta(seconds=seconds)
    taken = open_stored(url, profile).claim(table, columns, start, stop, owner=owner, duration=lasting)
    if json:
        output.print_json({"owner": owner, "claims": len(taken.claims)})
    else:
        output.say(f"{owner} has claimed rows of {len(taken.claims)} columns")


def release(url: Url, owner: OwnerName, profile: Profile = None, json: Json = False) -> None:
    """Release all that an owner has claimed."""
    released = open_stored(url, profile).release_claims(owner)
    if json:
        output.print_json({"owner": owner, "released": released})
    else:
        output.say(f"{owner}: {released} claims released")


def _show(plan: list[dict[str, Any]]) -> None:
    import pyarrow as pa

    if plan:
        sums = pa.Table.from_pylist(plan).group_by("reason").aggregate([("key", "count"), ("bytes", "sum")])
        shown = sums.sort_by("reason").rename_columns(["reason", "objects", "bytes"])
        output.print_table("What goes", shown)
    output.say("nothing was deleted; --apply does it")
