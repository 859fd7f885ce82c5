"""The pages that updates touch, with other values: each is read, changed and encoded once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.arrow.columns import has_dictionary
from spark_pages.arrow.join import (
    DoesNotFitError,
    join,
    take_entries,
    with_minimal_dictionaries,
    with_used_values,
    with_wide_dictionaries,
)
from spark_pages.errors import InvalidInputError
from spark_pages.io import page_stats
from spark_pages.model.chain import ColumnChain
from spark_pages.model.page import PageDescriptor, PageKind
from spark_pages.query.page_metadata import PageMeta
from spark_pages.query.table import Table
from spark_pages.transaction.page_writer import StagedPage, stage_page, stage_pages
from spark_pages.transaction.placement import StagedSplice
from spark_pages.transaction.update_buffer import SortedUpdates

_PAGES_AT_ONCE = 128
"""No more pages are read, changed and encoded before others are read."""

_BYTES_AT_ONCE = 8 << 20


def rewrite_pages(
    table: Table,
    column: str,
    updates: SortedUpdates,
    memory_bytes: int = _BYTES_AT_ONCE,
    within: NDArray[np.int64] | None = None,
) -> Iterator[StagedSplice]:
    """Splices that put rewritten pages in the place of those that the updates touch, neighbours in one.

    What an entry or a page has beside its values stays as it is.

    Parameters
    ----------
    memory_bytes
        So many bytes of pages, and of their new values, are worked on together, or one page.
    within : int64, shape (n_ranges, 2)
        First row and end row of ranges that do not overlap, in order: those pages alone that hold updated
        rows of them. Such a page holds no other updated rows.

    Notes
    -----
    Each page is read, changed and encoded once. Memory of the pages at work three times, and of what is given
    out; beside them two numbers for each page that is touched.
    """
    chain = table.directory.chain(column)
    positions, first_rows = _touched_pages(chain, updates, within)
    kind = table.definition.bare_schema.field(column).type
    at_once = max(1, min(_PAGES_AT_ONCE, memory_bytes // table.page_options.bytes_for(column)))
    done = 0
    while done < len(positions):
        pages = chain.pages_at(positions[done : done + at_once])
        sizes = np.cumsum([_bytes_at_work(page, kind) for page in pages])
        pages = pages[: max(1, int(np.searchsorted(sizes, memory_bytes, side="right")))]  # some are larger
        bounds = np.repeat(first_rows[done : done + len(pages)], 2).reshape(-1, 2)
        bounds[:, 1] += [page.entry_count for page in pages]
        while len(pages) > 1 and updates.size_between(bounds)[1] > memory_bytes:
            pages = pages[: len(pages) // 2]
            bounds = bounds[: len(pages)]
        rows, values = updates.between(bounds)
        of_pages = np.concatenate([[0], np.searchsorted(rows, bounds[:, 1])])
        offsets = rows - np.repeat(bounds[:, 0], of_pages[1:] - of_pages[:-1])
        touched = TouchedPages(positions[done : done + len(pages)], of_pages, rows, offsets, values)
        done += len(pages)
        staged = rewrite_touched(table, column, pages, touched)
        for start, stop, ranges in touched.neighbours():
            yield StagedSplice(
                table.definition.table_id,
                table.definition.field_ids[column],
                int(bounds[start, 0]),
                tuple(page.page_id for page in pages[start:stop]),
                sum(page.entry_count for page in pages[start:stop]),
                staged[start:stop],
                touched=ranges,
            )


def _touched_pages(
    chain: ColumnChain, updates: SortedUpdates, within: NDArray[np.int64] | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions of the pages that hold updated rows, increasing, and the first row of each."""
    positions = first_rows = np.zeros(0, np.int64)
    for numbers in updates.rows:
        rows = numbers
        if within is not None:
            at = np.maximum(np.searchsorted(within[:, 0], numbers, side="right") - 1, 0)
            rows = numbers[(numbers >= within[at, 0]) & (numbers < within[at, 1])]
        found = chain.locate_rows(rows.astype(np.uint64))
        begins = np.ones(len(rows), bool)
        np.not_equal(found.positions[1:], found.positions[:-1], out=begins[1:])
        some = found.positions[begins], (rows - found.rows_in_page)[begins]
        if not len(positions):
            positions, first_rows = some
        else:
            positions, kept = np.unique(np.concatenate([positions, some[0]]), return_index=True)
            first_rows = np.concatenate([first_rows, some[1]])[kept]
    return positions, first_rows


def _bytes_at_work(page: PageDescriptor, kind: pa.DataType) -> int:
    """Bytes of a page that is opened, at least; of one of equal values, all of them."""
    if page.kind is not PageKind.CONSTANT:
        return page.actual_len
    try:
        width = int(kind.bit_width) // 8 + 1
    except ValueError:  # text, lists
        width = page.actual_len
    return page.entry_count * width


@dataclass(frozen=True, eq=False, slots=True)
class TouchedPages:
    """Some pages of a chain, and the rows of them that get other values.

    Attributes
    ----------
    positions : int64, shape (n_pages,)
        Which pages, increasing.
    bounds : int64, shape (n_pages + 1,)
        The first of the rows of each page, and the number of rows last.
    rows, offsets : int64, shape (n_rows,)
        The rows, increasing, and where each is in its page.
    values
        What they get.
    """

    positions: NDArray[np.int64]
    bounds: NDArray[np.int64]
    rows: NDArray[np.int64]
    offsets: NDArray[np.int64]
    values: pa.Array

    def neighbours(self) -> Iterator[tuple[int, int, tuple[tuple[int, int], ...]]]:
        """Pages [start, stop) that lie behind each other, and their rows as ranges [start, end)."""
        apart = np.flatnonzero(np.diff(self.positions) != 1) + 1
        pages = np.concatenate([[0], apart, [len(self.positions)]])
        begins = np.ones(len(self.rows), bool)
        begins[1:] = np.diff(self.rows) != 1
        begins[self.bounds[pages[:-1]]] = True
        starts = np.flatnonzero(begins)
        ends = self.rows[np.append(starts[1:], len(self.rows)) - 1] + 1
        ranges = tuple(zip(self.rows[starts].tolist(), ends.tolist(), strict=True))
        of_pages = np.searchsorted(starts, self.bounds[pages]).tolist()
        for (start, stop), (low, high) in zip(pairwise(pages.tolist()), pairwise(of_pages), strict=True):
            yield start, stop, ranges[low:high]


def rewrite_touched(
    table: Table, column: str, pages: Sequence[PageDescriptor], touched: TouchedPages, *, blank: bool = False
) -> list[StagedPage]:
    """Encode pages with their new values, together if they hold only values.

    Parameters
    ----------
    blank
        Whether the rows lose what they have beside their values, too.
    """
    options = table.page_options
    codec, bloom = options.codec_for(column), options.bloom_for(column)
    arrays = table.page_values(column, pages)
    metas = [PageMeta.of([batch]) for batch in table.page_handler.get_pages(pages)]
    if not has_dictionary(arrays[0].type) and all(meta.is_nothing for meta in metas):
        ends = np.cumsum([0, *map(len, arrays)])
        offsets = np.repeat(ends[:-1], np.diff(touched.bounds)) + touched.offsets
        try:
            return stage_pages(with_values(arrays, offsets, touched.values), ends, codec, bloom)
        except DoesNotFitError:
            pass  # more than one array can hold, though no page is
    staged = []
    for index, (array, meta) in enumerate(zip(arrays, metas, strict=True)):
        low, high = touched.bounds[index : index + 2].tolist()
        try:
            values = touched.values.slice(low, high - low)
            changed = with_minimal_dictionaries(
                with_values([with_wide_dictionaries(array)], touched.offsets[low:high], values), array.type
            )
        except DoesNotFitError as error:
            if isinstance(error.__cause__, pa.ArrowNotImplementedError):
                raise InvalidInputError(
                    f"Cannot update {table.name}.{column}: its type {array.type} has a dictionary of nested "
                    f"values inside another type, and Arrow merges no two of these: {error}.",
                    hint="Add a column without the dictionary, `transaction.add_column`, and fill it.",
                ) from error
            raise InvalidInputError(
                f"Cannot update {table.name}.{column}: the values do not fit one page with those that are "
                f"there: {error}.",
                hint="Use a dictionary type with wider indices, such as "
                "`pyarrow.dictionary(pyarrow.int32(), pyarrow.string())`.",
            ) from error
        kept = meta
        if blank:
            kept, changed = meta.without(touched.offsets[low:high]), with_used_values(changed)
        staged.append(stage_page(changed, page_stats(changed), codec, bloom, kept))
    return staged


def with_values(arrays: Sequence[pa.Array], offsets: NDArray[np.int64], values: pa.Array) -> pa.Array:
    """Return the entries of the arrays, end to end, with other values at some offsets."""
    count = sum(map(len, arrays))
    if len(values) == count:
        return values
    order = np.arange(count)
    order[offsets] = count + np.arange(len(values))
    return take_entries(join([*arrays, values], values.type), pa.array(order))
