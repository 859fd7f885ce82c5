"""The verb ``verify``: read a whole store and name every fault."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from spark_pages.cli import output
from spark_pages.cli.arguments import DryRun, Json, Profile, Url
from spark_pages.show.text import size

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
    from spark_pages.spark.profiles import storage_options
    from spark_pages.storage import open_object_store
    from spark_pages.upkeep.verify import verify as look_at

    if dry_run or version is not None:
        _of_version(url, version, pages, dry_run, profile, json)
        return
    found = look_at(open_object_store(url, storage_options(profile)), pages=pages)
    facts = {
        "url": found.url,
        "version": found.version,
        "ok": found.ok,
        "objects": found.objects,
        "checkpoints": found.checkpoints,
        "checkpoints_replayed": found.replayed,
        "pages": found.pages,
        "pages_read": found.pages_read,
        "bytes_read": found.bytes_read,
    }
    if json:
        output.print_json({**facts, "faults": found.table().to_pylist()})
    else:
        output.print_facts("Verification", {**facts, "bytes_read": size(found.bytes_read)})
        if found.faults:
            names = ["fault", "object", "what", "what to do"]
            faults = [*found.damage, *found.notices]
            output.print_rows("Faults", names, [[f.kind.value, f.key, f.what, f.remedy] for f in faults])
    if not found.ok:
        raise typer.Exit(output.EXIT_ERROR)


def _of_version(
    url: str, version: int | None, pages: Pages, dry_run: bool, profile: str | None, json: bool
) -> None:
    """What the job of this name does, in one process."""
    from spark_pages.spark.verify import verify as look_at

    found = look_at(None, url, version, pages, profile, dry_run=dry_run)
    if json:
        output.print_json(found)
    else:
        output.print_facts("Verification", found)
    if not found["ok"]:
        raise typer.Exit(output.EXIT_ERROR)
