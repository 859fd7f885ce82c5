"""Updates of single rows: gathered by column, then each page that they touch is rewritten once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from spark_pages.catalog.resolve import check_columns
from spark_pages.errors import InvalidInputError, RowOutOfRangeError
from spark_pages.given import check_names_once, number_list
from spark_pages.io import page_stats
from spark_pages.model.columns import has_dictionary
from spark_pages.model.page import PageDescriptor, PageKind
from spark_pages.model.table import TableDefinition
from spark_pages.tables.arrays.joining import DoesNotFitError, join, narrowed, take_entries, widened
from spark_pages.tables.arrays.values import cast_column
from spark_pages.tables.reading.page_meta import PageMeta
from spark_pages.tables.table import Table
from spark_pages.tables.writing.page_writer import StagedPage, stage_page, stage_pages
from spark_pages.tables.writing.placing import StagedSplice

_PAGES_AT_ONCE = 128
"""No more pages are read, changed and encoded before others are read."""

_BYTES_AT_ONCE = 8 << 20


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


def checked_rows(table: str, rows: ArrayLike) -> NDArray[np.int64]:
    """Row numbers that a caller gives.

    Raises
    ------
    InvalidInputError, RowOutOfRangeError
        If they are no list of integers, or one is negative.
    """
    numbers = number_list(rows)
    if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
        raise InvalidInputError(f"rows of {table} must be a list of integers from 0.")
    if len(numbers) and int(numbers.min()) < 0:
        raise RowOutOfRangeError(f"Row {int(numbers.min())} does not exist: rows are numbered from 0.")
    if len(numbers) and int(numbers.max()) >= 1 << 63:
        raise RowOutOfRangeError(f"Row {int(numbers.max())} does not exist.")
    return numbers.astype(np.int64)


def values_by_column(
    definition: TableDefinition, column: str | None, count: int, values: Any
) -> dict[str, pa.Array]:
    """The values that a caller gives for `count` rows, by column and of its type.

    Parameters
    ----------
    column
        The column that they are of; None where `values` is a table, a record batch or a mapping of columns.

    Raises
    ------
    InvalidInputError, ColumnNotFoundError, SchemaMismatchError
    """
    if column is not None:
        check_columns(definition, [column])
        given: Mapping[str, Any] = {column: values}
    elif isinstance(values, Mapping):
        given = values
    elif isinstance(values, pa.Table | pa.RecordBatch) or hasattr(values, "__arrow_c_stream__"):
        given = _columns_of(definition, values)
    else:
        raise InvalidInputError(
            f"Cannot update {definition.name!r}: without a column, values must be a table or a mapping of "
            f"columns, found a {type(values).__name__}."
        )
    check_columns(definition, list(given))
    cast = {
        name: cast_column(each, definition.bare_schema.field(name), definition.name)
        for name, each in given.items()
    }
    for name, array in cast.items():
        if len(array) != count:
            raise InvalidInputError(
                f"Cannot update {definition.name}.{name}: {count} rows but {len(array)} values."
            )
    return cast


def _columns_of(definition: TableDefinition, values: Any) -> Mapping[str, Any]:
    """The columns of a table, a record batch or a stream of them.

    Raises
    ------
    InvalidInputError
        If it has no columns with names, or two of one name.
    """
    try:
        whole = values if isinstance(values, pa.Table | pa.RecordBatch) else pa.table(values)
    except pa.ArrowException as error:
        raise InvalidInputError(
            f"Cannot update {definition.name!r}: without a column, values must be columns with names, and "
            f"Arrow says of this {type(values).__name__}: {error}."
        ) from error
    check_names_once(whole.column_names, f"update {definition.name!r}")
    return dict(zip(whole.column_names, whole.columns, strict=True))


def rewrite_pages(
    table: Table, column: str, updates: Updates, memory_bytes: int = _BYTES_AT_ONCE
) -> Iterator[StagedSplice]:
    """Splices that put rewritten pages in the place of those that the updates touch, neighbours in one.

    What an entry or a page has beside its values stays as it is.

    Parameters
    ----------
    memory_bytes
        So many bytes of pages are worked on together, or one page.

    Notes
    -----
    Each page is read, changed and encoded once. Memory of the pages at work three times, of the updates, and
    of what is given out.
    """
    rows, values = last_wins(updates)
    if not len(rows):
        return
    chain = table.directory.chain(column)
    found = chain.locate_rows(rows.astype(np.uint64))
    begins = np.concatenate([[0], np.flatnonzero(np.diff(found.positions)) + 1])
    positions, bounds = found.positions[begins], np.append(begins, len(rows))
    kind = table.definition.bare_schema.field(column).type
    at_once = max(1, min(_PAGES_AT_ONCE, memory_bytes // table.page_options.bytes_for(column)))
    first = 0
    while first < len(positions):
        pages = chain.pages_at(positions[first : first + at_once])
        sizes = np.cumsum([_bytes_at_work(page, kind) for page in pages])
        pages = pages[: max(1, int(np.searchsorted(sizes, memory_bytes, side="right")))]  # some are larger
        of_pages = bounds[first : first + len(pages) + 1]
        wave = slice(int(of_pages[0]), int(of_pages[-1]))
        touched = _Touched(
            positions[first : first + len(pages)],
            of_pages - of_pages[0],
            rows[wave],
            found.rows_in_page[wave],
            values.slice(wave.start, wave.stop - wave.start),
        )
        first += len(pages)
        staged = _rewritten(table, column, pages, touched)
        for start, stop, ranges in touched.neighbours():
            begin = int(touched.bounds[start])
            yield StagedSplice(
                table.definition.table_id,
                table.definition.field_ids[column],
                int(touched.rows[begin] - touched.offsets[begin]),
                tuple(page.page_id for page in pages[start:stop]),
                sum(page.entry_count for page in pages[start:stop]),
                staged[start:stop],
                touched=ranges,
            )


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
class _Touched:
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


def _rewritten(
    table: Table, column: str, pages: Sequence[PageDescriptor], touched: _Touched
) -> list[StagedPage]:
    """The pages with their new values, together where they hold values alone."""
    options = table.page_options
    codec, bloom = options.codec_for(column), options.bloom_for(column)
    arrays = table.page_values(column, pages)
    metas = [PageMeta.of([batch]) for batch in table.page_handler.get_pages(pages)]
    if not has_dictionary(arrays[0].type) and all(meta.is_nothing for meta in metas):
        ends = np.cumsum([0, *map(len, arrays)])
        offsets = np.repeat(ends[:-1], np.diff(touched.bounds)) + touched.offsets
        try:
            return stage_pages(_changed(arrays, offsets, touched.values), ends, codec, bloom)
        except DoesNotFitError:
            pass  # more than one array can hold, though no page is
    staged = []
    for index, (array, meta) in enumerate(zip(arrays, metas, strict=True)):
        low, high = touched.bounds[index : index + 2].tolist()
        try:
            values = touched.values.slice(low, high - low)
            changed = narrowed(_changed([widened(array)], touched.offsets[low:high], values), array.type)
        except DoesNotFitError as error:
            raise InvalidInputError(
                f"Cannot update {table.name}.{column}: the values do not fit one page with those that are "
                f"there: {error}.",
                hint="A dictionary type with wider indices holds more different values.",
            ) from error
        staged.append(stage_page(changed, page_stats(changed), codec, bloom, meta))
    return staged


def _changed(arrays: Sequence[pa.Array], offsets: NDArray[np.int64], values: pa.Array) -> pa.Array:
    """The entries of the arrays, end to end, with other values at some offsets."""
    count = sum(map(len, arrays))
    if len(values) == count:
        return values
    order = np.arange(count)
    order[offsets] = count + np.arange(len(values))
    return take_entries(join([*arrays, values], values.type), pa.array(order))


def within(updates: Updates, bounds: NDArray[np.int64]) -> Updates:
    """The updates of some rows alone.

    Parameters
    ----------
    bounds : int64, shape (n_ranges, 2)
        First row and end row of ranges that do not overlap, in order; at least one.
    """
    rows, values = last_wins(updates)
    at = np.maximum(np.searchsorted(bounds[:, 0], rows, side="right") - 1, 0)
    inside = np.flatnonzero((rows >= bounds[at, 0]) & (rows < bounds[at, 1]))
    return Updates([rows[inside]], [take_entries(values, pa.array(inside))])


def last_wins(updates: Updates) -> tuple[NDArray[np.int64], pa.Array]:
    """Rows, increasing, and the last value given for each; dictionaries as `widened` makes them."""
    rows = np.concatenate(updates.rows)
    given = [widened(each) for each in updates.values]
    values = join(given, given[0].type)
    if (rows[1:] > rows[:-1]).all():
        return rows, values
    unique, last = np.unique(rows[::-1], return_index=True)
    return unique, take_entries(values, pa.array(len(rows) - 1 - last))
