"""The folder that the demo owns: made anew by each run, and never one that somebody else made."""

from __future__ import annotations

import shutil
from pathlib import Path

from spark_pages.errors import InvalidInputError

MARKER = ".spark-pages-demo"
"""A folder that holds this file was made by the demo, which may remove it."""


def make_folder(folder: Path) -> Path:
    """The folder is there, empty but for the marker; an earlier demo in it is gone.

    Raises
    ------
    InvalidInputError
        If something is there that no demo made.
    """
    folder = folder.expanduser().absolute()
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise _refusal(folder, "it is not a folder")
    if folder.exists():
        if (folder / MARKER).is_file():
            _clear(folder)
        elif any(folder.iterdir()):
            raise _refusal(folder, "it holds files that no demo made")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MARKER).write_text(
            "Made by `spark-pages demo`, which removes this folder's content when it runs.\n"
        )
    except OSError as error:
        raise _refusal(folder, str(error.strerror)) from error
    return folder


def _clear(folder: Path) -> None:
    """The marker goes last, so that a clearing that was interrupted can be resumed."""
    for each in folder.iterdir():
        if each.name == MARKER:
            continue
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each)
        else:
            each.unlink()


def _refusal(folder: Path, reason: str) -> InvalidInputError:
    return InvalidInputError(
        f"Cannot make the demo in {folder}: {reason}.", hint="Name another one with --folder."
    )
