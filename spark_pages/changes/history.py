"""What happened to a store: a row for each transaction, and for each time its log was looked after. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np
import pyarrow as pa

from spark_pages.changes.row_counts import RowCountChange, RowCounts
from spark_pages.log.log import Log
from spark_pages.log.times import bounded
from spark_pages.model.actions import Commit, IntentKind, Splice, TransactionRecord, UpkeepNote
from spark_pages.model.ids import CATALOG_TABLE, LIVENESS
from spark_pages.model.row_ranges import RowRanges

HISTORY_SCHEMA = pa.schema(
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


def _rows_updated(splices: Iterable[Splice]) -> int:
    """Rows of tables that were there and are written, whatever number of columns."""
    updated: dict[int, list[tuple[int, int]]] = {}
    for splice in splices:
        end = splice.first_row + min(splice.removed_entries, splice.added_entries)
        if splice.removed and splice.field_id != LIVENESS:
            touched = splice.touched_rows(splice.first_row)
            of_table = updated.setdefault(splice.table_id, [])
            of_table += [(start, min(stop, end)) for start, stop in touched if start < end]
    ranges = (np.array(each, dtype=np.int64).reshape(-1, 2) for each in updated.values())
    return sum(RowRanges.joined(each).num_rows for each in ranges)


def history_of(log: Log, start: int, end: int) -> pa.Table:
    """List versions `start` to `end`, both included, that retention has not removed; oldest first."""
    return history_table(log.commits_left(start, end + 1), RowCounts.before(log, start))


def history_table(
    commits: Iterable[Commit],
    counts: RowCounts,
    untold: Sequence[UpkeepNote] = (),
    *,
    newest_first: bool = False,
) -> pa.Table:
    """List each transaction and each note of upkeep.

    Parameters
    ----------
    commits
        Oldest first.
    counts
        Counts rows from the first of them on.
    untold
        Upkeep of which no commit tells yet: it comes first, without a version.
    newest_first
        Whether the newest transactions come first; else the oldest, with their upkeep behind them.

    Returns
    -------
    pyarrow.Table
        `rows_added`, `rows_updated`, `rows_removed`: rows of tables, whatever number of columns. The rows
        that a table has at a version are those added, less those removed, of all versions up to it; null
        where the version before, which tells how many a drop or truncate took, cannot be read.
        `bytes_added`: of pages put in, also of old ones that a restore brings back. `checkpoint`: the
        newest checkpoint that was there when the commit was made, or null. `min_readable`: set by a vacuum,
        the oldest version that can be read from then on. Upkeep has the version of the commit that tells of
        it, and in `read_version` how far it reached; it is no `transaction`, and its objects and bytes are
        `parameters`.
    """
    blocks = []
    listed: set[UpkeepNote] = set()  # two processes may both record a note that neither has seen in a commit
    for commit in commits:
        moved = counts.commit(commit)
        made = [_row(commit, *each) for each in zip(commit.records, moved, strict=True)]
        blocks.append(made[::-1] if newest_first else made)
        blocks[-1] += [
            _upkeep_row(commit.version, each) for each in reversed(commit.upkeep) if each not in listed
        ]
        listed.update(commit.upkeep)
    rows = [_upkeep_row(None, note) for note in reversed(untold) if note not in listed]
    rows += chain.from_iterable(reversed(blocks) if newest_first else blocks)
    return pa.Table.from_pylist(rows, schema=HISTORY_SCHEMA)


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


def _row(commit: Commit, record: TransactionRecord, moved: RowCountChange) -> dict[str, object]:
    splices = [splice for splice in record.splices if splice.table_id != CATALOG_TABLE]
    kinds = [intent.kind for intent in record.intents if intent.table_id != CATALOG_TABLE]
    return {
        "version": commit.version,
        "timestamp": commit.timestamp_us,
        "operation": record.operation,
        "writer": record.writer,
        "read_version": record.read_version,
        "pages_added": sum(splice.stop - splice.start for splice in splices),
        "pages_removed": sum(len(splice.removed) for splice in splices),
        "bytes_added": _bytes_added(record, splices),
        "rows_added": moved.added,
        "rows_updated": _rows_updated(splices),
        "rows_removed": moved.removed,
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
