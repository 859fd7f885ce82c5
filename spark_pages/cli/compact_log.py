"""The verb ``compact-log``."""

from __future__ import annotations

from spark_pages.cli import output
from spark_pages.cli.arguments import DryRun, Json, Profile, Url, stored
from spark_pages.show.text import size


def compact_log(
    url: Url,
    dry_run: DryRun = False,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Bundle commits beside their slots, so that the log is read in few requests."""
    store = stored(url, profile)
    if dry_run:
        state = store.snapshot().log.state
        plan = {"dry_run": True, "version": state.version, "compacted": state.compacted}
        output.print_json(plan) if json else output.print_facts("Log compaction", plan)
        return
    done = store.compact_log()
    facts = {"compacted": done.compacted, "written": len(done.keys), "bytes": done.size_bytes}
    if json:
        output.print_json({**facts, "keys": list(done.keys)})
    else:
        output.print_facts("Log compaction", {**facts, "bytes": size(done.size_bytes)})
