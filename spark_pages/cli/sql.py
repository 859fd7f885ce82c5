"""``spark-pages sql``: one statement."""

from __future__ import annotations

from typing import Annotated

import typer

from spark_pages.cli import output
from spark_pages.cli.arguments import Json, Profile, Url, stored


def sql(
    url: Url,
    text: Annotated[
        str, typer.Argument(metavar="STATEMENT", help="A query, DDL or INSERT.", show_default=False)
    ],
    version: Annotated[
        int | None, typer.Option("--version", help="What a query reads.", show_default=False)
    ] = None,
    timestamp: Annotated[
        str | None,
        typer.Option("--timestamp", help="ISO 8601; UTC if no zone is given.", show_default=False),
    ] = None,
    tag: Annotated[str | None, typer.Option("--tag", show_default=False)] = None,
    limit: Annotated[int, typer.Option(min=0, help="Show at most so many rows; 0 shows all.")] = 20,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Rows of a query, or what a statement changed."""
    found = stored(url, profile).sql(text, version, timestamp, tag)
    shown = found.slice(0, limit) if limit else found
    columns = [column.to_pylist() for column in shown.columns]
    rows = list(zip(*columns, strict=True))
    if json:
        document = {
            "columns": [{"name": field.name, "type": str(field.type)} for field in shown.schema],
            "rows": rows,  # lists: two columns may have one name
            "row_count": found.num_rows,
            "truncated": shown.num_rows < found.num_rows,
        }
        output.print_json(document)
        return
    output.print_rows("Result", shown.column_names, rows)
    if shown.num_rows < found.num_rows:
        output.say(f"the first {shown.num_rows:,} of {found.num_rows:,} rows; --limit 0 shows all")
