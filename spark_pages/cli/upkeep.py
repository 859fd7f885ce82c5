"""The verbs ``compact-pages`` and ``publish-delta``: what the jobs of these names do, in one process."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from spark_pages.cli import output
from spark_pages.cli.arguments import DryRun, Json, Profile, Url, stored


def register(app: typer.Typer) -> None:
    """The app has these verbs."""
    app.command()(compact_pages)
    app.command()(publish_delta)


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
    from spark_pages.spark.compact import plan_compact_pages

    store = stored(url, profile)
    if dry_run:
        names = [table] if table else store.snapshot().tables()
        done = [plan_compact_pages(url, name, profile) for name in names]
        shown = ["table", "runs", "pages_before", "bytes_before"]
    else:
        done = store.compact_pages(table)
        shown = ["table", "pages_before", "pages_after", "version"]
    if json:
        output.print_json({"tables": done})
        return
    output.print_rows("Page compaction", shown, [[each[name] for name in shown] for each in done])


def publish_delta(
    url: Url,
    history: Annotated[bool, typer.Option(help="Commit history and change feed, too.")] = True,
    dry_run: DryRun = False,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Checkpoints, history and change feed are Delta tables, without copying a page descriptor."""
    from spark_pages.spark.publish import publish_delta as publish
    from spark_pages.spark.upkeep import publish as plan

    if dry_run:
        facts = plan(url, history=history, dry_run=True, profile=profile)
    else:
        facts = asdict(publish(url, history=history, profile=profile))
    if json:
        output.print_json(facts)
    else:
        output.print_facts("Delta tables", facts)
