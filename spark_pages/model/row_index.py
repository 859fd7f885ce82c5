"""From row numbers to pages and offsets, many at once, by binary search over running sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spark_pages.errors import RowOutOfRangeError
from spark_pages.model.chain_tree import ChainLayout
from spark_pages.model.immutable import freeze
from spark_pages.model.run import PageRun


@dataclass(frozen=True, slots=True)
class RowLocations:
    """Where many rows are.

    Attributes
    ----------
    positions : int64, shape (n_rows,)
        Position in the chain of the page that holds each row.
    rows_in_page : int64, shape (n_rows,)
        Offset of the row in that page.
    """

    positions: NDArray[np.int64]
    rows_in_page: NDArray[np.int64]

    def __post_init__(self) -> None:
        freeze(self, "positions", "rows_in_page")


def locate_rows(prefix_entries: NDArray[np.uint64], rows: NDArray[np.uint64]) -> RowLocations:
    """Page position and offset inside the page of every row asked for.

    Parameters
    ----------
    prefix_entries : uint64, shape (n_pages,)
        Running sum of entry counts; an empty page repeats its neighbour's value.
    rows : uint64, shape (n_rows,)
        Row numbers from 0, in any order.

    Raises
    ------
    RowOutOfRangeError
        If a row is not below the last prefix; names the first such row.

    Notes
    -----
    O(n_rows · log n_pages) time, no Python loop. Source: seed 000, "Lookup Helpers".
    """
    positions = np.searchsorted(prefix_entries, rows, side="right").astype(np.int64, copy=False)
    outside = positions == len(prefix_entries)
    if outside.any():
        total = int(prefix_entries[-1]) if len(prefix_entries) else 0
        raise row_out_of_range(int(rows[int(np.argmax(outside))]), total)
    return RowLocations(positions, (rows - _starts(prefix_entries)[positions]).astype(np.int64))


def _starts(prefix_entries: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the first row of each page."""
    starts = np.zeros(len(prefix_entries), dtype=np.uint64)
    starts[1:] = prefix_entries[:-1]
    return starts


def row_out_of_range(row: int, num_rows: int, column: str = "the column") -> RowOutOfRangeError:
    """Create the error for a row that a column does not have."""
    return RowOutOfRangeError(
        f"Cannot find row {row} of {column}: it has {num_rows} rows, numbered from 0.",
        hint=f"Pass a row from 0 to {num_rows - 1}."
        if num_rows
        else "Append rows first: `transaction.append`.",
        row=row,
        num_rows=num_rows,
    )


def locate_by_piece(
    layout: ChainLayout, touched: Sequence[int], bounds: Sequence[int], rows: NDArray[np.uint64]
) -> RowLocations:
    """Where rows are that stand piece by piece: those in [bounds[i], bounds[i + 1]) are in loaded piece i."""
    positions = np.empty(len(rows), dtype=np.int64)
    offsets = np.empty(len(rows), dtype=np.int64)
    for index in touched:
        run = layout.pieces[index]
        assert isinstance(run, PageRun)
        start, stop = bounds[index], bounds[index + 1]
        inside = rows[start:stop] - np.uint64(layout.first_rows[index])
        pages = np.searchsorted(run.prefix_entries, inside, side="right")
        np.subtract(inside, _starts(run.prefix_entries)[pages], out=offsets[start:stop], casting="unsafe")
        np.add(pages, layout.first_pages[index], out=positions[start:stop])
    return RowLocations(positions, offsets)
