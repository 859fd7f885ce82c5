"""What goes on, for whoever watches at a terminal: a line on stderr as each phase of a long task begins."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_watched: ContextVar[bool] = ContextVar("watched", default=False)


@contextmanager
def watched(by_somebody: bool) -> Iterator[None]:
    """Phases that begin in the block are told; jobs and verbs say so, the library never does by itself.

    Parameters
    ----------
    by_somebody
        Whether anybody sees stderr, and wants to.
    """
    before = _watched.set(by_somebody)
    try:
        yield
    finally:
        _watched.reset(before)


def phase(what: str) -> None:
    """Who watches knows that this begins."""
    if _watched.get():
        print(f"{what} …", file=sys.stderr, flush=True)


def on_terminal() -> bool:
    """Whether somebody sees stderr: ``spark-submit`` takes the output of this process, and may have one."""
    if sys.stderr.isatty():
        return True
    try:
        return os.readlink(f"/proc/{os.getppid()}/fd/2").startswith(("/dev/pts/", "/dev/tty"))
    except OSError:
        return False
