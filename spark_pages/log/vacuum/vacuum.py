"""Vacuum: a plan of what goes, and its execution. `garbage` finds what nothing kept names.

The order of `VacuumPlan.execute` is what makes it safe, and what lets it be killed anywhere:

1. Commit a `Retention`. From then on nobody who read before it can bring anything back.
2. Read what was committed since the plan was made. What that names stays.
3. Delete page files, manifests and compacted ranges, then of dead checkpoints what is below before what
   names it, so that what is left can still be found.
4. Overwrite the slots by tombstones, oldest first. A slot is the last to go of all that it names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

import pyarrow as pa

from spark_pages.errors import CommitConflictError, ObjectNotFoundError, SparkPagesError, StorageError
from spark_pages.log.checkpoint.reader import TreeReader
from spark_pages.log.checkpoint.tree import Node
from spark_pages.log.checkpoint.writer import write_checkpoint
from spark_pages.log.commit.messages import AlreadyLanded
from spark_pages.log.encoding.commit_codec import encode_tombstone
from spark_pages.log.features import check_writable
from spark_pages.log.head import SlotReader, base_state, version_at
from spark_pages.log.hint import read_hints, write_hint
from spark_pages.log.log import Log
from spark_pages.log.names import commit_key
from spark_pages.log.newest import untold
from spark_pages.log.page_folders import PageFolders
from spark_pages.log.replay import replay
from spark_pages.log.retention import Keep, newer, oldest_to_keep
from spark_pages.log.state import LogState
from spark_pages.log.vacuum.garbage import (
    ROUND,
    CommitWalker,
    Named,
    Reason,
    Trees,
    TreeWalker,
    first_commit,
    ranges_below,
    rounds,
)
from spark_pages.log.vacuum.orphans import find_orphans
from spark_pages.log.vacuum.plan import OBJECTS_SCHEMA, VacuumPlan, VacuumResult
from spark_pages.log.who_landed import with_who_landed
from spark_pages.model.actions import (
    COMMITTED,
    DELETION,
    CheckpointRef,
    Commit,
    Lease,
    Retention,
    Tombstone,
    TransactionRecord,
)
from spark_pages.model.ids import Version
from spark_pages.progress import phase
from spark_pages.runtime import Runtime, writer_name


class Vacuum:
    """Plans and executes vacuums of one log.

    Parameters
    ----------
    log
        The log.
    runtime
        Clock, ids, and how requests of a round are made.
    """

    def __init__(self, log: Log, runtime: Runtime) -> None:
        self._log = log
        self._store = log.store
        self._runtime = runtime
        self._slots = SlotReader(log.store, runtime.map)
        self._tree = TreeReader(log.store, runtime.map)
        self._commits = CommitWalker(self._slots, self._tree, runtime.map)

    # planning

    def plan(self, keep: Keep, orphans: bool = False, further: bool = False) -> VacuumPlan:
        """What may go when so much is kept.

        Parameters
        ----------
        keep
            How much.
        orphans
            Whether to list the store too, for what no commit ever named.
        further
            Whether to move on although only vacuum itself has committed since the last time.

        Notes
        -----
        Requests: the commits from the first uncleaned one on, roots and parts of the checkpoints that they
        name, segments that only old ones hold or that are new, and one for each object that goes. All
        other segments of the oldest kept checkpoint are read where a page file may go, to prove it. May write
        a checkpoint. Memory: a string for each page file that may go and for each object of those trees.
        """
        phase("looking for what may go")
        head = self._log.refresh().state
        self._slots.learn(head.compacted)  # kept commits are then read in few requests
        oldest = oldest_to_keep(head, self._wanted(keep, head), self._runtime.now_us())
        before = head.retention
        if before is not None and not further and not self._changed(before.min_readable, oldest):
            oldest = before.min_readable
        checkpoint = self._checkpoint_for(oldest, head)
        retention = Retention(Version(oldest), Version(oldest), checkpoint)
        end = min(oldest, checkpoint.version) if checkpoint else 0
        folders = PageFolders.of(head.properties)
        objects, first, again = self._find(head, folders, retention, end, orphans)
        return VacuumPlan(
            head.version,
            retention,
            self._sized(objects),
            (first, max(first, end)),
            again and oldest == head.version,
            self._execute,
        )

    def _wanted(self, keep: Keep, head: LogState) -> int:
        wanted = head.version
        if keep.versions is not None:
            wanted = min(wanted, head.version + 1 - max(1, keep.versions))
        if keep.age_us is not None:
            since = self._runtime.now_us() - keep.age_us
            oldest = head.retention.min_readable if head.retention else 0
            if self._log.time_of(oldest) > since:
                wanted = min(wanted, oldest)
            else:
                wanted = min(wanted, version_at(self._log.time_of, head.version, since))
        return max(0, wanted)

    def _changed(self, start: int, end: int) -> bool:
        """Whether some commit in (start, end] does more than vacuum does."""
        return any(
            record.retention is None
            for first in range(start + 1, end + 1, ROUND)
            for commit in self._slots.commits(first, min(first + ROUND, end + 1))
            for record in commit.records
        )

    def _checkpoint_for(self, oldest: int, head: LogState) -> CheckpointRef | None:
        """The newest checkpoint from which `oldest` can be read, written if that lets more slots go."""
        at = self._slots.commits(oldest, oldest + 1)[0].checkpoint
        known = newer(at, head.retention.checkpoint if head.retention else None)
        if oldest == 0 or (known is not None and not self._changed(known.version, oldest)):
            return known
        try:
            made = self._checkpoint_at(oldest, known, head)
        except StorageError:
            return known  # of a store that may only be read, say: then fewer slots can go
        return made if made.version == oldest else known

    def _checkpoint_at(self, oldest: int, base: CheckpointRef | None, head: LogState) -> CheckpointRef:
        if oldest == head.version:
            return self._log.checkpoint()
        check_writable(head.features)
        state = base_state(self._tree, base) if base else LogState()
        state = replay(state, self._slots.commits(state.version + 1, oldest + 1), self._log.load_manifest)
        ref = write_checkpoint(
            self._store, state, self._log.bind(state).checkpoint, self._runtime.token(), self._runtime.map
        ).ref
        base_state(self._tree, ref)  # read back before anything rests on it
        return ref

    def _find(
        self, head: LogState, folders: PageFolders, retention: Retention, end: int, orphans: bool
    ) -> tuple[dict[str, Reason], int, bool]:
        checkpoint, oldest = retention.checkpoint, retention.min_readable
        if checkpoint is None:
            return {}, 0, False
        first = first_commit(self._slots, head.retention.min_readable) if head.retention else 0
        first = min(first, oldest)
        epoch = oldest if orphans else checkpoint.version
        old = self._commits.walk(first, end, partial=True)
        kept = self._commits.walk(max(first, end), head.version + 1, below=epoch)
        floor = self._slots.commits(oldest, oldest + 1)[0].checkpoint
        least = floor.version if floor else 0
        named = {*old.checkpoints, *kept.checkpoints, checkpoint}
        if head.retention is not None and head.retention.checkpoint is not None:
            named.add(head.retention.checkpoint)
        walker = TreeWalker(self._tree, self._runtime.map)
        kept_refs = {ref for ref in named if ref.version >= least or ref == checkpoint}
        living = walker.kept(kept_refs)
        dead = walker.left(named - kept_refs)
        found = {commit_key(version): Reason.SLOT for version in range(first, end)}
        needed = living.keys()
        found |= {key: reason for key, reason in dead.reasons() if key not in needed}
        found |= dict.fromkeys(old.manifests - kept.manifests, Reason.MANIFEST)
        found |= {each.key: Reason.COMPACTED for each in ranges_below(first, end)} if first < end else {}
        gone = [node for key, node in dead.segments.items() if key not in living.segments]
        files = old.page_files | {f for some in rounds(gone) for f in walker.page_files_left(some)}
        listed: set[str] = set()
        if orphans:
            named_keys = {*old.manifests, *kept.manifests, *dead.keys(), *living.keys()}
            seen = find_orphans(self._store, folders, oldest, end, named_keys)
            listed = seen.page_files
            found |= dict.fromkeys(seen.others - living.keys() - set(found), Reason.ORPHAN)
        candidates = {f for f in files | listed if folders.epoch_of(f) is not None} - kept.page_files
        shared = self._verify(walker, floor, checkpoint, living, dead, candidates)
        for some in rounds(shared):
            if not candidates:
                break
            candidates -= walker.page_files(some)
        found |= {f: Reason.PAGE_FILE if f in files else Reason.ORPHAN for f in candidates}
        again = floor is not None and floor != checkpoint and self._between(old, kept, floor, oldest)
        return found, first, again

    def _verify(
        self,
        walker: TreeWalker,
        floor: CheckpointRef | None,
        checkpoint: CheckpointRef,
        living: Trees,
        dead: Trees,
        candidates: set[str],
    ) -> Sequence[Node]:
        """Read what the kept checkpoint has of its own, and take from the candidates what is named there.

        Gives the segments of kept checkpoints that are not read yet, those that nothing dead shares first.
        """
        before = walker.kept([floor]) if floor and floor != checkpoint else Trees()
        own = walker.kept([checkpoint])
        fresh = {key: node for key, node in own.segments.items() if key not in before.segments}
        for some in rounds(list(fresh.values())):
            candidates -= walker.page_files(some)
        rest = [key for key in living.segments if key not in fresh]
        rest.sort(key=lambda key: key in dead.segments)
        return [living.segments[key] for key in rest]

    @staticmethod
    def _between(old: Named, kept: Named, floor: CheckpointRef, oldest: int) -> bool:
        return any(floor.version < version <= oldest for version in (*old.changes, *kept.changes))

    def _sized(self, found: dict[str, Reason]) -> pa.Table:
        """The objects that are there, with their sizes."""
        keys = sorted(found)
        sizes: list[int | None] = []
        for start in range(0, len(keys), ROUND):
            sizes += self._runtime.map(self._size, keys[start : start + ROUND])
        there = [(key, size) for key, size in zip(keys, sizes, strict=True) if size is not None]
        columns = (
            [key for key, _ in there],
            [size for _, size in there],
            [found[key].value for key, _ in there],
        )
        return pa.table(
            [pa.array(c, t.type) for c, t in zip(columns, OBJECTS_SCHEMA, strict=True)], OBJECTS_SCHEMA
        )

    def _size(self, key: str) -> int | None:
        try:
            return self._store.size(key)
        except ObjectNotFoundError:
            return None

    # execution

    def _execute(self, plan: VacuumPlan) -> VacuumResult:
        if not plan.objects.num_rows:
            return VacuumResult(None, plan.retention.min_readable, 0, 0)
        phase(f"deleting {plan.objects.num_rows:,} objects")
        version = self._commit(plan)
        head = self._log.refresh().state
        came = self._commits.walk(plan.version + 1, head.version + 1)
        spared = {*came.page_files, *came.manifests, *self._needed_by(came.checkpoints, plan.retention)}
        sizes = dict(zip(*(plan.objects.column(name).to_pylist() for name in ("key", "bytes")), strict=True))
        slots = {commit_key(v) for v in range(*plan.slots)}
        going = [key for key in sizes if key not in spared and key not in slots]
        self._mend_hint(head)
        gone: list[int] = []  # bytes of each object that was still there: others may have been quicker
        try:
            for some in _phases(going):
                for start in range(0, len(some), ROUND):
                    self._runtime.map(partial(self._remove, gone), some[start : start + ROUND])
            assert plan.retention.checkpoint is not None
            bury = partial(self._bury, gone, sizes, plan.retention.checkpoint)
            for start in range(plan.slots[0], plan.slots[1], ROUND):
                self._runtime.map(bury, range(start, min(start + ROUND, plan.slots[1])))
        except SparkPagesError:
            self._tell(plan, gone)
            raise
        self._tell(plan, gone)
        left = len(sizes) - len(going) - len(slots)
        return VacuumResult(version, plan.retention.min_readable, len(gone), sum(gone), left)

    def _tell(self, plan: VacuumPlan, gone: Sequence[int]) -> None:
        """The history says what was deleted; that it cannot be told yet is no failure."""
        if gone:
            with suppress(StorageError):
                self._log.tell(DELETION, plan.retention.min_readable, len(gone), sum(gone))

    def _needed_by(self, checkpoints: set[CheckpointRef], retention: Retention) -> set[str]:
        """The objects of checkpoints that were named since the plan was made, and page files they name.

        A checkpoint that was made beside the kept one may have given an inline page another home. What is in
        segments of the kept one is no part of the plan, so these are not read.
        """
        walker = TreeWalker(self._tree, self._runtime.map)
        trees = walker.left(checkpoints)
        needed = trees.keys()
        if retention.checkpoint is not None and checkpoints - {retention.checkpoint}:
            known = walker.left([retention.checkpoint]).segments
            for some in rounds([node for key, node in trees.segments.items() if key not in known]):
                needed |= walker.page_files_left(some)
        return needed

    def _commit(self, plan: VacuumPlan) -> int | None:
        """The log says that versions before the oldest are gone; None where it said so already."""
        retention = plan.retention
        head = self._log.refresh()
        if _covers(head.state.retention, retention):
            return None
        token = self._runtime.token()
        parameters = {
            "planned_objects": str(plan.objects.num_rows),
            "planned_bytes": str(plan.size_bytes),
            "oldest": str(retention.min_readable),
        }

        def build(state: LogState) -> TransactionRecord | AlreadyLanded:
            if _covers(state.retention, retention):
                return AlreadyLanded(state.version)
            oldest = oldest_to_keep(state, retention.min_readable, self._runtime.now_us())
            if oldest < retention.min_readable:
                raise CommitConflictError(
                    f"A vacuum was to end versions before {retention.min_readable}, but by now a tag or "
                    f"lease holds version {oldest}. Nothing was deleted.",
                    hint="Plan again.",
                )
            over = [lease for lease in state.leases.values() if lease.version < retention.min_readable]
            return TransactionRecord(
                token=token,
                operation="vacuum",
                parameters=parameters,
                read_version=head.state.version,
                writer=writer_name(),
                retention=retention,
                leases=tuple(Lease(lease.lease_id, lease.version, 0) for lease in over),
            )

        try:
            outcome = self._log.commit(head, build)
        except CommitConflictError as error:
            raise with_who_landed(
                error, self._log, plan.version, lambda record: bool(record.tags or record.leases)
            ) from error
        return outcome.version if outcome.commit is not None else None

    def _mend_hint(self, head: LogState) -> None:
        """The hint leads to no checkpoint that goes or has cleaned slots behind it."""
        hint, newest = read_hints(self._store), head.newest_checkpoint
        if newest is not None and (hint.checkpoint is None or hint.checkpoint.version < newest.version):
            write_hint(self._store, newest, max(hint.compacted, head.compacted), untold(head, hint.upkeep))

    def _remove(self, gone: list[int], key: str) -> None:
        """The object is not there."""
        size = self._size(key)
        if size is not None:
            self._store.delete(key)
            gone.append(size)

    def _bury(
        self, gone: list[int], sizes: Mapping[str, int], checkpoint: CheckpointRef, version: int
    ) -> None:
        """Slot `version` holds a tombstone."""
        slot = self._slots.read(version)
        if isinstance(slot, Commit):
            tombstone = Tombstone(
                slot.version,
                slot.timestamp_us,
                slot.token,
                slot.digest,
                tuple((record.token, COMMITTED) for record in slot.records),
                checkpoint,
            )
            self._store.put(commit_key(version), encode_tombstone(tombstone)[0])
            gone.append(sizes[commit_key(version)])


def _covers(now: Retention | None, wanted: Retention) -> bool:
    return now is not None and now.min_readable >= wanted.min_readable and now.min_epoch >= wanted.min_epoch


_ORDER = ("_log/stats/", "_log/segments/", "_log/catalog/", "_log/parts/", "_log/checkpoints/")


def _phases(keys: Sequence[str]) -> list[list[str]]:
    """What goes first, and what only when that is gone."""
    return [
        [key for key in keys if not key.startswith(_ORDER)],
        [key for key in keys if key.startswith(_ORDER[:3])],
        [key for key in keys if key.startswith(_ORDER[3])],
        [key for key in keys if key.startswith(_ORDER[4])],
    ]
