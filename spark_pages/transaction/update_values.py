"""What a caller gives for an update: numbers of rows, and values of the types of their columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from spark_pages.arguments import check_names_once, number_list
from spark_pages.catalog.resolve import check_available, check_columns
from spark_pages.errors import InvalidInputError, RowOutOfRangeError, SparkPagesError
from spark_pages.format.values import NOT_ARROW, cast_chunks, read_stream
from spark_pages.model.table import TableDefinition


def checked_rows(table: str, rows: ArrayLike) -> tuple[NDArray[np.int64], int]:
    """Row numbers that a caller gives, perhaps in his memory, and the highest of them; -1 of none.

    Raises
    ------
    InvalidInputError, RowOutOfRangeError
        If they are no list of integers, or one is negative.
    """
    numbers = number_list(rows)
    if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
        raise InvalidInputError(f"rows of {table} must be a list of integers from 0.")
    lowest, highest = (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, -1)
    if lowest < 0:
        raise RowOutOfRangeError(f"Row {lowest} does not exist: rows are numbered from 0.")
    if highest >= 1 << 63:
        raise RowOutOfRangeError(f"Row {highest} does not exist.")
    return numbers.astype(np.int64, copy=False), highest


def values_by_column(
    definition: TableDefinition, column: str | None, count: int, values: Any
) -> dict[str, list[pa.Array]]:
    """The values that a caller gives for `count` rows, by column and of its type; perhaps in his memory.

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
    check_available(definition, check_columns(definition, list(given)))
    cast = {
        name: cast_chunks(each, definition.bare_schema.field(name), definition.name)
        for name, each in given.items()
    }
    for name, arrays in cast.items():
        if sum(map(len, arrays)) != count:
            raise InvalidInputError(
                f"Cannot update {definition.name}.{name}: {count} rows but {sum(map(len, arrays))} values."
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
        whole = values if isinstance(values, pa.Table | pa.RecordBatch) else read_stream(values)
    except SparkPagesError:
        raise  # also a ValueError
    except NOT_ARROW as error:
        raise InvalidInputError(
            f"Cannot update {definition.name!r}: without a column, values must be columns with names, and "
            f"Arrow says of this {type(values).__name__}: {error}."
        ) from error
    check_names_once(whole.column_names, f"update {definition.name!r}")
    return dict(zip(whole.column_names, whole.columns, strict=True))
