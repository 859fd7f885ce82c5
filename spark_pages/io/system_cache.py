"""What the operating system has of a file in its own cache, found without reading any of it."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from enum import StrEnum

_CACHESTAT = 451
"""Number of the system call on all architectures; Linux 6.5 and later have it."""

_BLOCK_BYTES = 4096
_RANGE = ctypes.c_uint64 * 2
_ANSWER = ctypes.c_uint64 * 5

NO_WAIT: int = getattr(os, "RWF_NOWAIT", 0)


class Way(StrEnum):
    """How a request reached its bytes.

    Attributes
    ----------
    STORAGE
        By a request to an object store, or a file system without direct reads.
    DIRECT
        By an aligned read of a local disk, past the operating system's cache.
    CACHED
        By a read of the operating system's cache.
    """

    STORAGE = "storage"
    DIRECT = "direct"
    CACHED = "cached"


def _bind() -> Callable[..., int] | None:
    if sys.platform != "linux" or not NO_WAIT or sys.maxsize < 1 << 32:
        return None
    # A call that never waits: with the GIL released, threads would only take it from each other.
    function = ctypes.PyDLL(None).syscall
    function.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long)
    function.restype = ctypes.c_long
    return function


_syscall = _bind()


def cached_bytes(descriptor: int, offset: int, length: int) -> int:
    """How many bytes of a range the operating system caches; 0 where it does not tell.

    Notes
    -----
    3 µs. A read with `RWF_NOWAIT` alone would not do: where it finds nothing, Linux 5.12 and later start to
    read the range into the cache, so that a cold page would be read twice.
    """
    if _syscall is None or length <= 0:
        return 0
    asked, answer = _RANGE(offset, length), _ANSWER()
    if _syscall(_CACHESTAT, descriptor, ctypes.addressof(asked), ctypes.addressof(answer), 0):
        return 0
    return int(answer[0]) * _BLOCK_BYTES
