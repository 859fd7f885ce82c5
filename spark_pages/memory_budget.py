"""Budgets in bytes for what a process caches, each shared by the caches of all its stores."""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator
from itertools import count
from typing import Generic, Protocol, TypeVar


class Evictable(Protocol):
    """A cache that shares a budget. All of it is called with the lock of the budget held."""

    held_bytes: int

    @property
    def oldest(self) -> int | None:
        """When the least recently used entry was used, by `MemoryBudget.tick`; None without an entry."""
        ...

    def evict_oldest(self) -> None:
        """Evict at least the least recently used entry."""
        ...

    def abandon(self) -> None:
        """Drop everything, whatever state it is in."""
        ...


class MemoryBudget:
    """Most bytes that several caches may hold together.

    Parameters
    ----------
    most_bytes
        The budget; 0 keeps nothing.

    Notes
    -----
    Caches are referenced weakly: a cache that is dropped gives its bytes back. Finding room takes a step for
    each cache.
    """

    def __init__(self, most_bytes: int) -> None:
        self.lock = threading.Lock()
        self.most_bytes = max(0, most_bytes)
        self.tick = count(1).__next__
        self._caches: list[weakref.ref[Evictable]] = []

    def join(self, cache: Evictable) -> None:
        """Count the bytes of this cache too."""
        with self.lock:
            self._caches = [each for each in self._caches if each() is not None] + [weakref.ref(cache)]

    # What follows is called with the lock held.

    @property
    def held_bytes(self) -> int:
        """Bytes that all caches hold."""
        return sum([cache.held_bytes for cache in self._members()])

    @property
    def free_bytes(self) -> int:
        """Bytes that fit without an eviction."""
        return max(0, self.most_bytes - self.held_bytes)

    def make_room(self, size_bytes: int) -> bool:
        """Evict the least recently used entries of all caches until so many bytes fit; whether they do."""
        if size_bytes > self.most_bytes:
            return False
        while self.held_bytes + size_bytes > self.most_bytes:
            found = [(cache.oldest, cache) for cache in self._members()]
            used = [(oldest, cache) for oldest, cache in found if oldest is not None]
            if not used:
                return False
            min(used, key=lambda each: each[0])[1].evict_oldest()
        return True

    def renew(self) -> None:
        """Make a new lock, in a forked child. Drop what a thread of the parent may have left half-changed."""
        was_changing = self.lock.locked()
        self.lock = threading.Lock()
        for cache in self._members() if was_changing else ():
            cache.abandon()

    def _members(self) -> Iterator[Evictable]:
        return (cache for each in self._caches if (cache := each()) is not None)


class CacheBudgets:
    """The budgets of one configuration; use `shared_budgets` for those of the process.

    Attributes
    ----------
    decoded, compressed, blooms, statistics, nodes
        One for each kind of cache; see `CacheConfig`.
    """

    def __init__(
        self,
        decoded_bytes: int = 0,
        compressed_bytes: int = 0,
        bloom_bytes: int = 0,
        statistics_bytes: int = 0,
        node_bytes: int = 0,
    ) -> None:
        self.decoded = MemoryBudget(decoded_bytes)
        self.compressed = MemoryBudget(compressed_bytes)
        # A page that leaves one enters the other in the same step.
        self.compressed.lock = self.decoded.lock
        self.blooms = MemoryBudget(bloom_bytes)
        self.statistics = MemoryBudget(statistics_bytes)
        self.nodes = MemoryBudget(node_bytes)

    def renew(self) -> None:
        """Call `MemoryBudget.renew` of each, in a forked child."""
        self.compressed.renew()
        self.decoded.renew()
        self.compressed.lock = self.decoded.lock
        for budget in (self.blooms, self.statistics, self.nodes):
            budget.renew()


DECODED_BYTES = 256 << 20
COMPRESSED_BYTES = 256 << 20
BLOOM_BYTES = 16 << 20
STATISTICS_BYTES = 32 << 20
NODE_BYTES = 64 << 20
DEFAULT_BUDGETS = (DECODED_BYTES, COMPRESSED_BYTES, BLOOM_BYTES, STATISTICS_BYTES, NODE_BYTES)
"""What a laptop and the driver of Spark have to spare; tasks of Spark cache no pages."""

_registry: weakref.WeakValueDictionary[tuple[int, ...], CacheBudgets] = weakref.WeakValueDictionary()
_registry_lock = threading.Lock()


def shared_budgets(*most_bytes: int) -> CacheBudgets:
    """Return the budgets of this process with these sizes, in the order of `CacheBudgets`, or the defaults.

    Notes
    -----
    All stores of a process whose budgets are equal share them, so that memory does not grow with the number
    of stores.
    """
    with _registry_lock:
        most_bytes = most_bytes or DEFAULT_BUDGETS
        found = _registry.get(most_bytes)
        if found is None:
            found = _registry[most_bytes] = CacheBudgets(*most_bytes)
        return found


def _renew_all() -> None:
    global _registry_lock  # noqa: PLW0603 - a forked child must not inherit a lock that a thread holds
    _registry_lock = threading.Lock()
    for budgets in list(_registry.values()):
        budgets.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class LruCache(Generic[Key, Value]):
    """Values that were used last, as far as a shared budget has room for them.

    Parameters
    ----------
    budget
        Of these values and those of other caches.

    Notes
    -----
    Safe to share between threads and across a fork.
    """

    def __init__(self, budget: MemoryBudget) -> None:
        self.held_bytes = 0
        self._budget = budget
        self._entries: OrderedDict[Key, tuple[Value, int, int]] = OrderedDict()
        budget.join(self)

    def get(self, key: Key) -> Value | None:
        """Return the value, now the most recently used, or None."""
        with self._budget.lock:
            return self._use(key)

    def get_many(self, keys: Iterable[Key]) -> dict[Key, Value]:
        """Those of the values that are cached."""
        with self._budget.lock:
            return {key: value for key in keys if (value := self._use(key)) is not None}

    def put(self, key: Key, value: Value, size_bytes: int) -> None:
        """Cache a value that takes so many bytes, unless the budget is smaller than that."""
        with self._budget.lock:
            self._pop(key)
            if self._budget.make_room(size_bytes):
                self._entries[key] = (value, size_bytes, self._budget.tick())
                self.held_bytes += size_bytes

    def clear(self) -> None:
        """Drop all values."""
        with self._budget.lock:
            self.abandon()

    @property
    def oldest(self) -> int | None:
        """See `Evictable`."""
        return self._entries[next(iter(self._entries))][2] if self._entries else None

    def evict_oldest(self) -> None:
        """See `Evictable`."""
        self._pop(next(iter(self._entries)))

    def abandon(self) -> None:
        """See `Evictable`."""
        self._entries = OrderedDict()
        self.held_bytes = 0

    def _use(self, key: Key) -> Value | None:
        found = self._entries.pop(key, None)
        if found is None:
            return None
        value, size_bytes, _ = found
        self._entries[key] = (value, size_bytes, self._budget.tick())
        return value

    def _pop(self, key: Key) -> None:
        found = self._entries.pop(key, None)
        if found is not None:
            self.held_bytes -= found[1]
