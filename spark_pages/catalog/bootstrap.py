"""Creation of a store, and the check of table 0 when a store is opened.

The second phase of opening a store (seed 002, "Catalog Bootstrap"): the schema in `table_zero` is enough to
read table 0; what table 0 says of itself must agree with it. A store of an earlier release may lack columns
at the end: they read as null, and the first change of the catalog brings them in. A store of a later release
may have more: it is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from spark_pages.catalog.table_zero import CATALOG_NAME, catalog_rows, table_zero
from spark_pages.errors import DamageError, UnsupportedFormatError
from spark_pages.io import encode_page, page_stats
from spark_pages.log.checkpoint.root import description_digest
from spark_pages.log.properties import check_store_properties
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.model.actions import CatalogIntent, IntentKind, Splice, TransactionRecord
from spark_pages.model.added_pages import AddedPages, NewPage
from spark_pages.model.ids import CATALOG_TABLE
from spark_pages.model.page import PageKind
from spark_pages.model.table import SYSTEM_NAMESPACE, TableDefinition
from spark_pages.runtime import Runtime, writer_name

TABLE_ZERO_NAME = (SYSTEM_NAMESPACE, CATALOG_NAME)


def stored_table_zero(log: LogSnapshot) -> TableDefinition:
    """The definition of table 0 as the store has it, but for the time at which it was made.

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
    """The definition that table 0 gets with the next change of the catalog; None where it has it."""
    known = table_zero(told.created_at_us)
    if len(told.schema) == len(known.schema):
        return None
    return replace(told, schema=known.schema, next_field_id=known.next_field_id)


def upgrade_intents(log: LogSnapshot) -> list[CatalogIntent]:
    """What a change of the catalog tells of table 0 itself: nothing, unless its schema is an earlier one."""
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
    """The record of commit 0: table 0, which describes itself."""
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
