"""Reading many slots in few requests, out of compacted ranges and bundles where there are any."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice, pairwise

from spark_pages.errors import SparkPagesError
from spark_pages.log.encoding.commit_codec import decode_slot
from spark_pages.log.names import commit_key
from spark_pages.log.ranges.bundle import BLOCK, Part, decode_index, index_size, runs
from spark_pages.log.ranges.log_range import LARGEST, LogRange, decode_range, plan_reads
from spark_pages.model.actions import Commit, Tombstone
from spark_pages.runtime import Mapper
from spark_pages.storage.store import ObjectStore

_ROUND_LIMIT = 32
_FAR = 4 << LARGEST
"""Slots of one round at most: so much is kept in memory at once, and so much a wrong hint can cost."""

_RUN_BYTES = 16 << 20
"""Of a bundle so much is read by one request."""

_MOST_PARTS = 50_000
"""Indices of bundles are kept as long as they have no more parts than this."""

_NEVER = 0, 0, 0

Slot = Commit | Tombstone


def is_chained(slots: Sequence[Slot]) -> bool:
    """Whether each commit names the one before it by its digest, so that the last vouches for all."""
    return all(
        later.version == earlier.version + 1
        and (isinstance(later, Tombstone) or later.parent_digest == earlier.digest)
        for earlier, later in pairwise(slots)
    )


def read_index(store: ObjectStore, bundle: LogRange) -> list[Part]:
    """The parts of a bundle; one request up to some hundred parts, then two.

    Raises
    ------
    ObjectNotFoundError
        If it is not there.
    DamageError
        If it is not what was written.
    """
    block = store.get_range(bundle.key, 0, BLOCK)
    more = index_size(block, bundle) - BLOCK
    return decode_index(block + store.get_range(bundle.key, BLOCK, more), bundle)


def slots_of(
    store: ObjectStore,
    piece: LogRange,
    first: int,
    stop: int,
    index_of: Callable[[ObjectStore, LogRange], list[Part]] = read_index,
) -> Iterator[tuple[LogRange, list[bytes]]]:
    """What a range or bundle holds of slots [first, stop), frame by frame; what is around them comes along.

    Parameters
    ----------
    index_of
        Gives the parts of a bundle.

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
        yield piece, decode_range(store.get(piece.key), piece)
        return
    for run in runs(index_of(store, piece), first, stop, _RUN_BYTES):
        begin = run[0].offset
        data = store.get_range(piece.key, begin, run[-1].offset + run[-1].length - begin)
        for part in run:
            offset = part.offset - begin
            yield part.piece, part.slots(data[offset : offset + part.length])


class _Usable:
    """Which ranges are worth a request: those of a form that was missing are not tried for a while.

    A form is a size, as one frame or as a bundle. After each miss in a row it is left alone for four times as
    many slots, and after a hit it is as if nothing had been missed.
    """

    def __init__(self) -> None:
        self._missed: dict[tuple[int, bool], tuple[int, int, int]] = {}

    def __call__(self, piece: LogRange) -> bool:
        start, stop, _ = self._missed.get((piece.exponent, piece.bundled), _NEVER)
        return not start <= piece.start < stop

    def learn(self, piece: LogRange, there: bool) -> None:
        """Whether a range was there."""
        form = piece.exponent, piece.bundled
        if there:
            self._missed.pop(form, None)
        elif self(piece):
            start, stop, times = self._missed.get(form, (piece.start, 0, 0))
            far = piece.start + (1 << piece.exponent + 2 * times)
            self._missed[form] = min(start, piece.start), max(stop, far), times + 1


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
        self._indices: dict[str, list[Part]] = {}

    def between(self, start: int, stop: int, compacted: int) -> list[Slot]:
        """What slots [start, stop) hold, up to a tombstone or the first that is nowhere.

        Parameters
        ----------
        compacted
            Below this version there should be ranges; where there are none, slots are read.

        Notes
        -----
        One round of few requests for each 4,096 slots where the ranges are there, see `plan_reads`. A missing
        range costs a round, and another one is tried; that is remembered for the next call.
        """
        found: list[Slot] = []
        given: dict[tuple[LogRange, int, int], list[Slot] | None] = {}
        width = _ROUND_LIMIT
        while (position := start + len(found)) < stop:
            near = min(stop, position + _FAR >> LARGEST << LARGEST)
            pieces = list(islice(plan_reads(position, near, compacted, self._usable), width))
            firsts = [position, *(piece.stop for piece in pieces)]
            wanted = [
                (piece, first, near if piece.bundled else stop)
                for piece, first in zip(pieces, firsts, strict=False)
            ]
            asked = [each for each in wanted if each not in given]
            given.update(zip(asked, self._map_all(self._read, asked), strict=True))
            for each in asked:
                if each[0].exponent:
                    self._usable.learn(each[0], given[each] is not None)
            for each in wanted:
                slots = given.pop(each)
                if slots is None and not each[0].exponent:
                    return found
                if slots is None:
                    width = 1  # others may be missing too: do not ask for many before one is found
                    break
                found += slots
                if isinstance(found[-1], Tombstone):
                    return found
                width = _ROUND_LIMIT
        return found

    def _read(self, wanted: tuple[LogRange, int, int]) -> list[Slot] | None:
        """The slots [first, stop) of a piece, or None where it cannot be had."""
        piece, first, stop = wanted
        if not piece.exponent:
            slot = self._read_slot(piece.start)
            return None if slot is None else [slot]
        versions = range(first, min(stop, piece.stop))
        try:
            found = [
                decode_slot(data, commit_key(version))
                for part, slots in slots_of(self._store, piece, first, versions.stop, self._index_of)
                for version, data in enumerate(slots, part.start)
                if version in versions
            ]
        except SparkPagesError:
            self._indices.pop(piece.key, None)
            return None  # the slots tell what is wrong, if anything is
        return found if [slot.version for slot in found] == list(versions) else None

    def _index_of(self, store: ObjectStore, bundle: LogRange) -> list[Part]:
        parts = self._indices.get(bundle.key)
        if parts is None:
            parts = read_index(store, bundle)
            if sum(map(len, [parts, *self._indices.copy().values()])) > _MOST_PARTS:
                self._indices.clear()
            self._indices[bundle.key] = parts
        return parts
