"""Page compaction: runs of small pages become full ones; the rows stay what they are.

`plan_compaction` decides from metadata alone; `rewrite_run` does the work of one task, here or
in a Spark executor; the transaction commits all of it at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_pages.errors import SparkPagesError
from spark_pages.io import Codec, PageHandler
from spark_pages.io.paginate import TARGET_PAGE_BYTES
from spark_pages.model.actions import Claim
from spark_pages.model.chain import ChainKey
from spark_pages.model.columns import numbers_of
from spark_pages.model.ids import FieldId, TableId
from spark_pages.model.page import PageKind
from spark_pages.model.run import NewPage, PageRun
from spark_pages.runtime import Runtime, writer_name
from spark_pages.storage.store import ObjectStore
from spark_pages.tables.claims import RowRange, claim_rows, release_claims
from spark_pages.tables.joining import as_type
from spark_pages.tables.page_meta import PageMeta, alike_groups
from spark_pages.tables.page_writer import PlacedPages, StagedPage, stage_column
from spark_pages.tables.table import Table
from spark_pages.tables.transaction import Transaction

_COMPRESSION_GUESS = 5
"""Uncompressed bytes for each byte of a page whose entries have no fixed width. Rather too many: a full page
that is taken for a small one would be rewritten by every compaction."""


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


def plan_compaction(table: Table) -> list[CompactionTask]:
    """The runs of two and more neighbouring pages that are all below half of what a page aims at.

    Notes
    -----
    Reads descriptors, and the statistics of text. Constants stay: they hold no bytes.
    """
    tasks = []
    options = table.page_options
    for column, field_id in table.definition.field_ids.items():
        pages = table.directory.chain(column).all_pages()
        if not pages.num_pages:
            continue
        kind = table.definition.schema.field(column).type
        guess = 1 if options.codec_for(column) is Codec.NONE else _COMPRESSION_GUESS
        small = _estimated_bytes(pages, kind, guess) * 2 < options.bytes_for(column)
        small &= pages.numbers("kind") != PageKind.CONSTANT
        edges = np.flatnonzero(np.diff(np.concatenate([[0], small.astype(np.int8), [0]])))
        prefix = pages.prefix_entries
        for start, stop in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            if stop - start >= 2:
                first_row = int(prefix[start - 1]) if start else 0
                run = pages.slice(start, stop)
                tasks.append(CompactionTask(table.definition.table_id, field_id, column, first_row, run))
    return tasks


def _estimated_bytes(pages: PageRun, kind: pa.DataType, guess: int) -> NDArray[np.float64]:
    """Bytes of each page before its codec: exact for a fixed width, else a guess, rather too high.

    How far text was compressed nobody knows, but its least and greatest value are about as long as others.
    """
    entries = pages.numbers("entry_count")
    least = np.asarray(entries * _least_bytes(kind), dtype=np.float64)
    if _is_fixed(kind):
        return least
    guessed = np.maximum(least, pages.numbers("actual_len") * float(guess))
    if not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        return guessed
    bounds = [pc.binary_length(pages.stats.column(name)).fill_null(0) for name in ("min", "max")]
    lengths = sum(numbers_of(each).astype(np.float64) for each in bounds) / 2
    return np.maximum(guessed, least + entries * lengths)


def _is_fixed(kind: pa.DataType) -> bool:
    try:
        return int(kind.bit_width) > 0
    except ValueError:
        return False


def _least_bytes(kind: pa.DataType) -> float:
    """Bytes that an entry takes in any case."""
    types = pa.types
    if _is_fixed(kind):
        return float(kind.bit_width) / 8
    if types.is_struct(kind):
        return sum(_least_bytes(kind.field(index).type) for index in range(kind.num_fields))
    if types.is_large_string(kind) or types.is_large_binary(kind) or types.is_large_list(kind):
        return 8.0
    if types.is_string(kind) or types.is_binary(kind) or types.is_list(kind) or types.is_map(kind):
        return 4.0
    return 0.0


def rewrite_run(
    run: PageRun,
    kind: pa.DataType,
    pages: PageHandler,
    store: ObjectStore,
    next_key: Callable[[], str],
    target_bytes: int = TARGET_PAGE_BYTES,
    bloom: float | None = None,
    codec: Codec = Codec.LZ4,
) -> list[NewPage]:
    """Full pages with the rows of the run, written to page files; nothing refers to them yet."""
    placed = PlacedPages(store, next_key)
    new = rewrite_into(placed, run, kind, pages, target_bytes, bloom, codec)
    placed.finish_file()
    return new


def rewrite_into(
    placed: PlacedPages,
    run: PageRun,
    kind: pa.DataType,
    pages: PageHandler,
    target_bytes: int,
    bloom: float | None = None,
    codec: Codec = Codec.LZ4,
) -> list[NewPage]:
    """`rewrite_run` into a page file that other runs share.

    Entries keep what they have beside their values. Pages with other metadata than their neighbours are not
    joined with them.
    """
    batches = pages.get_pages(run.descriptors(0, run.num_pages), admit=False)
    staged: list[StagedPage] = []
    for alike in alike_groups(batches):
        arrays = as_type((batch.column("data") for batch in alike), kind)
        values = pa.chunked_array(arrays, kind).combine_chunks()
        if isinstance(values, pa.ChunkedArray):
            values = pa.concat_arrays(values.chunks)
        staged += stage_column(values, target_bytes, codec, bloom, PageMeta.of(alike))
    return placed.place(staged, inline=False)


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
    placed = PlacedPages(txn.store, partial(txn.next_page_file, table.name))
    options = table.page_options
    pages = [
        rewrite_into(
            placed,
            task.run,
            table.schema.field(task.column).type,
            table.page_handler,
            options.bytes_for(task.column),
            options.bloom_for(task.column),
            options.codec_for(task.column),
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
