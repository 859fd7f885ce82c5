"""Planning a vacuum: what nothing that is kept names, with its size. `executor` executes the plan."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pyarrow as pa

from spark_pages.errors import StorageError
from spark_pages.format.checkpoint_tree import Node
from spark_pages.format.features import check_writable
from spark_pages.format.names import PageFolders, commit_key
from spark_pages.log.checkpoint.reader import TreeReader
from spark_pages.log.checkpoint.writer import write_checkpoint
from spark_pages.log.discovery import base_state, newest_readable, version_at
from spark_pages.log.log import Log
from spark_pages.log.replay import replay
from spark_pages.log.retention import RetentionPolicy, newer, oldest_to_keep
from spark_pages.log.slots import SlotReader
from spark_pages.log.state import LogState
from spark_pages.log.vacuum.executor import VacuumExecutor
from spark_pages.log.vacuum.orphans import page_files_below, unnamed_in_log
from spark_pages.log.vacuum.plan import OBJECTS_SCHEMA, VacuumPlan, VacuumResult
from spark_pages.log.vacuum.reachability import (
    ROUND,
    CommitWalker,
    Reason,
    ReferencedObjects,
    Trees,
    TreeWalker,
    batches,
    first_commit,
    ranges_below,
    without_replaced,
)
from spark_pages.model.actions import CheckpointRef, Retention
from spark_pages.model.ids import Version
from spark_pages.progress import phase
from spark_pages.runtime import Runtime
from spark_pages.storage.disk_reserve import release_reserve
from spark_pages.storage.store import size_if_there


class VacuumPlanner:
    """Plans vacuums of one log.

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

    def plan(self, keep: RetentionPolicy, orphans: bool = False, further: bool = False) -> VacuumPlan:
        """Plan what to remove under this retention.

        Parameters
        ----------
        keep
            How much.
        orphans
            Whether to list the store too, for what no commit ever named.
        further
            Whether to move on although only vacuum itself has committed since the last time.

        Raises
        ------
        UnsupportedFormatError
            If the store asks its writers to know what this release does not: it cannot tell what may go.

        Notes
        -----
        Requests: the commits from the first uncleaned one on, roots and parts of the checkpoints that they
        name, segments that only old ones hold or that are new, and one for each object that goes. All
        other segments of the oldest kept checkpoint are read where a page file may go, to prove it. May write
        a checkpoint. Memory: a string for each page file that may go and for each object of those trees.
        """
        phase("looking for what may go")
        head = self._log.refresh_to_write().state
        check_writable(head.features)
        self._slots.record_range(head.compacted)  # kept commits are then read in few requests
        oldest = oldest_to_keep(head, self._wanted(keep, head), self._runtime.now_us())
        before = head.retention
        if before is not None and not further and not self._changed(before.min_readable, oldest):
            oldest = before.min_readable
        folders = PageFolders.of(head.properties)
        checkpoint, failed = self._checkpoint_for(oldest, head)
        retention = Retention(Version(oldest), Version(oldest), checkpoint)
        objects, slots, again = self._find(head, folders, retention, orphans)
        if failed is not None and not objects and release_reserve(self._store):
            checkpoint, failed = self._checkpoint_for(oldest, head)
            retention = Retention(Version(oldest), Version(oldest), checkpoint)
            objects, slots, again = self._find(head, folders, retention, orphans)

        def run(plan: VacuumPlan) -> VacuumResult:
            if failed is not None and not objects:
                raise failed
            return VacuumExecutor(self._log, self._runtime, self._commits, plan).execute()

        return VacuumPlan(
            head.version,
            retention,
            self._sized(objects),
            slots,
            again and oldest == head.version,
            run,
            failed is not None,
        )

    def _wanted(self, keep: RetentionPolicy, head: LogState) -> int:
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

    def _checkpoint_for(
        self, oldest: int, head: LogState
    ) -> tuple[CheckpointRef | None, StorageError | None]:
        """Return the newest checkpoint that `oldest` can be read from, and any error of writing it.

        Writes one first, if that lets more slots go.
        """
        known = newer(self._named_at(oldest), head.retention.checkpoint if head.retention else None)
        if oldest == 0 or (known is not None and not self._changed(known.version, oldest)):
            return known, None
        try:
            made = self._checkpoint_at(oldest, known, head)
        except StorageError as error:  # of a store that may only be read, say: then fewer slots can go
            return known, error
        return made if made.version == oldest else known, None

    def _named_at(self, version: int) -> CheckpointRef | None:
        """Return the checkpoint that a commit names, or an earlier one if that was lost and written again."""
        (commit,) = self._slots.commits(version, version + 1)
        return newest_readable(self._slots, self._tree, commit.checkpoint)

    def _checkpoint_at(self, oldest: int, base: CheckpointRef | None, head: LogState) -> CheckpointRef:
        if oldest == head.version:
            return self._log.checkpoint()
        state = base_state(self._tree, base) if base else LogState()
        state = replay(state, self._slots.commits(state.version + 1, oldest + 1), self._log.load_manifest)
        ref = write_checkpoint(
            self._store, state, self._log.open(state).checkpoint, self._runtime.token(), self._runtime.map
        ).ref
        base_state(self._tree, ref)  # read back before anything rests on it
        return ref

    def _find(
        self, head: LogState, folders: PageFolders, retention: Retention, orphans: bool
    ) -> tuple[dict[str, Reason], tuple[int, int], bool]:
        """Objects that may go, slots [first, end) among them, and whether another vacuum finds more."""
        checkpoint, oldest = retention.checkpoint, retention.min_readable
        if checkpoint is None:
            return {}, (0, 0), False
        end = min(oldest, checkpoint.version)
        first = first_commit(self._slots, head.retention.min_readable) if head.retention else 0
        first = min(first, oldest)
        epoch = oldest if orphans else checkpoint.version
        old = self._commits.walk(first, end, partial=True)
        kept = self._commits.walk(max(first, end), head.version + 1, below=epoch)
        floor = self._named_at(oldest)
        least = floor.version if floor else 0
        named = {*old.checkpoints, *kept.checkpoints, checkpoint}
        if head.retention is not None and head.retention.checkpoint is not None:
            named.add(head.retention.checkpoint)
        walker = TreeWalker(self._tree, self._runtime.map)
        kept_refs = {ref for ref in named if ref.version >= least or ref == checkpoint}
        living = walker.reachable(without_replaced(self._tree, kept_refs))
        dead = walker.remaining(named - kept_refs)
        found = {commit_key(version): Reason.SLOT for version in range(first, end)}
        needed = living.keys()
        found |= {key: reason for key, reason in dead.reasons() if key not in needed}
        found |= dict.fromkeys(old.manifests - kept.manifests, Reason.MANIFEST)
        found |= {each.key: Reason.COMPACTED for each in ranges_below(first, end)} if first < end else {}
        gone = [node for key, node in dead.segments.items() if key not in living.segments]
        files = old.page_files | {f for some in batches(gone) for f in walker.remaining_page_files(some)}
        listed: set[str] = set()
        if orphans:
            named_keys = {*old.manifests, *kept.manifests, *dead.keys(), *living.keys()}
            listed = {info.key for info in page_files_below(self._store, folders, oldest)}
            void = {info.key for info in unnamed_in_log(self._store, oldest, end, named_keys)}
            found |= dict.fromkeys(void - set(found), Reason.ORPHAN)
        candidates = {f for f in files | listed if folders.epoch_of(f) is not None} - kept.page_files
        shared = self._verify(walker, floor, checkpoint, living, dead, candidates)
        for some in batches(shared):
            if not candidates:
                break
            candidates -= walker.page_files(some)
        found |= {f: Reason.PAGE_FILE if f in files else Reason.ORPHAN for f in candidates}
        again = floor is not None and floor != checkpoint and self._between(old, kept, floor, oldest)
        return found, (first, max(first, end)), again

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
        before = walker.reachable([floor]) if floor and floor != checkpoint else Trees()
        own = walker.reachable([checkpoint])
        fresh = {key: node for key, node in own.segments.items() if key not in before.segments}
        for some in batches(list(fresh.values())):
            candidates -= walker.page_files(some)
        rest = [key for key in living.segments if key not in fresh]
        rest.sort(key=lambda key: key in dead.segments)
        return [living.segments[key] for key in rest]

    @staticmethod
    def _between(old: ReferencedObjects, kept: ReferencedObjects, floor: CheckpointRef, oldest: int) -> bool:
        return any(floor.version < version <= oldest for version in (*old.changes, *kept.changes))

    def _sized(self, found: dict[str, Reason]) -> pa.Table:
        """Return the objects that exist, with their sizes."""
        keys = sorted(found)
        sizes: list[int | None] = []
        for some in batches(keys):
            sizes += self._runtime.map(partial(size_if_there, self._store), some)
        there = [(key, size) for key, size in zip(keys, sizes, strict=True) if size is not None]
        columns = (
            [key for key, _ in there],
            [size for _, size in there],
            [found[key].value for key, _ in there],
        )
        return pa.table(
            [pa.array(c, t.type) for c, t in zip(columns, OBJECTS_SCHEMA, strict=True)], OBJECTS_SCHEMA
        )
