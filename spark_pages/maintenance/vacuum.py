"""Vacuum as a store offers it: what is to be kept, a plan, and the plan done until no more can go."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial

from spark_pages.errors import CommitConflictError, ObjectNotFoundError, SnapshotExpiredError, StorageError
from spark_pages.io import PageHandler
from spark_pages.log.log import Log
from spark_pages.log.reopen import retry_after_vacuum
from spark_pages.log.retention import retention_policy
from spark_pages.log.vacuum.plan import VacuumPlan, VacuumResult
from spark_pages.log.vacuum.planner import VacuumPlanner
from spark_pages.maintenance.purge import collect_rows, purge_dropped
from spark_pages.runtime import Runtime

_TRIES = 5


def plan_vacuum(
    log: Log,
    runtime: Runtime,
    retention: timedelta | int | str | None,
    orphans: bool,
    further: bool = False,
    pages: PageHandler | None = None,
) -> VacuumPlan:
    """Plan a vacuum; see `Store.vacuum_plan`.

    Parameters
    ----------
    pages
        Forgets what it has cached of the files that the plan deletes, once it is executed.
    """
    keep = retention_policy(retention, log.refresh().state.properties)
    plan = VacuumPlanner(log, runtime).plan(keep, orphans, further)
    if pages is None:
        return plan
    handler = pages

    def run(_: VacuumPlan) -> VacuumResult:
        try:
            return plan.execute()
        finally:
            handler.forget(plan.objects.column("key").to_pylist())

    return replace(plan, _run=run)


def vacuum(
    log: Log,
    runtime: Runtime,
    retention: timedelta | int | str | None,
    orphans: bool,
    pages: PageHandler | None = None,
) -> VacuumResult:
    """All that may go has gone; see `Store.vacuum`.

    Notes
    -----
    A disk without room for a new checkpoint may have some once the older one has let objects go: then it is
    tried again. Where only the newest versions are kept, what the checkpoint before this one needed becomes
    free by the first round and goes in a second one. Between the rounds dropped tables that no version shows
    any more are given up, see `definitions.purge`, and rows of table 0 that nobody needs are taken out, see
    `definitions.row_collection`; their pages go in that round, or when retention has passed the commits that
    say so.
    """
    done, plan = _round(log, runtime, retention, orphans, False, pages)
    if plan.lacks_checkpoint and done.objects:
        with suppress(StorageError):  # still no room: the older one will do
            more, plan = _round(log, runtime, retention, orphans, False, pages)
            done = _both(done, more)
    newest = log.refresh().state.version
    rounds = 1 if plan.again else 0
    if pages is not None:
        changes = [partial(change, log, runtime, pages) for change in (purge_dropped, collect_rows)]
        changed = [retry_after_vacuum(change) for change in changes]  # another vacuum may take what they read
        if any(version is not None for version in changed) and done.oldest + 2 >= newest:
            rounds = 2  # only the newest version is kept, so what is given up may go at once
    for _ in range(rounds):
        more, _ = _round(log, runtime, retention, orphans, True, pages)
        done = _both(done, more)
    return done


def _both(one: VacuumResult, two: VacuumResult) -> VacuumResult:
    """Add the results of two consecutive rounds."""
    return replace(
        two,
        version=two.version if two.version is not None else one.version,
        objects=one.objects + two.objects,
        size_bytes=one.size_bytes + two.size_bytes,
    )


def _round(
    log: Log,
    runtime: Runtime,
    retention: timedelta | int | str | None,
    orphans: bool,
    further: bool,
    pages: PageHandler | None,
) -> tuple[VacuumResult, VacuumPlan]:
    tries = 0
    while True:
        tries += 1
        try:
            plan = plan_vacuum(log, runtime, retention, orphans, further, pages)
            return plan.execute(), plan
        except (CommitConflictError, ObjectNotFoundError, SnapshotExpiredError):
            if tries == _TRIES:  # another vacuum, a tag or a lease came between, each time
                raise
