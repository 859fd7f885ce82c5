"""The verbs ``vacuum`` and ``leases``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from spark_pages.cli import output
from spark_pages.cli.arguments import Json, Profile, Url, stored
from spark_pages.show.text import size

if TYPE_CHECKING:
    from spark_pages.log.vacuum_plan import VacuumPlan


def register(app: typer.Typer) -> None:
    """The app has these verbs."""
    app.command()(vacuum)
    app.command()(leases)


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

    store = stored(url, profile)
    keep = None if retention is None else parse_retention(retention)
    if not apply:
        _show(store.vacuum_plan(keep, orphans), json)
        return
    done = store.vacuum(keep, orphans)
    facts = {
        "version": done.version,
        "oldest": done.oldest,
        "objects": done.objects,
        "bytes": done.size_bytes,
        "spared": done.spared,
    }
    if json:
        output.print_json({"applied": True, **facts})
    else:
        output.print_facts("Vacuum", {**facts, "bytes": size(done.size_bytes)})


def leases(url: Url, json: Json = False) -> None:
    """Who holds which version readable, and until when."""
    import spark_pages

    found = spark_pages.open(url).leases()
    if json:
        output.print_json({"leases": found.to_pylist()})
        return
    columns = [column.to_pylist() for column in found.columns]
    output.print_rows("Leases", found.column_names, list(zip(*columns, strict=True)))


def _show(plan: VacuumPlan, json: bool) -> None:
    facts = {
        "oldest": plan.retention.min_readable,
        "newest": plan.version,
        "objects": plan.objects.num_rows,
        "bytes": plan.size_bytes,
    }
    if json:
        reasons = {"reasons": plan.counts, "plan": plan.objects.to_pylist()}
        output.print_json({"applied": False, **facts, **reasons})
        return
    output.print_facts("Plan of a vacuum", {**facts, "bytes": size(plan.size_bytes)})
    sums = plan.objects.group_by("reason").aggregate([("key", "count"), ("bytes", "sum")]).sort_by("reason")
    rows = [[each["reason"], each["key_count"], each["bytes_sum"]] for each in sums.to_pylist()]
    output.print_rows("What goes", ["reason", "objects", "bytes"], rows)
    output.say("nothing was deleted; --apply does it")
