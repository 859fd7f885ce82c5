"""Reading slots of the log by name: one, several, or all that are new."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cached_property, partial

from spark_pages.errors import DamageError, ObjectNotFoundError, SnapshotExpiredError
from spark_pages.format.commit import MAX_COMMIT_BYTES, decode_slot, slot_digest
from spark_pages.format.names import commit_key
from spark_pages.log.compaction.reader import RangeReader, is_chained
from spark_pages.log.last_checkpoint import read_hints
from spark_pages.log.store_identity import ExistingSlots, StoreIdentity, gap_error
from spark_pages.model.actions import Commit, Tombstone
from spark_pages.runtime import Mapper, map_in_threads
from spark_pages.storage.checks import read_checked
from spark_pages.storage.store import ObjectStore

_ROUND_LIMIT = 32

_SOME = 256
"""Commits that are read at once where there are no ranges."""

_SOME_BYTES = 16 << 20


class SlotReader:
    """Reads slots by name, several at once."""

    def __init__(
        self,
        store: ObjectStore,
        map_all: Mapper = map_in_threads,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.store = store
        self.identity = StoreIdentity(store, self.read, self.digest, monotonic_s)
        self.map_all = map_all
        self._compacted = 0

    @cached_property
    def _ranges(self) -> RangeReader:
        return RangeReader(self.store, self.read, self.map_all)

    def record_range(self, compacted: int) -> None:
        """Slots below this version are said to be in compacted ranges."""
        self._compacted = max(self._compacted, compacted)

    @property
    def compacted(self) -> int:
        """Slots below this version are in compacted ranges, as far as was said and not found to be wrong."""
        return self._compacted

    def read(self, version: int) -> Commit | Tombstone | None:
        """Read slot `version`, or return None if it is empty."""
        try:
            return read_checked(lambda: self._read_once(version))
        except ObjectNotFoundError:
            return None

    def _read_once(self, version: int) -> Commit | Tombstone:
        key = commit_key(version)
        slot = decode_slot(self.store.get(key, MAX_COMMIT_BYTES), key)
        if slot.version != version:
            raise DamageError(
                f"Cannot read commit {key}: it holds commit {slot.version}, so objects were swapped.", key=key
            )
        return slot

    def digest(self, version: int) -> str | None:
        """Return the digest of the commit in slot `version`, also of a tombstone; None if it is empty.

        Notes
        -----
        What the commit holds is not decoded, however much that is.
        """
        key = commit_key(version)
        try:
            return read_checked(lambda: slot_digest(self.store.get(key, MAX_COMMIT_BYTES), version, key))
        except ObjectNotFoundError:
            return None

    def read_many(self, versions: Sequence[int]) -> list[Commit | Tombstone | None]:
        """Read the slots, in order, in one parallel round."""
        return self.map_all(self.read, versions)

    def run_all(self, work: Sequence[Callable[[], None]]) -> None:
        """Carry out the requests of one round.

        Notes
        -----
        One after the other on a local disk: to start a thread takes as long as a request, and the threads
        then wait for the GIL that the decoding holds.
        """
        if self.identity.is_local:
            for each in work:
                each()
        else:
            self.map_all(lambda each: each(), work)

    def commits(self, start: int, stop: int) -> list[Commit]:
        """Read commits [start, stop).

        Raises
        ------
        SnapshotExpiredError
            If one of them has been cleaned away.
        DamageError
            If one of them is missing.

        Notes
        -----
        Where they are compacted, they are in a number of objects that grows with the logarithm of their own;
        one request more for each 4,096 of a long row. The last one always comes from its slot.
        """
        if stop - start > 2 and start < self._compacted:
            bundled = self._ranges.between(start, stop - 1, self._compacted)
            if len(bundled) == stop - 1 - start:
                slots = [*bundled, as_commit(self.read(stop - 1), stop - 1)]
                if is_chained(slots):
                    return [as_commit(slot, slot.version) for slot in slots]
        found: list[Commit] = []
        for first in range(start, stop, _ROUND_LIMIT):
            wanted = range(first, min(first + _ROUND_LIMIT, stop))
            for version, slot in zip(wanted, self.read_many(wanted), strict=True):
                found.append(self._own(slot or self.read(version), version))
        return found

    def some_commits(self, start: int, stop: int) -> list[Commit]:
        """Read at least one commit from `start` on, below `stop`, as many as may be in memory at once.

        Raises
        ------
        SnapshotExpiredError, DamageError
            As `commits`.

        Notes
        -----
        Some thousand small ones, or few with some 16 MiB. The last one comes from its slot.
        """
        if stop - start > 2 and start < self._compacted:
            bundled = self._ranges.between(start, stop - 1, self._compacted, _SOME_BYTES)
            if bundled and isinstance(bundled[-1], Commit):
                last = start + len(bundled)
                slots = [*bundled, as_commit(self.read(last), last)]
                if is_chained(slots):
                    return [as_commit(slot, slot.version) for slot in slots]
        return self.commits(start, min(start + _SOME, stop))

    def present(self, versions: Sequence[int]) -> list[Commit | Tombstone]:
        """Read slots that must all exist.

        Raises
        ------
        DamageError
            If one of them is empty.
        """
        found: list[Commit | Tombstone] = []
        for first in range(0, len(versions), _ROUND_LIMIT):
            wanted = versions[first : first + _ROUND_LIMIT]
            for version, slot in zip(wanted, self.read_many(wanted), strict=True):
                answer = slot or self.read(version)
                found.append(answer if isinstance(answer, Tombstone) else self._own(answer, version))
        return found

    def _own(self, slot: Commit | Tombstone | None, version: int) -> Commit:
        """Return the commit of this store in slot `version`. Raise StoreReplacedError for another store's."""
        if slot is not None and self.identity.is_foreign(slot):
            raise self.identity.replaced(version)
        return as_commit(slot, version)

    def tail(self, start: int, look: ExistingSlots | None = None) -> list[Commit | Tombstone]:
        """Read slots from `start` on, up to the first empty one.

        Stops behind a tombstone: whoever meets one goes another way. Stops before a commit of another store.

        Parameters
        ----------
        look
            Which slots from `start` on existed a moment ago; they are not looked for again.

        Raises
        ------
        DamageError
            If a slot is empty and a later one holds a commit of this store.

        Notes
        -----
        Each round looks for the next 1, 2, 4 … 64 slots, too: where nothing is new that is all. Where up to
        two slots are, they are read while the ones behind them are looked for. Where more are, the hint is
        read, then compacted ranges as far as it knows of them, then slots.
        """
        found = bundled = self._bundled(start)
        if not bundled:
            look = look or self.identity.find_slots(start)
            if look.reach > 2:
                self.record_range(read_hints(self.store).compacted)
                found = bundled = self._bundled(start)
        if bundled:
            look = None
            if isinstance(bundled[-1], Tombstone):
                return bundled
        rest = self._slots_from(start + len(found), look)
        if bundled and not self._is_proved(found, rest):
            self._compacted = 0
            return self._slots_from(start)
        return found + rest

    def _slots_from(self, start: int, look: ExistingSlots | None = None) -> list[Commit | Tombstone]:
        """Read slots up to the first empty one, a tombstone, or a commit of another store.

        Raises
        ------
        DamageError
            If a slot is empty, and a later one is not.
        """
        found: list[Commit | Tombstone] = []
        look = look or self.identity.find_slots(start)
        while look.present:
            asked, behind = self._read_and_find_end(look)
            for version, answer in enumerate(asked, look.start):
                later = [other for other in (*look.present, *behind.present) if other > version]
                slot = answer or self.read(version)  # it may have come after it was read, before the others
                if version == 0 and slot is not None:
                    self.identity.set_store_id(slot.id_of_store)
                if slot is None or self.identity.is_foreign(slot):
                    self._check_end(version, slot, later)
                    return found
                found.append(slot)
                if isinstance(slot, Tombstone):
                    return found
            look = behind
        return found

    def _read_and_find_end(
        self, look: ExistingSlots
    ) -> tuple[list[Commit | Tombstone | None], ExistingSlots]:
        """Read the slots that seem to be there, and look for those behind them, in one round."""
        versions = range(look.start, look.start + min(look.reach, _ROUND_LIMIT))
        behind: list[ExistingSlots] = []
        slots: dict[int, Commit | Tombstone | None] = {}
        work: list[Callable[[], object]] = [
            *(
                partial(lambda version: slots.update({version: self.read(version)}), each)
                for each in versions
            ),
            lambda: behind.append(self.identity.find_slots(versions.stop)),
        ]
        if len(work) == 2 and self.identity.is_local:  # threads would take longer
            for each in work:
                each()
        else:
            self.map_all(lambda each: each(), work)
        return [slots[version] for version in versions], behind[0]

    def _check_end(self, version: int, slot: Commit | Tombstone | None, later: Sequence[int]) -> None:
        """Check that the log ends before a slot that is empty, or holds a commit of another store.

        Raises
        ------
        DamageError
            If a later slot holds a commit of this store.
        """
        if slot is not None:
            self.identity.note_foreign_commit(slot)
        for each in later:
            other = self.read(each)
            if other is None:
                continue
            if not self.identity.is_foreign(other):
                raise gap_error(version, each, is_foreign=slot is not None)
            self.identity.note_foreign_commit(other)

    def _bundled(self, start: int) -> list[Commit | Tombstone]:
        """Read the slots from `start` on that compacted ranges are said to hold."""
        if start >= self._compacted:
            return []
        found = self._ranges.between(start, self._compacted, self._compacted)
        self._compacted = min(self._compacted, start + len(found))  # what was said may be wrong
        return found

    def _is_proved(self, found: Sequence[Commit | Tombstone], rest: Sequence[Commit | Tombstone]) -> bool:
        """Whether the newest slot, read from the slot itself, vouches for what came out of ranges."""
        slots = [*found, *rest]
        newest = rest[-1] if rest else self.read(slots[-1].version)
        return newest is not None and newest.digest == slots[-1].digest and is_chained(slots)

    def check_first(self) -> None:
        """Raise DamageError if slot 0 is empty although later ones are not."""
        look = self.identity.find_slots(0)
        if look.present and look.present[0] > 0:
            self._check_end(0, self.read(0), look.present)

    def _is_there(self, version: int) -> bool:
        """Whether the slot holds a commit of this store, or its tombstone."""
        slot = self.read(version)
        if slot is None:
            return False
        if version == 0:
            self.identity.set_store_id(slot.id_of_store)
        return not self.identity.is_foreign(slot)

    def find_head(self, known: int = 0) -> int:
        """Version of the head by galloping over slot names from a slot on; -1 where that is empty.

        Notes
        -----
        Tombstones count as slots that are there. About 2 log2(head - known) requests.
        """
        if not self._is_there(known):
            return -1
        low, step = known, 1
        while self._is_there(low + step):
            low, step = low + step, step * 2
        high = low + step
        while high - low > 1:
            middle = (low + high) // 2
            if self._is_there(middle):
                low = middle
            else:
                high = middle
        return low


def as_commit(slot: Commit | Tombstone | None, version: int) -> Commit:
    """Return the commit that slot `version` must hold.

    Raises
    ------
    SnapshotExpiredError
        If it has been cleaned away.
    DamageError
        If it is missing.
    """
    if isinstance(slot, Commit):
        return slot
    if slot is None:
        raise DamageError(
            f"Cannot read commit {commit_key(version)}: it is missing, though later commits are "
            "there, so the log has a gap.",
            hint="Restore the object from a copy of the store; `spark-pages verify URL` lists all that "
            "are missing.",
        )
    raise SnapshotExpiredError(
        f"Cannot read commit {version}: it has been cleaned away; the log is readable from the "
        f"checkpoint of version {slot.checkpoint.version} on.",
        hint=f"Read versions from {slot.checkpoint.version} on.",
        version=version,
    )
