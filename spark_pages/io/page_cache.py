"""Page cache in memory, in two tiers: decoded pages, and the compressed bytes of pages that left the first
tier.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa

from spark_pages.arguments import MOST_NUMBER, as_int, as_path
from spark_pages.format.pages.lazy_page import LazyPage
from spark_pages.io.single_flight import LoadedPage, PendingLoad
from spark_pages.model.run import PageKey

READ_THREADS = 16
"""Enough to hide the latency of an object store behind the decoding of what has come."""


_MOST_THREADS = 1 << 12


@dataclass(frozen=True, slots=True)
class CacheConfig:
    """Budgets of the page caches, and how storage is read.

    Attributes
    ----------
    decoded_bytes
        Uncompressed pages; 0 keeps none.
    compressed_bytes
        Compressed bytes of pages that left the uncompressed ones; 0 keeps none.
    disk_path
        A folder on a local disk that keeps pages of an object store; None keeps none. Several processes and
        several stores may share it. Stores that are on a local disk themselves make no use of it.
    disk_bytes
        Most bytes in that folder.
    threads
        Most requests to an object store that one call has in flight. A local disk needs no more threads than
        there are processors, and gets no more.
    gap_bytes
        Object stores: two pages of an object share a request if at most so many bytes lie between them. None
        bridges the smallest gaps, as long as what is read is at most 1.1 times what was asked for.
    """

    decoded_bytes: int = 256 << 20
    compressed_bytes: int = 256 << 20
    disk_path: str | os.PathLike[str] | None = None
    disk_bytes: int = 8 << 30
    threads: int = READ_THREADS
    gap_bytes: int | None = None

    def __post_init__(self) -> None:
        for name in ("decoded_bytes", "compressed_bytes", "disk_bytes", "gap_bytes"):
            if name != "gap_bytes" or self.gap_bytes is not None:
                number = as_int(getattr(self, name), name, "a number of bytes", 0, MOST_NUMBER)
                object.__setattr__(self, name, number)
        threads = as_int(self.threads, "threads", "a number of threads", 1, _MOST_THREADS)
        object.__setattr__(self, "threads", threads)
        if self.disk_path is not None:
            as_path(self.disk_path, "disk_path")


ENTRY_OVERHEAD_BYTES = 512
"""What an entry costs besides its bytes: its objects in Python and Arrow, about."""


@dataclass(slots=True)
class CacheLookup:
    """What the caches had of the pages that one call wants; each page is in one of the four.

    Attributes
    ----------
    ready
        Decoded pages.
    packed
        Compressed bytes. The call's own pending load has to decode them.
    unread
        Pages that nobody has. The call's own pending load has to read them.
    awaited
        Pages that other calls are loading.
    """

    ready: dict[PageKey, pa.RecordBatch | LazyPage]
    packed: dict[PageKey, memoryview]
    unread: list[PageKey]
    awaited: dict[PageKey, PendingLoad]


@dataclass(frozen=True, slots=True)
class CacheCounts:
    """What the caches have done since they were made, and what they hold now.

    Attributes
    ----------
    decoded_hits
        Pages found decoded.
    evictions, demotions
        Pages that left memory to keep the budgets, and pages that went from the decoded cache to the
        compressed cache.
    decoded_bytes, compressed_bytes
        What each holds.
    """

    decoded_hits: int
    evictions: int
    demotions: int
    decoded_bytes: int
    compressed_bytes: int


class PageCache:
    """Keeps the pages that were used last, as far as they fit, and knows which are being loaded.

    Parameters
    ----------
    decoded_bytes, compressed_bytes
        Most bytes of decompressed and of compressed pages; 0 switches a tier off.

    Notes
    -----
    A page is in one tier at a time. Its compressed bytes stay with it in the decoded cache, on its account,
    so that to demote it is to move a reference. A page that leaves the compressed cache is dropped: pages
    never change, and storage has it. Safe to share between threads: one lock, held for access to the maps
    and nothing else. Source: seed 003, "Cache Hierarchy", with bytes in place of its count of ten; seed 001
    for the pins.
    """

    def __init__(self, decoded_bytes: int, compressed_bytes: int) -> None:
        self._lock = threading.Lock()
        self._decoded_budget, self._compressed_budget = max(0, decoded_bytes), max(0, compressed_bytes)
        self._decoded: OrderedDict[PageKey, LoadedPage] = OrderedDict()
        self._compressed: OrderedDict[PageKey, memoryview] = OrderedDict()
        self._held: dict[PageKey, LoadedPage] = {}  # those of the decoded cache that are pinned
        self._pins: dict[PageKey, int] = {}
        self._pending: dict[PageKey, PendingLoad] = {}
        self._forgotten: set[str] = set()  # paths that were forgotten while a page of them was pinned
        self._decoded_size = self._compressed_size = 0
        self._decoded_hits = self._evictions = self._demotions = 0
        self._is_torn = False

    @property
    def keeps_packed(self) -> bool:
        """Whether compressed bytes are worth keeping with a page."""
        return self._compressed_budget > 0

    def hit(self, key: PageKey) -> pa.RecordBatch | None:
        """The decoded page, now the most recently used; None if the decoded cache does not have it."""
        with self._lock:
            page = self._decoded.get(key)
            if page is None:
                page = self._held.get(key)
                if page is None:
                    return None
            else:
                self._decoded.move_to_end(key)
            self._decoded_hits += 1
            return page.batch

    def claim(self, key: PageKey, pending: PendingLoad) -> memoryview | None:
        """Claim a page whose compressed bytes are there, for the pending load to decode; None for any other.

        Like `lookup` for one page, without a word about why not.
        """
        with self._lock:
            packed = self._compressed.get(key)
            if packed is None or key in self._pending:
                return None
            pending.keys.append(key)
            self._pending[key] = pending
            return packed

    def lookup(self, keys: Iterable[PageKey], pending: PendingLoad, touch: bool) -> CacheLookup:
        """What is there of each page; the pending load takes on those that nobody has decoded or is loading.

        Parameters
        ----------
        keys
            Pages, each once.
        pending
            Of this call; must be given back by `store_loaded`, whatever happens.
        touch
            Whether what is found counts as used, and what is in the making is to be kept; a scan leaves
            the caches as they were.
        """
        found = CacheLookup({}, {}, [], {})
        decoded, held, compressed, pending_loads = self._decoded, self._held, self._compressed, self._pending
        with self._lock:
            for key in keys:
                page = decoded.get(key) or held.get(key)
                if page is not None:
                    found.ready[key] = page.content
                    if touch and key in decoded:
                        decoded.move_to_end(key)
                elif (other := pending_loads.get(key)) is not None and not other.is_finished:
                    other.reserve()
                    found.awaited[key] = other
                    if touch:
                        other.wanted.add(key)
                else:
                    pending.keys.append(key)
                    pending_loads[key] = pending
                    packed = compressed.get(key)
                    if packed is None:
                        found.unread.append(key)
                    else:
                        found.packed[key] = packed
            self._decoded_hits += len(found.ready)
        return found

    def peek(self, keys: Iterable[PageKey]) -> tuple[set[PageKey], set[PageKey]]:
        """Which of the pages the two caches hold; nothing is counted or marked as used."""
        with self._lock:
            decoded = {key for key in keys if key in self._decoded or key in self._held}
            return decoded, {key for key in keys if key in self._compressed} - decoded

    def store_loaded(self, pending: PendingLoad, admit: bool) -> int:
        """No other call waits for the pending load from now on; what it has loaded is kept, if `admit`.

        Returns
        -------
        int
            Pages that left memory for it.

        Notes
        -----
        In one step, so that no other call finds a page neither loading nor loaded.
        """
        with self._lock:
            self._recover_sizes()
            before = self._evictions
            loaded = pending.loaded
            for key in pending.keys:
                if self._pending.get(key) is pending:
                    del self._pending[key]
                    page = loaded.get(key) if admit or key in pending.wanted else None
                    if page is not None and page.is_detached and key[0] not in pending.barred:
                        self._put(key, page)
            self._is_torn = False
            return self._evictions - before

    def pin(self, keys: Iterable[PageKey]) -> None:
        """The pages stay in the decoded cache from now on, or from when they come, until `unpin`; pins are
        counted.

        Notes
        -----
        A page that does not fit beside the other pinned ones is not kept: the budget holds.
        """
        with self._lock:
            for key in keys:
                self._pins[key] = self._pins.get(key, 0) + 1
                page = self._decoded.pop(key, None)
                if page is not None:
                    self._held[key] = page

    def unpin(self, keys: Iterable[PageKey]) -> None:
        """One pin less on each page; without any it is the last used, or goes if it was forgotten."""
        with self._lock:
            for key in keys:
                left = self._pins[key] - 1
                if left:
                    self._pins[key] = left
                    continue
                del self._pins[key]
                page = self._held.pop(key, None)
                if page is None:
                    continue
                if key[0] in self._forgotten:
                    self._decoded_size -= page.size_bytes
                else:
                    self._decoded[key] = page
            if not self._pins:
                self._forgotten.clear()

    def forget(self, paths: Collection[str]) -> int:
        """No page of these page files is kept; pinned ones go with their last pin. Gives how many went now.

        Notes
        -----
        For page files that no version can reach any more. Pages of them that are being loaded are handed to
        who waits for them, and not kept. O(pages held).
        """
        with self._lock:
            decoded = [key for key in self._decoded if key[0] in paths]
            packed = [key for key in self._compressed if key[0] in paths]
            for key in decoded:
                self._decoded_size -= self._decoded.pop(key).size_bytes
            for key in packed:
                self._drop_packed(key)
            self._forgotten.update(key[0] for key in self._held if key[0] in paths)
            for pending in set(self._pending.values()):
                pending.barred.update(paths)
            return len(decoded) + len(packed)

    def clear(self) -> None:
        """Nothing is held but what is pinned; the counters stay."""
        with self._lock:
            self._decoded.clear()
            self._compressed.clear()
            self._decoded_size = sum(page.size_bytes for page in self._held.values())
            self._compressed_size = 0

    def counts(self) -> CacheCounts:
        """Counters and contents as of now."""
        with self._lock:
            return CacheCounts(
                self._decoded_hits,
                self._evictions,
                self._demotions,
                self._decoded_size,
                self._compressed_size,
            )

    # What follows is called with the lock held.

    def _recover_sizes(self) -> None:
        """Pages are about to land. What was left where a signal ended that half-way is put right first."""
        if self._is_torn:
            self._decoded_size = sum(
                page.size_bytes for page in chain(self._decoded.values(), self._held.values())
            )
            self._compressed_size = sum(
                len(packed) + ENTRY_OVERHEAD_BYTES for packed in self._compressed.values()
            )
            self._pending = {key: each for key, each in self._pending.items() if not each.is_finished}
        self._is_torn = True

    def _put(self, key: PageKey, page: LoadedPage) -> None:
        self._drop_packed(key)
        if page.size_bytes > self._decoded_budget:
            self._demote(key, page)
            return
        while self._decoded and self._decoded_size + page.size_bytes > self._decoded_budget:
            self._demote_oldest()
        if self._decoded_size + page.size_bytes > self._decoded_budget:  # all else is pinned
            self._demote(key, page)
            return
        (self._held if key in self._pins else self._decoded)[key] = page
        self._decoded_size += page.size_bytes

    def _demote_oldest(self) -> None:
        key, page = self._decoded.popitem(last=False)
        self._decoded_size -= page.size_bytes
        self._demotions += self._demote(key, page)

    def _demote(self, key: PageKey, page: LoadedPage) -> bool:
        """Whether the compressed cache has the page now."""
        packed = page.packed
        size = 0 if packed is None else len(packed) + ENTRY_OVERHEAD_BYTES
        if packed is None or size > self._compressed_budget:
            self._evictions += 1
            return False
        self._drop_packed(key)
        while self._compressed_size + size > self._compressed_budget:
            self._drop_packed(next(iter(self._compressed)))
            self._evictions += 1
        self._compressed[key] = packed
        self._compressed_size += size
        return True

    def _drop_packed(self, key: PageKey) -> None:
        packed = self._compressed.pop(key, None)
        if packed is not None:
            self._compressed_size -= len(packed) + ENTRY_OVERHEAD_BYTES
