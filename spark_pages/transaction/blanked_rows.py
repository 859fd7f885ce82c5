"""Blank the values of dead rows: null takes their place. See `docs/format.md` ("Deleted rows")."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from spark_pages.arrow.columns import numbers_of, valid_of
from spark_pages.arrow.nested import null_column, null_scalar
from spark_pages.model.chain import ColumnChain
from spark_pages.model.page import PageDescriptor, PageKind
from spark_pages.model.row_ranges import RowRanges
from spark_pages.query.page_metadata import PageMeta
from spark_pages.query.table import Table
from spark_pages.transaction.deleted_rows import touched_ranges
from spark_pages.transaction.page_writer import StagedPage, stage_column, stage_constants
from spark_pages.transaction.placement import StagedSplice
from spark_pages.transaction.rewritten_pages import TouchedPages, rewrite_touched, with_values

_PAGES_AT_ONCE = 128

Numbers = NDArray[np.int64]


def blank_column(
    table: Table, column: str, dead: RowRanges, among: RowRanges | None = None, *, whole_pages: bool = False
) -> Iterator[StagedSplice]:
    """Splices that put null in the place of the values of dead rows; none for those that are blank.

    Parameters
    ----------
    table
        As of the version whose pages give way.
    dead
        All dead rows of the table.
    among
        Only pages that hold one of these rows; None for all.
    whole_pages
        Whether to blank only pages all of whose rows are dead.

    Notes
    -----
    Pages whose rows are all dead are not read, and become constants. Of the others each that holds a dead row
    is read, and rewritten where that row is not blank; 128 pages at a time.
    """
    chain = table.directory.chain(column)
    every = chain.all_pages()
    counts = every.numbers("entry_count")
    ends = every.prefix_entries.astype(np.int64)
    starts = ends - counts
    died = _count_in(dead, starts, ends)
    chosen = died == counts if whole_pages else died > 0
    chosen &= counts > 0
    if among is not None:
        chosen &= _count_in(among, starts, ends) > 0
    positions = np.flatnonzero(chosen)
    if not len(positions):
        return
    run = chain.run_at(positions)
    nulls = numbers_of(run.stats.column("null_count").fill_null(-1))
    blank = (run.numbers("kind") == PageKind.CONSTANT) & (nulls == counts[positions])
    positions = positions[~blank]
    is_whole = died[positions] == counts[positions]
    yield from _blank_whole(table, column, positions[is_whole], starts, ends)
    rest = positions[~is_whole]
    for first in range(0, len(rest), _PAGES_AT_ONCE):
        yield from _blank_parts(table, column, chain, rest[first : first + _PAGES_AT_ONCE], starts, dead)


def _count_in(rows: RowRanges, starts: Numbers, ends: Numbers) -> Numbers:
    """How many of the rows each range holds."""
    if not len(rows.starts):
        return np.zeros(len(starts), np.int64)
    before = np.append(0, np.cumsum(rows.ends - rows.starts))

    def below(bound: Numbers) -> Numbers:
        index = np.searchsorted(rows.ends, bound, side="right")
        inside = np.minimum(index, len(rows.starts) - 1)
        part = np.clip(bound - rows.starts[inside], 0, None)
        counted: Numbers = before[index] + np.where(index < len(rows.starts), part, 0)
        return counted

    return below(ends) - below(starts)


def _neighbours(positions: Numbers) -> Iterator[tuple[int, int]]:
    """[start, stop) of positions that follow each other."""
    edges = np.flatnonzero(np.diff(positions) != 1) + 1
    yield from pairwise([0, *edges.tolist(), len(positions)]) if len(positions) else ()


def _blank_whole(
    table: Table, column: str, positions: Numbers, starts: Numbers, ends: Numbers
) -> Iterator[StagedSplice]:
    """Constants of null in the place of whole pages; nothing is read."""
    null = null_scalar(table.definition.bare_schema.field(column).type)
    chain: ColumnChain = table.directory.chain(column)
    for low, high in _neighbours(positions):
        first, end = int(starts[positions[low]]), int(ends[positions[high - 1]])
        removed = tuple(chain.run_at(positions[low:high]).page_ids.tolist())
        pages = stage_constants(null, end - first)
        yield _splice(table, column, first, removed, end - first, pages, ((first, end),))


def _blank_parts(
    table: Table, column: str, chain: ColumnChain, positions: Numbers, starts: Numbers, dead: RowRanges
) -> Iterator[StagedSplice]:
    """Pages with some dead rows, without the values of these."""
    pages = chain.pages_at(positions)
    arrays = table.page_values(column, pages)
    metas = [PageMeta.of([batch]) for batch in table.page_handler.get_pages(pages)]
    kept: list[int] = []
    offsets: list[Numbers] = []
    for index, (page, array, meta) in enumerate(zip(pages, arrays, metas, strict=True)):
        first = int(starts[positions[index]])
        inside = dead.between(first, first + page.entry_count).rows() - first
        inside = inside[valid_of(array)[inside] | meta.has_any(inside)]
        if not len(inside):
            continue
        if page.kind is PageKind.CONSTANT:
            yield _unfolded(table, column, first, page, inside)
        else:
            kept.append(index)
            offsets.append(inside)
    for low, high in _neighbours(positions[kept]):
        some = [pages[index] for index in kept[low:high]]
        firsts = starts[positions[kept[low:high]]]
        counts = [len(each) for each in offsets[low:high]]
        rows = np.concatenate(offsets[low:high]) + np.repeat(firsts, counts)
        touched = TouchedPages(
            positions[kept[low:high]],
            np.append(0, np.cumsum(counts)),
            rows,
            np.concatenate(offsets[low:high]),
            null_column(table.definition.bare_schema.field(column).type, len(rows)),
        )
        staged = rewrite_touched(table, column, some, touched, blank=True)
        removed = tuple(int(page.page_id) for page in some)
        entries = sum(page.entry_count for page in some)
        ranges = touched_ranges(rows, int(firsts[0]), staged)
        yield _splice(table, column, int(firsts[0]), removed, entries, staged, ranges)


def _unfolded(
    table: Table, column: str, first_row: int, page: PageDescriptor, offsets: Numbers
) -> StagedSplice:
    """Pages of the values of a constant, without those of some rows."""
    options = table.page_options
    values = with_values(
        table.page_values(column, [page]),
        offsets,
        null_column(table.definition.bare_schema.field(column).type, len(offsets)),
    )
    pages = stage_column(
        values, options.bytes_for(column), options.codec_for(column), options.bloom_for(column)
    )
    ranges = touched_ranges(first_row + offsets, first_row, pages)
    return _splice(table, column, first_row, (int(page.page_id),), page.entry_count, pages, ranges)


def _splice(
    table: Table,
    column: str,
    first_row: int,
    removed: tuple[int, ...],
    entries: int,
    pages: Sequence[StagedPage],
    touched: tuple[tuple[int, int], ...],
) -> StagedSplice:
    of = table.definition.table_id, table.definition.field_ids[column]
    return StagedSplice(*of, first_row, removed, entries, pages, touched=touched)
