"""The verb ``doctor``: can this machine and that storage be trusted with a store?"""

from __future__ import annotations

from typing import Annotated

import typer

from spark_pages.cli import output


def doctor(
    url: Annotated[str, typer.Argument(help="A folder, file://, s3://, gs:// or az://.", show_default=False)],
    json: Annotated[
        bool, typer.Option("--json", help="One JSON document on stdout, and nothing else.")
    ] = False,
) -> None:
    """Race 32 creators on the storage, and look at this machine. Exit code 1 where a check fails.

    Writes some small objects below _doctor/ and removes them.
    """
    from spark_pages.doctor.examination import examine

    found = examine(url)
    if json:
        checks = [
            {"check": c.name, "status": c.status.value, "found": c.found, "remedy": c.remedy}
            for c in found.checks
        ]
        output.print_json({"url": found.url, "ok": found.ok, "checks": checks})
    else:
        rows = [[c.name, c.status.value, c.found, c.remedy] for c in found.checks]
        output.print_rows(f"Doctor at {found.url}", ["check", "status", "found", "what to do"], rows)
    if not found.ok:
        raise typer.Exit(output.EXIT_ERROR)
