"""Reading many slots in few requests, out of compacted ranges where there are any."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice, pairwise

from spark_pages.errors import SparkPagesError
from spark_pages.log.encoding.commit_codec import decode_slot
from spark_pages.log.names import commit_key
from spark_pages.log.ranges.log_range import LARGEST, WHOLE, LogRange, decode_range, plan_reads
from spark_pages.model.actions import Commit, Tombstone
from spark_pages.runtime import Mapper
from spark_pages.storage.store import ObjectStore

_ROUND_LIMIT = 32
_FAR = 4 << LARGEST
"""Slots of one round at most: so much is kept in memory at once, and so much a wrong hint can cost."""

Slot = Commit | Tombstone


def is_chained(slots: Sequence[Slot]) -> bool:
    """Whether each commit names the one before it by its digest, so that the last vouches for all."""
    return all(
        later.version == earlier.version + 1
        and (isinstance(later, Tombstone) or later.parent_digest == earlier.digest)
        for earlier, later in pairwise(slots)
    )


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
        self._largest = LARGEST

    def between(self, start: int, stop: int, compacted: int) -> list[Slot]:
        """What slots [start, stop) hold, up to a tombstone or the first that is nowhere.

        Parameters
        ----------
        compacted
            Below this version there should be ranges; where there are none, slots are read.

        Notes
        -----
        One round of few requests for each 4,096 slots where the ranges are there, see `plan_reads`. A missing
        range costs a round, and the next smaller one is tried; their size is remembered for the next call.
        """
        found: list[Slot] = []
        largest, width = self._largest, _ROUND_LIMIT
        while (position := start + len(found)) < stop:
            near = min(stop, position + _FAR)
            pieces = list(islice(plan_reads(position, near, compacted, largest), width))
            firsts = [position, *(piece.stop for piece in pieces)]
            wanted = [(piece, first, stop) for piece, first in zip(pieces, firsts, strict=False)]
            for piece, slots in zip(pieces, self._map_all(self._read, wanted), strict=True):
                if slots is None and not piece.exponent:
                    return found
                if slots is None:
                    # Others of its size may be missing too: do not ask for many before one is found.
                    largest, width = piece.exponent - 1, 1
                    break
                found += slots
                if isinstance(found[-1], Tombstone):
                    return found
                width = _ROUND_LIMIT
                if piece.exponent == largest:
                    largest = min(largest + 1, LARGEST)
        self._largest = max(largest, WHOLE)
        return found

    def _read(self, wanted: tuple[LogRange, int, int]) -> list[Slot] | None:
        """The slots [first, stop) of a piece, or None where it cannot be had."""
        piece, first, stop = wanted
        if not piece.exponent:
            slot = self._read_slot(piece.start)
            return None if slot is None else [slot]
        try:
            slots = decode_range(self._store.get(piece.key), piece)
            versions = range(first, min(stop, piece.stop))
            found = [decode_slot(slots[version - piece.start], commit_key(version)) for version in versions]
        except SparkPagesError:
            return None  # the slots tell what is wrong, if anything is
        return found if [slot.version for slot in found] == list(versions) else None
