"""The verbs ``compact-log``, ``compact-pages`` and ``publish-delta``: the jobs, in one process."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from spark_pages.cli import output
from spark_pages.cli.arguments import DryRun, Json, Profile, Url
from spark_pages.job_result import exit_code_of


def compact_log(url: Url, dry_run: DryRun = False, profile: Profile = None, json: Json = False) -> None:
    """Bundle commits beside their slots, so that the log is read in few requests."""
    from spark_pages.spark.upkeep import compact_log as compact

    told = compact(url, dry_run=dry_run, profile=profile)
    output.print_result("Log compaction", told, json, hidden=("keys",))


def compact_pages(
    url: Url,
    table: Annotated[
        str | None, typer.Option(help="This table only; all by default.", show_default=False)
    ] = None,
    dry_run: DryRun = False,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Runs of small pages are rewritten as full ones; rows stay what they are."""
    from spark_pages.spark.compact import compact_pages as compact
    from spark_pages.spark.compact import each_table, plan_compact_pages

    told = each_table(url, table, profile, plan_compact_pages if dry_run else partial(compact, None))
    if json:
        output.print_json(told)
    else:
        shown = ["table", "runs", "pages_before", "bytes_before"]
        if not dry_run:
            shown = ["table", "pages_before", "pages_after", "version"]
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
    """Checkpoints, history and change feed are Delta tables, without copying a page descriptor."""
    from spark_pages.spark.upkeep import publish

    told = publish(url, history=history, dry_run=dry_run, profile=profile)
    output.print_result("Delta tables", told, json)
