"""What happened between versions: transactions, and pages added and removed. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from spark_pages.log.replay import LoadManifest, form_ids
from spark_pages.model.actions import Commit
from spark_pages.model.ids import CATALOG_TABLE

_HISTORY_SCHEMA = pa.schema(
    [
        ("version", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("operation", pa.string()),
        ("writer", pa.string()),
        ("read_version", pa.int64()),
        ("pages_added", pa.int64()),
        ("pages_removed", pa.int64()),
        ("rows_added", pa.int64()),
        ("tables_created", pa.int64()),
        ("app_id", pa.string()),
        ("app_version", pa.int64()),
        ("parameters", pa.string()),
        ("transaction", pa.string()),
    ]
)
CHANGES_SCHEMA = pa.schema(
    [
        ("version", pa.int64()),
        ("table_id", pa.int64()),
        ("field_id", pa.int32()),
        ("change", pa.string()),
        ("page_id", pa.int64()),
        ("entry_count", pa.int64()),
        ("data_change", pa.bool_()),
    ]
)


def history_table(commits: Iterable[Commit]) -> pa.Table:
    """A row for each transaction, in the order given."""
    rows = []
    for commit in commits:
        for record in commit.records:
            splices = [splice for splice in record.splices if splice.table_id != CATALOG_TABLE]
            grown: dict[int, int] = {}
            for splice in splices:
                key = splice.table_id
                growth = splice.added_entries - splice.removed_entries
                grown[key] = max(grown.get(key, 0), growth)
            rows.append(
                {
                    "version": commit.version,
                    "timestamp": commit.timestamp_us,
                    "operation": record.operation,
                    "writer": record.writer,
                    "read_version": record.read_version,
                    "pages_added": sum(splice.stop - splice.start for splice in splices),
                    "pages_removed": sum(len(splice.removed) for splice in splices),
                    "rows_added": sum(grown.values()),
                    "tables_created": sum(intent.table_id != CATALOG_TABLE for intent in record.intents),
                    "app_id": record.app_id,
                    "app_version": record.app_version,
                    "parameters": json.dumps(dict(record.parameters), sort_keys=True),
                    "transaction": record.token,
                }
            )
    return pa.Table.from_pylist(rows, schema=_HISTORY_SCHEMA)


def changes_table(commits: Iterable[Commit], table_id: int | None, load_manifest: LoadManifest) -> pa.Table:
    """A row for each page that a commit added or removed; `table_id` None takes all tables."""
    parts = [CHANGES_SCHEMA.empty_table()]
    for commit in commits:
        for record in commit.records:
            own = form_ids(record.pages, commit.version, record.base_ordinal)
            for splice in record.splices:
                if splice.table_id == CATALOG_TABLE or table_id not in (None, splice.table_id):
                    continue
                added = own
                if splice.source:
                    manifest = record.manifests[splice.source - 1]
                    added = form_ids(load_manifest(manifest)[0], commit.version, manifest.base_ordinal)
                added = added.slice(splice.start, splice.stop - splice.start)
                removed, n = len(splice.removed), added.num_rows
                parts.append(
                    pa.table(
                        [
                            pa.repeat(pa.scalar(commit.version, pa.int64()), removed + n),
                            pa.repeat(pa.scalar(splice.table_id, pa.int64()), removed + n),
                            pa.repeat(pa.scalar(splice.field_id, pa.int32()), removed + n),
                            pa.array(np.repeat(np.array(["removed", "added"]), [removed, n]), pa.string()),
                            pa.concat_arrays([pa.array(splice.removed, pa.int64()), added.column("page_id")]),
                            pa.concat_arrays([pa.nulls(removed, pa.int64()), added.column("entry_count")]),
                            pa.repeat(pa.scalar(splice.data_change), removed + n),
                        ],
                        schema=CHANGES_SCHEMA,
                    )
                )
    return pa.concat_tables(parts)
