"""Progress of long work on stderr: bars on a terminal, log lines anywhere else.

Code that works for long begins a `phase`, and counts what is done by `advance`. Jobs and verbs choose by
`reporting` how it is shown; the library itself shows nothing. Under ``spark-submit`` stderr has to be found
first: see `stderr_apart`.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from importlib import import_module
from threading import Event, Lock, Thread
from typing import Any, Literal, Protocol, get_args

from spark_pages.display.text import seconds, size
from spark_pages.printable import escape_controls

Mode = Literal["auto", "bar", "log", "none"]
MODES: tuple[Mode, ...] = get_args(Mode)

EVERY_S = 10.0
"""Between two log lines."""


class Phase:
    """A part of long work, and how much of it is done.

    Parameters
    ----------
    what
        What happens, such as ``reading pages``.
    total, unit
        How much there is to do, in units such as ``pages``; 0 where nobody knows.
    total_bytes
        The same in bytes.
    """

    def __init__(self, what: str, total: int = 0, unit: str = "", total_bytes: int = 0) -> None:
        self.what = escape_controls(what)
        self.total = total
        self.unit = unit
        self.total_bytes = total_bytes
        self._done = (0, 0)
        self._elsewhere: Callable[[], tuple[int, int]] | None = None
        self._lock = Lock()
        self._began = time.monotonic()

    def advance(self, units: int = 1, num_bytes: int = 0) -> None:
        """Add what was done; any thread may."""
        with self._lock:
            self._done = self._done[0] + units, self._done[1] + num_bytes

    def follow(self, counts: Callable[[], tuple[int, int]]) -> None:
        """Add what others have done so far, in units and bytes: executors, which count for themselves."""
        self._elsewhere = counts

    @property
    def done(self) -> tuple[int, int]:
        """Units and bytes that are done."""
        units, num_bytes = (0, 0) if self._elsewhere is None else self._elsewhere()
        return self._done[0] + units, self._done[1] + num_bytes

    @property
    def fraction(self) -> float | None:
        """Part that is done, from 0 to 1; None where nobody knows how much there is."""
        units, num_bytes = self.done
        for done, total in ((num_bytes, self.total_bytes), (units, self.total)):
            if total:
                return min(done / total, 1.0)
        return None

    def figures(self) -> str:
        """Describe what is done, of how much, the rate, and the time left; empty without counts."""
        units, num_bytes = self.done
        took_s = max(time.monotonic() - self._began, 1e-9)
        told = []
        if self.total:
            told.append(f"{units:,} of {max(self.total, units):,} {self.unit}")
        elif units or (self.total_bytes and self.unit):
            told.append(f"{units:,} {self.unit}")
        if self.total_bytes:
            told.append(f"{size(num_bytes)} of {size(self.total_bytes)}")
        elif num_bytes:
            told.append(size(num_bytes))
        if num_bytes:
            told.append(f"{size(int(num_bytes / took_s))}/s")
        elif units:
            told.append(f"{units / took_s:,.1f} {self.unit}/s")
        fraction = self.fraction
        if fraction:
            told.append(f"{fraction:.0%}")
            told.append(f"{seconds(took_s / fraction - took_s)} left")
        return ", ".join(told)


class _Reporter(Protocol):
    phase: Phase | None

    def begin(self, phase: Phase) -> None: ...
    def rest(self) -> None: ...
    def end(self, error: BaseException | None, /) -> None: ...


_reporter: ContextVar[_Reporter | None] = ContextVar("reporter", default=None)


@contextmanager
def reporting(
    mode: Mode, work: str, details: Callable[[], str] = str, every_s: float = EVERY_S
) -> Iterator[None]:
    """Show on stderr the phases that begin in the block.

    Parameters
    ----------
    mode
        ``bar`` for a terminal, ``log`` for lines, ``none``; ``auto`` is ``bar`` where stderr is a terminal,
        and else ``log``.
    work
        Name of the job or verb, for the log.
    details
        Gives what else there is to say about a phase, or nothing.
    every_s
        Seconds between two log lines.
    """
    if mode == "auto":
        mode = "bar" if on_terminal() else "log"
    reporter: _Reporter | None = None
    if mode == "bar":
        reporter = _Bars(details)
    elif mode == "log":
        reporter = _Lines(work, details, every_s)
    before = _reporter.set(reporter)
    failed: BaseException | None = None
    try:
        yield
    except BaseException as error:
        failed = error
        raise
    finally:
        _reporter.reset(before)
        if reporter is not None:
            reporter.end(failed)


def phase(what: str, total: int = 0, unit: str = "", total_bytes: int = 0) -> Phase:
    """Begin a phase, in place of the one before; see `Phase`."""
    begun = Phase(what, total, unit, total_bytes)
    reporter = _reporter.get()
    if reporter is not None:
        reporter.begin(begun)
    return begun


def current() -> Phase:
    """Return the phase that is shown, for what is counted elsewhere; where none is, one of no consequence."""
    reporter = _reporter.get()
    return Phase("") if reporter is None or reporter.phase is None else reporter.phase


def advance(units: int = 1, num_bytes: int = 0) -> None:
    """Add to what is done of the phase that is shown; nothing where none is, as in threads of a pool."""
    reporter = _reporter.get()
    if reporter is not None and reporter.phase is not None:
        reporter.phase.advance(units, num_bytes)


def is_reporting() -> bool:
    """Whether phases are shown."""
    return _reporter.get() is not None


def rest() -> None:
    """Leave the terminal to other output, until the next phase begins."""
    reporter = _reporter.get()
    if reporter is not None:
        reporter.rest()


class _Lines:
    """Writes a line at the beginning, at the end, and every so many seconds between them."""

    def __init__(self, work: str, details: Callable[[], str], every_s: float) -> None:
        self._work = work
        self._details = details
        self._every_s = every_s
        self.phase: Phase | None = None
        self._over = Event()
        self._began = time.monotonic()
        self._thread = Thread(target=self._run, name="progress", daemon=True)
        self._say("started")
        self._thread.start()

    def begin(self, phase: Phase) -> None:
        self.phase = phase

    def rest(self) -> None:
        """Nothing: a line stands between other lines."""

    def end(self, error: BaseException | None) -> None:
        self._over.set()
        self._thread.join()
        took = seconds(time.monotonic() - self._began)
        self._say(f"done in {took}" if error is None else f"ended after {took} by {type(error).__name__}")

    def _run(self) -> None:
        while not self._over.wait(self._every_s):
            begun = self.phase or Phase("working")
            self._say(_joined(": ", begun.what, _joined(", ", begun.figures(), self._details())))

    def _say(self, text: str) -> None:
        now = datetime.now().astimezone().isoformat(timespec="seconds")
        print(f"{now} {self._work}: {text}", file=sys.stderr, flush=True)


class _Bars:
    """Draws a bar for each phase."""

    def __init__(self, details: Callable[[], str]) -> None:
        self._details = details
        self._shown: Any = None
        self.phase: Phase | None = None

    def begin(self, phase: Phase) -> None:
        if self._shown is None:
            bars = import_module("spark_pages.progress_bars")  # not before a phase begins: rich takes a while
            self._shown = bars.drawing(self._text)
            self._shown.start()
        for task in self._shown.tasks:
            self._shown.stop_task(task.id)
        self.phase = phase
        self._shown.add_task(f"{phase.what} …", phase=phase)

    def rest(self) -> None:
        if self._shown is not None:
            self._shown.stop()
            self._shown = None

    def end(self, _: BaseException | None) -> None:
        self.rest()

    def _text(self, shown: Phase) -> str:
        details = self._details() if shown is self.phase else ""
        return _joined(", ", shown.figures(), details)


def _joined(by: str, *texts: str) -> str:
    return by.join(filter(None, texts))


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
