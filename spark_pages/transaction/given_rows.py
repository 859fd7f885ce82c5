"""Row numbers and values that a caller gives to `update_rows` and `delete`, checked and in their types."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from spark_pages.arguments import as_int, check_names_once, number_list
from spark_pages.arrow.columns import number_column
from spark_pages.arrow.join import take_entries
from spark_pages.catalog.resolve import check_available, find_columns
from spark_pages.errors import InvalidInputError, RowOutOfRangeError, SparkPagesError
from spark_pages.format.values import NOT_ARROW, cast_chunks, read_stream
from spark_pages.model.table import TableDefinition
from spark_pages.query.table import Table

GivenRows = ArrayLike | slice
"""Row numbers, one row number, a mask with a flag for each row of the table, or a range of rows."""

_SCALARS = (
    *(bool, int, float, complex, str, bytes, Decimal, UUID, np.generic, pa.Scalar),
    *(dt.date, dt.time, dt.timedelta),
)
"""One value for all rows; anything else, None apart, is a sequence of values."""


def row_numbers(table: Table, name: str, rows: GivenRows) -> tuple[NDArray[np.int64], int]:
    """Return the row numbers that a caller gives, perhaps not copied, and the highest; -1 of none.

    Parameters
    ----------
    table
        The table as the transaction reads it.
    name
        Its name as the caller gives it.
    rows
        See `GivenRows`. A slice selects the live rows of its range.

    Raises
    ------
    InvalidInputError, RowOutOfRangeError
        If they are no list of integers, one is negative, or a mask is of another length than the table.
    """
    if isinstance(rows, slice):
        return _rows_in(table, rows)
    if isinstance(rows, list | tuple) and rows and all(isinstance(each, bool) for each in rows):
        rows = np.asarray(rows, bool)
    numbers = np.atleast_1d(number_list(rows))
    if numbers.ndim == 1 and numbers.dtype.kind == "b":
        if len(numbers) != table.end_row:
            raise InvalidInputError(
                f"Cannot use a mask of {len(numbers)} flags as rows of {name!r}: the table has row numbers "
                f"below {table.end_row}.",
                hint="Pass one flag for each row number below `table.end_row`, or row numbers.",
            )
        rows = np.flatnonzero(numbers)
    return checked_rows(name, rows)


def checked_rows(name: str, rows: ArrayLike) -> tuple[NDArray[np.int64], int]:
    """Return the row numbers that a caller gives as a list, perhaps not copied, and the highest; -1 of none.

    Raises
    ------
    InvalidInputError, RowOutOfRangeError
        If they are no list of integers, or one is negative.
    """
    numbers = np.atleast_1d(number_list(rows))
    if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
        raise InvalidInputError(
            f"Cannot use rows of {name}: expected a list of integers from 0.",
            hint="Pass `rows` as in [0, 7, 12].",
        )
    lowest, highest = (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, -1)
    if lowest < 0:
        raise RowOutOfRangeError(
            f"Cannot find row {lowest}: rows are numbered from 0.", hint="Pass `rows` from 0."
        )
    if highest >= 1 << 63:
        raise RowOutOfRangeError(
            f"Cannot find row {highest}: no table has as many rows.",
            hint="Compare with `table.num_rows` first.",
        )
    return numbers.astype(np.int64, copy=False), highest


def _rows_in(table: Table, rows: slice) -> tuple[NDArray[np.int64], int]:
    """Return the live rows of a slice of row numbers, increasing."""
    for edge in (rows.start, rows.stop):
        if edge is not None:
            as_int(edge, "rows", "a slice of row numbers, 0 or more", 0)
    step = 1 if rows.step is None else as_int(rows.step, "rows", "a slice with a step of 1 or more", 1)
    numbers = np.arange(*slice(rows.start, rows.stop, step).indices(table.end_row), dtype=np.int64)
    if table.num_rows < table.end_row:
        numbers = numbers[table.are_live(numbers)]
    return numbers, int(numbers[-1]) if len(numbers) else -1


def values_by_column(definition: TableDefinition, count: int, values: Any) -> dict[str, list[pa.Array]]:
    """Return the values that a caller gives for `count` rows, by column and of its type; perhaps not copied.

    Parameters
    ----------
    values
        A table, a record batch, or a mapping from columns to values, or to one value for all rows.

    Raises
    ------
    InvalidInputError, ColumnNotFoundError, SchemaMismatchError
    """
    if isinstance(values, Mapping):
        given: Mapping[str, Any] = values
    elif isinstance(values, pa.Table | pa.RecordBatch) or hasattr(values, "__arrow_c_stream__"):
        given = _columns_of(definition, values)
    else:
        raise InvalidInputError(
            f"Cannot update {definition.name!r}: expected values as a table or a mapping of columns, found a "
            f"{type(values).__name__}.",
            hint="Pass values such as {'n': [1, 2]}.",
        )
    names = find_columns(definition, list(given))
    check_names_once(names, f"update {definition.name!r}")
    given = dict(zip(names, given.values(), strict=True))
    check_available(definition, names)
    cast = {}
    for name, each in given.items():
        if each is None or isinstance(each, _SCALARS):
            cast[name] = repeated(definition, name, each, count)
            continue
        cast[name] = cast_chunks(each, definition.bare_schema.field(name), definition.name)
        there = sum(map(len, cast[name]))
        if there != count:
            raise InvalidInputError(
                f"Cannot update {definition.name}.{name}: {count} rows but {there} values.",
                hint=f"Pass one value for each of the {count} rows, or one for all of them.",
            )
    return cast


def repeated(definition: TableDefinition, column: str, value: Any, count: int) -> list[pa.Array]:
    """Return one value for `count` rows, in the type of its column.

    Raises
    ------
    SchemaMismatchError, InvalidInputError
        If it does not fit the column, without loss.
    """
    kind = definition.bare_schema.field(column)
    given = pa.array([value.as_py()], value.type) if isinstance(value, pa.Scalar) else [value]
    (one,) = cast_chunks(given, kind, definition.name)
    return [take_entries(one, number_column(np.zeros(count, np.int64), pa.int64()))]


def _columns_of(definition: TableDefinition, values: Any) -> Mapping[str, Any]:
    """Return the columns of a table, a record batch or a stream of them.

    Raises
    ------
    InvalidInputError
        If it has no columns with names, or two of one name.
    """
    try:
        whole = values if isinstance(values, pa.Table | pa.RecordBatch) else read_stream(values)
    except SparkPagesError:
        raise  # also a ValueError
    except NOT_ARROW as error:
        raise InvalidInputError(
            f"Cannot update {definition.name!r}: expected values as columns with names, and Arrow says of "
            f"this {type(values).__name__}: {error}.",
            hint="Pass values such as {'n': [1, 2]}.",
        ) from error
    check_names_once(whole.column_names, f"update {definition.name!r}")
    return dict(zip(whole.column_names, whole.columns, strict=True))
