"""Work beside commits: one piece at a time, one more waiting, and none of it can fail a commit."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from collections.abc import Callable

from spark_pages.log.checkpoint.policy import Due
from spark_pages.runtime import Spawn

_EXIT_S = 5.0
_logger = logging.getLogger(__name__)
_all: weakref.WeakSet[Background] = weakref.WeakSet()


class Background:
    """Does what is due beside whoever asks.

    Parameters
    ----------
    spawn
        Begins work beside the caller.
    work
        Does what is due; may fail.

    Notes
    -----
    There is a thread only while there is work. What is asked for while one piece is being done waits, all
    of it together as one piece. A forked child begins with nothing to do. When the interpreter ends, work
    is waited for 5 s at most; what is cut off leaves objects that nothing names.
    """

    def __init__(self, spawn: Spawn, work: Callable[[Due], None]) -> None:
        self._spawn = spawn
        self._work = work
        self._ended = False
        self.forget()
        _all.add(self)

    def forget(self) -> None:
        """Nothing is being done and nothing waits: what a forked child begins with."""
        self._lock = threading.Lock()
        self._waiting = Due()
        self._is_running = False
        self._wait: Callable[[float | None], object] | None = None

    def ask(self, due: Due) -> None:
        """It will be done beside the caller, who does not wait."""
        with self._lock:
            if self._ended:
                return
            self._waiting |= due
            if self._is_running:
                return
            self._is_running = True
        try:
            self._wait = self._spawn(self._run)
        except RuntimeError as error:  # no more threads: the next one who asks may have more luck
            _logger.warning("Nobody looks after the log for now: %s", error)
            with self._lock:
                self._is_running = False

    def _run(self) -> None:
        while True:
            with self._lock:
                due, self._waiting = self._waiting, Due()
                if not due:
                    self._is_running = False
                    return
            try:
                self._work(due)
            except Exception as error:  # noqa: BLE001 - whatever it is, no commit may fail for it
                _logger.warning("Looking after the log failed (%s): %s: %s", due, type(error).__name__, error)

    def finish(self, timeout_s: float | None = None) -> None:
        """What was asked for has been done, or the time is up."""
        wait = self._wait
        if wait is not None:
            wait(timeout_s)

    def end(self, timeout_s: float | None = None) -> None:
        """What was asked for has been done, or the time is up; from now on nothing is done any more."""
        with self._lock:
            self._ended = True
        self.finish(timeout_s)


def _finish_all() -> None:
    for each in list(_all):
        each.end(_EXIT_S)


def _forget_all() -> None:
    for each in list(_all):
        each.forget()


atexit.register(_finish_all)
if hasattr(os, "register_at_fork"):  # not where nothing forks
    os.register_at_fork(after_in_child=_forget_all)
