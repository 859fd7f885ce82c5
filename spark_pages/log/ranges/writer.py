"""Writing compacted ranges: from their halves where they are, else from slots.

Every range is created if absent, under a name that says what is in it. So this may be stopped anywhere and
begun again, and two at once do no harm.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from spark_pages.errors import SparkPagesError, StorageError
from spark_pages.log.encoding.commit_codec import is_commit
from spark_pages.log.names import commit_key
from spark_pages.log.ranges.log_range import (
    MAX_RANGE_BYTES,
    WHOLE,
    LogRange,
    decode_range,
    encode_range,
    plan_ranges,
)
from spark_pages.runtime import Mapper
from spark_pages.storage.store import Doubtful, NotCreated, ObjectStore, size_if_there


@dataclass(frozen=True, slots=True)
class LogCompaction:
    """What a log compaction did.

    Attributes
    ----------
    compacted
        Slots below this version are in compacted ranges now.
    keys
        Names of the ranges that it wrote.
    size_bytes
        Their bytes.
    """

    compacted: int
    keys: tuple[str, ...] = ()
    size_bytes: int = 0


def compact_slots(
    store: ObjectStore, map_all: Mapper, compacted: int, stop: int, most: int | None = None
) -> LogCompaction:
    """Slots below `stop`, or as many as fit into `most` ranges, are in compacted ranges.

    Parameters
    ----------
    compacted
        They are in ranges below this version already.
    stop
        One past the newest slot, or a multiple of 16 to leave out the small ranges at the end.
    most
        So many ranges at most; goes on where it stopped with the next call.

    Raises
    ------
    StorageError
        If storage fails; what was written is of use all the same.

    Notes
    -----
    About one range for 8 slots; each slot is read once and copied once for each size of range, until ranges
    reach 8 MiB.
    """
    builder = _Builder(store, map_all)
    done = compacted
    keys: list[str] = []
    size_bytes = 0
    for number, each in enumerate(plan_ranges(compacted, stop)):
        if most is not None and number >= most and each.exponent == WHOLE:
            return LogCompaction(done, tuple(keys), size_bytes)
        written = builder.write(each)
        done = max(done, each.stop)
        if written:
            keys.append(each.key)
            size_bytes += written
    return LogCompaction(max(done, stop & ~1), tuple(keys), size_bytes)


def make_ranges(store: ObjectStore, map_all: Mapper, wanted: Iterable[LogRange]) -> None:
    """These ranges are there, but for those that are never made; halves come before what is made of them.

    Raises
    ------
    StorageError
        If storage fails; what was written is of use all the same.

    Notes
    -----
    One request for each that is there already; see `compact_slots` for the others.
    """
    builder = _Builder(store, map_all)
    for each in wanted:
        builder.write(each)


class _Builder:
    """Makes ranges one after another, halves first; keeps one of each size in memory."""

    def __init__(self, store: ObjectStore, map_all: Mapper) -> None:
        self._store = store
        self._map_all = map_all
        self._made: dict[int, tuple[LogRange, list[bytes] | None]] = {}

    def write(self, wanted: LogRange) -> int:
        """Bytes written; 0 where the range was there already, or is not to be made."""
        if size_if_there(self._store, wanted.key):
            return 0
        slots = self._slots(wanted)
        if slots is not None and sum(map(len, slots)) > MAX_RANGE_BYTES:
            slots = None
        self._made[wanted.exponent] = wanted, slots
        if slots is None:
            return 0
        data = encode_range(wanted.start, slots)
        outcome = self._store.create(wanted.key, data)
        if isinstance(outcome, Doubtful | NotCreated):
            raise StorageError(
                f"{wanted.key} may not have been written: {outcome.reason}",
                hint="Run log compaction again; it goes on where it stopped.",
            )
        return len(data)

    def _slots(self, wanted: LogRange) -> list[bytes] | None:
        """The slots of a range as they are in storage; None if it is not to be made."""
        if wanted.exponent > WHOLE:
            early, late = wanted.halves
            second = self._half(late)  # the one that was made just now: it knows at once if it is too large
            first = None if second is None else self._half(early)
            return None if first is None or second is None else [*first, *second]
        found = self._map_all(self._slot, range(wanted.start, wanted.stop))
        slots = [slot for slot in found if slot is not None]
        return slots if len(slots) == len(found) else None

    def _half(self, half: LogRange) -> list[bytes] | None:
        made, slots = self._made.get(half.exponent, (None, None))
        if made == half:
            return slots
        try:
            return decode_range(self._store.get(half.key), half)
        except StorageError:
            raise
        except SparkPagesError:
            return self._slots(half)  # it is not there, or damaged

    def _slot(self, version: int) -> bytes | None:
        """The bytes of a commit; None if its slot has been cleaned.

        Raises
        ------
        DamageError
            If the slot is damaged or missing.
        """
        key = commit_key(version)
        data = self._store.get(key)
        return data if is_commit(data, version, key) else None
