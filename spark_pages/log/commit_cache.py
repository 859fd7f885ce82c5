"""The newest slots, kept: a transaction that read a little while ago is checked without asking storage."""

from __future__ import annotations

from collections import OrderedDict

from spark_pages.log.slots import SlotReader
from spark_pages.model.actions import Commit, Tombstone

_KEPT = 64


class CommitCache:
    """Slots by number, from memory where they were seen lately. For one thread at a time, but for `commits`.

    Parameters
    ----------
    reader
        Reads the others.
    """

    def __init__(self, reader: SlotReader) -> None:
        self._reader = reader
        self._kept: OrderedDict[int, Commit | Tombstone] = OrderedDict()

    def keep(self, slot: Commit | Tombstone) -> None:
        """The slot is known from now on, in place of the oldest one."""
        self._kept[slot.version] = slot
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)

    def commits(self, start: int, stop: int) -> list[Commit] | None:
        """Commits [start, stop) if all are in memory."""
        found = [self._kept.get(version) for version in range(start, stop)]
        commits = [slot for slot in found if isinstance(slot, Commit)]
        return commits if len(commits) == len(found) else None

    def slots(self, start: int, stop: int) -> list[Commit | Tombstone]:
        """What slots [start, stop) hold, which must be there."""
        missing = [version for version in range(start, stop) if version not in self._kept]
        read = dict(zip(missing, self._reader.present(missing), strict=True))
        found = [read.get(version) or self._kept[version] for version in range(start, stop)]
        for slot in read.values():
            self.keep(slot)
        return found

    def next(self, start: int, count: int) -> list[Commit | Tombstone]:
        """What slots from `start` on hold, up to the first empty one; so many at most, in one round."""
        found: list[Commit | Tombstone] = []
        for slot in self._reader.read_many(range(start, start + min(count, _KEPT // 2))):
            if slot is None or self._reader.identity.is_foreign(slot):
                break
            self.keep(slot)
            found.append(slot)
            if isinstance(slot, Tombstone):
                break
        return found
