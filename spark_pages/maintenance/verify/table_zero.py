"""Table 0 against the definitions that the intents and catalog files give."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from spark_pages.arrow.schema_bytes import schema_from_bytes
from spark_pages.catalog.table_zero import kind_of, table_zero
from spark_pages.io import PageHandler
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.model.ids import CATALOG_TABLE
from spark_pages.model.table import TableDefinition

_OBJECTS = ("table", "namespace", "type")
"""Kinds of rows that describe something whole."""


def table_zero_differences(snapshot: LogSnapshot, pages: PageHandler) -> Iterator[str]:
    """What table 0 says otherwise than the definitions.

    Raises
    ------
    DamageError, ObjectNotFoundError, StorageError
        If table 0 cannot be read.

    Notes
    -----
    Memory for table 0: a row for each table and column.
    """
    rows = [row for row in _read(snapshot, pages).to_pylist() if row["deleted_by"] is None]
    tables = {row["table_id"]: row for row in rows if row["kind"] in _OBJECTS}
    columns: dict[int, dict[str, int]] = defaultdict(dict)
    for row in rows:
        if row["kind"] == "column":
            columns[row["table_id"]][row["name"]] = row["field_id"]
    live = {definition.table_id: definition for definition in snapshot.tables()}
    if len(tables) != sum(row["kind"] in _OBJECTS for row in rows):
        yield "describes a table twice"
    for table_id in sorted({*tables, *live}):
        if table_id not in live:
            yield f"describes table {table_id}, {tables[table_id]['name']!r}, which the log does not have"
        elif table_id not in tables:
            yield f"does not describe table {table_id}, {live[table_id].name!r}"
        elif not _agrees(tables[table_id], columns[table_id], live[table_id]):
            yield f"describes table {table_id}, {live[table_id].name!r}, otherwise than the log"


def _agrees(row: dict[str, Any], columns: dict[str, int], definition: TableDefinition) -> bool:
    schema = schema_from_bytes(row["arrow_schema"])
    told = (row["namespace_id"], row["name"], json.loads(str(row["metadata"]))["aligned"])
    if not definition.is_table:
        columns = dict(definition.field_ids)
    return bool(
        row["kind"] == kind_of(definition)
        and told == (definition.namespace_id, definition.name, definition.aligned)
        and schema.equals(definition.schema, check_metadata=True)
        and columns == dict(definition.field_ids)
    )


def _read(snapshot: LogSnapshot, handler: PageHandler) -> pa.Table:
    columns = {}
    zero = table_zero(0)
    for name, field_id in zero.field_ids.items():
        run = snapshot.chain((CATALOG_TABLE, field_id)).all_pages()
        batches = handler.get_pages(run.descriptors(0, run.num_pages), admit=False)
        kind = zero.bare_schema.field(name).type
        columns[name] = pa.chunked_array([batch.column("data") for batch in batches], kind)
    return pa.table(columns)
