"""Writing compacted ranges and bundles: from smaller ones where they are, else from slots.

Each has a name that says what is in it. So this may be stopped anywhere and begun again, and two at once do
no harm.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from spark_pages.errors import (
    DamageError,
    ObjectNotFoundError,
    SnapshotExpiredError,
    SparkPagesError,
    StorageError,
)
from spark_pages.format.commit import MAX_COMMIT_BYTES, is_commit
from spark_pages.format.names import commit_key
from spark_pages.log.compaction.archive import Part, encode_index, runs
from spark_pages.log.compaction.compacted_range import (
    BUNDLES,
    LARGEST,
    WHOLE,
    CompactedRange,
    encode_range,
    is_one_frame,
    plan_ranges,
    top_bundles,
)
from spark_pages.log.compaction.reader import RUN_BYTES, fetch_range, read_index, read_run
from spark_pages.progress import advance
from spark_pages.runtime import Mapper
from spark_pages.storage.checks import read_checked
from spark_pages.storage.store import Doubtful, NotCreated, ObjectStore, size_if_there

_AT_ONCE = 8
"""So many objects, or 16 MiB of one, are read at a time for a bundle."""


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
        advance(1, written)
        if written:
            keys.append(each.key)
            size_bytes += written
    return LogCompaction(max(done, stop & ~1), tuple(keys), size_bytes)


def missing_bundles(
    store: ObjectStore, map_all: Mapper, start: int, stop: int, behind: int = 0
) -> list[CompactedRange]:
    """Bundles of slots [start, stop) that are not there, smaller ones first.

    Parameters
    ----------
    behind
        Those that end at this version or before are not looked for.

    Notes
    -----
    One round of at most some 50 requests where none is missing, and one more for each size of a missing one.
    """

    def missing(bundles: list[CompactedRange]) -> list[CompactedRange]:
        absent = [each for each, there in zip(bundles, map_all(is_there, bundles), strict=True) if not there]
        below = [each for bundle in absent for each in bundle.bundles_below if each.stop > max(start, behind)]
        return [*(missing(below) if below else ()), *(each for each in absent if each.start >= start)]

    def is_there(bundle: CompactedRange) -> bool:
        keys = [bundle.frame.key, bundle.key] if bundle.exponent <= LARGEST else [bundle.key]
        return any(size_if_there(store, key) for key in keys)

    return missing(list(top_bundles(max(start, behind), stop)))


def write_ranges(store: ObjectStore, map_all: Mapper, wanted: Iterable[CompactedRange]) -> LogCompaction:
    """Write the given ranges, smaller ones first, except those that are never written.

    Bundles are written anew.

    Raises
    ------
    StorageError
        If storage fails; what was written is of use all the same.

    Notes
    -----
    One request for each range that is there already; see `compact_slots` for the others. Bundles pass through
    a temporary file; each of their parts is read once.
    """
    builder = _Builder(store, map_all)
    written = {each.key: builder.write(each) for each in wanted}
    return LogCompaction(0, tuple(key for key, size in written.items() if size), sum(written.values()))


class _Builder:
    """Makes ranges one after another, halves first; keeps one of each size in memory."""

    def __init__(self, store: ObjectStore, map_all: Mapper) -> None:
        self._store = store
        self._map_all = map_all
        self._made: dict[int, tuple[CompactedRange, list[bytes] | None]] = {}
        self._unsound: set[str] = set()

    def write(self, wanted: CompactedRange) -> int:
        """Bytes written; 0 where the range was there already, or is not to be made."""
        if wanted.bundled:
            return self._write_bundle(wanted)
        return 0 if size_if_there(self._store, wanted.key) else self._write_frame(wanted)

    def _write_frame(self, wanted: CompactedRange) -> int:
        slots = self._slots(wanted)
        self._made[wanted.exponent] = wanted, slots
        if slots is None:
            return 0
        data = encode_range(wanted.start, slots)
        outcome = self._store.create(wanted.key, data)
        if isinstance(outcome, Doubtful | NotCreated):
            raise StorageError(
                f"Cannot confirm that {wanted.key} was written: {outcome.reason}",
                hint="Run `store.compact_log()` again; it goes on where it stopped.",
            )
        return len(data)

    def _write_bundle(self, wanted: CompactedRange) -> int:
        """Bytes written; 0 where not all slots can be had. What is there stays until then."""
        while True:
            try:
                mapped = self._assemble(wanted)
                break
            except StorageError:
                raise
            except DamageError as error:  # without what is damaged: its slots are elsewhere too
                if (key := str(error.context.get("key"))) in self._unsound:
                    return 0
                self._unsound.add(key)
            except SparkPagesError:
                return 0  # a slot is missing, or has been cleaned
            except OSError as error:
                raise StorageError(
                    f"Cannot write {wanted.key}: it was not put together in a temporary file: "
                    f"{error.strerror}.",
                    hint="Make room for it, or set TMPDIR to another folder. Then run "
                    "`store.compact_log()` again.",
                    key=wanted.key,
                ) from error
        self._store.put(wanted.key, mapped)
        if self._is_tombstone(wanted.start):  # a vacuum that has passed here looks for it no more
            self._store.delete(wanted.key)
            return 0
        return len(mapped)

    def _assemble(self, wanted: CompactedRange) -> mmap.mmap:
        """Assemble the bytes of a bundle in a temporary file that is removed with its mapping.

        Raises
        ------
        SnapshotExpiredError
            If a slot has been cleaned.
        ObjectNotFoundError
            If a slot is missing.
        DamageError
            If something is not what was written; its key is that of the object.
        """
        sources = [source for half in wanted.halves for source in self._sources(half)]
        with tempfile.TemporaryFile() as whole:
            whole.write(encode_index(wanted, [(part.piece, part.length) for _, part in sources]))
            loads = [
                (key, run)
                for key, some in groupby(sources, key=itemgetter(0))
                for run in runs((part for _, part in some), RUN_BYTES)
            ]
            for first in range(0, len(loads), _AT_ONCE):
                for bodies in self._map_all(self._load, loads[first : first + _AT_ONCE]):
                    whole.writelines(bodies)
            whole.flush()
            return mmap.mmap(whole.fileno(), 0, access=mmap.ACCESS_READ)

    def _sources(self, wanted: CompactedRange) -> list[tuple[str, Part]]:
        """Find the ranges and slots that hold these slots, each with its object and offset."""
        if wanted.exponent <= LARGEST and (size := self._size(wanted.key)):
            return [(wanted.key, Part(wanted, 0, size))]
        if wanted.exponent in BUNDLES and self._size(wanted.archive.key):
            try:
                parts = read_index(self._store, wanted.archive).parts(wanted.start, wanted.stop)
                return [(wanted.archive.key, part) for part in parts]
            except DamageError:
                self._unsound.add(wanted.archive.key)
        if wanted.exponent > WHOLE:
            return [source for half in wanted.halves for source in self._sources(half)]
        slots = [CompactedRange(version, 0) for version in range(wanted.start, wanted.stop)]
        sizes = self._map_all(lambda slot: self._store.size(slot.key), slots)
        return [(slot.key, Part(slot, 0, size)) for slot, size in zip(slots, sizes, strict=True)]

    def _size(self, key: str) -> int | None:
        """Bytes of an object; None where it is not there, or known to be damaged."""
        return None if key in self._unsound else size_if_there(self._store, key)

    def _load(self, load: tuple[str, Sequence[Part]]) -> list[bytes]:
        """Load the bytes of neighbouring parts of an object, and verify them."""
        key, run = load

        def read() -> list[bytes]:
            bodies = []
            for part, data in read_run(self._store, key, run):
                (slot, *_) = part.slots(data)
                version = part.piece.start
                if not part.piece.exponent and not is_commit(slot, version, commit_key(version)):
                    raise SnapshotExpiredError(
                        f"Cannot compact commit {version}: it has been cleaned away.",
                        hint="Run `store.compact_log()` again: it begins behind what was cleaned.",
                        version=version,
                    )
                bodies.append(data)
            return bodies

        try:
            return read_checked(read)
        except DamageError as error:
            raise DamageError(f"Cannot bundle {key}: {error.message}", key=key) from error

    def _is_tombstone(self, version: int) -> bool:
        key = commit_key(version)
        try:
            return not read_checked(lambda: is_commit(self._store.get(key, MAX_COMMIT_BYTES), version, key))
        except (ObjectNotFoundError, DamageError):
            return False  # that is no vacuum's work: ranges may have the only copy

    def _slots(self, wanted: CompactedRange) -> list[bytes] | None:
        """Return the stored slots of a range, or None if the range is not to be written."""
        if wanted.exponent > WHOLE:
            early, late = wanted.halves
            second = self._half(late)  # the one that was made just now: it knows at once if it is too large
            first = None if second is None else self._half(early)
            slots = None if first is None or second is None else [*first, *second]
        else:
            found = self._map_all(self._slot, range(wanted.start, wanted.stop))
            slots = None if None in found else [slot for slot in found if slot is not None]
        return slots if slots is not None and is_one_frame(sum(map(len, slots))) else None

    def _half(self, half: CompactedRange) -> list[bytes] | None:
        made, slots = self._made.get(half.exponent, (None, None))
        if made == half:
            return slots
        try:
            return fetch_range(self._store, half)
        except StorageError:
            raise
        except SparkPagesError:
            return self._slots(half)  # it is not there, or damaged

    def _slot(self, version: int) -> bytes | None:
        """Return the bytes of a commit, or None if its slot is a tombstone.

        Raises
        ------
        DamageError
            If the slot is damaged or missing.
        """
        key = commit_key(version)

        def read() -> bytes | None:
            data = self._store.get(key, MAX_COMMIT_BYTES)
            return data if is_commit(data, version, key) else None

        return read_checked(read)
