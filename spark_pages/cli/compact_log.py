"""The verb ``compact-log``."""

from __future__ import annotations

from spark_pages.cli import output
from spark_pages.cli.arguments import Json, Url
from spark_pages.show.text import size


def compact_log(
    url: Url,
    json: Json = False,
) -> None:
    """Bundle commits beside their slots, so that the log is read in few requests."""
    import spark_pages

    done = spark_pages.open(url).compact_log()
    facts = {"compacted": done.compacted, "written": len(done.keys), "bytes": done.size_bytes}
    if json:
        output.print_json({**facts, "keys": list(done.keys)})
    else:
        output.print_facts("Log compaction", {**facts, "bytes": size(done.size_bytes)})
