"""How new tables come into table 0, and how table 0 comes into a new store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spark_pages.catalog.table_zero import catalog_rows, table_zero
from spark_pages.io import encode_page, page_stats
from spark_pages.log.properties import check_store_properties
from spark_pages.model.actions import CatalogIntent, IntentKind, Splice, TransactionRecord
from spark_pages.model.added_pages import AddedPages
from spark_pages.model.ids import CATALOG_TABLE
from spark_pages.model.new_page import NewPage
from spark_pages.model.page import PageKind
from spark_pages.model.table import TableDefinition
from spark_pages.runtime import Runtime, writer_name


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
