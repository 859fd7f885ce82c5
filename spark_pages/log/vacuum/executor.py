"""Executing the plan of a vacuum.

The order is what makes it safe, and what lets it be killed anywhere:

1. Commit a `Retention`. From then on nobody who read before it can bring anything back.
2. Read what was committed since the plan was made. What that names stays.
3. Delete page files, manifests and compacted ranges, then of dead checkpoints what is below before what
   names it, so that what is left can still be found.
4. Overwrite the slots by tombstones, oldest first. A slot is the last to go of all that it names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from spark_pages.errors import CommitConflictError, SparkPagesError, StorageError, UnsupportedFormatError
from spark_pages.format.commit import encode_tombstone
from spark_pages.format.features import check_writable
from spark_pages.format.names import commit_key
from spark_pages.log.commit.protocol_types import Duplicate
from spark_pages.log.conflict_error import attach_conflicting_commit
from spark_pages.log.last_checkpoint import read_hints, write_hint
from spark_pages.log.latest import unreported_notes
from spark_pages.log.log import Log
from spark_pages.log.retention import covers, oldest_to_keep
from spark_pages.log.state import LogState
from spark_pages.log.vacuum.plan import VacuumPlan, VacuumResult
from spark_pages.log.vacuum.reachability import CommitWalker, Item, TreeWalker, batches
from spark_pages.model.actions import (
    COMMITTED,
    DELETION,
    CheckpointRef,
    Commit,
    Lease,
    Tombstone,
    TransactionRecord,
)
from spark_pages.progress import advance, phase
from spark_pages.runtime import Runtime, writer_name
from spark_pages.storage.disk_reserve import keep_reserve, with_reserve
from spark_pages.storage.store import size_if_there


class VacuumExecutor:
    """One execution of a plan.

    Parameters
    ----------
    log, runtime
        Whose log it is; clock, ids, and how requests of a round are made.
    commits
        Reads commits, and what they name.
    plan
        What is to go.
    """

    def __init__(self, log: Log, runtime: Runtime, commits: CommitWalker, plan: VacuumPlan) -> None:
        self._log = log
        self._store = log.store
        self._runtime = runtime
        self._commits = commits
        self._plan = plan
        self._sizes: dict[str, int] = dict(
            zip(*(plan.objects.column(name).to_pylist() for name in ("key", "size_bytes")), strict=True)
        )
        self._gone: list[int] = []  # bytes of each object that was still there: others may have been quicker

    def execute(self) -> VacuumResult:
        """Delete what the plan lists, less what came into use again; see `VacuumPlan.execute`."""
        try:
            return with_reserve(self._store, self._execute)
        finally:
            keep_reserve(self._store)

    def _execute(self) -> VacuumResult:
        plan, oldest = self._plan, self._plan.retention.min_readable
        if not plan.objects.num_rows or plan.retention.checkpoint is None:  # without one nothing may go
            return VacuumResult(None, oldest, 0, 0)
        phase("deleting objects", plan.objects.num_rows, "objects", plan.size_bytes)
        version = self._commit()
        head = self._log.refresh_to_write().state
        check_writable(head.features)  # a newer release may have come between
        came = self._commits.walk(plan.version + 1, head.version + 1)
        spared = {*came.page_files, *came.manifests, *self._needed_by(came.checkpoints)}
        slots = {commit_key(slot) for slot in range(*plan.slots)}
        going = [key for key in self._sizes if key not in spared and key not in slots]
        self._repair_hint(head)
        try:
            for some in _phases(going):
                self._do(self._remove, some)
            self._write_tombstones(head)
        except SparkPagesError:
            self._report()
            raise
        self._report()
        left = len(self._sizes) - len(going) - len(slots)
        return VacuumResult(version, oldest, len(self._gone), sum(self._gone), left)

    def _write_tombstones(self, head: LogState) -> None:
        """Overwrite the plan's slots before the recorded checkpoint by tombstones; never a later one."""
        recorded = head.retention.checkpoint if head.retention else None
        if recorded is not None:
            first, end = self._plan.slots
            self._do(partial(self._write_tombstone, recorded), range(first, min(end, recorded.version)))

    def _do(self, work: Callable[[Item], None], wanted: Sequence[Item]) -> None:
        for some in batches(wanted):
            before = len(self._gone)
            self._runtime.map(work, some)
            advance(len(some), sum(self._gone[before:]))

    def _report(self) -> None:
        """Record the removed objects for the history; a failure to record is ignored."""
        if self._gone:
            with suppress(StorageError, UnsupportedFormatError):
                oldest = self._plan.retention.min_readable
                self._log.report_maintenance(DELETION, oldest, len(self._gone), sum(self._gone))

    def _needed_by(self, checkpoints: set[CheckpointRef]) -> set[str]:
        """Return the objects, page files included, of checkpoints that were written after the plan.

        A checkpoint that was made beside the kept one may have given an inline page another home. What is in
        segments of the kept one is no part of the plan, so these are not read.
        """
        walker = TreeWalker(self._commits.tree, self._runtime.map)
        trees = walker.remaining(checkpoints)
        needed = trees.keys()
        kept = self._plan.retention.checkpoint
        if kept is not None and checkpoints - {kept}:
            known = walker.remaining([kept]).segments
            for some in batches([node for key, node in trees.segments.items() if key not in known]):
                needed |= walker.remaining_page_files(some)
        return needed

    def _commit(self) -> int | None:
        """Record the plan's retention in the log; None where a record there covers the plan."""
        plan, retention = self._plan, self._plan.retention
        head = self._log.refresh_to_write()
        check_writable(head.state.features)
        if covers(head.state.retention, retention):
            return None
        token = self._runtime.token()
        parameters = {
            "planned_objects": str(plan.objects.num_rows),
            "planned_bytes": str(plan.size_bytes),
            "oldest": str(retention.min_readable),
        }

        def build(state: LogState) -> TransactionRecord | Duplicate:
            if covers(state.retention, retention):
                return Duplicate(state.version)
            if state.retention is not None and not covers(retention, state.retention):
                # its checkpoint may be void by now, or its oldest version be read from an older one
                raise CommitConflictError(
                    f"Cannot vacuum versions before {retention.min_readable}: another vacuum has given up "
                    f"versions before {state.retention.min_readable} meanwhile. Nothing was deleted.",
                    hint="Plan again: `store.vacuum_plan(retention)`.",
                )
            oldest = oldest_to_keep(state, retention.min_readable, self._runtime.now_us())
            if oldest < retention.min_readable:
                raise CommitConflictError(
                    f"Cannot vacuum versions before {retention.min_readable}: by now a tag or lease "
                    f"holds version {oldest}. Nothing was deleted.",
                    hint="Plan again: `store.vacuum_plan(retention)`.",
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
            raise attach_conflicting_commit(
                error, self._log, plan.version, lambda record: bool(record.tags or record.leases)
            ) from error
        return outcome.version if outcome.commit is not None else None

    def _repair_hint(self, head: LogState) -> None:
        """Let the hint lead to no checkpoint that goes or has cleaned slots behind it."""
        hint, newest = read_hints(self._store), head.newest_checkpoint
        if newest is not None and (hint.checkpoint is None or hint.checkpoint.version < newest.version):
            with suppress(StorageError):  # no answer depends on it, and a full disk may have no room
                write_hint(
                    self._store,
                    newest,
                    max(hint.compacted, head.compacted),
                    unreported_notes(head, hint.upkeep),
                )

    def _remove(self, key: str) -> None:
        """Remove the object, if it exists."""
        size = size_if_there(self._store, key)
        if size is not None:
            self._store.delete(key)
            self._gone.append(size)

    def _write_tombstone(self, checkpoint: CheckpointRef, version: int) -> None:
        """Slot `version` holds a tombstone."""
        slot = self._commits.slots.read(version)
        if isinstance(slot, Commit):
            tombstone = Tombstone(
                slot.version,
                slot.timestamp_us,
                slot.token,
                slot.digest,
                tuple((record.token, COMMITTED) for record in slot.records),
                checkpoint,
                slot.store_id,
            )
            self._store.put(commit_key(version), encode_tombstone(tombstone)[0])
            self._gone.append(self._sizes[commit_key(version)])


_ORDER = ("_log/stats/", "_log/segments/", "_log/catalog/", "_log/parts/", "_log/checkpoints/")


def _phases(keys: Sequence[str]) -> list[list[str]]:
    """Split keys into phases: the second is removed only after the first."""
    return [
        [key for key in keys if not key.startswith(_ORDER)],
        [key for key in keys if key.startswith(_ORDER[:3])],
        [key for key in keys if key.startswith(_ORDER[3])],
        [key for key in keys if key.startswith(_ORDER[4])],
    ]
