"""Page compaction by Spark: the driver plans and commits, executors read runs and write page files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from spark_pages.arguments import as_flag, as_str
from spark_pages.errors import CommitConflictError
from spark_pages.format.names import page_file_key
from spark_pages.job_result import failure_document
from spark_pages.maintenance.compact import begin_rewriting, compact_table
from spark_pages.maintenance.compaction_plan import CompactionTask, plan_compaction
from spark_pages.maintenance.page_rewrite import PageTarget, page_target, rewrite_runs, stored_bytes
from spark_pages.model.added_pages import NewPage
from spark_pages.model.run import PageRun
from spark_pages.progress import phase
from spark_pages.query.table import Table
from spark_pages.runtime import Runtime
from spark_pages.spark.job import Start, report_as, starting
from spark_pages.spark.serialization import (
    even_groups,
    objects_of,
    pack_runs,
    pages_of,
    store_of,
    store_url,
    unpack_run,
)
from spark_pages.spark.task_counts import TaskCounts
from spark_pages.transaction.transaction import Transaction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASK_BYTES = 512 << 20
"""Stored bytes that one task rewrites at most, about; its memory is that of two page files and a run. A task
begins with nothing read and ends with a page file that it waits for, so few long ones take less time."""

_PAGE_WORK_BYTES = 8 << 10
"""A small page takes as long to open as so many bytes of large ones."""

_Packed: TypeAlias = tuple[list[tuple[int, int, PageTarget]], bytes]
"""Which runs, how many pages each has, what its new pages are to be like, and the pages of all of them."""

_SUMS = (
    "runs",
    "tasks",
    "pages_before",
    "pages_after",
    "bytes_before",
    "bytes_written",
    "claimed_by_others",
    "conflicts",
)

Work = Callable[[str, str, "str | None"], dict[str, Any]]
"""Does something with a table: address, table, profile."""


@report_as("compact_pages")
def plan_compact_pages(url: str, table: str, profile: str | None = None) -> dict[str, Any]:
    """Plan `compact_pages`; needs no Spark and changes nothing.

    Returns
    -------
    dict
        ``ok``, ``dry_run``, ``table``, ``runs``, ``pages_before``, ``bytes_before``, ``version``
        (looked at), ``seconds``.
    """
    snapshot = store_of(store_url(url, profile)).snapshot()
    whole = snapshot.table(table)
    whole.directory.load(Runtime().map)
    tasks = plan_compaction(whole)
    return {
        "dry_run": True,
        "table": table,
        "runs": len(tasks),
        "pages_before": sum(task.run.num_pages for task in tasks),
        "bytes_before": sum(stored_bytes(task.run) for task in tasks),
        "version": snapshot.version,
    }


@report_as("compact_pages")
def compact_pages(
    spark: SparkSession | Start | None,
    url: str,
    table: str,
    profile: str | None = None,
    *,
    purge: bool = False,
) -> dict[str, Any]:
    """Rewrite runs of small pages of a table as full ones, in one commit; rows stay the same.

    Parameters
    ----------
    spark
        A session, whose executors must reach the store with credentials of their own; or what gives one, and
        is asked only where there is something to rewrite. None rewrites here.
    url, table, profile
        The store and the table, and storage options by name.
    purge
        Whether to blank the values of all deleted rows, which this process does.

    Returns
    -------
    dict
        ``ok``, ``table``, ``runs``, ``tasks``, ``pages_before``, ``pages_after``, ``version`` (of the
        commit, or looked at where nothing was to do), ``claimed_by_others`` (columns that another job is
        compacting), ``conflicts`` (runs left out, because another commit replaced pages of them in the
        meantime), ``purged_pages`` (replaced because of deleted rows), ``bytes_written``, ``seconds``.

    Raises
    ------
    CommitConflictError
        If other commits replaced pages of every run in the meantime; nothing was committed.

    Notes
    -----
    Every attempt of a task writes page files of its own name, so a repeated or speculative attempt
    leaves at most a file that nothing refers to, for vacuum.
    """
    url, table = store_url(url, profile), as_str(table, "the name of a table")
    store = store_of(url)
    start = starting(spark)
    parameters = {"table": table} | ({"engine": "spark"} if start else {})
    cluster = _Cluster(start, url) if start else None
    phase(f"compacting pages of {table}")
    done = compact_table(
        partial(store.transaction, parameters=parameters),
        table,
        Runtime(),
        cluster.rewrite if cluster else None,
        purge=as_flag(purge, "purge"),
    )
    return {
        **done.as_dict(table),
        "version": store.snapshot().version if done.version is None else done.version,
        "tasks": cluster.tasks if cluster else 0,
        "bytes_written": sum(page.alloc_len for pages in done.pages for page in pages),
    }


@report_as("compact_pages")
def each_table(url: str, table: str | None, profile: str | None, work: Work) -> dict[str, Any]:
    """Run `work` for each table, one after another, and sum the results.

    Parameters
    ----------
    table
        This one only; None for all.
    work
        `plan_compact_pages`, or `compact_pages` with its session.

    Notes
    -----
    Of several tables one that ends in a conflict has ``ok`` false and its ``error``, and the others go on.
    `spark_pages.job_result.exit_code_of` has the exit code.
    """
    snapshot = store_of(store_url(url, profile)).snapshot()
    if table:
        told = [work(url, snapshot.table(table).name, profile)]
    else:
        told = [_or_conflict(partial(work, url, name, profile), name) for name in snapshot.tables()]
    done = [each for each in told if each["ok"]]
    summed = {name: sum(each[name] for each in done) for name in _SUMS if any(name in each for each in done)}
    version = max((each["version"] for each in done), default=snapshot.version)
    return {"ok": len(done) == len(told), "version": version, "tables": told, **summed}


def _or_conflict(work: Callable[[], dict[str, Any]], table: str) -> dict[str, Any]:
    try:
        return work()
    except CommitConflictError as error:
        return {"table": table, **failure_document(type(error).__name__, error.message, error.hint)}


class _Cluster:
    """Rewrites runs on executors."""

    def __init__(self, start: Start, url: str) -> None:
        self._start = start
        self._url = url
        self.tasks = 0

    def rewrite(
        self, txn: Transaction, table: Table, tasks: Sequence[CompactionTask]
    ) -> Sequence[Sequence[NewPage]]:
        """See `spark_pages.maintenance.compact.Rewrite`."""
        if not tasks:
            return []
        context = self._start().sparkContext
        parallel = context.defaultParallelism
        stored = sum(stored_bytes(task.run) for task in tasks)
        wanted = -(-(stored // TASK_BYTES + 1) // parallel) * parallel
        groups = [_packed(table, tasks, group) for group in _even_shares(tasks, wanted)]
        self.tasks = len(groups)
        counts = TaskCounts.of(context, begin_rewriting(table, tasks))
        rewrite = _Rewrite(self._url, txn.snapshot.version, table.page_folder, counts)
        written = dict(context.parallelize(groups, len(groups)).mapPartitions(rewrite).collect())
        return [written[index] for index in range(len(tasks))]


@dataclass(frozen=True, slots=True)
class _Rewrite:
    """What an executor does with its partition: reads the runs, writes full pages, gives their places."""

    url: str
    read_version: int
    folder: str
    counts: TaskCounts

    def __call__(self, partition: Iterable[_Packed]) -> Iterator[tuple[int, list[NewPage]]]:
        token = Runtime().token()  # of this attempt alone
        numbers = count()
        for runs, pages in partition:
            written = rewrite_runs(
                _unpacked(runs, pages),
                pages_of(self.url),
                objects_of(self.url),
                lambda: page_file_key(self.read_version, token, next(numbers), self.folder),
            )
            whole = unpack_run(pages)
            self.counts.add(whole.num_pages, stored_bytes(whole))
            yield from zip((index for index, _, _ in runs), written, strict=True)


def _even_shares(tasks: Sequence[CompactionTask], shares: int) -> list[list[int]]:
    """Which runs go together, with about as much work each.

    Of each column a share gets the same rows: whatever takes longer than it was thought to, takes longer in
    all of them. What it gets of a column stays in order, and so side by side in a page file. Each begins with
    another column: some keep the disk busy, others the processors.
    """
    order = np.argsort([task.first_row for task in tasks], kind="stable")
    weights = np.array([_work_bytes(task) for task in tasks], dtype=np.int64)[order]
    columns = {field_id: number for number, field_id in enumerate({task.field_id: 0 for task in tasks})}
    numbers = [columns[task.field_id] for task in tasks]
    return [
        sorted(order[start:stop].tolist(), key=lambda index: ((numbers[index] - share) % len(columns), index))
        for share, (start, stop) in enumerate(even_groups(weights, shares))
    ]


def _packed(table: Table, tasks: Sequence[CompactionTask], group: Sequence[int]) -> _Packed:
    """Pack the pages of several runs together, which takes hardly longer than for one."""
    runs = [(index, tasks[index].run.num_pages, page_target(table, tasks[index].column)) for index in group]
    return runs, pack_runs([tasks[index].run for index in group])


def _unpacked(
    runs: Sequence[tuple[int, int, PageTarget]], pages: bytes
) -> Iterator[tuple[PageRun, PageTarget]]:
    whole, at = unpack_run(pages), 0
    for _, num_pages, wanted in runs:
        yield whole.slice(at, at + num_pages), wanted
        at += num_pages


def _work_bytes(task: CompactionTask) -> int:
    """About how much work a run is, in bytes of a full page."""
    return stored_bytes(task.run) + task.plain_bytes + task.run.num_pages * _PAGE_WORK_BYTES
