"""The newest snapshot that a process knows of one log. It only moves forward, whoever moves it."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Sequence
from dataclasses import replace

from spark_pages.log.checkpoint.reader import Checkpoint, TreeReader
from spark_pages.log.replay import rebase_on_checkpoint
from spark_pages.log.retention import is_reachable, usable
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.log.state import LogState
from spark_pages.model.actions import CHECKPOINT, DELETION, CheckpointRef, UpkeepNote

_MOST_NOTES = 4
"""More than so many are not kept where nobody commits: they go into the hint, which is small."""

_all: weakref.WeakSet[LatestSnapshot] = weakref.WeakSet()


class LatestSnapshot:
    """Holds the newest snapshot; safe to share between threads.

    Parameters
    ----------
    tree
        Reads checkpoints.
    """

    def __init__(self, tree: TreeReader) -> None:
        self._tree = tree
        self._lock = threading.Lock()
        self.snapshot: LogSnapshot | None = None
        _all.add(self)

    def unlock(self) -> None:
        """Nobody holds the lock: a forked child has none of the threads that might."""
        self._lock = threading.Lock()

    def open(self, state: LogState, older: LogSnapshot | None = None) -> LogSnapshot:
        """Create the snapshot of a state, and share unchanged loaded chains with `older`."""
        return LogSnapshot(state, self._open(state), older)

    def _open(self, state: LogState) -> Checkpoint | None:
        return Checkpoint(state.base, self._tree) if state.base else None

    def advance(self, state: LogState) -> LogSnapshot:
        """Set the newest state, unless a newer one is known, and return the newest snapshot.

        Notes
        -----
        A state that stands on an older checkpoint than the one known is put on that one: a transaction
        that began before a checkpoint does not bring the old one back.
        """
        known = self.snapshot
        checkpoint = known.checkpoint if known and known.state.base == state.base else self._open(state)
        with self._lock:  # from here on nothing is read
            known = self.snapshot
            if known is None:
                self.snapshot = LogSnapshot(state, checkpoint)
            elif state.version > known.state.version:
                base = known.state.base
                if base is not None and self._can_extend(state, base):
                    state, checkpoint = rebase_on_checkpoint(state, base), known.checkpoint
                if state.upkeep != known.state.upkeep:
                    state = replace(state, upkeep=_unreported_notes(state, known.state.upkeep))
                if state.compacted < known.state.compacted:
                    state = replace(state, compacted=known.state.compacted)
                self.snapshot = LogSnapshot(state, checkpoint, known)
            elif state.version == known.state.version and not is_reachable(known.state):
                self.snapshot = LogSnapshot(state, checkpoint, known)
            assert self.snapshot is not None
            return self.snapshot

    @staticmethod
    def _can_extend(state: LogState, base: CheckpointRef) -> bool:
        return _is_older(state.base, base) and usable(base, state.named_checkpoint, state.retention)

    def rebase_on_checkpoint(self, ref: CheckpointRef) -> None:
        """Rebase the newest snapshot on this checkpoint, which keeps its tail small.

        Notes
        -----
        One request, for the root, if it has not been read yet. Chains are promised anew, but for those that
        are loaded whole.
        """
        checkpoint = Checkpoint(ref, self._tree)
        with self._lock:
            known = self.snapshot
            if known is None or not usable(ref, known.state.named_checkpoint, known.state.retention):
                return  # vacuum passed meanwhile: nobody will use it
            if ref.version <= known.state.version and _is_older(known.state.base, ref):
                self.snapshot = known.with_checkpoint(rebase_on_checkpoint(known.state, ref), checkpoint)

    def record_range(self, compacted: int) -> None:
        """Slots below this version are in compacted ranges, and the next commit says so."""
        with self._lock:
            known = self.snapshot
            if known is not None and compacted > known.state.compacted:
                told = replace(known.state, compacted=compacted)
                self.snapshot = LogSnapshot(told, known.checkpoint, known)

    def add_note(self, done: UpkeepNote) -> None:
        """Something was done to the log, and the next commit says so."""
        with self._lock:
            known = self.snapshot
            if known is not None:
                told = replace(known.state, upkeep=(*known.state.upkeep, done)[-_MOST_NOTES:])
                self.snapshot = LogSnapshot(told, known.checkpoint, known)

    def merge_notes(self, notes: Sequence[UpkeepNote]) -> None:
        """Others have left these in the hint: what no commit has told of it, the next one does."""
        with self._lock:
            known = self.snapshot
            if known is not None and (heard := unreported_notes(known.state, notes)) != known.state.upkeep:
                told = replace(known.state, upkeep=heard)
                self.snapshot = LogSnapshot(told, known.checkpoint, known)


def unreported_notes(state: LogState, left: Sequence[UpkeepNote]) -> tuple[UpkeepNote, ...]:
    """Return the maintenance records that no commit has reported yet."""
    possible = tuple(note for note in left if note.reached <= state.version)
    return _unreported_notes(state, possible)[-_MOST_NOTES:]


def _unreported_notes(state: LogState, before: tuple[UpkeepNote, ...]) -> tuple[UpkeepNote, ...]:
    """Return the records known before the state that neither it nor a later commit has reported.

    A state of a transaction that began before some upkeep does not know of it. Whether a commit has told
    of it nevertheless shows in what commits name, and of deletions in what the state remembers.
    """
    kept = [note for note in before if note in state.upkeep or _is_newer(note, state)]
    return (*kept, *(note for note in state.upkeep if note not in before))


def _is_newer(note: UpkeepNote, state: LogState) -> bool:
    """Whether it reached further than what commits name, as the state tells."""
    if note.operation == CHECKPOINT:
        return state.named_checkpoint is None or state.named_checkpoint.version < note.reached
    if note.operation == DELETION:
        return note not in state.deletions_told
    return state.compacted <= note.reached


def _is_older(one: CheckpointRef | None, other: CheckpointRef) -> bool:
    return one is None or one.version < other.version


def _unlock_all() -> None:
    for each in list(_all):
        each.unlock()


if hasattr(os, "register_at_fork"):  # not where nothing forks
    os.register_at_fork(after_in_child=_unlock_all)
