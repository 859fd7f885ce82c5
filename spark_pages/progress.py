"""What goes on, for whoever watches at a terminal: a line on stderr as each phase of a long task begins.

Under ``spark-submit`` stderr has to be found first: see `stderr_apart`.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from spark_pages.printable import escape_controls

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
        print(f"{escape_controls(what)} …", file=sys.stderr, flush=True)


def on_terminal() -> bool:
    """Whether somebody sees stderr: ``spark-submit`` takes the output of this process, and may have one."""
    if sys.stderr.isatty():
        return True
    try:
        return os.readlink(_stderr_of_parent()).startswith(("/dev/pts/", "/dev/tty"))
    except OSError:
        return False


def stderr_apart() -> None:
    """Stderr is that of ``spark-submit``, where it has started this process; anywhere else it stays.

    Notes
    -----
    ``spark-submit`` reads stdout and stderr of a driver in Python by one pipe, and writes both to its own
    stdout: phases and stack traces would stand beside the result there. Where the system does not tell what
    a parent has open, or not us, it stays so.
    """
    try:
        if not (_is_one_pipe(1, 2) and _parent_is_java()):
            return
        # A file that is not appended to by the JVM must not be written from its beginning.
        theirs = os.open(_stderr_of_parent(), os.O_WRONLY | os.O_APPEND | os.O_NOCTTY)
    except OSError:
        return
    sys.stderr.flush()
    os.dup2(theirs, 2)
    os.close(theirs)


def _stderr_of_parent() -> str:
    return f"/proc/{os.getppid()}/fd/2"


def _parent_is_java() -> bool:
    return os.path.basename(os.readlink(f"/proc/{os.getppid()}/exe")) == "java"


def _is_one_pipe(*descriptors: int) -> bool:
    found = [os.fstat(each) for each in descriptors]
    return stat.S_ISFIFO(found[0].st_mode) and len({(each.st_dev, each.st_ino) for each in found}) == 1
