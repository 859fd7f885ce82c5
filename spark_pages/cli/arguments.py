"""Arguments that many verbs share."""

from __future__ import annotations

from typing import Annotated

import typer

Url = Annotated[
    str,
    typer.Argument(
        metavar="URL", help="Of the store: a folder, file://, s3://, gs:// or az://.", show_default=False
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, and nothing else.")]
