"""The verb ``compact-log``."""

from __future__ import annotations

from typing import Annotated

import typer

from spark_pages.cli import output


def compact_log(
    url: Annotated[str, typer.Argument(help="A folder, file://, s3://, gs:// or az://.", show_default=False)],
    json: Annotated[
        bool, typer.Option("--json", help="One JSON document on stdout, and nothing else.")
    ] = False,
) -> None:
    """Long stretches of the log are read in few requests: commits are bundled beside their slots."""
    import spark_pages

    done = spark_pages.open(url).compact_log()
    facts = {"compacted": done.compacted, "written": len(done.keys), "bytes": done.size_bytes}
    if json:
        output.print_json({**facts, "keys": list(done.keys)})
    else:
        output.print_facts("Log compaction", {**facts, "bytes": output.size(done.size_bytes)})
