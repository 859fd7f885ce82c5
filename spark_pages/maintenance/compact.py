"""Page compaction: runs of small pages become full ones, and large pages are split; rows stay what they are.

`plan` decides from metadata alone; `rewriting` does the work of each run, here or
in a Spark executor; the transaction commits all of it at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from spark_pages.errors import CommitConflictError, SnapshotExpiredError, SparkPagesError, TableNotFoundError
from spark_pages.maintenance.claims import claim_rows, new_owner, release_claims
from spark_pages.maintenance.compaction_plan import CompactionTask, claimed_ranges, plan_compaction
from spark_pages.maintenance.page_rewrite import page_target, rewrite_runs, stored_bytes
from spark_pages.model.actions import Claim
from spark_pages.model.added_pages import NewPage
from spark_pages.model.row_ranges import RowRanges
from spark_pages.progress import Phase, phase
from spark_pages.query.snapshot import Snapshot
from spark_pages.query.table import Table
from spark_pages.runtime import Runtime, Spawn, spawn_thread
from spark_pages.transaction.transaction import Transaction

_MOST_TRIES = 8
"""Times that a purge is tried while others replace the same pages."""

_MOST_ROUNDS = 4
"""Rounds of one compaction at most. The last page of a run may turn out to fit into its neighbour."""


@dataclass(frozen=True, eq=False, slots=True)
class Compaction:
    """What a page compaction did.

    Attributes
    ----------
    tasks, pages
        The runs that went, and the pages that took the place of each.
    version
        Of the last commit; None where there was nothing to do.
    claimed_by_others
        Chains that another job was working on.
    conflicts
        Runs that were left out, because another commit replaced pages of them in the meantime.
    purged_pages
        Pages that gave way because rows of theirs were deleted: to blank ones, and marks to joined ones.
    """

    tasks: Sequence[CompactionTask] = ()
    pages: Sequence[Sequence[NewPage]] = ()
    version: int | None = None
    claimed_by_others: int = 0
    conflicts: int = 0
    purged_pages: int = 0

    def plus(self, later: Compaction) -> Compaction:
        """Both together. Pages that are compacted twice count in both."""
        if later.version is None:
            return replace(self, claimed_by_others=later.claimed_by_others)
        return replace(later, tasks=[*self.tasks, *later.tasks], pages=[*self.pages, *later.pages])

    def as_dict(self, table: str) -> dict[str, Any]:
        """Return the figures as plain values."""
        return {
            "table": table,
            "runs": len(self.tasks),
            "pages_before": sum(task.run.num_pages for task in self.tasks),
            "pages_after": sum(len(pages) for pages in self.pages),
            "version": self.version,
            "claimed_by_others": self.claimed_by_others,
            "conflicts": self.conflicts,
            "purged_pages": self.purged_pages,
        }


class BeginTransaction(Protocol):
    """Opens a transaction on a table."""

    def __call__(self, operation: str, *, read_version: int | None = None) -> Transaction:
        """One for this operation, on this version or the newest."""


Rewrite = Callable[[Transaction, Table, Sequence[CompactionTask]], Sequence[Sequence[NewPage]]]
"""Writes full pages for each run; nothing refers to them before the transaction commits."""


def begin_rewriting(table: Table, tasks: Sequence[CompactionTask]) -> Phase:
    """Begin the phase in which pages are read and written, here or elsewhere."""
    pages = sum(task.run.num_pages for task in tasks)
    return phase(
        f"rewriting pages of {table.name}", pages, "pages", sum(stored_bytes(task.run) for task in tasks)
    )


def rewrite_locally(
    txn: Transaction, table: Table, tasks: Sequence[CompactionTask], spawn: Spawn = spawn_thread
) -> Sequence[Sequence[NewPage]]:
    """Full pages for each run, written by this process."""
    begin_rewriting(table, tasks)
    wanted = ((task.run, page_target(table, task.column)) for task in tasks)
    next_key = partial(txn.next_page_file, table.name)
    return rewrite_runs(wanted, table.page_handler, txn.store, next_key, spawn)


def compact_table(
    begin: BeginTransaction,
    name: str,
    runtime: Runtime,
    rewrite: Rewrite | None = None,
    *,
    purge: bool = False,
) -> Compaction:
    """Claim the pages of a table that are too small or too large, rewrite them, commit, release the claims.

    Parameters
    ----------
    begin
        Opens a transaction for the operation that it is told, on the newest version or a given one.
    rewrite
        Does the work in place of this process.
    purge
        Whether to blank all values of deleted rows, not only those of pages without a live row.

    Raises
    ------
    CommitConflictError
        If other commits replaced pages of every run of the first round in the meantime; nothing was
        committed.

    Notes
    -----
    Two commits where there is something to do, the first of which only claims, and one before them where a
    purge is due. Runs of which another commit
    has replaced pages are left out, and the others are committed. Looks at the new pages again until nothing
    is left to do among them, mostly after the first round.
    """
    table = begin("compact pages").snapshot.table(name)
    num_rows = table.end_row
    purged = Compaction()
    if table.marks is not None:
        pages, version = purge_table(begin, name, whole_pages=not purge)
        purged = Compaction(version=version, purged_pages=pages)
    return replace(
        purged.plus(_compact(begin, name, runtime, rewrite, num_rows)), purged_pages=purged.purged_pages
    )


def _compact(
    begin: BeginTransaction, name: str, runtime: Runtime, rewrite: Rewrite | None, num_rows: int
) -> Compaction:
    """Run rounds until nothing is left to do."""
    latest = done = _compact_once(begin, name, runtime, rewrite, num_rows)
    for _ in range(_MOST_ROUNDS - 1):
        if latest.version is None or latest.claimed_by_others or latest.conflicts:
            break
        try:
            latest = _compact_once(begin, name, runtime, rewrite, num_rows)
        except CommitConflictError:  # the rounds before are committed; the next compaction finds the rest
            break
        done = done.plus(latest)
    return done


def purge_table(
    begin: BeginTransaction, name: str, rows: RowRanges | None = None, *, whole_pages: bool = False
) -> tuple[int, int | None]:
    """Blank values of deleted rows; return how many pages gave way, and the version, None without any.

    Parameters
    ----------
    rows
        Only in pages that hold one of these, of which those that live again are left out.
    whole_pages
        See `Transaction.purge_rows`.

    Raises
    ------
    CommitConflictError
        If other commits replaced some of the pages meanwhile, each time that it was tried.
    """
    tries = 0
    while True:
        tries += 1
        try:
            with begin("purge rows") as txn:
                pages = txn.purge_rows(name, _dead_of(txn, name, rows), whole_pages=whole_pages)
            return pages, txn.version if pages else None
        except CommitConflictError:
            if tries == _MOST_TRIES:
                raise


def _dead_of(txn: Transaction, name: str, rows: RowRanges | None) -> NDArray[np.int64] | None:
    if rows is None:
        return None
    table = txn.snapshot.table(name)
    numbers = rows.between(0, table.end_row).rows()
    return numbers[~table.are_live(numbers)]


def _compact_once(
    begin: BeginTransaction, name: str, runtime: Runtime, rewrite: Rewrite | None, num_rows: int
) -> Compaction:
    """One round, over the first rows of a table, without what others append meanwhile."""
    whole = begin("compact pages").snapshot.table(name)
    whole.directory.load(runtime.map)
    planned = plan_compaction(whole, num_rows=num_rows)
    if not planned:
        return Compaction()
    wanted = claimed_ranges(planned)
    claims = claim_rows(lambda: begin("claim rows"), wanted, new_owner(runtime), runtime)
    others = len(wanted) - len(claims)
    if not claims:
        return Compaction(claimed_by_others=others)
    done: Compaction | None = None
    try:
        txn = begin("compact pages")
        table = txn.snapshot.table(name)
        tasks = plan_compaction(table, claims)
        work = rewrite or partial(rewrite_locally, spawn=runtime.spawn)
        written = list(zip(tasks, work(txn, table, tasks), strict=True))
        done = _commit(begin, txn, name, written, claims)
    finally:
        if done is None:
            _release_after_failure(begin, claims)
    return replace(done, claimed_by_others=others)


def _commit(
    begin: BeginTransaction,
    txn: Transaction,
    name: str,
    written: Sequence[tuple[CompactionTask, Sequence[NewPage]]],
    claims: Sequence[Claim],
) -> Compaction:
    """Commit what has been written, without the runs that others have changed since.

    A transaction that tries again stands on the same version as the first one: the names of page files tell
    vacuum by which version their writer may still name them.
    """
    runs = len(written)
    while True:
        try:
            with txn:
                for task, new in written:
                    removed = task.run.page_ids.tolist()
                    txn.replace_pages(task.table_id, task.field_id, task.first_row, removed, list(new))
                release_claims(txn, claims)
        except CommitConflictError as conflict:
            now = begin("compact pages").snapshot
            left = [(task, new) for task, new in written if _is_there(now, name, task)]
            if not left or len(left) == len(written):
                raise
            written = left
            try:
                txn = begin("compact pages", read_version=txn.snapshot.version)
            except SnapshotExpiredError:  # a vacuum has passed: what was written may be gone
                raise conflict from None
        else:
            tasks, pages = [task for task, _ in written], [new for _, new in written]
            return Compaction(tasks, pages, txn.version, conflicts=runs - len(written))


def _is_there(now: Snapshot, name: str, task: CompactionTask) -> bool:
    """Whether the chain still has the run where it was."""
    try:
        table = now.table(name)
    except TableNotFoundError:
        return False
    if table.definition.field_ids.get(task.column) != task.field_id:
        return False
    chain = table.directory.chain(task.column)
    end_row = task.first_row + task.run.num_rows
    if end_row > chain.num_rows:
        return False
    found = chain.pages_between(task.first_row, end_row).page_ids
    wanted = task.run.page_ids[task.run.numbers("entry_count") > 0]
    return bool(np.isin(wanted, found).all())


def _release_after_failure(begin: BeginTransaction, claims: Sequence[Claim]) -> None:
    """Release claims after a failure, if that can be done now; otherwise they expire."""
    try:
        with begin("release claims") as txn:
            release_claims(txn, claims)
    except SparkPagesError:
        return
