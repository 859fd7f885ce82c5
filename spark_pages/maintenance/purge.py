"""Dropped tables that no version shows any more are given up, so that vacuum can free their pages.

A drop leaves the pages in their chains, so that `undrop_table` can bring the table back. Once retention has
passed the drop, no version that can be read has the table: then one commit empties its chains and says in
table 0 that it does not come back. Page files go by the rules of vacuum, when that commit has become the
oldest version that can be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_pages.catalog.table_zero import PURGED, upgrade_intents
from spark_pages.errors import CommitConflictError
from spark_pages.format.features import check_writable
from spark_pages.format.names import page_file_key
from spark_pages.format.pages.paginate import TARGET_PAGE_BYTES
from spark_pages.io import PageHandler
from spark_pages.log.commit.protocol_types import Duplicate
from spark_pages.log.log import Log
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.log.state import LogState
from spark_pages.model.actions import CatalogIntent, IntentKind, TransactionRecord
from spark_pages.model.added_pages import AddedPages
from spark_pages.model.ids import CATALOG_TABLE
from spark_pages.model.table import NAMESPACE_NAMES, TableDefinition
from spark_pages.query.catalog_rows import definitions_of
from spark_pages.query.snapshot import Snapshot
from spark_pages.query.table import Table
from spark_pages.runtime import Runtime, writer_name
from spark_pages.transaction.catalog_changes import catalog_changes
from spark_pages.transaction.page_writer import StagedPage, stage_column
from spark_pages.transaction.placement import StagedSplice, place_splices

RETENTION = "retention_seconds"
"""Property of a namespace: its dropped tables can come back for so long, whatever retention says."""


def purge_dropped(log: Log, runtime: Runtime, pages: PageHandler) -> int | None:
    """Tables that no version shows any more do not come back; gives the version that says so, None for none.

    Notes
    -----
    One commit, if there are any. Reads of table 0 the rows of tables that are gone. Gives way to an undrop.
    """
    head = log.refresh()
    retention = head.state.retention
    if retention is None:
        return None
    zero = Snapshot(head, pages).table("system.catalog")
    gone = [
        definition
        for definition, dropped in unreferenced_drops(zero, retention.min_readable)
        if not _is_retained(log, head, definition, dropped, runtime.now_us())
    ]
    if not gone:
        return None
    token = runtime.token()

    def build(state: LogState) -> TransactionRecord:
        shown = Snapshot(log.open(state), pages)
        told = shown.table("system.catalog")
        made, splices = catalog_changes(shown.log, told, [], [], 0, gone)
        return TransactionRecord(
            token=token,
            operation="purge",
            parameters={"tables": str(len(gone))},
            read_version=head.state.version,
            writer=writer_name(),
            own=AddedPages.of(made),
            splices=tuple(splices),
            intents=(
                *upgrade_intents(shown.log),
                *(CatalogIntent(IntentKind.PURGE, d.table_id, d.namespace_id, d.name, d) for d in gone),
            ),
        )

    try:
        return log.commit(head, build).version
    except CommitConflictError:
        return None  # one of them has come back, or somebody else was quicker


def unreferenced_drops(zero: Table, oldest: int) -> list[tuple[TableDefinition, int]]:
    """Find dropped tables that no version from `oldest` on has, with the versions that dropped them.

    Notes
    -----
    The definition has all columns that the table ever had: pages of those dropped before it go too.
    """
    columns = ["table_id", "kind", "deleted_by"]
    rows = zero.read(columns, filter=[("table_id", ">", 0)])
    purged = rows.filter(pc.equal(rows.column("kind"), PURGED)).column("table_id")
    tables = rows.filter(pc.equal(rows.column("kind"), "table"))
    live = tables.filter(tables.column("deleted_by").is_null()).column("table_id")
    kept = pc.unique(pa.chunked_array([*live.chunks, *purged.chunks], pa.int64()))
    ended = tables.filter(pc.invert(pc.is_in(tables.column("table_id"), kept)))
    last = ended.group_by("table_id").aggregate([("deleted_by", "max")])
    over = last.filter(pc.less_equal(last.column("deleted_by_max"), oldest))
    dropped = dict(
        zip(*(over.column(name).to_pylist() for name in ("table_id", "deleted_by_max")), strict=True)
    )
    return [(each, dropped[each.table_id]) for each in definitions_of(zero, sorted(dropped))]


def _is_retained(log: Log, head: LogSnapshot, definition: TableDefinition, dropped: int, now_us: int) -> bool:
    """Whether the namespace of a table keeps it longer."""
    if definition.namespace_id < 0:
        return False
    seconds = [
        each.properties.get(RETENTION)
        for each in head.tables(NAMESPACE_NAMES)
        if each.table_id == definition.namespace_id
    ]
    if not seconds or seconds[0] is None:
        return False
    return log.time_of(dropped) + int(seconds[0]) * 1_000_000 > now_us


# Rows of table 0 that nobody needs any more are taken out, by an ordinary commit.
#
# A row that has ended stays in table 0 while a version that can be read shows it. After that it is needed
# only if it is the last that tells of a table, or of one of its columns, and the table has not been purged:
# `undrop_table` and `purge` go by such rows. All others are dead. The rows behind the first dead one move up,
# so its pages and all behind them are written anew. Older versions have the pages that they had.

FEW_ROWS = 1 << 16
"""So many rows at the end of table 0 are written anew for a single dead one."""

DEAD_SHARE = 4
"""Of more rows one in so many must be dead: else the work would exceed what it frees."""

_ROW_ID = "row_id"


def collect_rows(log: Log, runtime: Runtime, pages: PageHandler) -> int | None:
    """Table 0 has no dead rows, or few; gives the version that took them out, None for none.

    Notes
    -----
    Reads four narrow columns of table 0, and where something is dead all columns from the first dead row on.
    One commit; what does not fit into one lies in a page file. Formed anew on whatever it lands on, so it
    does not conflict with changes of the catalog, nor these with it.
    """
    head = log.refresh()
    token, numbers = runtime.token(), count()
    version = head.state.version

    def build(state: LogState) -> TransactionRecord | Duplicate:
        check_writable(state.features)  # it writes page files, and is asked before a commit is tried, too
        zero = Snapshot(log.open(state), pages).table("system.catalog")
        going = removable_rows(zero, _oldest(state))
        if not going.any():
            return Duplicate(state.version)
        prepared = place_splices(
            log.store,
            [*_without(zero, going)],
            lambda _: page_file_key(version, token, next(numbers)),
            f"{version:020d}-{token}-{next(numbers)}",
        )
        return TransactionRecord(
            token=token,
            operation="collect rows",
            parameters={"rows": str(int(going.sum()))},
            read_version=version,
            writer=writer_name(),
            own=prepared.own,
            splices=prepared.splices,
            manifests=prepared.manifests,
        )

    if not removable_rows(Snapshot(head, pages).table("system.catalog"), _oldest(head.state)).any():
        return None
    outcome = log.commit(head, build)
    return outcome.version if outcome.commit is not None else None


def _oldest(state: LogState) -> int:
    return state.retention.min_readable if state.retention else 0


def removable_rows(zero: Table, oldest: int) -> NDArray[np.bool_]:
    """Which rows of table 0 are to be taken out: those that nobody needs, where that is worth it.

    Parameters
    ----------
    oldest
        The oldest version that can be read.
    """
    rows = zero.read(["kind", "table_id", "field_id", "deleted_by"]).combine_chunks()
    numbers = pa.array(np.arange(rows.num_rows))
    kind, of = rows.column("kind"), rows.column("table_id")
    ended = pc.fill_null(pc.less_equal(rows.column("deleted_by"), oldest), False)
    marks = pc.equal(kind, PURGED)
    purged = pc.is_in(of, pc.unique(of.filter(marks)))
    told = pa.table([numbers, kind, of, rows.column("field_id")], ["row", "kind", "of", "field"])
    last = told.group_by(["kind", "of", "field"]).aggregate([("row", "max")]).column("row_max")
    needed = pc.and_(pc.is_in(kind, pa.array(["table", "column"])), pc.is_in(numbers, last))
    dead: NDArray[np.bool_] = pc.and_(ended, pc.or_(purged, pc.invert(needed))).to_numpy()
    dead[: first_rewritten_row(dead)] = False
    left = pc.unique(of.filter(pc.invert(pc.or_(pa.chunked_array([pa.array(dead)]), marks))))
    over = pc.and_(marks, pc.invert(pc.is_in(of, left)))  # a table without rows needs no mark
    going: NDArray[np.bool_] = dead | over.to_numpy()
    return going


def first_rewritten_row(dead: NDArray[np.bool_]) -> int:
    """Find the dead row from which rewriting all rows pays off; the end if there is none."""
    places = np.flatnonzero(dead)
    behind = len(dead) - places
    worth = (behind <= FEW_ROWS) | (np.arange(len(places), 0, -1) * DEAD_SHARE >= behind)
    chosen = np.flatnonzero(worth)
    return int(places[chosen[0]]) if len(chosen) else len(dead)


def _without(zero: Table, going: NDArray[np.bool_]) -> Iterator[StagedSplice]:
    """Splices that put the other rows in the place of all from the first that goes, column by column.

    Rows of table 0 itself are the first, in a page of their own, and end together: so no page that is written
    anew holds a row made by version 0, which would be told by this commit's number.
    """
    options = zero.page_options
    start = int(np.argmax(going))
    for column, field_id in zero.definition.field_ids.items():
        chain = zero.directory.chain(column)
        first = start - chain.locate_row(start).row_in_page
        removed = chain.pages_between(first, len(going))
        living = np.flatnonzero(~going[first:]) + first
        staged: list[StagedPage] = []
        at = 0
        for batch in zero.scan([column], first):
            rows = living[(living >= first + at) & (living < first + at + batch.num_rows)] - first - at
            values = batch.column(0).take(pa.array(rows))
            if column == _ROW_ID:
                before = first + sum(page.entries for page in staged)
                values = pa.array(np.arange(before, before + len(rows)))
            if len(values):
                staged += stage_column(values, TARGET_PAGE_BYTES, options.codec_for(column))
            at += batch.num_rows
        end = first + len(living)
        yield StagedSplice(
            CATALOG_TABLE,
            field_id,
            first,
            tuple(removed.page_ids.tolist()),
            len(going) - first,
            staged,
            touched=((start, end),) if end > start else (),
        )
