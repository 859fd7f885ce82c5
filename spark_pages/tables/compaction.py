"""Page compaction: runs of small pages become full ones; the rows stay what they are.

`plan_compaction` decides from descriptors alone; `rewrite_run` does the work of one task, here or
in a Spark executor; the transaction commits all of it at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.errors import SparkPagesError
from spark_pages.io import PageHandler
from spark_pages.io.paginate import TARGET_PAGE_BYTES
from spark_pages.model.actions import Claim
from spark_pages.model.chain import ChainKey
from spark_pages.model.ids import FieldId, TableId
from spark_pages.model.page import PageKind
from spark_pages.model.run import NewPage, PageRun
from spark_pages.runtime import Runtime, writer_name
from spark_pages.storage.store import ObjectStore
from spark_pages.tables.claims import RowRange, claim_rows, release_claims
from spark_pages.tables.page_writer import PlacedPages, stage_column
from spark_pages.tables.table import Table
from spark_pages.tables.transaction import Transaction

_COMPRESSION_GUESS = 2
"""Uncompressed bytes for each byte of a page whose entries have no fixed width."""


@dataclass(frozen=True, eq=False, slots=True)
class CompactionTask:
    """One run of small pages of one chain.

    Attributes
    ----------
    table_id, field_id, column
        The chain.
    first_row
        Row at which the run begins.
    run
        The pages.
    """

    table_id: TableId
    field_id: FieldId
    column: str
    first_row: int
    run: PageRun


def plan_compaction(table: Table, target_bytes: int = TARGET_PAGE_BYTES) -> list[CompactionTask]:
    """The runs of two and more neighbouring pages that are all below half the target.

    Notes
    -----
    Reads descriptors only. Constants stay: they hold no bytes.
    """
    tasks = []
    for column, field_id in table.definition.field_ids.items():
        pages = table.directory.chain(column).all_pages()
        if not pages.num_pages:
            continue
        kind = table.definition.schema.field(column).type
        small = _estimated_bytes(pages, kind) * 2 < target_bytes
        small &= pages.numbers("kind") != PageKind.CONSTANT
        edges = np.flatnonzero(np.diff(np.concatenate([[0], small.astype(np.int8), [0]])))
        prefix = pages.prefix_entries
        for start, stop in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            if stop - start >= 2:
                first_row = int(prefix[start - 1]) if start else 0
                run = pages.slice(start, stop)
                tasks.append(CompactionTask(table.definition.table_id, field_id, column, first_row, run))
    return tasks


def _estimated_bytes(pages: PageRun, kind: pa.DataType) -> NDArray[np.float64]:
    try:
        return np.asarray(pages.numbers("entry_count") * (kind.bit_width / 8), dtype=np.float64)
    except ValueError:
        return np.asarray(pages.numbers("actual_len") * float(_COMPRESSION_GUESS))


def rewrite_run(
    run: PageRun,
    kind: pa.DataType,
    pages: PageHandler,
    store: ObjectStore,
    next_key: Callable[[], str],
    target_bytes: int = TARGET_PAGE_BYTES,
) -> list[NewPage]:
    """Full pages with the rows of the run, written to page files; nothing refers to them yet."""
    placed = PlacedPages(store, next_key)
    new = rewrite_into(placed, run, kind, pages, target_bytes)
    placed.finish_file()
    return new


def rewrite_into(
    placed: PlacedPages, run: PageRun, kind: pa.DataType, pages: PageHandler, target_bytes: int
) -> list[NewPage]:
    """`rewrite_run` into a page file that other runs share."""
    batches = pages.get_pages(run.descriptors(0, run.num_pages), admit=False)
    values = pa.chunked_array([batch.column("data") for batch in batches], kind).combine_chunks()
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks)
    return placed.place(stage_column(values, target_bytes), inline=False)


def claimed_ranges(tasks: Sequence[CompactionTask]) -> dict[ChainKey, RowRange]:
    """The rows that the tasks of each chain cover, for a claim."""
    ranges: dict[ChainKey, RowRange] = {}
    for task in tasks:
        key = (task.table_id, task.field_id)
        first, end = ranges.get(key, (task.first_row, task.first_row))
        ranges[key] = (min(first, task.first_row), max(end, task.first_row + task.run.num_rows))
    return ranges


def tasks_within(tasks: Sequence[CompactionTask], claims: Sequence[Claim]) -> list[CompactionTask]:
    """The tasks that lie inside of what was claimed."""
    held = {(claim.table_id, claim.field_id): claim for claim in claims}
    return [
        task
        for task in tasks
        if (claim := held.get((task.table_id, task.field_id))) is not None
        and claim.first_row <= task.first_row
        and task.first_row + task.run.num_rows <= claim.end_row
    ]


@dataclass(frozen=True, eq=False, slots=True)
class Compaction:
    """What a page compaction did.

    Attributes
    ----------
    tasks, pages
        The runs that went, and the pages that took the place of each.
    version
        Of the commit; None where there was nothing to do.
    claimed_by_others
        Chains that another job was working on.
    """

    tasks: Sequence[CompactionTask] = ()
    pages: Sequence[Sequence[NewPage]] = ()
    version: int | None = None
    claimed_by_others: int = 0

    def told(self, table: str) -> dict[str, Any]:
        """The figures, for people and programs."""
        return {
            "table": table,
            "runs": len(self.tasks),
            "pages_before": sum(task.run.num_pages for task in self.tasks),
            "pages_after": sum(len(pages) for pages in self.pages),
            "version": self.version,
            "claimed_by_others": self.claimed_by_others,
        }


Rewrite = Callable[[Transaction, Table, Sequence[CompactionTask]], Sequence[Sequence[NewPage]]]
"""Writes full pages for each run; nothing refers to them before the transaction commits."""


def rewrite_here(
    txn: Transaction, table: Table, tasks: Sequence[CompactionTask]
) -> Sequence[Sequence[NewPage]]:
    """Full pages for each run, written by this process."""
    placed = PlacedPages(txn.store, txn.next_page_file)
    pages = [
        rewrite_into(
            placed, task.run, table.schema.field(task.column).type, table.page_handler, TARGET_PAGE_BYTES
        )
        for task in tasks
    ]
    placed.finish_file()
    return pages


def compact_table(
    begin: Callable[[str], Transaction], name: str, runtime: Runtime, rewrite: Rewrite = rewrite_here
) -> Compaction:
    """Claim the small pages of a table, rewrite them, commit, and let go of the claims.

    Parameters
    ----------
    begin
        Opens a transaction for the operation that it is told.
    rewrite
        Who does the work: this process, or Spark.

    Raises
    ------
    CommitConflictError
        If another commit replaced some of the pages in the meantime; nothing was committed.

    Notes
    -----
    Two commits where there is something to do, the first of which only claims.
    """
    planned = plan_compaction(begin("compact pages").snapshot.table(name))
    if not planned:
        return Compaction()
    wanted = claimed_ranges(planned)
    owner = f"{writer_name()} {runtime.token()[:8]}"
    claims = claim_rows(lambda: begin("claim rows"), wanted, owner, runtime)
    others = len(wanted) - len(claims)
    if not claims:
        return Compaction(claimed_by_others=others)
    version = None
    try:
        with begin("compact pages") as txn:
            table = txn.snapshot.table(name)
            tasks = tasks_within(plan_compaction(table), claims)
            pages = rewrite(txn, table, tasks)
            for task, new in zip(tasks, pages, strict=True):
                removed = task.run.page_ids.tolist()
                txn.replace_pages(task.table_id, task.field_id, task.first_row, removed, list(new))
            release_claims(txn, claims)
        version = txn.version
    finally:
        if version is None:
            _give_up(begin, claims)
    return Compaction(tasks, pages, version, others)


def _give_up(begin: Callable[[str], Transaction], claims: Sequence[Claim]) -> None:
    """Release claims after a failure, if that can be done now; otherwise they expire."""
    try:
        with begin("release claims") as txn:
            release_claims(txn, claims)
    except SparkPagesError:
        return
