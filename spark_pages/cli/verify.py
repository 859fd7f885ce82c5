"""The verb ``verify``: read a whole store and name every fault."""

from __future__ import annotations

from operator import itemgetter
from typing import Annotated, Any, Literal

import typer

from spark_pages.cli import output
from spark_pages.cli.arguments import DryRun, Json, Profile, Url
from spark_pages.outcome import told_as

Pages = Annotated[
    Literal["all", "sample", "none"], typer.Option(help="Which pages are read and compared with statistics.")
]


def verify(
    url: Url,
    pages: Pages = "sample",
    version: Annotated[
        int | None,
        typer.Option(help="Read pages of this version alone.", show_default="of all that are kept"),
    ] = None,
    dry_run: DryRun = False,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Read everything and name every fault; writes nothing.

    Exit code 0 where there is no damage, else 1.
    """
    if dry_run or version is not None:
        from spark_pages.spark.verify import verify as look_at  # what the job of this name does, here

        told = look_at(None, url, version, pages, profile, dry_run=dry_run)
    else:
        told = _of_store(url, pages, profile)
    output.tell("Verification", told, json, hidden=("faults",))
    if told.get("faults") and not json:
        names = ["fault", "object", "what", "what to do"]
        rows = [itemgetter("kind", "key", "what", "remedy")(fault) for fault in told["faults"]]
        output.print_rows("Faults", names, rows)
    output.end(told["ok"])


@told_as("verify")
def _of_store(url: str, pages: Literal["all", "sample", "none"], profile: str | None) -> dict[str, Any]:
    from spark_pages.storage import open_object_store
    from spark_pages.storage.profiles import storage_options
    from spark_pages.upkeep.faults import told_faults
    from spark_pages.upkeep.verify import verify as look_at

    found = look_at(open_object_store(url, storage_options(profile)), pages=pages)
    return {
        "url": found.url,
        "version": found.version,
        **told_faults(found.faults),
        "objects": found.objects,
        "checkpoints": found.checkpoints,
        "checkpoints_replayed": found.replayed,
        "pages": found.pages,
        "pages_read": found.pages_read,
        "bytes_read": found.bytes_read,
    }
