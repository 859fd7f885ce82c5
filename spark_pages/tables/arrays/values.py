"""What callers give as rows and values, as Arrow of the right type. Loses nothing, or refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from spark_pages.errors import InvalidInputError, SchemaMismatchError, SparkPagesError
from spark_pages.io.pages.sound_values import check_values
from spark_pages.model.columns import has_dictionary, nulls_of
from spark_pages.model.dictionaries import has_null_values, with_sound_dictionaries
from spark_pages.model.own_memory import in_own_memory
from spark_pages.tables.arrays.fitting import check_unmasked, fitted, from_python

_SMALL_BYTES = 16 << 10


@dataclass(frozen=True, slots=True)
class RowStream:
    """Rows that a caller gives, piece by piece.

    Attributes
    ----------
    columns
        Their names.
    pieces
        Gives the rows as tables of at most so many bytes, but of a row at least. May be called once.
    size_bytes
        Bytes that they take, where all are in memory.
    """

    columns: Sequence[str]
    pieces: Callable[[int], Iterator[pa.Table]]
    size_bytes: int | None = None

    @property
    def is_small(self) -> bool:
        """Whether these are a few rows that are all in memory."""
        return self.size_bytes is not None and self.size_bytes <= _SMALL_BYTES


def as_stream(data: Any) -> RowStream:
    """The rows of what a caller gives: Arrow, a mapping, or anything with Arrow's C interface.

    Notes
    -----
    A stream is read as its pieces are asked for.
    """
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    elif not isinstance(data, pa.Table) and isinstance(data, Mapping):
        data = _table_of(data)
    if isinstance(data, pa.Table):
        table, size_bytes = data, data.get_total_buffer_size()
        if size_bytes > _SMALL_BYTES:  # of a slice the whole, but found out quickly
            size_bytes = data.nbytes
        return RowStream(table.column_names, lambda most: _slices(table, size_bytes, most), size_bytes)
    try:
        if hasattr(data, "__arrow_c_stream__"):
            reader = pa.RecordBatchReader.from_stream(data)
            return RowStream(reader.schema.names, lambda most: _gathered(reader.schema, reader, most))
        if hasattr(data, "__arrow_c_array__"):
            return as_stream(pa.record_batch(data))
    except pa.ArrowInvalid:
        pass  # one column, without a name
    raise InvalidInputError(
        f"Cannot append a {type(data).__name__}: expected columns with names and __arrow_c_stream__, such as "
        f"a pyarrow.Table."
    )


def _table_of(columns: Mapping[str, Any]) -> pa.Table:
    try:
        for each in columns.values():
            check_unmasked(each)
        return pa.table(dict(columns))
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidInputError(
            f"Cannot append this mapping: expected columns of equal length by name, found: {error}"
        ) from error


def _slices(table: pa.Table, size_bytes: int, most_bytes: int) -> Iterator[pa.Table]:
    if not table.num_rows:
        return
    rows = max(1, int(most_bytes / max(1, size_bytes) * table.num_rows))
    if rows >= table.num_rows:
        yield table
        return
    for start in range(0, table.num_rows, rows):
        yield table.slice(start, rows)


def _gathered(schema: pa.Schema, batches: Iterable[pa.RecordBatch], most_bytes: int) -> Iterator[pa.Table]:
    """The batches in tables of about so many bytes: small ones together, large ones in parts."""
    waiting: list[pa.RecordBatch] = []
    held = 0
    for batch in batches:
        waiting.append(batch)
        held += batch.nbytes
        if held >= most_bytes:
            yield from _slices(pa.Table.from_batches(waiting, schema), held, most_bytes)
            waiting, held = [], 0
    if waiting:
        yield from _slices(pa.Table.from_batches(waiting, schema), held, most_bytes)


def cast_chunks(values: Any, wanted: pa.Field, table: str) -> list[pa.Array]:
    """The values as arrays of the column's type; loses nothing, and takes nothing that contradicts itself."""
    try:
        own = values if isinstance(values, pa.Array | pa.ChunkedArray) else from_python(values, wanted.type)
        for chunk in own.chunks if isinstance(own, pa.ChunkedArray) else [own]:
            check_values(chunk)
        given = fitted(own, wanted.type)
    except SparkPagesError:
        raise  # also a ValueError
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise SchemaMismatchError(
            f"Column {wanted.name!r} of {table!r} holds {wanted.type}, and the values given do not fit: "
            f"{error}"
        ) from error
    chunks = list(given.chunks) if isinstance(given, pa.ChunkedArray) else [given]
    nulls = 0 if wanted.nullable else sum(map(_nulls, chunks))
    if nulls:
        raise SchemaMismatchError(
            f"Column {wanted.name!r} of {table!r} is not nullable, but {nulls} of the values given are null."
        )
    chunks = [in_own_memory(each) for each in chunks]
    if not has_dictionary(wanted.type):
        return chunks
    return [with_sound_dictionaries(each, wanted.type) if has_null_values(each) else each for each in chunks]


def _nulls(values: pa.Array) -> int:
    """Null entries, also those that are null among the values of a dictionary."""
    return values.is_null().true_count if pa.types.is_dictionary(values.type) else nulls_of(values)
