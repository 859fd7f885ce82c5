"""Commands that maintain a store: verify, repair, doctor, vacuum, claims, and compaction of log and pages."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from operator import itemgetter
from typing import Annotated, Any, Literal

import typer

from spark_pages.cli import output
from spark_pages.cli.arguments import DryRun, Json, Limit, Profile, TableName, Url, open_stored, options_of
from spark_pages.job_result import exit_code_of

Pages = Annotated[
    Literal["all", "sample", "none"],
    typer.Option(help="Which pages are read: all of every kept version, about one of a hundred, or none."),
]


def verify(
    url: Url,
    pages: Pages = "sample",
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Check the log, every checkpoint and a sample of the pages, and name every fault. Writes nothing.

    --pages all reads every page of every version that is kept.

    Exit code 0 where there is no damage, else 1.
    """
    from spark_pages.spark.verify import verify as look_at

    told = look_at(None, url, pages, profile)
    output.print_result("Verification", told, json, hidden=("faults",))
    if told["faults"] and not json:
        names = ["fault", "object", "what", "what to do"]
        rows = [itemgetter("kind", "key", "what", "remedy")(fault) for fault in told["faults"]]
        output.print_findings("Faults", names, rows)
    if told["pages_read"] < told["num_pages"] and pages != "all" and not json:
        read, there = told["pages_read"], told["num_pages"]
        output.say(f"{read:,} of {there:,} pages were read; --pages all reads every page")
    output.exit_unless(told["ok"])


_UNREAD = {
    "none": "no page was read, --pages all reads every page",
    "sample": "a sample of the pages was read, --pages all reads every page",
}


def repair(
    url: Url,
    apply: Annotated[bool, typer.Option("--apply", help="Do it; without this nothing is written.")] = False,
    pages: Annotated[
        Literal["all", "sample", "none"],
        typer.Option(help="Which pages are read to find damaged ones; none is quick and finds none."),
    ] = "all",
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Plan a repair of damaged objects and list what is lost; execute it with --apply.

    Plans only, unless told to apply.

    Exit code 0 where nothing is left to mend or lost, else 1.
    """
    from spark_pages.maintenance.repair import plan_repair
    from spark_pages.storage import open_object_store

    plan = plan_repair(open_object_store(url, options_of(url, profile)), pages=pages)
    done = plan.execute() if apply and not plan.refused else ()
    lost = [{"key": f.key, "what": f.what, "remedy": f.remedy} for f in plan.beyond]
    if json:
        steps = plan.table().to_pylist()
        output.print_json(
            {
                "url": plan.url,
                "version": plan.version,
                "applied": apply and not plan.refused,
                "steps": steps,
                "lost": lost,
                "refused": plan.refused or None,
            }
        )
    else:
        if plan.steps:
            rows = [[step.kind.value, step.key, step.what] for step in plan.steps]
            output.print_rows("Done" if apply else "Plan", ["step", "object", "what"], rows)
        if lost:
            rows = [[f.kind.value, f.key, f.what, f.remedy] for f in plan.beyond]
            names = ["fault", "object", "what", "what to do"]
            output.print_findings("Faults" if plan.refused else "Beyond repair", names, rows)
        if not apply and plan.steps:
            output.say("nothing was written; --apply does it")
        if plan.refused:
            output.say(plan.refused)
        elif not plan.steps and not lost:
            output.say("nothing to mend" if pages == "all" else f"nothing to mend; {_UNREAD[pages]}")
    output.exit_unless(not (lost or plan.refused or len(done) < len(plan.steps)))


def doctor(
    url: Url,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Test whether this storage and this machine are suitable for a store.

    Races 32 creators for one object, and looks at clocks, packages and Java. Writes some small objects below
    _doctor/ and removes them. Exit code 1 where a check fails.
    """
    from spark_pages.doctor.examination import examine

    found = examine(url, options_of(url, profile))
    if json:
        checks = [
            {"name": c.name, "status": c.status.value, "found": c.found, "remedy": c.remedy}
            for c in found.checks
        ]
        output.print_json({"url": found.url, "ok": found.ok, "checks": checks})
    else:
        names, rows = ["check", "status", "found"], [[c.name, c.status.value, c.found] for c in found.checks]
        if any(c.remedy for c in found.checks):
            names = [*names, "what to do"]
            rows = [[*row, c.remedy] for row, c in zip(rows, found.checks, strict=True)]
        output.print_rows(f"Doctor at {found.url}", names, rows, whole=True)
    output.exit_unless(found.ok)


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
    """Show what no retained version needs, and delete it with --apply."""
    from spark_pages.log.retention import parse_retention
    from spark_pages.spark.vacuum import vacuum as clear

    keep = None if retention is None else parse_retention(retention)
    told = clear(None, url, keep, orphans=orphans, listed=True, apply=apply, profile=profile)
    title = "Vacuum" if apply else "Plan of a vacuum"
    output.print_result(title, told, json, hidden=("applied", "orphans", "orphan_bytes", "reasons", "plan"))
    if not json and not apply:
        _show(told["plan"])


def leases(url: Url, limit: Limit = 0, profile: Profile = None, json: Json = False) -> None:
    """List leases: their holder, version and expiry."""
    found = open_stored(url, profile).leases()
    if json:
        output.print_json({"leases": output.records_of(found.slice(0, limit or None))})
        return
    output.print_list("Leases", found, limit)


def claims(url: Url, limit: Limit = 0, profile: Profile = None, json: Json = False) -> None:
    """List claims: their owner, rows and expiry."""
    found = open_stored(url, profile).claims()
    if json:
        output.print_json({"claims": output.records_of(found.slice(0, limit or None))})
        return
    output.print_list("Claims", found, limit)


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
        output.print_json({"owner": owner, "num_claims": len(taken.claims)})
    else:
        output.say(f"{owner} has claimed rows of {len(taken.claims)} columns")


def release(url: Url, owner: OwnerName, profile: Profile = None, json: Json = False) -> None:
    """Release all claims of an owner."""
    released = open_stored(url, profile).release_claims(owner)
    if json:
        output.print_json({"owner": owner, "num_claims": released})
    else:
        output.say(f"{owner}: {released} claims released")


def _show(plan: list[dict[str, Any]]) -> None:
    import pyarrow as pa

    if plan:
        grouped = pa.Table.from_pylist(plan).group_by("reason")
        sums = grouped.aggregate([("key", "count"), ("size_bytes", "sum")])
        shown = sums.sort_by("reason").rename_columns(["reason", "objects", "size_bytes"])
        output.print_table("What goes", shown)
    output.say("nothing was deleted; --apply does it")


def compact_log(url: Url, dry_run: DryRun = False, profile: Profile = None, json: Json = False) -> None:
    """Bundle commits, so that the log is read in few requests."""
    from spark_pages.spark.log_jobs import compact_log as compact

    told = compact(url, dry_run=dry_run, profile=profile)
    output.print_result("Log compaction", told, json, hidden=("keys",))


def compact_pages(
    url: Url,
    table: Annotated[
        str | None, typer.Option(help="This table only; all by default.", show_default=False)
    ] = None,
    purge: Annotated[bool, typer.Option("--purge", help="Blank the values of deleted rows, too.")] = False,
    dry_run: DryRun = False,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Rewrite runs of small pages as full ones; rows stay the same."""
    from spark_pages.spark.compact import compact_pages as compact
    from spark_pages.spark.compact import each_table, plan_compact_pages

    work = plan_compact_pages if dry_run else partial(compact, None, purge=purge)
    told = each_table(url, table, profile, work)
    if json:
        output.print_json(told)
    else:
        shown = ["table", "runs", "pages_before", "bytes_before"]
        if not dry_run:
            shown = ["table", "pages_before", "pages_after", "purged_pages", "version"]
        rows = [[each[name] for name in shown] for each in told["tables"] if each["ok"]]
        output.print_rows("Page compaction", shown, rows)
        for each in told["tables"]:
            if not each["ok"]:
                output.say(f"{each['table']}: {each['error']['message']}")
    output.exit_unless(told["ok"], exit_code_of(told))


def publish_delta(
    url: Url,
    history: Annotated[bool, typer.Option(help="Commit history and change feed, too.")] = True,
    dry_run: DryRun = False,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Publish checkpoints, history and changes as Delta tables, without copying page descriptors."""
    from spark_pages.spark.log_jobs import publish

    told = publish(url, history=history, dry_run=dry_run, profile=profile)
    output.print_result("Delta tables", told, json)
