"""Page descriptors as a table for people: derived numbers beside the stored ones. Pure."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from spark_pages.model.chain import RunSlice


def page_table(column: str, pages: RunSlice, position: int) -> pa.Table:
    """A row for each page, in row order.

    Parameters
    ----------
    column
        Whose pages they are.
    position
        Of the first of them in its chain, from 0.

    Returns
    -------
    pyarrow.Table
        ``column``, ``position``, ``first_row``, the fields of a descriptor, and ``null_count``.
    """
    run = pages.run
    prefix = run.prefix_entries.astype(np.int64)
    table = pa.table(
        {
            "column": pa.repeat(pa.scalar(column), run.num_pages),
            "position": np.arange(position, position + run.num_pages, dtype=np.int64),
            "first_row": pages.first_row + prefix - run.numbers("entry_count"),
        }
    )
    for field in run.pages.schema:
        value = run.pages.column(field.name)
        if pa.types.is_dictionary(field.type):
            value = value.cast(pa.string())
        if field.name != "data":
            table = table.append_column(field.name, value)
    return table.append_column("null_count", run.stats.column("null_count"))
