"""Arguments that many verbs share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from spark_pages.store import Store

Url = Annotated[
    str,
    typer.Argument(
        metavar="URL", help="Of the store: a folder, file://, s3://, gs:// or az://.", show_default=False
    ),
]
TableName = Annotated[
    str, typer.Argument(metavar="TABLE", help="Its name, or namespace.table.", show_default=False)
]
ColumnName = Annotated[str, typer.Argument(metavar="COLUMN", help="Its name.", show_default=False)]
RowNumber = Annotated[int, typer.Argument(metavar="ROW", help="Row number, from 0.", show_default=False)]
Version = Annotated[int | None, typer.Option("--version", help="As of this version.", show_default=False)]
Timestamp = Annotated[
    str | None,
    typer.Option(
        "--timestamp", help="As of this time, ISO 8601; UTC if no zone is given.", show_default=False
    ),
]
Tag = Annotated[
    str | None, typer.Option("--tag", help="As of the version that this tag names.", show_default=False)
]
Limit = Annotated[int, typer.Option(min=0, help="Show at most so many rows; 0 shows all.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, and nothing else.")]
Profile = Annotated[
    str | None,
    typer.Option(help="Storage options by name; see docs/storage.md.", show_default="the environment"),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only tell what would be done.")]


def open_stored(url: str, profile: str | None) -> Store:
    """Open the store at an address, with the storage options of a profile."""
    import spark_pages

    return spark_pages.open(url, options_of(url, profile))


def options_of(url: str, profile: str | None) -> dict[str, Any] | None:
    """Return the storage options of a profile; a folder takes none."""
    from spark_pages.storage.profiles import storage_options, with_profile

    with_profile(url, profile)
    return storage_options(profile)
