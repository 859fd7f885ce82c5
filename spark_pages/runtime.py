"""Clock, randomness and sleep: the only doors to what is not determined by the input.

A simulation passes its own `Runtime` and owns time and chance.
"""

from __future__ import annotations

import getpass
import os
import random
import secrets
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field


def _now_us() -> int:
    return time.time_ns() // 1000


def _token() -> str:
    return secrets.token_hex(16)


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
    """

    now_us: Callable[[], int] = _now_us
    monotonic_s: Callable[[], float] = time.monotonic
    token: Callable[[], str] = _token
    sleep_s: Callable[[float], None] = time.sleep
    jitter: Callable[[], float] = field(default=random.random)


def writer_name() -> str:
    """Who writes, for the history: user, host and process."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    return f"{user}@{socket.gethostname()}:{os.getpid()}"
