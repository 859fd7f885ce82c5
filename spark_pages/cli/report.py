"""The verb ``report``: one page about a store, to be opened in a browser or sent to somebody."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from spark_pages.cli import output
from spark_pages.cli.arguments import Json, Profile, Url, open_stored
from spark_pages.display.text import size
from spark_pages.errors import InvalidInputError


def report(
    url: Url,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Where the page goes; - is stdout.")
    ] = "spark-pages-report.html",
    profile: Profile = None,
    json: Json = False,
) -> None:
    """One page of HTML about a store: the log, tables, chains, caches and requests as pictures.

    The page needs nothing but itself, and the store is only read.
    """
    from spark_pages.pictures import report_page

    if file == "-" and json:
        raise InvalidInputError(
            "Cannot write the report to -: it is stdout, where --json puts its document.",
            hint="Name a file in place of -, or leave out --json.",
        )
    page = report_page(open_stored(url, profile)).encode()
    if file == "-":
        sys.stdout.buffer.write(page)
        return
    path = Path(file).expanduser()
    _write(path, page)
    if json:
        output.print_json({"path": str(path), "bytes": len(page)})
    else:
        output.say(f"{path}: {size(len(page))}")


def _write(path: Path, page: bytes) -> None:
    """The file is the page, or what it was before."""
    if path.is_dir():
        raise InvalidInputError(
            f"Cannot write the report to {path}: it is a folder.",
            hint=f"Name a file in it, such as {path / 'report.html'}.",
        )
    if not path.parent.is_dir():
        raise InvalidInputError(
            f"Cannot write the report to {path}: there is no folder {path.parent}.",
            hint=f"Make the folder first: `mkdir -p {path.parent}`.",
        )
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_bytes(page)
        unfinished.replace(path)
    except OSError as error:
        raise InvalidInputError(
            f"Cannot write the report to {path}: {error.strerror}.",
            hint=f"Name another file in place of {path}, or - for stdout.",
        ) from error
    finally:
        with suppress(OSError):
            unfinished.unlink()
