"""Deletes of rows as splices of the liveness chain. See `docs/format.md` ("Deleted rows")."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.arrow.columns import numbers_of, valid_of
from spark_pages.io import page_stats
from spark_pages.model.chain import ColumnChain
from spark_pages.model.ids import LIVENESS
from spark_pages.model.page import PageDescriptor, PageKind
from spark_pages.model.row_ranges import RowRanges, sorted_rows
from spark_pages.model.table import TableDefinition
from spark_pages.query.live_rows import MARK
from spark_pages.query.row_reader import RowReader
from spark_pages.query.table import Table
from spark_pages.transaction.page_writer import StagedPage, stage_constant, stage_page
from spark_pages.transaction.placement import StagedSplice

BLOCK_ROWS = 1 << 16
"""Rows of a page of the liveness chain, at most."""

CONSTANT_ROWS = 1 << 20
"""Rows of a constant page: a reader of one of its rows unfolds 128 KiB."""

MOST_RANGES = 1 << 16
"""A splice names no more touched ranges than this; else the pages that hold them."""

_PAGES_AT_ONCE = 128
_LIVE, _DEAD = -1, -2
"""Groups of constants that hold a block or more, beside the numbers of blocks."""

Numbers = NDArray[np.int64]


def mark_dead(table: Table, rows: Numbers) -> list[StagedSplice]:
    """Return splices that mark rows of a table as dead.

    Parameters
    ----------
    table
        As of the version whose pages give way.
    rows : int64, shape (n_rows,)
        Live rows of the table, increasing.

    Notes
    -----
    Reads the pages of the liveness chain that hold some of the rows. The cost grows with these and with the
    rows, never with the rows of the table.
    """
    if not len(rows):
        return []
    marks = table.marks
    length = 0 if marks is None else marks.directory.chain(MARK).num_rows
    inside, behind = np.split(rows, [int(np.searchsorted(rows, length))])
    splices = [] if marks is None else list(_changed(table.definition, marks, inside))
    if len(behind):
        end = min(table.end_row, (int(behind[-1]) // BLOCK_ROWS + 1) * BLOCK_ROWS)
        pages = list(_pages(length, end, behind))
        splices.append(_splice(table.definition, length, (), 0, pages, behind))
    return splices


def shorten_marks(table: Table, end_row: int) -> list[StagedSplice]:
    """Return the splice that ends the liveness chain of a table at a row; none where it ends before."""
    marks = table.marks
    if marks is None:
        return []
    chain: ColumnChain = marks.directory.chain(MARK)
    if chain.num_rows <= end_row:
        return []
    found = chain.locate_row(end_row)
    removed = chain.pages_at(np.arange(found.page_position, chain.num_pages))
    begin = end_row - found.row_in_page
    live = valid_of(marks.page_values(MARK, removed[:1])[0])[: found.row_in_page]
    pages = list(_pages(begin, end_row, begin + np.flatnonzero(~live)))
    splice = _splice(table.definition, begin, removed, chain.num_rows - begin, pages, np.zeros(0, np.int64))
    return [splice]


def dead_rows(table: Table) -> RowRanges:
    """Return the dead rows of a table. Reads all pages of its liveness chain."""
    marks = table.marks
    if marks is None:
        return RowRanges.of(0, 0)
    run = marks.directory.chain(MARK).all_pages()
    counts = run.numbers("entry_count")
    starts = run.prefix_entries.astype(np.int64) - counts
    constant = run.numbers("kind") == PageKind.CONSTANT
    nulls = numbers_of(run.stats.column("null_count"))
    whole = constant & (nulls > 0)
    bounds = [np.stack([starts[whole], starts[whole] + counts[whole]], axis=1)]
    some = np.flatnonzero(~constant & (nulls > 0))
    for first in range(0, len(some), _PAGES_AT_ONCE):
        chosen = some[first : first + _PAGES_AT_ONCE]
        pages = [run.descriptor(index) for index in chosen.tolist()]
        for start, values in zip(starts[chosen].tolist(), marks.page_values(MARK, pages), strict=True):
            edges = np.flatnonzero(np.diff(np.concatenate([[0], ~valid_of(values), [0]]).astype(np.int8)))
            bounds.append(start + edges.reshape(-1, 2))
    return RowRanges.joined(np.concatenate(bounds))


def joined_marks(table: Table, dead: RowRanges) -> list[StagedSplice]:
    """Return splices that join pages of the liveness chain of a table; none where it gets no fewer pages.

    Parameters
    ----------
    dead
        All dead rows of the table.
    """
    marks = table.marks
    if marks is None:
        return []
    run = marks.directory.chain(MARK).all_pages()
    counts = run.numbers("entry_count")
    ends = run.prefix_entries.astype(np.int64)
    starts = ends - counts
    nulls = numbers_of(run.stats.column("null_count"))
    blocks = starts // BLOCK_ROWS
    fits = (counts < BLOCK_ROWS) & (blocks == (ends - 1) // BLOCK_ROWS)
    group = np.where(fits, blocks, np.where(nulls > 0, _DEAD, _LIVE))
    group = np.where(~fits & (run.numbers("kind") != PageKind.CONSTANT), -3 - np.arange(len(group)), group)
    edges = np.append(0, np.flatnonzero(np.diff(group)) + 1)
    splices = []
    for start, stop in zip(edges.tolist(), [*edges[1:].tolist(), len(group)], strict=True):
        begin, end = int(starts[start]), int(ends[stop - 1])
        if stop - start < 2:
            continue
        if group[start] in (_LIVE, _DEAD):
            pages = list(_constants(bool(group[start] == _LIVE), end - begin))
        else:
            pages = list(_pages(begin, end, dead.between(begin, end).rows()))
        if len(pages) < stop - start:
            removed = tuple(run.page_ids[start:stop].tolist())
            of = table.definition.table_id, LIVENESS
            splices.append(StagedSplice(*of, begin, removed, end - begin, pages, data_change=False))
    return splices


def _changed(definition: TableDefinition, marks: RowReader, rows: Numbers) -> Iterator[StagedSplice]:
    """Splices for rows that pages of the chain hold."""
    if not len(rows):
        return
    chain: ColumnChain = marks.directory.chain(MARK)
    found = chain.locate_rows(rows.astype(np.uint64))
    edges = np.flatnonzero(np.diff(found.positions)) + 1
    begins = np.append(0, edges)
    pages = chain.pages_at(found.positions[begins])
    values = iter(marks.page_values(MARK, [page for page in pages if page.kind is not PageKind.CONSTANT]))
    for page, first, stop in zip(pages, begins.tolist(), [*edges.tolist(), len(rows)], strict=True):
        some = rows[first:stop]
        begin = int(some[0] - found.rows_in_page[first])
        end = begin + page.entry_count
        dead = some
        if page.kind is not PageKind.CONSTANT:  # no live row is in a constant page of dead ones
            known = begin + np.flatnonzero(~valid_of(next(values)))
            dead = sorted_rows(np.concatenate([some, known]))
        new = list(_pages(begin, end, dead))
        yield _splice(definition, begin, (page,), end - begin, new, some)


def _splice(
    definition: TableDefinition,
    first_row: int,
    removed: Sequence[PageDescriptor],
    removed_entries: int,
    pages: Sequence[StagedPage],
    rows: Numbers,
) -> StagedSplice:
    return StagedSplice(
        definition.table_id,
        LIVENESS,
        first_row,
        tuple(int(page.page_id) for page in removed),
        removed_entries,
        pages,
        touched=touched_ranges(rows, first_row, pages),
    )


def touched_ranges(rows: Numbers, first_row: int, pages: Sequence[StagedPage]) -> tuple[tuple[int, int], ...]:
    """Return the rows as ranges, or the pages that hold them if there are too many ranges."""
    if not len(rows):
        return ()
    begins = np.ones(len(rows), bool)
    begins[1:] = np.diff(rows) != 1
    if np.count_nonzero(begins) > MOST_RANGES:
        ends = first_row + np.cumsum([page.entries for page in pages])
        hit = sorted_rows(np.searchsorted(ends, rows, side="right"))
        starts = np.append(first_row, ends[:-1])
        return tuple(zip(starts[hit].tolist(), ends[hit].tolist(), strict=True))
    starts = rows[begins]
    stops = rows[np.append(np.flatnonzero(begins)[1:], len(rows)) - 1] + 1
    return tuple(zip(starts.tolist(), stops.tolist(), strict=True))


def _constants(live: bool, count: int) -> Iterator[StagedPage]:
    value = pa.scalar(live or None, pa.bool_())  # not at import: pyarrow would import pandas
    for first in range(0, count, CONSTANT_ROWS):
        yield stage_constant(value, min(CONSTANT_ROWS, count - first))


def _pages(begin: int, end: int, dead: Numbers) -> Iterator[StagedPage]:
    """Pages of rows [begin, end) with some dead ones: constants where all rows of blocks are alike."""
    row = begin
    for block in sorted_rows(dead // BLOCK_ROWS).tolist():
        first, stop = max(begin, block * BLOCK_ROWS), min(end, (block + 1) * BLOCK_ROWS)
        some = dead[np.searchsorted(dead, first) : np.searchsorted(dead, stop)]
        if row < first:
            yield from _constants(True, first - row)
        row = stop
        if len(some) == stop - first:
            yield from _constants(False, stop - first)
            continue
        values = _marks(stop - first, some - first)
        yield stage_page(values, page_stats(values))
    if row < end:
        yield from _constants(True, end - row)


def _marks(count: int, dead: Numbers) -> pa.BooleanArray:
    """Make entries that are true, or null where rows are dead: one bitmap says both."""
    live = np.ones(count, bool)
    live[dead] = False
    bits = pa.py_buffer(np.packbits(live, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), count, [bits, bits], len(dead))
