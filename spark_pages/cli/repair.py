"""The verb ``repair``: say what can be mended and what is lost, and with ``--apply`` mend it."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from spark_pages.cli import output
from spark_pages.cli.arguments import Json, Profile, Url, options_of

_UNREAD = {
    "none": "no page was read, --pages all reads every page",
    "sample": "a sample of the pages was read, --pages all reads every page",
}


def repair(
    url: Url,
    apply: Annotated[bool, typer.Option("--apply", help="Do it; without this nothing is written.")] = False,
    pages: Annotated[
        Literal["all", "sample", "none"],
        typer.Option(help="Which pages are read to find damaged ones; none is quick and finds none."),
    ] = "all",
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Mend what can be made again byte for byte, and tell what is lost.

    Plans only, unless told to apply.

    Exit code 0 where nothing is left to mend or lost, else 1.
    """
    from spark_pages.maintenance.repair import plan_repair
    from spark_pages.storage import open_object_store

    plan = plan_repair(open_object_store(url, options_of(url, profile)), pages=pages)
    done = plan.execute() if apply and not plan.refused else ()
    lost = [{"object": f.key, "what": f.what, "remedy": f.remedy} for f in plan.beyond]
    if json:
        steps = plan.table().to_pylist()
        output.print_json(
            {
                "url": plan.url,
                "version": plan.version,
                "applied": apply and not plan.refused,
                "steps": steps,
                "lost": lost,
                "refused": plan.refused or None,
            }
        )
    else:
        if plan.steps:
            rows = [[step.kind.value, step.key, step.what] for step in plan.steps]
            output.print_rows("Done" if apply else "Plan", ["step", "object", "what"], rows)
        if lost:
            rows = [[f.kind.value, f.key, f.what, f.remedy] for f in plan.beyond]
            names = ["fault", "object", "what", "what to do"]
            output.print_findings("Faults" if plan.refused else "Beyond repair", names, rows)
        if not apply and plan.steps:
            output.say("nothing was written; --apply does it")
        if plan.refused:
            output.say(plan.refused)
        elif not plan.steps and not lost:
            output.say("nothing to mend" if pages == "all" else f"nothing to mend; {_UNREAD[pages]}")
    output.exit_unless(not (lost or plan.refused or len(done) < len(plan.steps)))
