"""The verb ``verify``: read a whole store and name every fault."""

from __future__ import annotations

from operator import itemgetter
from typing import Annotated, Literal

import typer

from spark_pages.cli import output
from spark_pages.cli.arguments import Json, Profile, Url

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
    if told["pages_read"] < told["pages"] and pages != "all" and not json:
        read, there = told["pages_read"], told["pages"]
        output.say(f"{read:,} of {there:,} pages were read; --pages all reads every page")
    output.exit_unless(told["ok"])
