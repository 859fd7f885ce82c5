"""What callers give as rows and values, as Arrow of the right type. Loses nothing, or refuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from spark_pages.errors import InvalidInputError, SchemaMismatchError


def as_table(data: Any) -> pa.Table:
    """A table of what a caller gives: Arrow, a mapping, or anything with Arrow's C interface."""
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, Mapping):
        return pa.table(dict(data))
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        return pa.table(data)
    raise InvalidInputError(
        f"Cannot append a {type(data).__name__}: expected something with __arrow_c_stream__, such as a "
        f"pyarrow.Table."
    )


def cast_column(values: Any, wanted: pa.Field, table: str) -> pa.Array:
    """The values as one array of the column's type; loses nothing."""
    try:
        array = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values, wanted.type)
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
        if isinstance(array, pa.ChunkedArray):
            array = pa.concat_arrays(array.chunks)
        array = array if array.type == wanted.type else array.cast(wanted.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise SchemaMismatchError(
            f"Column {wanted.name!r} of {table!r} holds {wanted.type}, and the values given do not fit: "
            f"{error}"
        ) from error
    if not wanted.nullable and array.null_count:
        raise SchemaMismatchError(
            f"Column {wanted.name!r} of {table!r} is not nullable, but {array.null_count} of the values "
            f"given are null."
        )
    return array
