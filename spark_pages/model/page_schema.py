"""Columns of page descriptors and of their statistics as Arrow batches, and batches put together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from spark_pages.arrow.columns import number_column, numbers_of, optional_text, valid_of

PAGE_SCHEMA = pa.schema(
    [
        pa.field("page_id", pa.int64(), nullable=False),
        pa.field("entry_count", pa.int64(), nullable=False),
        pa.field("payload_entries", pa.int64(), nullable=False),
        pa.field("kind", pa.int8(), nullable=False),
        pa.field("path", pa.dictionary(pa.int32(), pa.string())),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("alloc_len", pa.int32(), nullable=False),
        pa.field("actual_len", pa.int32(), nullable=False),
        pa.field("checksum", pa.int64(), nullable=False),
        pa.field("data", pa.binary()),
    ]
)
"""Columns of a page descriptor in memory; a path is null unless the page is in a file."""

STATS_SCHEMA = pa.schema(
    [
        pa.field("null_count", pa.int64()),
        pa.field("min", pa.binary()),
        pa.field("max", pa.binary()),
        pa.field("exact", pa.bool_()),
        pa.field("distinct", pa.int64()),
        pa.field("bloom_offset", pa.int64()),
        pa.field("bloom_length", pa.int32()),
        pa.field("bloom_checksum", pa.int64()),
        pa.field("nan", pa.bool_()),
    ]
)
"""Columns of page statistics, row for row beside the pages; null where nothing is known."""

BLOOM_STATS = ("bloom_offset", "bloom_length", "bloom_checksum")
"""Statistics that say where a bloom filter is."""

OPTIONAL_STATS = ("distinct", *BLOOM_STATS, "nan")
"""Statistics that objects of earlier releases lack."""

LOCATION_COLUMNS = ("kind", "path", "offset", "alloc_len", "data")
"""The columns that say where a page is; two descriptions of one page may differ in them."""


_KINDS = ("file", "inline", "constant")
"""Names of `PageKind`, by number."""


def kind_names(kinds: pa.Array) -> pa.Array:
    """Return the kinds of pages as text: ``file``, ``inline`` or ``constant``."""
    # Not at import: to make an array of a list, Arrow imports pandas, which takes a second.
    return pa.array(_KINDS, pa.string()).take(kinds)


def no_stats(num_pages: int) -> pa.RecordBatch:
    """Statistics of pages of which nothing is known."""
    return pa.RecordBatch.from_arrays(
        [pa.nulls(num_pages, column.type) for column in STATS_SCHEMA], schema=STATS_SCHEMA
    )


def have_nan(stats: pa.RecordBatch) -> bool:
    """Whether one of the pages says that some of its values are NaN."""
    return bool(stats.column("nan").true_count)


def concat_batches(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """One batch that holds the rows of all, with one path dictionary."""
    if len(batches) == 1:
        return batches[0]
    if not batches:
        return empty_batch(schema)
    columns = [[batch.column(index) for batch in batches] for index in range(len(schema))]
    joined = [
        _join_paths(some) if pa.types.is_dictionary(field.type) else pa.concat_arrays(some)
        for field, some in zip(schema, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(joined, schema=schema)


def _join_paths(columns: Sequence[pa.DictionaryArray]) -> pa.DictionaryArray:
    """Join the paths of all columns under one dictionary.

    Notes
    -----
    Arrow's own unification follows the indices at nulls too, which may be anything: it reads outside of
    its memory, and crashes.
    """
    numbers: dict[str, int] = {}
    indices, valid = [], []
    for column in columns:
        of_column = [numbers.setdefault(path, len(numbers)) for path in column.dictionary.to_pylist()]
        given = valid_of(column)
        followed = np.where(given, numbers_of(column.indices), 0)
        indices.append(np.array(of_column or [0], dtype=np.int32)[followed])
        valid.append(given)
    joined = number_column(np.concatenate(indices), pa.int32(), np.concatenate(valid))
    return pa.DictionaryArray.from_arrays(joined, optional_text(list(numbers)))


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    """Create a batch without rows."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, column.type) for column in schema], schema=schema)
