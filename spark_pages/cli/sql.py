"""``spark-pages sql``: one statement."""

from __future__ import annotations

from typing import Annotated

import typer

from spark_pages.cli import output
from spark_pages.cli.arguments import Json, Limit, Profile, Tag, Timestamp, Url, Version, open_stored


def sql(
    url: Url,
    text: Annotated[
        str, typer.Argument(metavar="STATEMENT", help="A query, DDL or INSERT.", show_default=False)
    ],
    version: Version = None,
    timestamp: Timestamp = None,
    tag: Tag = None,
    limit: Limit = 20,
    profile: Profile = None,
    json: Json = False,
) -> None:
    """Rows of a query, or what a statement changed."""
    most = limit + 1 if limit else None  # one more tells whether there are more
    found = open_stored(url, profile).sql(text, version=version, timestamp=timestamp, tag=tag, limit=most)
    shown = found.slice(0, limit) if limit else found
    truncated = shown.num_rows < found.num_rows
    if json:
        document = {
            "columns": [{"name": field.name, "type": str(field.type)} for field in shown.schema],
            "rows": output.rows_of(shown),  # lists: two columns may have one name
            "row_count": None if truncated else found.num_rows,  # counting would compute all of them
            "truncated": truncated,
        }
        output.print_json(document)
        return
    output.print_table("Result", shown)
    if truncated:
        output.say(f"the first {shown.num_rows:,} rows; --limit 0 shows all")
