"""Automatic maintenance: when checkpoints and log compaction are due, and the thread that does them."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from spark_pages.errors import (
    ObjectNotFoundError,
    SnapshotExpiredError,
    SparkPagesError,
    StorageError,
    StoreNotFoundError,
)
from spark_pages.format.features import check_writable
from spark_pages.format.names import commit_key
from spark_pages.log.checkpoint.reader import TreeReader
from spark_pages.log.checkpoint.write_plan import CarryOut
from spark_pages.log.checkpoint.writer import write_checkpoint
from spark_pages.log.commit_times import MAX_TIME_US
from spark_pages.log.compaction.compacted_range import WHOLE
from spark_pages.log.compaction.writer import LogCompaction, compact_slots, missing_bundles, write_ranges
from spark_pages.log.discovery import on_named_checkpoint
from spark_pages.log.last_checkpoint import read_hints, write_hint
from spark_pages.log.latest import LatestSnapshot
from spark_pages.log.retention import oldest_readable
from spark_pages.log.slots import SlotReader
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.log.state import LogState
from spark_pages.model.actions import CHECKPOINT, COMPACTION, CheckpointRef, UpkeepNote
from spark_pages.model.ids import Version
from spark_pages.runtime import Runtime, Spawn

# When a process that commits looks after the log: which checkpoint, which log compaction is due. Pure.
#
# Several processes must not all do it at once, and must not have to agree. So the number of the version
# decides: whoever commits a version that is a multiple does it.

CHECKPOINT_COMMITS = "checkpoint_commits"
"""Property of a store: a checkpoint after so many commits; 0 for never."""

CHECKPOINT_BYTES = "checkpoint_bytes"
"""Property of a store: a checkpoint once commits since the last brought so many bytes; 0 for never."""

LOG_COMPACTION_COMMITS = "log_compaction_commits"
"""Property of a store: log compaction after so many commits; 0 for never."""

_LOOK_EVERY = 8
"""Bytes are looked at by whoever commits every 8th version."""

MANY_COLUMNS = 2048
"""Definitions of so many columns are some 0.25 MB of log, which whoever opens the store has to decode."""


@dataclass(frozen=True, slots=True)
class LogPolicy:
    """How often the log is looked after.

    Attributes
    ----------
    checkpoint_commits
        After so many versions a checkpoint; 0 never for their number.
    checkpoint_bytes
        Once the commits since the last checkpoint brought pages of so many bytes, or descriptors that take so
        many in memory, or definitions of `MANY_COLUMNS` columns; 0 never for these.
    compaction_commits
        After so many versions log compaction, which works in steps of 16; 0 never.
    """

    checkpoint_commits: int = 64
    checkpoint_bytes: int = 16 << 20
    compaction_commits: int = 16

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> LogPolicy:
        """Read the policy from the properties of a store, with the default for each invalid value."""
        return cls(
            _number(properties, CHECKPOINT_COMMITS, _DEFAULT.checkpoint_commits),
            _number(properties, CHECKPOINT_BYTES, _DEFAULT.checkpoint_bytes),
            _number(properties, LOG_COMPACTION_COMMITS, _DEFAULT.compaction_commits),
        )


_DEFAULT = LogPolicy()


def _number(properties: Mapping[str, str], name: str, default: int) -> int:
    text = properties.get(name, "")
    if text.isascii() and text.isdigit():
        return int(text)
    if text:
        _logger.warning(
            "The property %s of the store is %r, not a whole number: %d is used.", name, text, default
        )
    return default


@dataclass(frozen=True, slots=True)
class Due:
    """What is to be done for the log.

    Attributes
    ----------
    checkpoint, compaction
        To be written.
    adoption
        The process is to change over to a checkpoint that another one wrote.
    """

    checkpoint: bool = False
    compaction: bool = False
    adoption: bool = False

    def __or__(self, other: Due) -> Due:
        """Both together."""
        return Due(
            self.checkpoint or other.checkpoint,
            self.compaction or other.compaction,
            self.adoption or other.adoption,
        )

    def __bool__(self) -> bool:
        """Whether there is anything."""
        return self.checkpoint or self.compaction or self.adoption


def due_after(version: int, state: LogState, policy: LogPolicy) -> Due:
    """Return the maintenance that is due after this process has committed a version.

    Parameters
    ----------
    state
        The newest that it knows, of this version or later.
    """
    number = version + 1
    return Due(
        checkpoint=_checkpoint_is_due(number, state, policy),
        compaction=policy.compaction_commits > 0 and number % policy.compaction_commits == 0,
    )


def _checkpoint_is_due(number: int, state: LogState, policy: LogPolicy) -> bool:
    newest = state.newest_checkpoint.version if state.newest_checkpoint else -1
    since = number - 1 - newest
    if policy.checkpoint_commits > 0 and number % policy.checkpoint_commits == 0:
        return since > policy.checkpoint_commits // 2  # else somebody has made one just now
    stands_on = state.base.version if state.base else -1
    if policy.checkpoint_bytes <= 0 or since <= 0 or stands_on != newest:
        return False
    is_looked_at = number % _LOOK_EVERY == 0
    if state.tail_columns >= MANY_COLUMNS:
        # Whoever brought the last of them does it at once, so a store of many tables is opened as any other.
        return is_looked_at or state.catalog_version == number - 1
    return is_looked_at and max(state.added_bytes, state.tail_bytes) >= policy.checkpoint_bytes


Done = TypeVar("Done")

_logger = logging.getLogger(__name__)

_ADOPT_COMMITS = 64
_ADOPT_BYTES = 4 << 20
_MOST_RANGES = 64


class AutoMaintenance:
    """Looks after one log.

    Parameters
    ----------
    runtime
        Randomness, parallel requests, and threads for what is done beside commits.
    slots, tree
        Readers of the log.
    newest
        The newest snapshot known.
    refresh
        Gives the newest snapshot there is.
    writer
        Gives the name of who does it.
    """

    def __init__(
        self,
        runtime: Runtime,
        slots: SlotReader,
        tree: TreeReader,
        newest: LatestSnapshot,
        refresh: Callable[[], LogSnapshot],
        writer: Callable[[], str],
    ) -> None:
        self._runtime = runtime
        self._store = slots.store
        self._slots = slots
        self._tree = tree
        self._newest = newest
        self._refresh = refresh
        self._writer = writer
        self._background = BackgroundWorker(runtime.spawn, self._do)
        self._looked_at = -1
        self._unreadable: CheckpointRef | None = None

    def checkpoint(self, carry_out: CarryOut | None = None) -> CheckpointRef:
        """Write a checkpoint of the newest version, and the hint that names it.

        Parameters
        ----------
        carry_out
            Writes its segments, in other processes.

        Notes
        -----
        Grows with the segments and parts touched since the last checkpoint.
        """
        return self._retry_after_vacuum(lambda: self._checkpoint(self._refresh(), carry_out))

    def _checkpoint(self, head: LogSnapshot, carry_out: CarryOut | None = None) -> CheckpointRef:
        base = head.checkpoint
        if base is not None and base.ref.version == head.state.version:
            return base.ref
        check_writable(head.state.features)
        # Only on a checkpoint that the log names does vacuum surely keep what the new one shares with it.
        based = on_named_checkpoint(self._slots, self._tree, head.state, self._tree.load_manifest)
        base = head.checkpoint if based is head.state else self._newest.open(based).checkpoint
        token, at_once = self._runtime.token(), self._runtime.map
        made = write_checkpoint(self._store, based, base, token, at_once, carry_out)
        self._newest.rebase_on_checkpoint(made.ref)  # reads the root back
        self.report(CHECKPOINT, made.ref.version, made.objects, made.size_bytes)
        return made.ref

    def compact(self) -> LogCompaction:
        """Every slot that can be is in compacted ranges and bundles, and the hint says so.

        Notes
        -----
        One request for each range that is there already; see `compact_slots` for the others. Ranges below
        the version that the log names as compacted are not looked at: what is lost there, repair makes again.
        Bundles are made wherever they are missing.
        """
        state = self._refresh().state
        check_writable(state.features)
        done = self._compact_slots(state.compacted, state.version + 1, None)
        made = self._write_archives(state, done.compacted)
        both = LogCompaction(done.compacted, done.keys + made.keys, done.size_bytes + made.size_bytes)
        self._report_compaction(state.compacted, both)
        return both

    def _compact_slots(self, compacted: int, stop: int, most: int | None) -> LogCompaction:
        done = compact_slots(self._store, self._runtime.map, compacted, stop, most)
        if done.compacted > compacted:
            self._slots.record_range(done.compacted)
            self._newest.record_range(done.compacted)
        return done

    def _write_archives(self, state: LogState, stop: int, behind: int = 0) -> LogCompaction:
        oldest, at_once = oldest_readable(state), self._runtime.map
        return write_ranges(self._store, at_once, missing_bundles(self._store, at_once, oldest, stop, behind))

    def _report_compaction(self, before: int, done: LogCompaction) -> None:
        if done.keys:
            self.report(COMPACTION, done.compacted - 1, len(done.keys), done.size_bytes)
        elif done.compacted > before:
            self._write_hint()

    def report(self, operation: str, reached: int, objects: int, size_bytes: int) -> None:
        """Record maintenance for the next commit, and until then in the hint; see `UpkeepNote`."""
        now_us = min(max(self._runtime.now_us(), 0), MAX_TIME_US)  # whatever the clock says, commits hold it
        done = UpkeepNote(operation, self._writer(), now_us, Version(reached), objects, size_bytes)
        self._newest.add_note(done)
        self._write_hint()

    def _write_hint(self) -> None:
        self._newest.merge_notes(read_hints(self._store).upkeep)  # else what others did would be forgotten
        known = self._newest.snapshot
        if known is None:
            return
        state = known.state
        check_writable(state.features)
        told = self._slots.compacted  # by a hint, perhaps of a process that commits nothing
        compacted = max(state.compacted, told if told <= state.version + 1 else 0)
        write_hint(self._store, state.newest_checkpoint, compacted, state.upkeep)

    def after_commit(self, version: int) -> None:
        """Schedule the maintenance that is due after an own commit. Never waits, never fails."""
        known = self._newest.snapshot
        if known is None or version <= self._looked_at:
            return  # members of a group share their commit
        self._looked_at = version
        due = due_after(version, known.state, LogPolicy.of(known.state.properties))
        if self._is_behind(known.state):
            due |= Due(adoption=True)
        if due:
            self._background.request(due)

    def _retry_after_vacuum(self, work: Callable[[], Done]) -> Done:
        """Run the work, and run it again on the newest version if a vacuum removed what it read."""
        try:
            return work()
        except (ObjectNotFoundError, SnapshotExpiredError):
            self._refresh()
        return work()

    def _do(self, due: Due) -> None:
        try:
            self._retry_after_vacuum(partial(self._do_now, due))
        except (ObjectNotFoundError, StorageError, StoreNotFoundError):
            if not self._is_store_removed():
                raise
            _logger.info("The store was removed while its log was looked after: %s is left undone.", due)

    def _is_store_removed(self) -> bool:
        """Whether not even version 0 is there, the slot of which is never deleted."""
        try:
            self._store.size(commit_key(0))
        except ObjectNotFoundError:
            return True
        except StorageError:
            return False
        return False

    def _do_now(self, due: Due) -> None:
        known = self._newest.snapshot
        if known is None:
            return
        if due.adoption:
            known = self.with_latest_checkpoint(known)
        if due.compaction or due.checkpoint:
            check_writable(known.state.features)  # others may have added some since the commit that asked
        before = known.state.compacted
        done = LogCompaction(before)
        if due.compaction:
            whole = (known.state.version + 1) >> WHOLE << WHOLE
            done = self._compact_slots(before, whole, _MOST_RANGES)
            self._report_compaction(before, done)
        if due.checkpoint:
            self._checkpoint(known)
        if done.compacted > before:  # last, for they may be large; where they fail, `compact` makes them
            made = self._write_archives(known.state, done.compacted, before)
            self._report_compaction(done.compacted, replace(made, compacted=done.compacted))

    def with_latest_checkpoint(self, head: LogSnapshot) -> LogSnapshot:
        """Rebase the snapshot on a newer checkpoint, if commits name one and the tail has grown long.

        Notes
        -----
        One request for each such checkpoint. So what a process keeps of commits does not grow for ever.
        """
        ref = head.state.named_checkpoint
        if ref is None or not self._is_behind(head.state):
            return head
        try:
            self._newest.rebase_on_checkpoint(ref)
        except SparkPagesError:
            self._unreadable = ref  # the old one will do
        known = self._newest.snapshot
        return known if known is not None and known.state.version >= head.state.version else head

    def _is_behind(self, state: LogState) -> bool:
        """Whether commits name a checkpoint that is so much newer that the state should stand on it."""
        ref = state.named_checkpoint
        if ref is None or ref == self._unreadable:
            return False
        newer_by = ref.version - (state.base.version if state.base else -1)
        return newer_by >= _ADOPT_COMMITS or (newer_by > 0 and state.tail_bytes >= _ADOPT_BYTES)

    def close(self, timeout_s: float | None) -> None:
        """Finish scheduled maintenance within the timeout, and schedule none from then on."""
        self._background.close(timeout_s)


_EXIT_S = 5.0
_all: weakref.WeakSet[BackgroundWorker] = weakref.WeakSet()


class BackgroundWorker:
    """Does what is due beside whoever asks.

    Parameters
    ----------
    spawn
        Begins work beside the caller.
    work
        Does what is due; may fail.

    Notes
    -----
    There is a thread only while there is work. What is asked for while one piece is being done waits, all
    of it together as one piece. A forked child begins with nothing to do. When the interpreter ends, work
    is waited for 5 s at most; what is cut off leaves objects that nothing names.
    """

    def __init__(self, spawn: Spawn, work: Callable[[Due], None]) -> None:
        self._spawn = spawn
        self._work = work
        self._ended = False
        self.reset_after_fork()
        _all.add(self)

    def reset_after_fork(self) -> None:
        """Nothing is being done and nothing waits: what a forked child begins with."""
        self._lock = threading.Lock()
        self._waiting = Due()
        self._is_running = False
        self._wait: Callable[[float | None], object] | None = None

    def request(self, due: Due) -> None:
        """Schedule the maintenance in the background, without waiting."""
        with self._lock:
            if self._ended:
                return
            self._waiting |= due
            if self._is_running:
                return
            self._is_running = True
        try:
            self._wait = self._spawn(self._run)
        except RuntimeError as error:  # no more threads: the next one who asks may have more luck
            _logger.warning("Nobody looks after the log for now: %s", error)
            with self._lock:
                self._is_running = False

    def _run(self) -> None:
        while True:
            with self._lock:
                due, self._waiting = self._waiting, Due()
                if not due:
                    self._is_running = False
                    return
            try:
                self._work(due)
            except Exception as error:  # noqa: BLE001 - whatever it is, no commit may fail for it
                _logger.warning("Looking after the log failed (%s): %s: %s", due, type(error).__name__, error)

    def finish(self, timeout_s: float | None = None) -> None:
        """Wait until scheduled maintenance is done, or until the timeout."""
        wait = self._wait
        if wait is not None:
            wait(timeout_s)

    def close(self, timeout_s: float | None = None) -> None:
        """Wait until scheduled maintenance is done, or until the timeout, and accept none from then on."""
        with self._lock:
            self._ended = True
        self.finish(timeout_s)


def _finish_all() -> None:
    for each in list(_all):
        each.close(_EXIT_S)


def _reset_all_after_fork() -> None:
    for each in list(_all):
        each.reset_after_fork()


atexit.register(_finish_all)
if hasattr(os, "register_at_fork"):  # not where nothing forks
    os.register_at_fork(after_in_child=_reset_all_after_fork)
