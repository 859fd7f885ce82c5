"""A least-recently-used cache with a budget in bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class CacheCounts:
    """What a cache has done since it was made, and what it holds now.

    Attributes
    ----------
    hits, misses, evictions
        Keys found, keys not found, entries dropped to stay within the budget.
    entries, size_bytes
        What it holds.
    """

    hits: int
    misses: int
    evictions: int
    entries: int
    size_bytes: int


class ByteBudgetCache(Generic[K, V]):
    """Keeps what was used last, as far as it fits.

    Parameters
    ----------
    budget_bytes
        Most bytes to hold; 0 holds nothing. An entry larger than that is not admitted.

    Notes
    -----
    Safe to share between threads. The lock is held for access to the map only, once per batch of keys.
    Source: seed 003, "Cache Hierarchy", with bytes in place of its count of ten.
    """

    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes = max(0, budget_bytes)
        self._lock = threading.Lock()
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._size = 0
        self._hits = self._misses = self._evictions = 0

    def get(self, key: K) -> V | None:
        """The value under `key`, now the most recently used; None if it is not held."""
        return self.get_many((key,)).get(key)

    def get_many(self, keys: Iterable[K]) -> dict[K, V]:
        """The values held of `keys`, under one lock."""
        found: dict[K, V] = {}
        with self._lock:
            entries = self._entries
            asked = 0
            for key in keys:
                asked += 1
                entry = entries.get(key)
                if entry is not None:
                    entries.move_to_end(key)
                    found[key] = entry[0]
            self._hits += len(found)
            self._misses += asked - len(found)
        return found

    def put(self, key: K, value: V, size_bytes: int) -> None:
        """The value is held, if it fits the budget at all; others made room for it."""
        self.put_many(((key, value, size_bytes),))

    def put_many(self, items: Iterable[tuple[K, V, int]]) -> None:
        """Every value of (key, value, size in bytes) is held as `put` says, under one lock."""
        with self._lock:
            for key, value, size_bytes in items:
                known = self._entries.pop(key, None)
                if known is not None:
                    self._size -= known[1]
                if size_bytes > self.budget_bytes:
                    continue
                while self._size + size_bytes > self.budget_bytes:
                    _, (_, freed) = self._entries.popitem(last=False)
                    self._size -= freed
                    self._evictions += 1
                self._entries[key] = (value, size_bytes)
                self._size += size_bytes

    def clear(self) -> None:
        """Nothing is held."""
        with self._lock:
            self._entries.clear()
            self._size = 0

    def counts(self) -> CacheCounts:
        """Hits, misses, evictions and contents as of now."""
        with self._lock:
            return CacheCounts(self._hits, self._misses, self._evictions, len(self._entries), self._size)
