"""Table 0 told of a change: rows of old descriptions end, and definitions are told anew."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from spark_pages.catalog.table_zero import THIS_COMMIT, describe, upgraded_table_zero
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.model.actions import Splice
from spark_pages.model.added_pages import NewPage
from spark_pages.model.ids import CATALOG_TABLE, TableId
from spark_pages.model.table import TableDefinition
from spark_pages.query.table import Table
from spark_pages.transaction.page_writer import StagedPage, inline_page, stage_constant
from spark_pages.transaction.rewritten_pages import rewrite_pages
from spark_pages.transaction.update_buffer import SortedUpdates


def catalog_changes(
    log: LogSnapshot,
    zero: Table,
    ended: Sequence[TableId],
    described: Sequence[TableDefinition],
    first_page: int,
    purged: Sequence[TableDefinition] = (),
) -> tuple[list[NewPage], list[Splice]]:
    """Inline pages of table 0, and the splices that bring them in.

    Parameters
    ----------
    log, zero
        The version on top of which this is to be, and table 0 in it.
    ended
        Tables whose rows end.
    described
        Definitions to be told. Beside them table 0 itself, where its schema is one of an earlier release: it
        gets the columns that it lacks, see `catalog.migration`.
    first_page
        Ordinal of the first of these pages.
    purged
        Dropped tables that do not come back.

    Notes
    -----
    Reads the pages of table 0 that may hold rows of the tables that end.
    """
    upgraded = upgraded_table_zero(zero.definition)
    if upgraded is not None:
        ended, described = [CATALOG_TABLE, *ended], [upgraded, *described]
    pages: list[NewPage] = []
    splices: list[Splice] = []
    if ended:
        found = zero.read(["row_id", "deleted_by"], filter=[("table_id", "in", list(ended))])
        rows = found.filter(found.column("deleted_by").is_null()).column("row_id").to_numpy()
        ends = pa.array(np.full(len(rows), THIS_COMMIT, dtype=np.int64))
        for staged in rewrite_pages(zero, "deleted_by", SortedUpdates.of(rows, ends)):
            start = first_page + len(pages)
            pages += [inline_page(page) for page in staged.pages if isinstance(page, StagedPage)]
            splices.append(
                Splice(
                    staged.table_id,
                    staged.field_id,
                    staged.first_row,
                    staged.removed,
                    staged.removed_entries,
                    0,
                    start,
                    first_page + len(pages),
                    staged.added_entries,
                    touched=staged.touched,
                )
            )
    if upgraded is not None:
        more, more_splices = _new_columns(zero, upgraded, first_page + len(pages))
        pages += more
        splices += more_splices
    if described or purged:
        rows_before = log.chain((CATALOG_TABLE, 1)).num_rows
        more, more_splices = describe(list(described), rows_before, first_page + len(pages), purged)
        pages += more
        splices += more_splices
    return pages, splices


def _new_columns(
    zero: Table, upgraded: TableDefinition, first_page: int
) -> tuple[list[NewPage], list[Splice]]:
    """Pages of nulls for the rows that table 0 has, in columns that it gets."""
    rows = zero.num_rows
    pages: list[NewPage] = []
    splices = []
    for name, field_id in upgraded.field_ids.items():
        if name in zero.definition.field_ids:
            continue
        start = first_page + len(pages)
        pages.append(inline_page(stage_constant(pa.scalar(None, upgraded.schema.field(name).type), rows)))
        splices.append(
            Splice(CATALOG_TABLE, field_id, 0, (), 0, 0, start, start + 1, rows, touched=((0, rows),))
        )
    return pages, splices
