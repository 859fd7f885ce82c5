"""Verbs that change rows. Each shows a plan first, and acts with ``--apply``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spark_pages.cli import output
from spark_pages.cli.arguments import Json, Profile, TableName, Url, open_stored
from spark_pages.display.text import count, size

if TYPE_CHECKING:
    from spark_pages.query.table import Table

Where = Annotated[
    str,
    typer.Option(
        "--where", help="Which rows, in SQL: \"carrier = 'UA' and year < 2010\".", show_default=False
    ),
]
Apply = Annotated[bool, typer.Option("--apply", help="Do it; without it the plan is shown.")]


def delete(
    url: Url,
    table: TableName,
    where: Where,
    apply: Apply = False,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Delete rows. Their values stay in old versions, and in pages until a purge.

    Shows how many rows there are, and the pages that hold them. --apply deletes them in one commit.
    """
    store = open_stored(url, profile)
    shown = store.snapshot().table(table)
    told = {"table": shown.name, "version": shown.version, **_held(shown, where), "applied": apply}
    if apply:
        with store.transaction(operation="delete") as txn:
            told["num_rows"] = txn.delete(table, where=where)
        told["version"] = store.snapshot().version if txn.version is None else txn.version
    if json:
        output.print_json(told)
        return
    rows = count(told["num_rows"], "row")
    if apply:
        output.say(f"deleted {rows} of {shown.name} in version {told['version']}")
        return
    pages = count(told["num_pages"], "page")
    output.say(f"{rows} of {shown.name}, in {pages} of {size(told['size_bytes'])}: --apply deletes them")


def _held(table: Table, where: str) -> dict[str, Any]:
    """Count the rows that a condition selects, and the pages of the columns that hold them."""
    import numpy as np

    rows = table.row_numbers(where)
    runs = []
    for column in table.columns:
        chain = table.directory.chain(column)
        runs.append(chain.run_at(np.unique(chain.locate_rows(rows).positions)))
    return {
        "num_rows": len(rows),
        "num_pages": sum(run.num_pages for run in runs),
        "size_bytes": sum(int(run.numbers("actual_len").sum(dtype=np.int64)) for run in runs),
    }


def erase(
    url: Url,
    table: TableName,
    where: Where,
    retention: Annotated[
        str | None,
        typer.Option(help="Versions to retain, as of vacuum: 30, 7d, 12h.", show_default="as of vacuum"),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(help="File for the report: store.resume_erase takes it.", show_default=False),
    ] = None,
    apply: Apply = False,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Delete rows, and erase their values from storage as far as retention, tags and leases allow.

    Shows every object that holds such values, and what keeps it until when. --apply erases. No commit
    records the condition. Exit code 1 where some values are still kept.
    """
    store = open_stored(url, profile)
    plan = store.erase(table, where=where, retention=retention)
    done = plan.execute() if apply else None
    if done is not None and report is not None:
        report.write_text(done.to_json() + "\n", "utf-8")
    objects = plan.objects_table() if done is None else done.objects_table()
    if json:
        document = {
            "table": plan.table,
            "version": plan.version if done is None else done.deleted_version,
            "num_rows": plan.num_rows,
            "applied": apply,
            "done": done is not None and done.done,
            "plan": output.records_of(objects),
        }
        output.print_json(document)
    else:
        output.print_table(repr(plan) if done is None else repr(done), objects)
        if done is None:
            output.say("nothing was deleted; --apply does it")
    output.exit_unless(done is None or done.done)
