"""The log of one store: what this process knows of it, its versions, and the way in for a commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace

import pyarrow as pa

from spark_pages.errors import (
    DamageError,
    InternalError,
    ObjectNotFoundError,
    SnapshotExpiredError,
    StorageError,
    StoreExistsError,
)
from spark_pages.format.commit import decode_slot
from spark_pages.format.names import LOG, commit_key
from spark_pages.log.auto_maintenance import AutoMaintenance
from spark_pages.log.checkpoint.reader import TreeReader
from spark_pages.log.checkpoint.write_plan import CarryOut
from spark_pages.log.commit.driver import CommitDriver
from spark_pages.log.commit.errors import conflict_error, refused_error, slot_taken_error, unknown_error
from spark_pages.log.commit.group import NOTHING, CommitGroup, Hold
from spark_pages.log.commit.protocol import IfStopped, commit_protocol, put_slot
from spark_pages.log.commit.protocol_types import (
    Build,
    Committed,
    Conflict,
    Deferred,
    GroupMember,
    Outcome,
    Refused,
    Slot,
    Unknown,
)
from spark_pages.log.commit_times import ahead_of, bounded, dated
from spark_pages.log.compaction.writer import LogCompaction
from spark_pages.log.conflict_error import attach_conflicting_commit, is_vacuum
from spark_pages.log.discovery import (
    catch_up,
    find_head,
    open_state,
    version_at,
)
from spark_pages.log.latest import LatestSnapshot
from spark_pages.log.retention import check_version
from spark_pages.log.slots import SlotReader
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.log.state import LogState
from spark_pages.log.store_identity import ExistingSlots
from spark_pages.memory_budget import CacheBudgets
from spark_pages.model.actions import CheckpointRef, Commit, ManifestRef, Tombstone
from spark_pages.runtime import Runtime, is_out_of_threads, writer_name
from spark_pages.storage.store import CLOCK_PREFIX, ObjectStore


class Log:
    """Commits, snapshots and checkpoints of one store.

    Parameters
    ----------
    store
        Where it is kept.
    runtime
        Clock, randomness and sleep.
    timeout_s
        After this long a commit that still has no clear outcome gives up.
    writer
        Gives the name that the transactions of this process bear.
    budgets
        Of what is cached of checkpoints; those of the process by default.
    """

    def __init__(
        self,
        store: ObjectStore,
        runtime: Runtime,
        timeout_s: float = 60.0,
        writer: Callable[[], str] = writer_name,
        budgets: CacheBudgets | None = None,
    ) -> None:
        self.store = store
        self._runtime = runtime
        self._writer = writer
        self._tree = TreeReader(store, runtime.map, budgets)
        self._slots = SlotReader(store, runtime.map, runtime.monotonic_s)
        self._driver = CommitDriver(self._slots, runtime, timeout_s)
        self._group = CommitGroup(self._commit_together, self._driver.pace.for_others)
        self._newest = LatestSnapshot(self._tree)
        self._care = AutoMaintenance(
            runtime, self._slots, self._tree, self._newest, self.refresh_to_write, writer
        )

    @property
    def nodes(self) -> TreeReader:
        """What reads and caches the objects of checkpoints."""
        return self._tree

    @property
    def _head(self) -> LogSnapshot | None:
        """The newest snapshot that this process knows."""
        return self._newest.snapshot

    # reading

    def snapshot(
        self, version: int | None = None, timestamp_us: int | None = None, asked: str = ""
    ) -> LogSnapshot:
        """Open the log at a version, a time, or now; `asked` names the version in errors.

        Raises
        ------
        StoreNotFoundError, VersionNotFoundError, SnapshotExpiredError

        Notes
        -----
        Now: one request where nothing is new. Earlier: the nearest checkpoint and the commits after it.
        """
        head = self.refresh()
        if timestamp_us is not None:
            version = version_at(self.time_of, head.state.version, timestamp_us)
        if version is None or version == head.state.version:
            return head
        check_version(head.state, version, asked)
        try:
            return self._open(head.state, version)
        except (ObjectNotFoundError, SnapshotExpiredError):
            head = self.refresh()  # vacuum may have moved on since; then the newest state says so
            check_version(head.state, version, asked)
            return self._open(head.state, version)

    def reopen(self, version: int) -> LogSnapshot:
        """Reopen a version on the retained objects, for a reader that found one missing.

        Raises
        ------
        SnapshotExpiredError
            If retention has passed the version.
        """
        check_version(self.refresh().state, version, "open until now")
        return self.snapshot(version)

    def _open(self, newest: LogState, version: int) -> LogSnapshot:
        state = open_state(self._slots, self._tree, newest, version, self.load_manifest)
        return self.open(state)

    def known(self) -> LogSnapshot:
        """Return the newest snapshot of this process; reads storage only if there is none."""
        return self._head or self.refresh()

    def refresh(self) -> LogSnapshot:
        """Return the newest snapshot; unchanged chains keep what they loaded."""
        older = self._head
        if older is not None:
            return self._refresh_from(older)
        return self._adopt(find_head(self._slots, self._tree, self.load_manifest))

    def _refresh_from(self, older: LogSnapshot, look: ExistingSlots | None = None) -> LogSnapshot:
        look = look or self._look_behind(older.state)
        state = catch_up(self._slots, self._tree, older.state, self.load_manifest, look)
        return older if state is older.state else self._adopt(state)

    def _look_behind(self, state: LogState) -> ExistingSlots:
        """Look for what was committed after the newest state known, and whether it is still in the log."""
        self._slots.identity.set_store_id(state.store_id)
        return self._slots.identity.find_slots(state.version + 1, state.digest)

    def _adopt(self, state: LogState) -> LogSnapshot:
        self._slots.record_range(state.compacted)
        return self._care.with_latest_checkpoint(self._advance(state))

    @property
    def store_id(self) -> str:
        """Id of the store; asks storage if it is not open yet."""
        return self.known().state.store_id

    def refresh_same(self) -> LogSnapshot:
        """Return the newest snapshot. Raise StoreReplacedError if the store at the address is another."""
        newest = self.refresh()
        self._slots.identity.check_same()
        return newest

    def refresh_to_write(self) -> LogSnapshot:
        """Return the newest snapshot before anything is written for a commit.

        Raises
        ------
        StoreReplacedError, StoreNotFoundError
            If the commit could not go into the store that is open.
        """
        newest = self.refresh()
        self._slots.identity.check_writable()
        return newest

    def commits(self, start: int, stop: int) -> list[Commit]:
        """Return commits [start, stop), oldest first."""
        return self._slots.commits(start, stop)

    def some_commits(self, start: int, stop: int) -> list[Commit]:
        """Return at least one commit from `start` on, below `stop`, as many as memory may hold."""
        return self._slots.some_commits(start, stop)

    def recent(self, start: int, stop: int) -> list[Commit] | None:
        """Return commits [start, stop) if this process has them in memory, else None."""
        return self._driver.recent(start, stop)

    def commits_left(self, start: int, stop: int) -> list[Commit]:
        """Return the remaining commits of [start, stop), oldest first, with corrected times."""
        retention = self.known().state.retention
        whole = min(max(start, retention.min_readable if retention else 0), stop)
        found = [*self._slots.present(range(start, whole))]
        try:
            found += self._slots.commits(whole, stop)
        except SnapshotExpiredError:  # retention has moved on since the newest version known
            found += self._slots.present(range(whole, stop))
        return [self._dated(slot) for slot in found if isinstance(slot, Commit)]

    def _dated(self, commit: Commit) -> Commit:
        """Correct the time of a commit, within the years of datetime and Arrow."""
        time_us = bounded(self.date(commit.version, commit.timestamp_us))
        return commit if time_us == commit.timestamp_us else replace(commit, timestamp_us=time_us)

    def time_of(self, version: int) -> int:
        """When a version was committed, in microseconds since the epoch; also where its slot was cleaned."""
        return self.date(version, self.recorded_time_of(version))

    def recorded_time_of(self, version: int) -> int:
        """Return the time that the commit of a version records, which never changes."""
        return self._slot(version).timestamp_us

    def date(self, version: int, recorded_us: int) -> int:
        """Date a version from the time that its commit records; see `times.dated`."""
        return dated(self.known().state.properties, version, recorded_us)

    def token_of(self, version: int) -> str:
        """Return the token of a version's commit, also of a tombstone."""
        return self._slot(version).token

    def _slot(self, version: int) -> Commit | Tombstone:
        """Read the slot of an existing version."""
        return self._slots.read(version) or self._slots.commits(version, version + 1)[0]

    def load_manifest(self, manifest: ManifestRef) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Pages and statistics that a page manifest lists."""
        return self._tree.load_manifest(manifest)

    def open(self, state: LogState, older: LogSnapshot | None = None) -> LogSnapshot:
        """Create the snapshot of a state, and share unchanged loaded chains with `older`."""
        return self._newest.open(state, older)

    def _advance(self, state: LogState) -> LogSnapshot:
        """Make the state the newest known one, unless another thread knows a newer one."""
        return self._newest.advance(state)

    # writing

    def create(self, build: Build) -> LogSnapshot:
        """Write commit 0.

        Raises
        ------
        StoreExistsError
            If slot 0 is taken by another commit, or there is something else of a log.
        """
        self._check_no_remains()
        (outcome,) = self._commit_on(LogState(), [GroupMember(-1, build)])
        match outcome:
            case Committed(version=0, state=state):
                self._slots.identity.remember()
                return self._advance(state)
            case Unknown():
                raise unknown_error(outcome)
            case Refused():
                raise outcome.error
            case _:
                raise StoreExistsError(
                    f"Cannot create a store at {self.store.url}: there is one already.",
                    hint="Open it with `spark_pages.open(url)`, or choose another address.",
                    url=self.store.url,
                )

    def _check_no_remains(self) -> None:
        """Nothing, unless there is something of a log that has lost its first slot.

        A hint, a checkpoint or later slots would be taken for those of the log that begins now.
        """
        if self._slots.read(0) is not None:
            return
        remains = self.store.list(LOG)
        remains = [info for info in remains if not info.key.startswith(CLOCK_PREFIX)]
        if remains and all(info.key != commit_key(0) for info in remains):
            raise StoreExistsError(
                f"Cannot create a store at {self.store.url}: there are remains of one, no first "
                f"commit but {len(remains)} objects of a log, such as {remains[0].key}. Nothing was "
                "written.",
                hint="Choose another `url`; or delete what is below _log/, if nobody needs it.",
                url=self.store.url,
            )

    def commit(self, read: LogSnapshot, build: Build) -> Committed:
        """Commit a transaction whose record follows from a state of the log alone; see `commit_member`.

        Parameters
        ----------
        read
            The snapshot that the transaction read.
        build
            Gives the transaction's record on top of a state; called again after each rebase.
        """
        return self.commit_member(GroupMember(read.state.version, build))

    def commit_member(self, member: GroupMember, tried: int = 0) -> Committed:
        """Commit a transaction.

        Parameters
        ----------
        member
            The transaction.
        tried
            Number of tries before this call, for the message of a conflict.

        Raises
        ------
        CommitConflictError
            If it cannot be rebased over a commit that came in between, or others were quicker
            until the deadline; nothing was committed.
        CommitUnknownError
            If the outcome could not be found out.

        Notes
        -----
        One request where nobody races. Callers in several threads share commits.
        """
        outcome = self._group.commit(member)
        match outcome:
            case Committed():
                return outcome
            case Conflict():
                error = conflict_error(outcome, member.read_version, tried)
                raise attach_conflicting_commit(error, self, member.read_version, is_vacuum)
            case Unknown():
                raise unknown_error(outcome)
            case Refused():
                raise refused_error(outcome, tried)
            case Deferred():
                raise InternalError("Cannot commit: a transaction was put off for ever.")

    def after_losses(self) -> Callable[[int], bool]:
        """Return a function that backs off after the n-th lost slot, and says whether time is left."""
        return self._driver.after_losses()

    @property
    def shared(self) -> bool:
        """Whether several threads of this process have been committing lately."""
        return self._group.shared

    def append_lock(self, is_small: bool) -> Hold:
        """Return the lock for preparing a small transaction next to other threads."""
        return self._group.turn.preparing if is_small and self._group.shared else NOTHING

    @property
    def key_lock(self) -> AbstractContextManager[object]:
        """What a thread holds that has compared new primary keys, until they have landed.

        Of threads that bring keys at the same time each would undo what the others have compared.
        """
        return self._group.key_turn

    def resume(self, in_doubt: Unknown) -> int:
        """Find out what became of a commit whose outcome was unknown, putting the same bytes again.

        Returns
        -------
        int
            The version: it is in the log.

        Raises
        ------
        CommitConflictError
            If another commit holds the slot, or held it before it was cleaned: nothing of this one is in
            the log, nor will ever be.
        CommitUnknownError
            If storage still gives no clear answer.
        """
        version, token = in_doubt.version, in_doubt.token
        try:
            self._check_own(in_doubt)
        except StorageError as error:  # the outcome is as unclear as before
            raise unknown_error(replace(in_doubt, tries=in_doubt.tries + 1)) from error
        settled = self._driver.drive(put_slot(version, token, in_doubt.data, in_doubt=True))
        if isinstance(settled, Unknown):
            raise unknown_error(replace(settled, tries=in_doubt.tries + 1))
        if isinstance(settled, Slot) and settled.token != token:
            raise slot_taken_error(in_doubt, settled)
        self.refresh()
        return version

    def _check_own(self, in_doubt: Unknown) -> None:
        """Raise StoreReplacedError if the commit is not one of the store that is at the address now."""
        if in_doubt.version == 0:
            return
        self._checked_head(always=True)
        if self._slots.identity.is_foreign(decode_slot(in_doubt.data, commit_key(in_doubt.version))):
            raise self._slots.identity.replaced(0)

    def _commit_together(self, members: Sequence[GroupMember], if_stopped: IfStopped) -> list[Outcome]:
        head = self._checked_head()
        try:
            outcomes = self._commit_on(head.state, members, if_stopped)
        except DamageError:
            self._checked_head(always=True)  # a slot that does not continue the log may be of another store
            raise
        for outcome in outcomes:
            if isinstance(outcome, Committed) and outcome.commit is not None:
                self._driver.record_commit(outcome.commit, ahead_of(outcome.state.properties))
                self._advance(outcome.state)
                self._care.after_commit(outcome.version)
                break
        return outcomes

    def _checked_head(self, always: bool = False) -> LogSnapshot:
        """Return the newest known snapshot after checking that the store was not replaced.

        Parameters
        ----------
        always
            Look at the store however short a time ago that was done.

        Raises
        ------
        StoreReplacedError, StoreNotFoundError
            If the store was replaced or removed, or another one's commit stands in the way.
        DamageError
            If the log has a gap behind the head.
        """
        head, identity = self.known(), self._slots.identity
        identity.set_store_id(head.state.store_id)
        if always or identity.is_due:
            look = self._look_behind(head.state)
            if look.present:
                head = self._refresh_from(head, look)
        identity.check_writable()
        return head

    def check_lasts(self, expires_at_us: int, what: str) -> None:
        """Check that a lease or claim is not over already by the time of the store.

        Raises
        ------
        CommitError
            If it is; see `CommitDriver.check_lasts`.
        """
        self._driver.check_lasts(self.known().state, expires_at_us, what)

    @contextmanager
    def checking(self) -> Iterator[None]:
        """Check that a commit still goes into the same store, beside what the caller writes for it.

        Raises
        ------
        StoreReplacedError, StoreNotFoundError
            At the end, if it would not.

        Notes
        -----
        Only where the last check is too old for a commit; a local disk is looked at before the commit, in
        microseconds. Where the check fails, the commit does it again.
        """
        identity = self._slots.identity
        if identity.is_local or not identity.is_due:
            yield
            return
        state = self.known().state

        def check() -> None:
            with suppress(StorageError, DamageError):
                self._look_behind(state)

        try:
            wait = self._runtime.spawn(check)
        except RuntimeError as error:
            if not is_out_of_threads(error):
                raise
            yield
            return
        try:
            yield
        finally:
            wait(None)
        identity.check_writable()

    def _commit_on(
        self, state: LogState, members: Sequence[GroupMember], if_stopped: IfStopped = lambda _: None
    ) -> list[Outcome]:
        clock = self._driver.check_clock(state)
        return self._driver.drive(
            commit_protocol(
                state,
                members,
                new_token=self._runtime.token,
                now_us=clock,
                load_manifest=self.load_manifest,
                writer=self._writer(),
                if_stopped=if_stopped,
            ),
            self._group.turn.leading if self._group.shared else NOTHING,
        )

    # upkeep

    def checkpoint(self, carry_out: CarryOut | None = None) -> CheckpointRef:
        """Write a checkpoint of the newest version, verify it, and leave a hint; see `write_checkpoint`.

        Grows with the segments and parts touched since the last checkpoint.
        """
        return self._care.checkpoint(carry_out)

    def compact(self) -> LogCompaction:
        """Put every slot that can be into compacted ranges, and leave a hint."""
        return self._care.compact()

    def report_maintenance(self, operation: str, reached: int, objects: int, size_bytes: int) -> None:
        """Record maintenance of the log for the history; see `UpkeepNote`."""
        self._care.report(operation, reached, objects, size_bytes)

    def close(self, timeout_s: float | None = None) -> None:
        """Finish scheduled maintenance within the timeout, and schedule none from then on."""
        self._care.close(timeout_s)
