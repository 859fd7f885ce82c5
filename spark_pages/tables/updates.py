"""Updates of single rows: gathered by column, then each page that they touch is rewritten once."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.io import encode_page, page_stats
from spark_pages.tables.page_writer import StagedPage
from spark_pages.tables.staging import StagedSplice
from spark_pages.tables.table import Table


@dataclass(eq=False, slots=True)
class Updates:
    """Updates of one column, in the order given: later ones win.

    Attributes
    ----------
    rows : list of int64 arrays
        Row numbers.
    values
        As many values each.
    """

    rows: list[NDArray[np.int64]] = field(default_factory=list)
    values: list[pa.Array] = field(default_factory=list)


def rewrite_pages(table: Table, column: str, updates: Updates) -> list[StagedSplice]:
    """Splices that put rewritten pages in the place of those that the updates touch."""
    chain = table.directory.chain(column)
    rows, values = _last_wins(updates)
    found = chain.locate_rows(rows.astype(np.uint64))
    positions, begins = np.unique(found.positions, return_index=True)
    pages = chain.pages_at(positions)
    arrays = table.page_values(column, pages)
    bounds = [*begins.tolist(), len(rows)]
    splices = []
    for index, (page, array) in enumerate(zip(pages, arrays, strict=True)):
        low, high = bounds[index], bounds[index + 1]
        offsets = found.rows_in_page[low:high]
        order = np.arange(len(array))
        order[offsets] = len(array) + np.arange(high - low)
        changed = pa.concat_arrays([array, values.slice(low, high - low)]).take(pa.array(order))
        splices.append(
            StagedSplice(
                table.definition.table_id,
                table.definition.field_ids[column],
                int(rows[low] - offsets[0]),
                (page.page_id,),
                page.entry_count,
                [StagedPage(encode_page(changed), page_stats(changed))],
                touched=_ranges(rows[low:high]),
            )
        )
    return splices


def _last_wins(updates: Updates) -> tuple[NDArray[np.int64], pa.Array]:
    """Rows, increasing, and the last value given for each."""
    rows = np.concatenate(updates.rows)
    values = pa.concat_arrays(updates.values)
    unique, last = np.unique(rows[::-1], return_index=True)
    return unique, values.take(pa.array(len(rows) - 1 - last))


def _ranges(rows: NDArray[np.int64]) -> tuple[tuple[int, int], ...]:
    """Increasing rows as ranges [start, end)."""
    breaks = np.flatnonzero(np.diff(rows) > 1) + 1
    starts = rows[np.concatenate([[0], breaks])]
    ends = rows[np.concatenate([breaks - 1, [len(rows) - 1]])] + 1
    return tuple(zip(starts.tolist(), ends.tolist(), strict=True))
