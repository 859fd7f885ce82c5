"""Table 0: TableMeta and ColMeta rows of all tables, itself included, as an ordinary table.

Source: seed 002, "Metadata Storage Model". Its schema is fixed here, so that a store can be opened
before anything of it has been read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from spark_pages.arrow.stored_types import schema_to_bytes
from spark_pages.catalog.annotations import column_metadata, fact
from spark_pages.catalog.constraints import constraints_of, to_json
from spark_pages.errors import DamageError, UnsupportedFormatError
from spark_pages.io import encode_page, page_stats
from spark_pages.log.checkpoint.root import description_digest
from spark_pages.log.properties import check_store_properties
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.model.actions import CatalogIntent, IntentKind, Splice, TransactionRecord
from spark_pages.model.added_pages import AddedPages, NewPage
from spark_pages.model.ids import CATALOG_TABLE
from spark_pages.model.page import PageKind
from spark_pages.model.table import (
    COMMENT_KEY,
    FIRST_NAMESPACE,
    NAMESPACE_NAMES,
    SYSTEM_NAMESPACE,
    TYPE_NAMES,
    TableDefinition,
    with_field_ids,
)
from spark_pages.runtime import Runtime, writer_name

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
    """Create the definition of table 0."""
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
    """Create the rows of table 0 for the tables that a commit creates.

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


# Creation of a store, and the check of table 0 when a store is opened.
#
# The second phase of opening a store (seed 002, "Catalog Bootstrap"): the schema in `table_zero` is enough to
# read table 0; what table 0 says of itself must agree with it. A store of an earlier release may lack columns
# at the end: they read as null, and the first change of the catalog brings them in. A store of a later
# release may have more: it is refused.

TABLE_ZERO_NAME = (SYSTEM_NAMESPACE, CATALOG_NAME)


def stored_table_zero(log: LogSnapshot) -> TableDefinition:
    """Return the definition of table 0 in the store, with an unknown creation time.

    Raises
    ------
    DamageError
        If it does not describe itself, or otherwise than any release would.
    UnsupportedFormatError
        If a later release has changed its schema.

    Notes
    -----
    No request, where the root of the checkpoint bears the digest of what this release expects; else a catalog
    file.
    """
    if _is_current(log):
        return table_zero(0)
    told = log.table(TABLE_ZERO_NAME)
    version = log.state.version
    if told is None or told.table_id != CATALOG_TABLE:
        raise DamageError(
            f"Cannot read the catalog of version {version}: expected a description of itself under "
            f"the name system.{CATALOG_NAME}, found "
            f"{'none' if told is None else 'that of another table'}.",
            hint="Run `spark-pages verify`.",
        )
    known = table_zero(told.created_at_us)
    for index, (mine, theirs) in enumerate(zip(known.schema, told.schema, strict=False)):
        if not mine.equals(theirs, check_metadata=True):
            raise DamageError(
                f"Cannot read the catalog of version {version}: it describes column {index + 1} of "
                f"itself as {_shown(theirs)}, expected {_shown(mine)}.",
                hint="Run `spark-pages verify`.",
            )
    if len(told.schema) > len(known.schema):
        newer = ", ".join(repr(name) for name in told.schema.names[len(known.schema) :])
        raise UnsupportedFormatError(
            f"Cannot read the catalog of version {version}: it has columns that this release does not "
            f"know: {newer}.",
            hint="Upgrade: `pip install --upgrade spark-pages`.",
        )
    if told.next_field_id != len(told.schema) + 1 or not told.aligned:
        raise DamageError(
            f"Cannot read the catalog of version {version}: it does not describe itself as a table of "
            "its own."
        )
    return told


def upgraded_table_zero(told: TableDefinition) -> TableDefinition | None:
    """Return the current definition of table 0 if the store has an earlier one; else None."""
    known = table_zero(told.created_at_us)
    if len(told.schema) == len(known.schema):
        return None
    return replace(told, schema=known.schema, next_field_id=known.next_field_id)


def upgrade_intents(log: LogSnapshot) -> list[CatalogIntent]:
    """Return the catalog change that upgrades an earlier schema of table 0, if it is needed."""
    upgraded = upgraded_table_zero(stored_table_zero(log))
    if upgraded is None:
        return []
    return [CatalogIntent(IntentKind.ALTER, CATALOG_TABLE, *TABLE_ZERO_NAME, upgraded)]


def _is_current(log: LogSnapshot) -> bool:
    """Whether the checkpoint says that table 0 is what it is here, and nothing has changed it since."""
    if log.checkpoint is None or TABLE_ZERO_NAME in log.state.names:
        return False
    return log.checkpoint.root.table_zero == description_digest(table_zero(0))


def _shown(column: pa.Field) -> str:
    return f"{column.name!r} of type {column.type}{'' if column.nullable else ' (not null)'}"


def describe(
    definitions: list[TableDefinition],
    rows_before: int,
    first_page: int,
    purged: Sequence[TableDefinition] = (),
) -> tuple[list[NewPage], list[Splice]]:
    """Inline pages of table 0 that describe tables, or say which are given up, and their splices."""
    rows = catalog_rows(definitions, rows_before, purged)
    zero = table_zero(0)
    pages: list[NewPage] = []
    splices = []
    for name, field_id in zero.field_ids.items():
        values = rows.column(name)
        encoded = encode_page(values)
        pages.append(
            NewPage(
                len(values),
                len(values),
                PageKind.INLINE,
                None,
                0,
                0,
                encoded.actual_len,
                encoded.checksum,
                bytes(encoded.data),
                page_stats(values),
            )
        )
        start = first_page + len(pages) - 1
        splices.append(
            Splice(
                CATALOG_TABLE,
                field_id,
                rows_before,
                (),
                0,
                0,
                start,
                start + 1,
                len(values),
                touched=((rows_before, rows_before + len(values)),),
            )
        )
    return pages, splices


def first_record(runtime: Runtime, properties: Mapping[str, str]) -> TransactionRecord:
    """Create the record of commit 0: table 0, which describes itself."""
    check_store_properties(properties)
    zero = table_zero(runtime.now_us())
    described, splices = describe([zero], 0, first_page=0)
    return TransactionRecord(
        token=runtime.token(),
        operation="create store",
        read_version=-1,
        writer=writer_name(),
        own=AddedPages.of(described),
        splices=tuple(splices),
        intents=(CatalogIntent(IntentKind.CREATE, CATALOG_TABLE, zero.namespace_id, zero.name, zero),),
        properties=dict(properties),
    )
