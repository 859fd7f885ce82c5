"""Reading many slots in few requests, out of compacted ranges and bundles where there are any."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice, pairwise
from typing import TypeAlias

from spark_pages.errors import DamageError, SparkPagesError
from spark_pages.format.commit import decode_slot
from spark_pages.format.names import commit_key
from spark_pages.log.compaction.archive import BLOCK, Index, Part, check_size, decode_index, index_size, runs
from spark_pages.log.compaction.compacted_range import (
    LARGEST,
    MAX_RANGE_OBJECT_BYTES,
    CompactedRange,
    decode_range,
    plan_reads,
)
from spark_pages.model.actions import Commit, Tombstone
from spark_pages.runtime import Mapper
from spark_pages.storage.checks import read_checked
from spark_pages.storage.store import ObjectStore

_ROUND_LIMIT, _FEW = 32, 8
"""Requests of one round, and where bytes are counted."""

_FAR = 4 << LARGEST
"""Slots of one round at most: so much is kept in memory at once, and so much a wrong hint can cost."""

RUN_BYTES = 16 << 20
"""Of a bundle so much is read by one request."""

_MOST_PARTS = 200_000
"""Indices of bundles are kept as long as they have no more parts than this."""

_NEVER = 0, 0, 0
_MOST_TIMES = 3

Slot = Commit | Tombstone

_Wanted: TypeAlias = tuple[CompactedRange, int, int]
"""A range or slot, and which slots [first, stop) are wanted of it."""


def is_chained(slots: Sequence[Slot]) -> bool:
    """Whether each commit names the one before it by its digest, so that the last vouches for all."""
    return all(
        later.version == earlier.version + 1
        and (isinstance(later, Tombstone) or later.parent_digest == earlier.digest)
        for earlier, later in pairwise(slots)
    )


def read_index(store: ObjectStore, bundle: CompactedRange) -> Index:
    """Where the parts of a bundle are; one request up to some hundred parts, then two.

    Raises
    ------
    ObjectNotFoundError
        If it is not there.
    DamageError
        If it is not what was written.
    """

    def read() -> Index:
        block = store.get_range(bundle.key, 0, BLOCK)
        more = index_size(block, bundle) - BLOCK
        return decode_index(block + store.get_range(bundle.key, BLOCK, more), bundle)

    return read_checked(read)


def fetch_range(store: ObjectStore, piece: CompactedRange) -> list[bytes]:
    """Read the slots of a range that is one frame.

    Raises
    ------
    ObjectNotFoundError
        If it is not there.
    DamageError
        If it is not what was written.
    """
    return read_checked(lambda: decode_range(store.get(piece.key, MAX_RANGE_OBJECT_BYTES), piece))


def read_run(store: ObjectStore, key: str, run: Sequence[Part]) -> Iterator[tuple[Part, bytes]]:
    """Parts that lie one behind the other in an object, each with its bytes; one request."""
    begin = run[0].offset
    data = store.get_range(key, begin, run[-1].offset + run[-1].length - begin)
    for part in run:
        yield part, data[part.offset - begin : part.offset - begin + part.length]


def slots_of_part(store: ObjectStore, key: str, part: Part, data: bytes) -> list[bytes]:
    """Return the slots in the bytes of a part; read it again where they are wrong.

    Raises
    ------
    DamageError
        If they are not what was written, twice.
    """
    try:
        return part.slots(data)
    except DamageError:
        return part.slots(store.get_range(key, part.offset, part.length))


def slots_of(
    store: ObjectStore, piece: CompactedRange, first: int, stop: int, size_bytes: int | None = None
) -> Iterator[tuple[CompactedRange, list[bytes]]]:
    """Read slots [first, stop) of a range or bundle, frame by frame, with the neighbours in each frame.

    Parameters
    ----------
    size_bytes
        Bytes of the object, where they are known: a bundle must have as many as its index says.

    Raises
    ------
    ObjectNotFoundError
        If it is not there.
    DamageError
        If it is not what was written.

    Notes
    -----
    One request for a range. Of a bundle the index, and one for each 16 MiB; memory for so much, and for the
    slots of one frame.
    """
    if not piece.bundled:
        yield piece, fetch_range(store, piece)
        return
    index = read_index(store, piece)
    if size_bytes is not None:
        check_size(index, piece, size_bytes)
    for run in runs(index.parts(first, stop), RUN_BYTES):
        for part, data in read_checked(lambda: list(read_run(store, piece.key, run))):  # noqa: B023 - at once
            yield part.piece, slots_of_part(store, piece.key, part, data)


class _Usable:
    """Which ranges are worth a request: those of a form that was missing are not tried for a while.

    A form is a size, as one frame or as a bundle. After each miss in a row it is left alone for four times as
    many slots, up to 64 of its size, and after a hit it is as if nothing had been missed.
    """

    def __init__(self) -> None:
        self._missed: dict[tuple[int, bool], tuple[int, int, int]] = {}

    def __call__(self, piece: CompactedRange) -> bool:
        start, stop, _ = self._missed.get((piece.exponent, piece.bundled), _NEVER)
        return not start <= piece.start < stop

    def record(self, piece: CompactedRange, there: bool) -> None:
        """Whether a range was there."""
        form = piece.exponent, piece.bundled
        if there:
            self._missed.pop(form, None)
        elif self(piece):
            start, stop, times = self._missed.get(form, (piece.start, piece.start, 0))
            if piece.start < start:  # what is looked for there says nothing of what comes behind
                self._missed[form] = piece.start, stop, times
            else:
                far = piece.start + (1 << piece.exponent + 2 * times)
                self._missed[form] = start, far, min(times + 1, _MOST_TIMES)


class RangeReader:
    """Slots out of compacted ranges; what it gives is proved by the slot that follows, not by itself.

    Parameters
    ----------
    store
        Where ranges are.
    read_slot
        Gives what a slot holds, or None where it is empty.
    map_all
        Does the requests of one round.
    """

    def __init__(self, store: ObjectStore, read_slot: Callable[[int], Slot | None], map_all: Mapper) -> None:
        self._store = store
        self._read_slot = read_slot
        self._map_all = map_all
        self._usable = _Usable()
        self._indices: dict[str, Index] = {}

    def between(self, start: int, stop: int, compacted: int, most_bytes: int | None = None) -> list[Slot]:
        """Read slots [start, stop), up to a tombstone or the first missing slot.

        Parameters
        ----------
        compacted
            Below this version there should be ranges; where there are none, slots are read.
        most_bytes
            Where they have more bytes than this, or are more than 2,048, some are enough.

        Notes
        -----
        One round of few requests for each 4,096 slots where the ranges are there, see `plan_reads`. A missing
        range costs a round, and another one is tried; that is remembered for the next call.
        """
        found: list[Slot] = []
        given: dict[_Wanted, list[Slot] | None] = {}
        most_width = _ROUND_LIMIT if most_bytes is None else _FEW
        width, held = most_width, 0
        while (position := start + len(found)) < stop:
            near = min(stop, position + _FAR >> LARGEST << LARGEST)
            wanted = list(islice(self._wanted(position, near, stop, compacted), width))
            asked = [each for each in wanted if each not in given]
            given.update(zip(asked, self._map_all(self._read, asked), strict=True))
            for each in asked:
                if each[0].exponent:
                    self._usable.record(each[0], given[each] is not None)
            for each in wanted:
                piece, first, last = each
                slots = given.pop(each)
                if slots is None and not piece.exponent:
                    return found
                if slots is None:
                    width = 1  # others may be missing too: do not ask for many before one is found
                    break
                found += slots
                if isinstance(found[-1], Tombstone):
                    return found
                held += sum(slot.size_bytes for slot in slots if isinstance(slot, Commit))
                width = most_width
                if len(slots) < last - first:
                    break  # the bundle has more of them
            if most_bytes is not None and (held >= most_bytes or len(found) >= _FAR >> 1):
                return found
        return found

    def _wanted(self, position: int, near: int, stop: int, compacted: int) -> Iterator[_Wanted]:
        """Plan the reads of one round: each range with the slots to take from it."""
        for piece in plan_reads(position, stop, compacted, self._usable):
            last = min(piece.stop, near if piece.bundled else stop)
            yield piece, position, last
            if last >= near:
                return
            position = last

    def _read(self, wanted: _Wanted) -> list[Slot] | None:
        """Read slots [first, stop) of a range, or the first of a bundle; None if they are unavailable."""
        piece, first, stop = wanted
        if not piece.exponent:
            slot = self._read_slot(piece.start)
            return None if slot is None else [slot]
        versions = range(first, stop)
        try:
            found = [
                decode_slot(data, commit_key(version))
                for start, slots in self._parts(piece, versions)
                for version, data in enumerate(slots, start)
                if version in versions
            ]
        except SparkPagesError:
            self._indices.pop(piece.key, None)
            return None  # the slots tell what is wrong, if anything is
        versions = versions[: len(found)] if piece.bundled else versions
        return found if found and [slot.version for slot in found] == list(versions) else None

    def _parts(self, piece: CompactedRange, versions: range) -> Iterator[tuple[int, list[bytes]]]:
        if not piece.bundled:
            yield piece.start, fetch_range(self._store, piece)
            return
        index = self._indices.get(piece.key)
        if index is None:
            index = read_index(self._store, piece)
            if sum(map(len, [index, *self._indices.copy().values()])) > _MOST_PARTS:
                self._indices.clear()
            if len(index) <= _MOST_PARTS:
                self._indices[piece.key] = index
        run = next(runs(index.parts(versions.start, versions.stop), RUN_BYTES))
        held = 0
        for part, data in read_run(self._store, piece.key, run):
            slots = slots_of_part(self._store, piece.key, part, data)
            yield part.piece.start, slots
            held += sum(map(len, slots))
            if held > RUN_BYTES:  # unpacked, they are many times as much
                return
