"""Updates of single rows: gathered by column, then each page that they touch is rewritten once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from spark_pages.catalog.resolve import check_columns
from spark_pages.errors import InvalidInputError, RowOutOfRangeError
from spark_pages.io import page_stats
from spark_pages.model.table import TableDefinition
from spark_pages.tables.arrays.joining import DoesNotFitError, join, take_entries
from spark_pages.tables.arrays.values import cast_column
from spark_pages.tables.reading.page_meta import PageMeta
from spark_pages.tables.table import Table
from spark_pages.tables.writing.page_writer import stage_page
from spark_pages.tables.writing.placing import StagedSplice

_PAGES_AT_ONCE = 128
"""Pages that are read, changed and encoded before others are read."""


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
    numbers = np.asarray(rows)
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
        whole = values if isinstance(values, pa.Table | pa.RecordBatch) else pa.table(values)
        given = {name: whole.column(name) for name in whole.column_names}
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


def rewrite_pages(table: Table, column: str, updates: Updates) -> Iterator[StagedSplice]:
    """Splices that put rewritten pages in the place of those that the updates touch.

    What an entry or a page has beside its values stays as it is.

    Notes
    -----
    Each page is read, changed and encoded once. Memory of 128 pages, the updates, and what is given out.
    """
    rows, values = last_wins(updates)
    if not len(rows):
        return
    chain = table.directory.chain(column)
    found = chain.locate_rows(rows.astype(np.uint64))
    positions, begins = np.unique(found.positions, return_index=True)
    bounds = np.append(begins, len(rows))
    options = table.page_options
    codec, bloom = options.codec_for(column), options.bloom_for(column)
    for first in range(0, len(positions), _PAGES_AT_ONCE):
        pages = chain.pages_at(positions[first : first + _PAGES_AT_ONCE])
        arrays = table.page_values(column, pages)
        metas = [PageMeta.of([batch]) for batch in table.page_handler.get_pages(pages)]
        for index, (page, array, meta) in enumerate(zip(pages, arrays, metas, strict=True), first):
            low, high = int(bounds[index]), int(bounds[index + 1])
            offsets = found.rows_in_page[low:high]
            changed = _changed(array, offsets, values.slice(low, high - low), f"{table.name}.{column}")
            yield StagedSplice(
                table.definition.table_id,
                table.definition.field_ids[column],
                int(rows[low] - offsets[0]),
                (page.page_id,),
                page.entry_count,
                [stage_page(changed, page_stats(changed), codec, bloom, meta)],
                touched=_ranges(rows[low:high]),
            )


def _changed(array: pa.Array, offsets: NDArray[np.int64], values: pa.Array, column: str) -> pa.Array:
    """The entries, with other values at some offsets."""
    if len(values) == len(array):
        return values
    order = np.arange(len(array))
    order[offsets] = len(array) + np.arange(len(values))
    try:
        return take_entries(join([array, values], array.type), pa.array(order))
    except DoesNotFitError as error:
        raise InvalidInputError(
            f"Cannot update {column}: the values do not fit one page with those that are there: {error}.",
            hint="A dictionary type with wider indices holds more different values.",
        ) from error


def last_wins(updates: Updates) -> tuple[NDArray[np.int64], pa.Array]:
    """Rows, increasing, and the last value given for each."""
    rows = np.concatenate(updates.rows)
    values = join(updates.values, updates.values[0].type)
    unique, last = np.unique(rows[::-1], return_index=True)
    return unique, take_entries(values, pa.array(len(rows) - 1 - last))


def _ranges(rows: NDArray[np.int64]) -> tuple[tuple[int, int], ...]:
    """Increasing rows as ranges [start, end)."""
    breaks = np.flatnonzero(np.diff(rows) > 1) + 1
    starts = rows[np.concatenate([[0], breaks])]
    ends = rows[np.concatenate([breaks - 1, [len(rows) - 1]])] + 1
    return tuple(zip(starts.tolist(), ends.tolist(), strict=True))
