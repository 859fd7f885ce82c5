"""What happened to a store: a row for each transaction, and for each time its log was looked after. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from spark_pages.log.times import bounded
from spark_pages.model.actions import Commit, IntentKind, Splice, TransactionRecord, UpkeepNote
from spark_pages.model.ids import CATALOG_TABLE
from spark_pages.model.pieces import ChainKey
from spark_pages.tables.reading.row_ranges import RowRanges
from spark_pages.tables.versions.changes import touched_rows

_HISTORY_SCHEMA = pa.schema(
    [
        ("version", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("operation", pa.string()),
        ("writer", pa.string()),
        ("read_version", pa.int64()),
        ("pages_added", pa.int64()),
        ("pages_removed", pa.int64()),
        ("bytes_added", pa.int64()),
        ("rows_added", pa.int64()),
        ("rows_updated", pa.int64()),
        ("rows_removed", pa.int64()),
        ("tables_created", pa.int64()),
        ("app_id", pa.string()),
        ("app_version", pa.int64()),
        ("parameters", pa.string()),
        ("checkpoint", pa.int64()),
        ("min_readable", pa.int64()),
        ("transaction", pa.string()),
    ]
)


@dataclass(eq=False, slots=True)
class _Moved:
    """What one transaction did to the rows of one table, as far as its record tells."""

    added: dict[ChainKey, int] = field(default_factory=dict)
    removed: dict[ChainKey, int] = field(default_factory=dict)
    updated: list[tuple[int, int]] = field(default_factory=list)

    def splice(self, splice: Splice) -> None:
        key = (splice.table_id, splice.field_id)
        growth = splice.added_entries - splice.removed_entries
        self.added[key] = self.added.get(key, 0) + max(growth, 0)
        self.removed[key] = self.removed.get(key, 0) + max(-growth, 0)
        end = splice.first_row + min(splice.removed_entries, splice.added_entries)
        if splice.removed:
            touched = touched_rows(splice, splice.first_row)
            self.updated += [(start, min(stop, end)) for start, stop in touched if start < end]

    @property
    def rows_updated(self) -> int:
        return RowRanges.joined(np.array(self.updated, dtype=np.int64).reshape(-1, 2)).num_rows


def history_table(commits: Iterable[Commit], untold: Sequence[UpkeepNote] = ()) -> pa.Table:
    """A row for each transaction and each note of upkeep, in the order given.

    Parameters
    ----------
    untold
        Upkeep of which no commit tells yet: it comes first, without a version.

    Returns
    -------
    pyarrow.Table
        `rows_added`, `rows_updated`, `rows_removed`: rows of tables, whatever number of columns; a truncate
        does not tell how many rows it takes, so `rows_removed` is null there. `bytes_added`: of pages put in,
        also of old ones that a restore brings back. `checkpoint`: the newest checkpoint that was there when
        the commit was made, or null. `min_readable`: set by a vacuum, the oldest version that can be read
        from then on. Upkeep has the version of the commit that tells of it, and in `read_version` how far it
        reached; it is no `transaction`, and its objects and bytes are `parameters`.
    """
    rows = [_upkeep_row(None, note) for note in reversed(untold)]
    for commit in commits:
        rows += [_row(commit, record) for record in commit.records]
        rows += [_upkeep_row(commit.version, note) for note in reversed(commit.upkeep)]
    return pa.Table.from_pylist(rows, schema=_HISTORY_SCHEMA)


def _upkeep_row(version: int | None, note: UpkeepNote) -> dict[str, object]:
    written = {"objects": str(note.objects), "bytes": str(note.size_bytes)}
    return {
        "version": version,
        "timestamp": bounded(note.timestamp_us),
        "operation": note.operation,
        "writer": note.writer,
        "read_version": note.reached,
        "parameters": json.dumps(written, sort_keys=True),
    }


def _row(commit: Commit, record: TransactionRecord) -> dict[str, object]:
    splices = [splice for splice in record.splices if splice.table_id != CATALOG_TABLE]
    tables: dict[int, _Moved] = {}
    for splice in splices:
        tables.setdefault(splice.table_id, _Moved()).splice(splice)
    kinds = [intent.kind for intent in record.intents if intent.table_id != CATALOG_TABLE]
    cleared = IntentKind.TRUNCATE in kinds or IntentKind.PURGE in kinds
    removed = sum(max(each.removed.values()) for each in tables.values())
    return {
        "version": commit.version,
        "timestamp": commit.timestamp_us,
        "operation": record.operation,
        "writer": record.writer,
        "read_version": record.read_version,
        "pages_added": sum(splice.stop - splice.start for splice in splices),
        "pages_removed": sum(len(splice.removed) for splice in splices),
        "bytes_added": _bytes_added(record, splices),
        "rows_added": sum(max(each.added.values()) for each in tables.values()),
        "rows_updated": sum(each.rows_updated for each in tables.values()),
        "rows_removed": None if cleared else removed,
        "tables_created": kinds.count(IntentKind.CREATE),
        "app_id": record.app_id,
        "app_version": record.app_version,
        "parameters": json.dumps(dict(record.parameters), sort_keys=True),
        "checkpoint": commit.checkpoint.version if commit.checkpoint else None,
        "min_readable": record.retention.min_readable if record.retention else None,
        "transaction": record.token,
    }


def _bytes_added(record: TransactionRecord, splices: Sequence[Splice]) -> int:
    """Bytes of the pages put in; manifests tell theirs without being read."""
    own = sum(record.own.stored_bytes(each.start, each.stop) for each in splices if each.source == 0)
    return own + sum(manifest.page_bytes for manifest in record.manifests)
