"""Writing compacted ranges and bundles: from smaller ones where they are, else from slots.

Every one is immutable, under a name that says what is in it. So this may be stopped anywhere and begun again,
and two at once do no harm.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from spark_pages.errors import SnapshotExpiredError, SparkPagesError, StorageError
from spark_pages.log.encoding.commit_codec import is_commit
from spark_pages.log.names import commit_key
from spark_pages.log.ranges.bundle import Part, encode_index
from spark_pages.log.ranges.log_range import (
    BUNDLES,
    LARGEST,
    WHOLE,
    LogRange,
    decode_range,
    encode_range,
    needs_bundle,
    plan_ranges,
)
from spark_pages.log.ranges.reader import read_index
from spark_pages.runtime import Mapper
from spark_pages.storage.store import Doubtful, NotCreated, ObjectStore, size_if_there

_AT_ONCE = 8
"""Parts of a bundle that are read at a time; most have some 100 KiB, and ranges at most 8 MiB."""


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
    About one range for 8 slots; each slot is read once and copied once for each size of range up to 1,024
    slots, and then once each time that the log gets 16 times as long. Bundles pass through a temporary file.
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

    Bundles are written anew.

    Raises
    ------
    StorageError
        If storage fails; what was written is of use all the same.

    Notes
    -----
    One request for each range that is there already; see `compact_slots` for the others.
    """
    builder = _Builder(store, map_all)
    for each in wanted:
        if each.bundled:
            store.delete(each.key)
        builder.write(each)


class _Builder:
    """Makes ranges one after another, halves first; keeps one of each size in memory."""

    def __init__(self, store: ObjectStore, map_all: Mapper) -> None:
        self._store = store
        self._map_all = map_all
        self._made: dict[int, tuple[LogRange, list[bytes] | None]] = {}

    def write(self, wanted: LogRange) -> int:
        """Bytes written; 0 where the range was there already, or is not to be made."""
        if wanted.bundled and self._is_one_frame(wanted):
            return 0
        if size_if_there(self._store, wanted.key):
            return 0
        return self._write_bundle(wanted) if wanted.bundled else self._write_frame(wanted)

    def _write_frame(self, wanted: LogRange) -> int:
        slots = self._slots(wanted)
        if slots is not None and needs_bundle(wanted.exponent, sum(map(len, slots))):
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

    def _write_bundle(self, wanted: LogRange) -> int:
        """Bytes written; 0 where not all slots can be had."""
        try:
            sources = [source for half in wanted.halves for source in self._sources(half)]
            index = encode_index(wanted, [(part.piece, part.length) for _, part in sources])
            with tempfile.TemporaryFile() as whole:
                whole.write(index)
                for data in self._bodies(sources):
                    whole.write(data)
                whole.flush()
                # Not closed by hand: an error that is under way may still look into it.
                mapped = mmap.mmap(whole.fileno(), 0, access=mmap.ACCESS_READ)
                self._store.put(wanted.key, mapped)
                return len(mapped)
        except StorageError:
            raise
        except SparkPagesError:
            return 0  # a slot has been cleaned, or is damaged
        except OSError as error:
            raise StorageError(
                f"{wanted.key} was not put together in {tempfile.gettempdir()}: {error.strerror}.",
                hint="Make room there, or set TMPDIR. Then run log compaction again.",
                key=wanted.key,
            ) from error

    def _is_one_frame(self, bundle: LogRange) -> bool:
        if bundle.exponent > LARGEST:
            return False
        frame = LogRange(bundle.start, bundle.exponent)
        made, slots = self._made.get(frame.exponent, (None, None))
        return (made == frame and slots is not None) or size_if_there(self._store, frame.key) is not None

    def _sources(self, wanted: LogRange) -> list[tuple[str, Part]]:
        """The ranges and slots that hold these slots, each with the object and the place that it is in.

        Raises
        ------
        ObjectNotFoundError
            If a slot is missing.
        """
        if wanted.exponent <= LARGEST and (size := size_if_there(self._store, wanted.key)):
            return [(wanted.key, Part(wanted, 0, size))]
        if wanted.exponent in BUNDLES and size_if_there(self._store, wanted.bundle.key):
            return [(wanted.bundle.key, part) for part in read_index(self._store, wanted.bundle)]
        if wanted.exponent > WHOLE:
            return [source for half in wanted.halves for source in self._sources(half)]
        slots = [LogRange(version, 0) for version in range(wanted.start, wanted.stop)]
        sizes = self._map_all(lambda slot: self._store.size(slot.key), slots)
        return [(slot.key, Part(slot, 0, size)) for slot, size in zip(slots, sizes, strict=True)]

    def _bodies(self, sources: Sequence[tuple[str, Part]]) -> Iterator[bytes]:
        """The bytes of each, some at a time."""
        for first in range(0, len(sources), _AT_ONCE):
            yield from self._map_all(self._body, sources[first : first + _AT_ONCE])

    def _body(self, source: tuple[str, Part]) -> bytes:
        """The bytes of a part, once they are known to be sound.

        Raises
        ------
        SnapshotExpiredError
            If it is a slot that has been cleaned.
        DamageError
            If it is not what was written.
        """
        key, part = source
        data = self._store.get_range(key, part.offset, part.length)
        (slot, *_) = part.slots(data)
        version = part.piece.start
        if not part.piece.exponent and not is_commit(slot, version, key):
            raise SnapshotExpiredError(f"Commit {version} has been cleaned away.", version=version)
        return data

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
