"""The verb ``compact-log``."""

from __future__ import annotations

from spark_pages.cli import output
from spark_pages.cli.arguments import DryRun, Json, Profile, Url


def compact_log(
    url: Url,
    dry_run: DryRun = False,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Bundle commits beside their slots, so that the log is read in few requests."""
    from spark_pages.spark.upkeep import compact_log as compact

    told = compact(url, dry_run=dry_run, profile=profile)
    output.tell("Log compaction", told, json, hidden=("keys",))
