"""Appending what entries have beside their values; its form is that of `page_meta`."""

from __future__ import annotations

import pyarrow as pa

from spark_pages.model.nested import null_scalar
from spark_pages.tables.arrays.values import cast_column
from spark_pages.tables.reading.page_meta import NO_META, PageMeta
from spark_pages.tables.writing.ingest import TableIngest
from spark_pages.tables.writing.page_writer import stage_column, stage_constant


def append_with_meta(ingest: TableIngest, rows: pa.Table, metas: dict[str, PageMeta]) -> int:
    """The rows are pages of an ingest to which nothing has been added; gives the bytes of the pages.

    Parameters
    ----------
    metas
        What the entries of each column have beside them.

    Raises
    ------
    SchemaMismatchError
        If values do not fit their column.
    """
    made = []
    for column in ingest.columns:
        name = column.wanted.name
        if name in rows.column_names:
            values = cast_column(rows.column(name), column.wanted, ingest.definition.name)
            meta = metas.get(name, NO_META)
            made.append(stage_column(values, column.page_bytes, column.codec, column.bloom, meta))
        else:
            made.append([stage_constant(null_scalar(column.wanted.type), rows.num_rows)])
    for column, pages in zip(ingest.columns, made, strict=True):
        first = column.splice.first_row
        column.splice.pages, column.splice.touched = pages, ((first, first + rows.num_rows),)
    return sum(page.encoded.actual_len for pages in made for page in pages)
