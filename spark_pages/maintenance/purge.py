"""Dropped tables that no version shows any more are given up, so that vacuum can free their pages.

A drop leaves the pages in their chains, so that `undrop_table` can bring the table back. Once retention has
passed the drop, no version that can be read has the table: then one commit empties its chains and says in
table 0 that it does not come back. Page files go by the rules of vacuum, when that commit has become the
oldest version that can be read.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from spark_pages.arrow.schema_bytes import schema_from_bytes
from spark_pages.catalog.migration import upgrade_intents
from spark_pages.catalog.table_zero import PURGED
from spark_pages.errors import CommitConflictError
from spark_pages.io import PageHandler
from spark_pages.log.log import Log
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.log.state import LogState
from spark_pages.model.actions import CatalogIntent, IntentKind, TransactionRecord
from spark_pages.model.added_pages import AddedPages
from spark_pages.model.ids import TableId
from spark_pages.model.table import NAMESPACE_NAMES, TableDefinition
from spark_pages.query.snapshot import Snapshot
from spark_pages.query.table import Table
from spark_pages.runtime import Runtime, writer_name
from spark_pages.transaction.catalog_changes import catalog_changes

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
    """Dropped tables that no version from `oldest` on has, and the versions that dropped them.

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
    return [(each, dropped[each.table_id]) for each in _definitions(zero, sorted(dropped))]


def _definitions(zero: Table, tables: Sequence[int]) -> list[TableDefinition]:
    """Tables with every column that they ever had, as table 0 tells them."""
    if not tables:
        return []
    columns = ["table_id", "kind", "namespace_id", "name", "field_id", "arrow_schema"]
    found: dict[int, TableDefinition] = {}
    fields: dict[int, dict[int, pa.Field]] = {table_id: {} for table_id in tables}
    for row in zero.read(columns, filter=[("table_id", "in", list(tables))]).to_pylist():
        if row["kind"] == "column":
            field = schema_from_bytes(row["arrow_schema"]).field(0)
            fields[row["table_id"]][row["field_id"]] = field.with_name(f"c{row['field_id']}")
        elif row["kind"] == "table":
            table_id = TableId(row["table_id"])
            found[table_id] = TableDefinition(table_id, row["name"], pa.schema([]), 1, row["namespace_id"])
    return [
        TableDefinition(
            each.table_id,
            each.name,
            pa.schema([field for _, field in sorted(fields[table_id].items())]),
            max(fields[table_id]) + 1,
            each.namespace_id,
        )
        for table_id, each in found.items()
    ]


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
