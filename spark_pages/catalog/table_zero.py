"""Table 0: TableMeta and ColMeta rows of all tables, itself included, as an ordinary table.

Source: seed 002, "Metadata Storage Model". Its schema is fixed here, so that a store can be opened
before anything of it has been read.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa

from spark_pages.arrow.schema_bytes import schema_to_bytes
from spark_pages.catalog.annotations import column_metadata, fact
from spark_pages.catalog.constraints import constraints_of, to_json
from spark_pages.model.ids import CATALOG_TABLE
from spark_pages.model.table import (
    COMMENT_KEY,
    FIRST_NAMESPACE,
    NAMESPACE_NAMES,
    SYSTEM_NAMESPACE,
    TYPE_NAMES,
    TableDefinition,
    with_field_ids,
)

CATALOG_NAME = "catalog"

THIS_COMMIT = 0
"""`created_by` or `deleted_by` of a row that its own commit wrote: the version is not known yet."""

PURGED = "purged"
"""Kind of a row that says that a dropped table does not come back."""

_SCHEMA = pa.schema(
    [
        pa.field("row_id", pa.int64(), nullable=False),
        pa.field("created_by", pa.int64(), nullable=False),
        pa.field("deleted_by", pa.int64()),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("namespace_id", pa.int64(), nullable=False),
        pa.field("table_id", pa.int64(), nullable=False),
        pa.field("field_id", pa.int32()),
        pa.field("name", pa.string(), nullable=False),
        pa.field("arrow_schema", pa.binary(), nullable=False),
        pa.field("nullable", pa.bool_()),
        pa.field("metadata", pa.string(), nullable=False),
        pa.field("row_count", pa.int64()),
        pa.field("created_at", pa.timestamp("us", tz="UTC"), nullable=False),
    ]
)


def table_zero(created_at_us: int) -> TableDefinition:
    """The definition of table 0 itself."""
    return TableDefinition(
        table_id=CATALOG_TABLE,
        name=CATALOG_NAME,
        schema=with_field_ids(_SCHEMA),
        next_field_id=len(_SCHEMA) + 1,
        namespace_id=SYSTEM_NAMESPACE,
        created_at_us=created_at_us,
    )


def catalog_rows(
    definitions: Sequence[TableDefinition], first_row_id: int, purged: Sequence[TableDefinition] = ()
) -> pa.RecordBatch:
    """The rows of table 0 that describe tables new in this commit.

    Parameters
    ----------
    definitions
        With their final ids.
    first_row_id
        Rows that table 0 holds so far.
    purged
        Dropped tables that do not come back from this commit on: a row each, of kind ``purged``.

    Returns
    -------
    pyarrow.RecordBatch
        A row of kind ``table`` for each table, followed by its rows of kind ``column`` and ``constraint``; a
        row of kind ``namespace`` or ``type`` for each of these.
    """
    rows = []
    for definition in definitions:
        shared = {
            "created_by": THIS_COMMIT,
            "deleted_by": None,
            "namespace_id": definition.namespace_id,
            "table_id": definition.table_id,
            "created_at": definition.created_at_us,
            "row_count": None,
        }
        rows.append(
            {
                **shared,
                "kind": kind_of(definition),
                "field_id": None,
                "name": definition.name,
                "arrow_schema": schema_to_bytes(definition.schema),
                "nullable": None,
                "metadata": json.dumps(_description(definition), sort_keys=True),
            }
        )
        if not definition.is_table:
            continue
        rows += [
            {
                **shared,
                "kind": "column",
                "field_id": definition.field_ids[column.name],
                "name": column.name,
                "arrow_schema": schema_to_bytes(pa.schema([column])),
                "nullable": column.nullable,
                "metadata": json.dumps(column_metadata(column), sort_keys=True),
            }
            for column in definition.schema
        ]
        rows += [
            {
                **shared,
                "kind": "constraint",
                "field_id": None,
                "name": constraint.name,
                "arrow_schema": b"",
                "nullable": None,
                "metadata": json.dumps(to_json(constraint), sort_keys=True),
            }
            for constraint in constraints_of(definition)
        ]
    rows += [
        {
            "created_by": THIS_COMMIT,
            "kind": PURGED,
            "namespace_id": definition.namespace_id,
            "table_id": definition.table_id,
            "name": definition.name,
            "arrow_schema": b"",
            "metadata": "{}",
            "created_at": definition.created_at_us,
        }
        for definition in purged
    ]
    for row_id, row in enumerate(rows, first_row_id):
        row["row_id"] = row_id
    return pa.RecordBatch.from_pylist(rows, schema=_SCHEMA)


def kind_of(definition: TableDefinition) -> str:
    """``table``, ``namespace`` or ``type``: what the definition describes."""
    return {NAMESPACE_NAMES: "namespace", TYPE_NAMES: "type"}.get(definition.namespace_id, "table")


def _description(definition: TableDefinition) -> dict[str, object]:
    told: dict[str, object] = {"aligned": definition.aligned, "properties": dict(definition.properties)}
    comment = fact(definition.schema, COMMENT_KEY)
    if comment is not None:
        told["comment"] = comment
    if definition.namespace_id >= FIRST_NAMESPACE:
        told["namespace"] = definition.namespace
    return told
