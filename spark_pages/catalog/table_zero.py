"""Table 0: TableMeta and ColMeta rows of all tables, itself included, as an ordinary table.

Source: seed 002, "Metadata Storage Model". Its schema is fixed here, so that a store can be opened
before anything of it has been read.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa

from spark_pages.model.ids import CATALOG_TABLE
from spark_pages.model.table import TableDefinition, with_field_ids

SYSTEM_NAMESPACE = -1
"""Namespace of table 0; users cannot create tables in it."""

CATALOG_NAME = "catalog"

THIS_COMMIT = 0
"""`created_by` or `deleted_by` of a row that its own commit wrote: the version is not known yet."""

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


def catalog_rows(definitions: Sequence[TableDefinition], first_row_id: int) -> pa.RecordBatch:
    """The rows of table 0 that describe tables new in this commit.

    Parameters
    ----------
    definitions
        With their final ids.
    first_row_id
        Rows that table 0 holds so far.

    Returns
    -------
    pyarrow.RecordBatch
        A row of kind ``table`` for each table, each followed by its rows of kind ``column``.
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
                "kind": "table",
                "field_id": None,
                "name": definition.name,
                "arrow_schema": definition.schema.serialize().to_pybytes(),
                "nullable": None,
                "metadata": json.dumps(
                    {"aligned": definition.aligned, "properties": dict(definition.properties)},
                    sort_keys=True,
                ),
            }
        )
        rows += [
            {
                **shared,
                "kind": "column",
                "field_id": definition.field_ids[column.name],
                "name": column.name,
                "arrow_schema": pa.schema([column]).serialize().to_pybytes(),
                "nullable": column.nullable,
                "metadata": "{}",
            }
            for column in definition.schema
        ]
    for row_id, row in enumerate(rows, first_row_id):
        row["row_id"] = row_id
    return pa.RecordBatch.from_pylist(rows, schema=_SCHEMA)
