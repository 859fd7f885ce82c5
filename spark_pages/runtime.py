"""Clock, randomness and sleep: the only doors to what is not determined by the input.

A simulation passes its own `Runtime` and owns time and chance.
"""

from __future__ import annotations

import getpass
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol, TypeVar

_PARALLEL_REQUESTS = 8

Item = TypeVar("Item")
Result = TypeVar("Result")


class Mapper(Protocol):
    """Calls a function for each item, at the same time where it can; gives the results in order."""

    def __call__(self, work: Callable[[Item], Result], items: Sequence[Item], /) -> list[Result]:
        """Return the result for each item."""
        ...


def map_in_threads(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Return the result for each item, in order, computed by up to 8 threads."""
    if len(items) < 2:
        return [work(item) for item in items]
    try:
        with ThreadPoolExecutor(min(len(items), _PARALLEL_REQUESTS)) as pool:
            return list(pool.map(work, items))
    except RuntimeError as error:
        if not is_out_of_threads(error):
            raise
        return [work(item) for item in items]


def is_out_of_threads(error: RuntimeError) -> bool:
    """Whether no thread could be started: the system has none left, or the interpreter is ending."""
    return any(sign in str(error) for sign in ("start new thread", "new futures after"))


Spawn = Callable[[Callable[[], None]], Callable[[float | None], object]]
"""Begins work beside the caller; gives a function that waits for its end, so many seconds at most."""


def spawn_thread(work: Callable[[], None]) -> Callable[[float | None], object]:
    """Begin work in a thread that does not keep the interpreter from ending."""
    thread = threading.Thread(target=work, name="spark-pages log", daemon=True)
    thread.start()
    return thread.join


def _now_us() -> int:
    return time.time_ns() // 1000


def _token() -> str:
    return os.urandom(16).hex()


@dataclass(frozen=True, slots=True)
class Runtime:
    """What the outside world gives.

    Attributes
    ----------
    now_us
        Microseconds since the epoch.
    monotonic_s
        Seconds of a clock that never goes back, for deadlines.
    token
        32 hexadecimal digits that no one else has.
    sleep_s
        Waits.
    jitter
        Uniform in [0, 1), for back-off.
    map
        Requests of one round, at the same time.
    spawn
        Begins work beside the caller.
    """

    now_us: Callable[[], int] = _now_us
    monotonic_s: Callable[[], float] = time.monotonic
    token: Callable[[], str] = _token
    sleep_s: Callable[[float], None] = time.sleep
    jitter: Callable[[], float] = field(default=random.random)
    map: Mapper = map_in_threads
    spawn: Spawn = spawn_thread


def writer_name() -> str:
    """Who writes, for the history: user, host and process."""
    return _writer_of(os.getpid())


def has_ended(writer: str) -> bool:
    """Whether a writer, named as by `writer_name`, was a process of this machine and is no more.

    Notes
    -----
    False where nobody here can tell. A number that another process has got since counts as alive.
    """
    host, _, process = writer.rpartition("@")[2].rpartition(":")
    if os.name != "posix" or host != socket.gethostname() or not process.isdecimal():
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except (OverflowError, PermissionError):
        pass
    return False


@lru_cache(maxsize=1)
def _writer_of(process: int) -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    return f"{user}@{socket.gethostname()}:{process}"
