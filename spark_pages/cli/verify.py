"""The verb ``verify``: read a whole store and name every fault."""

from __future__ import annotations

from operator import itemgetter
from typing import Annotated, Literal

import typer

from spark_pages.cli import output
from spark_pages.cli.arguments import DryRun, Json, Profile, Url

Pages = Annotated[
    Literal["all", "sample", "none"],
    typer.Option(help="Which pages are read, of all that kept versions can reach."),
]


def verify(
    url: Url,
    pages: Pages = "sample",
    dry_run: DryRun = False,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Read everything and name every fault; writes nothing.

    Exit code 0 where there is no damage, else 1.
    """
    from spark_pages.spark.verify import verify as look_at

    told = look_at(None, url, pages, profile, dry_run=dry_run)
    output.tell("Verification", told, json, hidden=("faults",))
    if told.get("faults") and not json:
        names = ["fault", "object", "what", "what to do"]
        rows = [itemgetter("kind", "key", "what", "remedy")(fault) for fault in told["faults"]]
        output.print_findings("Faults", names, rows)
    output.end(told["ok"])
