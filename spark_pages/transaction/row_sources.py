"""Rows as callers give them, as Arrow: frames, queries, batches, Python lists and files.

`as_rows` is the entry. What has Arrow's C interface is read by `spark_pages.format.values`; this module turns
everything else into that, without reading more than a batch ahead. `spark_pages.transaction.source_files`
opens files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from itertools import chain
from os import PathLike
from typing import Any

import numpy as np
import pyarrow as pa

from spark_pages.arguments import shortened
from spark_pages.errors import InvalidInputError, SchemaMismatchError
from spark_pages.format.values import RowStream, as_stream
from spark_pages.transaction.source_files import open_files

_BATCH_ROWS = 1 << 16
_FORMS = (
    "Give a pyarrow.Table, a Polars or pandas frame, a DuckDB relation, batches, a dict of columns, a list "
    "of dicts, or the path of Parquet, CSV, JSON lines, Arrow or ORC files."
)


def as_rows(data: Any) -> RowStream:
    """Return the rows that a caller gives in any of the usual forms.

    Parameters
    ----------
    data
        Arrow data, or anything with Arrow's C interface; a pyarrow dataset or scanner; a Polars frame, also
        a lazy one; a pandas frame; a DuckDB relation, or a connection after ``execute``; an iterable of
        batches; a dict of columns; a list of dicts or dataclasses; a structured NumPy array; or a path,
        folder or glob.

    Raises
    ------
    InvalidInputError, SchemaMismatchError
        If it is none of these, or cannot be read.

    Notes
    -----
    Streams are read as their batches are needed. Files and lazy frames are streams.
    """
    return data if isinstance(data, RowStream) else as_stream(_as_arrow(data))


def _as_arrow(data: Any) -> Any:
    """Return the data, or a table or stream of its rows where it has no interface of Arrow."""
    if isinstance(data, pa.Table | pa.RecordBatch | pa.RecordBatchReader | Mapping):
        return data
    if isinstance(data, type):  # pandas.DataFrame has what a frame has
        raise _unknown(data)
    if isinstance(data, str | PathLike):
        return open_files(data)
    if hasattr(data, "iloc"):
        return without_unnamed_index(data)
    if hasattr(data, "collect_schema") and hasattr(data, "lazy") and not hasattr(data, "__arrow_c_stream__"):
        return _of_lazy_frame(data)
    for method in ("to_arrow_reader", "fetch_record_batch"):  # of DuckDB, which streams by these alone
        if type(data).__module__.split(".")[0] in ("duckdb", "_duckdb") and hasattr(data, method):
            return getattr(data, method)(_BATCH_ROWS)
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        return data
    if isinstance(data, np.ndarray) and data.dtype.names:
        return {name: data[name] for name in data.dtype.names}
    scanner = getattr(data, "scanner", None)
    if callable(scanner):  # a dataset of pyarrow, or of another library with its interface
        return scanner(batch_size=_BATCH_ROWS).to_reader()
    if hasattr(data, "projected_schema") and hasattr(data, "to_reader"):
        return data.to_reader()
    if isinstance(data, Iterable) and not isinstance(data, bytes | pa.Array | pa.ChunkedArray | np.ndarray):
        return _of_items(data)
    raise _unknown(data)


def _unknown(data: Any) -> InvalidInputError:
    return InvalidInputError(
        f"Cannot read rows from {shortened(data)} ({type(data).__name__}): it is not data of a known kind.",
        hint=_FORMS,
    )


def without_unnamed_index(frame: Any) -> Any:
    """Return a pandas frame whose named levels of the index are columns; unnamed ones are left out.

    Notes
    -----
    An unnamed index counts or labels rows, and would become a column ``__index_level_0__`` after a filter.
    """
    names = [name for name in frame.index.names if name is not None]
    if len(names) == len(frame.index.names):
        return frame.reset_index()
    unnamed = [level for level, name in enumerate(frame.index.names) if name is None]
    return (
        frame.reset_index(level=unnamed, drop=True).reset_index() if names else frame.reset_index(drop=True)
    )


def _of_lazy_frame(frame: Any) -> pa.RecordBatchReader:
    """Stream a Polars query: its engine computes batch by batch."""
    batches = frame.collect_batches(maintain_order=True)
    schema = pa.RecordBatchReader.from_stream(frame.collect_schema().to_frame()).schema
    return pa.RecordBatchReader.from_batches(schema, _batches_of(schema, batches))


def _of_items(items: Iterable[Any]) -> Any:
    """Return rows of an iterable: of batches, of dicts or of dataclasses."""
    iterator = iter(items)
    first = next(iterator, None)
    if first is None and not isinstance(items, Sequence | Iterator):
        raise InvalidInputError(
            f"Cannot read rows from {type(items).__name__}: it is none of the forms of rows.", hint=_FORMS
        )
    if first is None:
        raise InvalidInputError(
            f"Cannot read rows from an empty {type(items).__name__}: it names no columns.",
            hint="Give a `pyarrow.Table`, which has a schema also without rows.",
        )
    everything = chain([first], iterator)
    if isinstance(first, Mapping):
        return _of_dicts(everything)
    if is_dataclass(first) and not isinstance(first, type):
        return _of_dataclasses(everything)
    if hasattr(first, "__arrow_c_stream__") or hasattr(first, "__arrow_c_array__"):
        schema = pa.schema(first) if hasattr(first, "__arrow_c_schema__") else pa.table(first).schema
        return pa.RecordBatchReader.from_batches(schema, _batches_of(schema, everything))
    raise InvalidInputError(
        f"Cannot read rows from a {type(items).__name__} of {type(first).__name__}: it is none of the "
        "forms of rows.",
        hint=_FORMS,
    )


def _batches_of(schema: pa.Schema, items: Iterable[Any]) -> Iterator[pa.RecordBatch]:
    for number, item in enumerate(items):
        table = pa.Table.from_batches([item]) if isinstance(item, pa.RecordBatch) else pa.table(item)
        if table.schema.names != schema.names or table.schema.types != schema.types:
            raise SchemaMismatchError(
                f"Cannot append batch {number}: expected {_shown(schema)}, found {_shown(table.schema)}.",
                hint=f"Give every batch the schema of the first one, {_shown(schema)}.",
            )
        yield from table.to_batches()


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def _of_dicts(rows: Iterable[Any]) -> dict[str, list[Any]]:
    """Turn rows into columns, named in the order in which the rows name them; what a row lacks is null."""
    listed = list(rows)
    names: dict[str, None] = {}
    for number, row in enumerate(listed):
        if not isinstance(row, Mapping):
            raise InvalidInputError(
                f"Cannot read row {number}: expected a dict, found {shortened(row)} ({type(row).__name__}).",
                hint="Give a list of dicts alone, such as [{'n': 1}].",
            )
        names.update(dict.fromkeys(row))
    return {name: [row.get(name) for row in listed] for name in names}


def _of_dataclasses(rows: Iterable[Any]) -> dict[str, list[Any]]:
    listed = list(rows)
    kind = type(listed[0])
    for number, row in enumerate(listed):
        if type(row) is not kind:
            raise InvalidInputError(
                f"Cannot read row {number}: expected a {kind.__name__}, found {shortened(row)} "
                f"({type(row).__name__}).",
                hint=f"Give a list of {kind.__name__} alone.",
            )
    return {field.name: [getattr(row, field.name) for row in listed] for field in fields(kind)}
