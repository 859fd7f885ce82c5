"""The two tiers of the page cache. All of it is called with the lock of their budgets held."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain

from spark_pages.io.single_flight import LoadedPage, StoredBlock
from spark_pages.memory_budget import MemoryBudget
from spark_pages.model.run import PageKey

ENTRY_OVERHEAD_BYTES = 512
"""What an entry costs besides its bytes: its objects in Python and Arrow, about."""


@dataclass(slots=True, eq=False)
class StoredPage:
    """A page as it is stored.

    Attributes
    ----------
    packed
        Header and payload.
    used
        When it came, by `MemoryBudget.tick`; 0 for what a scan left.
    block
        Holds its memory together with that of other pages; None if `packed` has memory of its own.
    """

    packed: memoryview
    used: int
    block: StoredBlock | None = None


@dataclass(slots=True, eq=False, weakref_slot=True)
class CompressedTier:
    """Stored bytes of pages that left the decoded tier, and of pages that scans have read.

    Attributes
    ----------
    budget
        Shared with the tiers of other stores.
    entries
        Least recently used first.
    held_bytes
        What they take.
    evictions
        Pages that left memory.

    Notes
    -----
    Scans put *blocks* of neighbouring pages in front of all others, and only into free room. A block is one
    piece of memory, and leaves as a whole, so that no page holds on to the memory of others that are gone.
    """

    budget: MemoryBudget
    entries: OrderedDict[PageKey, StoredPage] = field(default_factory=OrderedDict)
    held_bytes: int = 0
    evictions: int = 0

    @property
    def oldest(self) -> int | None:
        """When the least recently used page came."""
        return self.entries[next(iter(self.entries))].used if self.entries else None

    def put(self, key: PageKey, packed: memoryview) -> bool:
        """Keep a page that has memory of its own; whether there is room for it beside others in use."""
        self.pop(key)
        size = len(packed) + ENTRY_OVERHEAD_BYTES
        if not self.budget.make_room(size):
            return False
        self.entries[key] = StoredPage(packed, self.budget.tick())
        self.held_bytes += size
        return True

    def put_spare(self, block: StoredBlock, lacking: Iterable[PageKey]) -> None:
        """Keep those pages of a block that are lacking, if there is free room for all of it."""
        keys = [key for key in lacking if key not in self.entries]
        size = block.memory_bytes + ENTRY_OVERHEAD_BYTES * len(keys)
        if not keys or size > self.budget.free_bytes:
            return
        block.keys = set(keys)
        for key in keys:
            self.entries[key] = StoredPage(block.pages[key], 0, block)
            self.entries.move_to_end(key, last=False)
        self.held_bytes += size

    def pop(self, key: PageKey) -> None:
        """Drop a page; the memory of its block goes with the last page of it."""
        found = self.entries.pop(key, None)
        if found is None:
            return
        self.held_bytes -= ENTRY_OVERHEAD_BYTES
        if found.block is None:
            self.held_bytes -= len(found.packed)
        else:
            found.block.keys.discard(key)
            self.held_bytes -= 0 if found.block.keys else found.block.memory_bytes

    def evict_oldest(self) -> None:
        """Evict the least recently used page, with all of its block."""
        key = next(iter(self.entries))
        block = self.entries[key].block
        for each in [key] if block is None else list(block.keys):
            self.pop(each)
            self.evictions += 1

    def abandon(self) -> None:
        """Drop everything."""
        self.entries = OrderedDict()
        self.held_bytes = 0

    def recount(self) -> None:
        """Work out from the entries what they take, after a change that was interrupted."""
        blocks: dict[int, StoredBlock] = {}
        self.held_bytes = ENTRY_OVERHEAD_BYTES * len(self.entries)
        for key, page in self.entries.items():
            if page.block is None:
                self.held_bytes += len(page.packed)
            elif id(page.block) in blocks:
                page.block.keys.add(key)
            else:
                page.block.keys = {key}
                blocks[id(page.block)] = page.block
        self.held_bytes += sum(block.memory_bytes for block in blocks.values())


@dataclass(slots=True, eq=False, weakref_slot=True)
class DecodedTier:
    """Decoded pages. Those that leave it go to the compressed tier, if their stored bytes came with them.

    Attributes
    ----------
    budget
        Shared with the tiers of other stores.
    compressed
        The tier below.
    entries
        Least recently used first; without pinned pages.
    pinned
        Pages that stay while somebody has them pinned.
    held_bytes
        What both take.
    demotions
        Pages that went to the tier below.
    """

    budget: MemoryBudget
    compressed: CompressedTier
    entries: OrderedDict[PageKey, LoadedPage] = field(default_factory=OrderedDict)
    pinned: dict[PageKey, LoadedPage] = field(default_factory=dict)
    held_bytes: int = 0
    demotions: int = 0

    @property
    def oldest(self) -> int | None:
        """When the least recently used page was used."""
        return self.entries[next(iter(self.entries))].used if self.entries else None

    def use(self, key: PageKey) -> None:
        """Mark a page as the most recently used; nothing for one that is pinned."""
        page = self.entries.get(key)
        if page is not None:
            page.used = self.budget.tick()
            self.entries.move_to_end(key)

    def put(self, key: PageKey, page: LoadedPage, pinned: bool) -> None:
        """Keep a page; demote others for it, or itself where all others are pinned or it is too large."""
        self.compressed.pop(key)
        if not self.budget.make_room(page.size_bytes):
            self._demote(key, page)
            return
        page.used = self.budget.tick()
        (self.pinned if pinned else self.entries)[key] = page
        self.held_bytes += page.size_bytes

    def pop(self, key: PageKey) -> None:
        """Drop a page that is not pinned."""
        page = self.entries.pop(key, None)
        if page is not None:
            self.held_bytes -= page.size_bytes

    def evict_oldest(self) -> None:
        """Demote the least recently used page."""
        key, page = self.entries.popitem(last=False)
        self.held_bytes -= page.size_bytes
        self.demotions += self._demote(key, page)

    def abandon(self) -> None:
        """Drop everything but pinned pages."""
        self.entries = OrderedDict()
        self.recount()

    def recount(self) -> None:
        """Work out from the entries what they take."""
        self.held_bytes = sum(page.size_bytes for page in chain(self.entries.values(), self.pinned.values()))

    def _demote(self, key: PageKey, page: LoadedPage) -> bool:
        """Whether the compressed tier has the page now."""
        if page.packed is not None and self.compressed.put(key, page.packed):
            return True
        self.compressed.evictions += 1
        return False
