"""Reading what entries and pages have beside their values; its form is that of `page_meta`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from spark_pages.arrow.columns import number_column
from spark_pages.io import ReadTrace
from spark_pages.model.row_ranges import RowRanges
from spark_pages.model.run import PageRun
from spark_pages.query.concat import assembled
from spark_pages.query.page_metadata import PageMeta, check_names, meta_names, page_name
from spark_pages.query.row_reader import Reading, RowReader

_PAGES_AT_ONCE = 128
_METADATA = pa.map_(pa.binary(), pa.binary())


def rows_with_meta(
    source: RowReader, names: Sequence[str], start: int, stop: int, trace: ReadTrace | None
) -> pa.Table:
    """Rows [start, stop), each column followed by what its entries have beside them, and their pages.

    Raises
    ------
    InvalidInputError
        If a data column has the name of such a column.

    Notes
    -----
    The pages of all columns are asked for at once; then each is taken apart once more, from the cache.
    """
    check_names(source.definition, names)
    values = source.slices(names, RowRanges.of(start, stop), Reading(trace=trace))
    columns: dict[str, Any] = {}
    for name in names:
        pieces = source.directory.locate_range(name, start, stop)
        batches = source.page_batches([piece.page for piece in pieces])
        cut = [
            batch.slice(piece.start, piece.stop - piece.start)
            for piece, batch in zip(pieces, batches, strict=True)
        ]
        metas = [PageMeta.of([batch]) for batch in cut]
        columns[name] = values.column(name)
        beside = [each.prefix for each in metas], [each.suffix for each in metas]
        for title, of_pages in zip(meta_names(name), beside, strict=True):
            columns[title] = _expand(of_pages, [batch.num_rows for batch in cut])
        pages = np.repeat(np.arange(len(cut)), [batch.num_rows for batch in cut])
        columns[page_name(name)] = _metadata(cut).take(number_column(pages, pa.int64()))
    return pa.table(columns)


def _expand(of_pages: Sequence[pa.Array | None], counts: Sequence[int]) -> pa.ChunkedArray:
    """What the entries of some pages have, in as few arrays as hold it; null where there is nothing."""
    if all(each is None for each in of_pages):
        return pa.chunked_array([pa.nulls(sum(counts), pa.binary())])
    arrays = [
        pa.nulls(count, pa.binary()) if each is None else each
        for each, count in zip(of_pages, counts, strict=True)
    ]
    return pa.chunked_array(assembled([(each, 0, len(each)) for each in arrays], pa.binary()), pa.binary())


def metadata_of(source: RowReader, run: PageRun) -> pa.Array:
    """Metadata of some pages, each of which is read; null where there is none."""
    found = [pa.nulls(0, _METADATA)]
    for first in range(0, run.num_pages, _PAGES_AT_ONCE):
        last = min(first + _PAGES_AT_ONCE, run.num_pages)
        found.append(_metadata(source.page_batches(run.descriptors(first, last), admit=False)))
    return pa.concat_arrays(found)


def _metadata(pages: Sequence[pa.RecordBatch]) -> pa.Array:
    """Metadata of each page; null where there is none."""
    told = (page.schema.metadata for page in pages)
    return pa.array([list(each.items()) if each else None for each in told], _METADATA)
