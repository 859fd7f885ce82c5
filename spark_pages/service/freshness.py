"""How a process keeps one snapshot current for many callers: one asks storage, the others take its answer."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

from spark_pages.log.snapshot import LogSnapshot
from spark_pages.runtime import Runtime

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

_HASTE = 10
"""A version that is not known yet is looked for so many times as often as staleness alone would."""


class SharedLoads(Generic[Key, Value]):
    """Keeps the values used last; a value that several threads want is made once.

    Parameters
    ----------
    most
        How many values are kept.

    Notes
    -----
    A failure goes to all who waited for it, and is not kept.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._kept: OrderedDict[Key, Value] = OrderedDict()
        self._flights: dict[Key, Future[Value]] = {}

    def get(self, key: Key, make: Callable[[], Value]) -> Value:
        """Return the cached value of a key, or the result of `make`."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
            flight = self._flights.get(key)
            mine = flight is None
            if flight is None:
                flight = self._flights[key] = Future()
        if not mine:
            return flight.result()
        try:
            value = make()
        except BaseException as error:
            with self._lock:
                del self._flights[key]
            flight.set_exception(error)
            raise
        with self._lock:
            del self._flights[key]
        self.put(key, value)
        flight.set_result(value)
        return value

    def put(self, key: Key, value: Value) -> None:
        """Cache a value in place of the least recently used one."""
        with self._lock:
            self._kept[key] = value
            self._kept.move_to_end(key)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)

    def drop(self, key: Key) -> None:
        """Remove a value from the cache."""
        with self._lock:
            self._kept.pop(key, None)


class Freshness:
    """The newest snapshot, at most so many seconds behind storage.

    Parameters
    ----------
    refresh
        Asks storage for the newest snapshot.
    runtime
        The clock.
    staleness_s
        An answer shows every commit that was acknowledged so long before it was asked for.
    moved
        Told the snapshot that was the newest one until now.

    Notes
    -----
    Storage is asked by callers, one at a time, and not at all while nobody calls: at most once in
    `staleness_s`, and ten times as often while somebody asks for versions that are not there yet. So
    requests do not grow with the number of clients.
    """

    def __init__(
        self,
        refresh: Callable[[], LogSnapshot],
        runtime: Runtime,
        staleness_s: float,
        moved: Callable[[LogSnapshot], None],
    ) -> None:
        self._refresh = refresh
        self._runtime = runtime
        self._staleness_s = staleness_s
        self._moved = moved
        self._lock = threading.Lock()
        self._known: tuple[LogSnapshot, float] | None = None
        self._flight: Future[LogSnapshot] | None = None
        self.refreshes = 0

    @property
    def known(self) -> tuple[LogSnapshot, float] | None:
        """The newest snapshot known and its age in seconds, without asking anybody."""
        if self._known is None:
            return None
        snapshot, asked_at = self._known
        return snapshot, self._runtime.monotonic_s() - asked_at

    def newest(self) -> LogSnapshot:
        """Return the newest snapshot, no older than the bound."""
        return self._younger_than(self._staleness_s)

    def at_least(self, version: int) -> LogSnapshot:
        """Return the newest snapshot, and refresh early if it is older than the version."""
        snapshot = self.newest()
        if snapshot.state.version >= version:
            return snapshot
        known = self._known
        wait_s = 0.0
        if known is not None:
            wait_s = known[1] + self._staleness_s / _HASTE - self._runtime.monotonic_s()
        if wait_s > 0:
            self._runtime.sleep_s(wait_s)
        return self._younger_than(self._staleness_s / _HASTE)

    def _younger_than(self, bound_s: float) -> LogSnapshot:
        now = self._runtime.monotonic_s()
        with self._lock:
            if self._known is not None and now - self._known[1] < bound_s:
                return self._known[0]
            flight = self._flight
            mine = flight is None
            if flight is None:
                flight = self._flight = Future()
        if not mine:
            return flight.result()
        try:
            snapshot = self._refresh()
        except BaseException as error:
            with self._lock:
                self._flight = None
            flight.set_exception(error)
            raise
        with self._lock:
            before = self._known
            self._known = snapshot, now
            self._flight = None
            self.refreshes += 1
        if before is not None and before[0].state.version < snapshot.state.version:
            self._moved(before[0])
        flight.set_result(snapshot)
        return snapshot
