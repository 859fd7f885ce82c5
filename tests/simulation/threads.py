"""Threads of a simulated process, which switch only where one of them asks storage or waits for another."""

from __future__ import annotations

from typing import Any


class CrashError(BaseException):
    """The process dies here; nothing may catch it."""


running: list[Any] = []
"""The strand that runs at the moment, alone."""


class Event:
    """`threading.Event` for threads of the simulation."""

    def __init__(self) -> None:
        self._is_set = False
        self._waiting: list[Any] = []

    def set(self) -> None:
        """Whoever waits may go on."""
        self._is_set = True
        for strand in self._waiting:
            strand.is_waiting = False
        self._waiting.clear()

    def clear(self) -> None:
        """Whoever comes waits."""
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        """Let others go on until it is set."""
        while not self._is_set:
            strand = running[0]
            self._waiting.append(strand)
            strand.stand_by()
        return True


class SimpleQueue:
    """`queue.SimpleQueue` for threads of the simulation."""

    def __init__(self) -> None:
        self._items: list[Any] = []
        self._is_there = Event()

    def put(self, item: Any) -> None:
        """Whoever waits for it may go on."""
        self._items.append(item)
        self._is_there.set()

    def get(self) -> Any:
        """Let others go on until one is there."""
        self._is_there.wait()
        item = self._items.pop(0)
        if not self._items:
            self._is_there.clear()
        return item


class Lock:
    """`threading.Lock` for threads of the simulation, which switch only where they ask storage."""

    def __init__(self) -> None:
        self._held = False

    def acquire(self) -> bool:
        assert not self._held, "a lock is held while storage is asked"
        self._held = True
        return True

    def release(self) -> None:
        self._held = False

    __enter__ = acquire

    def __exit__(self, *_: object) -> None:
        self.release()


class Threads:
    """As much of `threading` as the log needs."""

    Event = Event
    Lock = Lock
