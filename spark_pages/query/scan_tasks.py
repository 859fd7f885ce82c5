"""Windows of a scan: stretches of rows whose pages take about so many bytes, so that memory is bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.format.pages.paginate import TARGET_PAGE_BYTES
from spark_pages.model.chain import RunSlice
from spark_pages.model.row_ranges import RowRanges
from spark_pages.model.run import PageRun

Numbers = NDArray[Any]

BATCH_ROWS = 1 << 16
"""Rows of a batch, unless the caller says."""

FIRST_WINDOW_BYTES = 2 << 20
"""The first window is small, for whoever wants a few rows; each next one is twice as large."""

WINDOW_BYTES = 32 << 20
"""Uncompressed bytes of a window at most, about."""

LONE_WINDOW_BYTES = (8 << 20, 64 << 20)
"""The first window and the largest, where no other is read beside one: a sixth less processor time."""

MOST_BATCH_BYTES = 1 << 30
"""A batch of as many rows as were asked for may be larger than a window, up to about this."""

_PAGE_COST = 1024
"""What a page costs beside its values."""


def plan_windows(
    pieces_at: Callable[[int, int], Sequence[RunSlice]],
    kinds: Sequence[pa.DataType],
    candidates: Iterable[RowRanges],
    batch_rows: int | None = None,
    alone: bool = False,
) -> Iterator[RowRanges]:
    """The rows that are to be read, in windows.

    Parameters
    ----------
    pieces_at
        Gives loaded pages of each column that is read, those that hold a row and some behind it, up to an
        end.
    kinds
        Types of these columns.
    candidates
        The rows that are to be read at all, part by part, in order. A window holds rows of one part.
    batch_rows
        Rows of a batch where the caller has said; windows hold whole batches as far as memory allows.
    alone
        Whether no other window is read beside one.

    Notes
    -----
    Loads the chains as it goes: no more segments than the windows asked for need.
    """
    size, most = LONE_WINDOW_BYTES if alone else (FIRST_WINDOW_BYTES, WINDOW_BYTES)
    for part in candidates:
        left = part
        while left.num_rows:
            row, stop = int(left.starts[0]), int(left.ends[-1])
            slices = pieces_at(row, stop)
            end = min([stop, *(piece.first_row + piece.run.num_rows for piece in slices)])
            ranges, left = left.between(row, end), left.between(end, stop)
            rows, taken = _running_bytes(slices, kinds, ranges)
            done = 0
            while done < ranges.num_rows:
                count = _fitting(rows, taken, done, size, batch_rows)
                yield ranges.part(done, done + count)
                done, size = done + count, min(2 * size, most)


def _fitting(rows: Numbers, taken: Numbers, done: int, size: int, batch_rows: int | None) -> int:
    """How many rows the next window has."""

    def within(most_bytes: int) -> int:
        return int(np.interp(np.interp(done, rows, taken) + most_bytes, taken, rows)) - done

    unit = batch_rows or BATCH_ROWS
    fits = within(size)
    if fits > unit:
        fits -= fits % unit
    elif batch_rows:
        fits = max(fits, min(unit, within(MOST_BATCH_BYTES)))
    return max(1, fits)


def _running_bytes(
    slices: Sequence[RunSlice], kinds: Sequence[pa.DataType], ranges: RowRanges
) -> tuple[Numbers, Numbers]:
    """Numbers of rows of the ranges, increasing from 0 to all, and about how many bytes these take."""
    columns = []
    for piece, kind in zip(slices, kinds, strict=True):
        ends = piece.run.prefix_entries.astype(np.int64) + piece.first_row
        columns.append((ends, np.cumsum(_page_bytes(piece.run, kind)), piece.first_row))
    points = np.unique(np.concatenate([ranges.starts, ranges.ends, *(ends for ends, _, _ in columns)]))
    taken = np.arange(len(points), dtype=np.float64)  # never flat, so that it can be read both ways
    for ends, running, first in columns:
        taken += np.interp(points, np.concatenate([[first], ends]), np.concatenate([[0.0], running]))
    cells = ranges.covers(points[:-1])
    numbers, sizes = (np.concatenate([[0], np.cumsum(np.diff(each)[cells])]) for each in (points, taken))
    return numbers, sizes


def _page_bytes(run: PageRun, kind: pa.DataType) -> Numbers:
    """About how many bytes the values of each page take."""
    entries = run.numbers("entry_count")
    try:
        fixed: Numbers = entries * max(kind.bit_width / 8, 1 / 8) + _PAGE_COST
        return fixed
    except ValueError:  # not of one width: compressed to a quarter perhaps, but cut to the size of a page
        packed = run.numbers("actual_len").astype(np.float64)
        likely: Numbers = np.minimum(packed * 4, np.maximum(packed, TARGET_PAGE_BYTES)) + entries + _PAGE_COST
        return likely
