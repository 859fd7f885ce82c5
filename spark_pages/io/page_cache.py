"""Page cache in memory, in two tiers: decoded pages, and stored bytes of pages."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from spark_pages.format.pages.lazy_page import LazyPage
from spark_pages.io.cache_tiers import CompressedTier, DecodedTier
from spark_pages.io.single_flight import PendingLoad
from spark_pages.memory_budget import CacheBudgets
from spark_pages.model.run import PageKey


@dataclass(slots=True)
class CacheLookup:
    """What the caches had of the pages that one call wants; each page is in one of the four.

    Attributes
    ----------
    ready
        Decoded pages.
    packed
        Compressed bytes. The call's own pending load has to decode them.
    in_blocks
        Those of them that share memory with other pages.
    unread
        Pages that nobody has. The call's own pending load has to read them.
    awaited
        Pages that other calls are loading.
    """

    ready: dict[PageKey, pa.RecordBatch | LazyPage]
    packed: dict[PageKey, memoryview]
    unread: list[PageKey]
    awaited: dict[PageKey, PendingLoad]
    in_blocks: set[PageKey] = field(default_factory=set)


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
    budgets
        Of decoded and of compressed pages, shared with the page caches of other stores; 0 switches a tier
        off.

    Notes
    -----
    A page is in one tier at a time. Its compressed bytes stay with it in the decoded cache, on its account,
    so that to demote it is to move a reference. A page that leaves the compressed cache is dropped: pages
    never change, and storage has it. What scans read is kept in the compressed cache where there is free
    room, behind all other pages: a scan evicts nothing. Safe to share between threads: one lock, held for
    access to the maps and nothing else. Source: seed 003, "Cache Hierarchy", with bytes in place of its
    count of ten; seed 001 for the pins.
    """

    def __init__(self, budgets: CacheBudgets) -> None:
        self._budgets = budgets
        self._compressed = CompressedTier(budgets.compressed)
        self._decoded = DecodedTier(budgets.decoded, self._compressed)
        self._pins: dict[PageKey, int] = {}
        self._pending: dict[PageKey, PendingLoad] = {}
        self._forgotten: set[str] = set()  # paths that were forgotten while a page of them was pinned
        self._decoded_hits = 0
        self._is_torn = False
        budgets.compressed.join(self._compressed)
        budgets.decoded.join(self._decoded)

    @property
    def keeps_packed(self) -> bool:
        """Whether compressed bytes are worth keeping with a page."""
        return self._budgets.compressed.most_bytes > 0

    def spare_bytes(self) -> int:
        """Free room of the compressed cache, for what a scan reads."""
        with self._budgets.compressed.lock:
            return self._budgets.compressed.free_bytes

    def hit(self, key: PageKey) -> pa.RecordBatch | None:
        """Return the decoded page and mark it as used last; None if the decoded cache does not have it."""
        with self._budgets.decoded.lock:
            page = self._decoded.entries.get(key)
            if page is None:
                page = self._decoded.pinned.get(key)
                if page is None:
                    return None
            else:
                self._decoded.use(key)
            self._decoded_hits += 1
            return page.batch

    def claim(self, key: PageKey, pending: PendingLoad) -> tuple[memoryview, bool] | None:
        """Claim a page whose compressed bytes are there, for the pending load to decode; None for any other.

        Returns
        -------
        memoryview, bool
            The bytes, and whether they have memory of their own.
        """
        with self._budgets.compressed.lock:
            found = self._compressed.entries.get(key)
            if found is None or key in self._pending:
                return None
            pending.keys.append(key)
            self._pending[key] = pending
            return found.packed, found.block is None

    def lookup(self, keys: Iterable[PageKey], pending: PendingLoad, touch: bool) -> CacheLookup:
        """Look pages up; the pending load takes those that are neither cached nor loading.

        Parameters
        ----------
        keys
            Pages, each once.
        pending
            Of this call; must be given back by `store_loaded`, whatever happens.
        touch
            Whether what is found counts as used, and what is in the making is to be kept; not for a scan.
        """
        found = CacheLookup({}, {}, [], {})
        decoded, pinned = self._decoded.entries, self._decoded.pinned
        compressed, pending_loads = self._compressed.entries, self._pending
        with self._budgets.decoded.lock:
            for key in keys:
                page = decoded.get(key) or pinned.get(key)
                if page is not None:
                    found.ready[key] = page.content
                    if touch:
                        self._decoded.use(key)
                elif (other := pending_loads.get(key)) is not None and not other.is_finished:
                    other.reserve()
                    found.awaited[key] = other
                    if touch:
                        other.wanted.add(key)
                else:
                    pending.keys.append(key)
                    pending_loads[key] = pending
                    stored = compressed.get(key)
                    if stored is None:
                        found.unread.append(key)
                    else:
                        found.packed[key] = stored.packed
                        if stored.block is not None:
                            found.in_blocks.add(key)
            self._decoded_hits += len(found.ready)
        return found

    def peek(self, keys: Iterable[PageKey]) -> tuple[set[PageKey], set[PageKey]]:
        """Which of the pages the two caches hold; nothing is counted or marked as used."""
        with self._budgets.decoded.lock:
            tier = self._decoded
            decoded = {key for key in keys if key in tier.entries or key in tier.pinned}
            return decoded, {key for key in keys if key in self._compressed.entries} - decoded

    def store_loaded(self, pending: PendingLoad, admit: bool) -> int:
        """End the wait of other calls for the pending load, and keep what it has loaded.

        Parameters
        ----------
        pending
            The load. What nobody meant to keep goes into free room of the compressed cache, if it has brought
            the stored bytes.
        admit
            Whether the pages go into the decoded cache.

        Returns
        -------
        int
            Pages that left memory for it.

        Notes
        -----
        In one step, so that no other call finds a page neither loading nor loaded.
        """
        with self._budgets.decoded.lock:
            self._recount_if_torn()
            before = self._compressed.evictions
            loaded = pending.loaded
            for key in pending.keys:
                if self._pending.get(key) is pending:
                    del self._pending[key]
                    page = loaded.get(key) if admit or key in pending.wanted else None
                    if page is not None and page.is_detached and key[0] not in pending.barred:
                        self._decoded.put(key, page, key in self._pins)
            for block in pending.spare:
                self._compressed.put_spare(block, [key for key in block.pages if self._lacks(key, pending)])
            self._is_torn = False
            return self._compressed.evictions - before

    def pin(self, keys: Iterable[PageKey]) -> None:
        """Pin pages in the decoded cache, also before they arrive, until `unpin`; pins are counted.

        Notes
        -----
        A page that does not fit beside the other pinned ones is not kept: the budget holds.
        """
        with self._budgets.decoded.lock:
            for key in keys:
                self._pins[key] = self._pins.get(key, 0) + 1
                page = self._decoded.entries.pop(key, None)
                if page is not None:
                    self._decoded.pinned[key] = page

    def unpin(self, keys: Iterable[PageKey]) -> None:
        """One pin less on each page; without any it is the last used, or goes if it was forgotten."""
        with self._budgets.decoded.lock:
            for key in keys:
                left = self._pins[key] - 1
                if left:
                    self._pins[key] = left
                    continue
                del self._pins[key]
                page = self._decoded.pinned.pop(key, None)
                if page is None:
                    continue
                self._decoded.entries[key] = page
                self._decoded.use(key)
                if key[0] in self._forgotten:
                    self._decoded.pop(key)
            if not self._pins:
                self._forgotten.clear()

    def forget(self, paths: Collection[str]) -> int:
        """No page of these page files is kept; pinned ones go with their last pin. Gives how many went now.

        Notes
        -----
        For page files that no version can reach any more. Pages of them that are being loaded are handed to
        who waits for them, and not kept. O(pages held).
        """
        with self._budgets.decoded.lock:
            decoded = [key for key in self._decoded.entries if key[0] in paths]
            packed = [key for key in self._compressed.entries if key[0] in paths]
            for key in decoded:
                self._decoded.pop(key)
            for key in packed:
                self._compressed.pop(key)
            self._forgotten.update(key[0] for key in self._decoded.pinned if key[0] in paths)
            for pending in set(self._pending.values()):
                pending.barred.update(paths)
            return len(decoded) + len(packed)

    def clear(self) -> None:
        """Nothing is held but what is pinned; the counters stay."""
        with self._budgets.decoded.lock:
            self._decoded.abandon()
            self._compressed.abandon()

    def counts(self) -> CacheCounts:
        """Counters and contents as of now."""
        with self._budgets.decoded.lock:
            return CacheCounts(
                self._decoded_hits,
                self._compressed.evictions,
                self._decoded.demotions,
                self._decoded.held_bytes,
                self._compressed.held_bytes,
            )

    # What follows is called with the lock held.

    def _lacks(self, key: PageKey, pending: PendingLoad) -> bool:
        """Whether a page that a scan has read is in no tier, and may be."""
        decoded = key in self._decoded.entries or key in self._decoded.pinned
        return not decoded and key not in self._compressed.entries and key[0] not in pending.barred

    def _recount_if_torn(self) -> None:
        """Pages are about to land. What was left where a signal ended that half-way is put right first."""
        if self._is_torn:
            self._decoded.recount()
            self._compressed.recount()
            self._pending = {key: each for key, each in self._pending.items() if not each.is_finished}
        self._is_torn = True
