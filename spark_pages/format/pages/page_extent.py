"""Rows of a page that its payload does not hold one by one: repeated, cut off, or null behind the last."""

from __future__ import annotations

import pyarrow as pa

from spark_pages.arrow.compact import referenced_bytes
from spark_pages.arrow.dictionaries import with_nulls
from spark_pages.arrow.nested import has_run_ends, null_column
from spark_pages.errors import DamageError
from spark_pages.format.pages.codecs import MAX_UNCOMPRESSED_BYTES
from spark_pages.format.pages.page_codec import decode_page
from spark_pages.model.page import PageDescriptor, PageKind


def decode_detached(page: PageDescriptor) -> pa.RecordBatch:
    """The entries of an inline page, or all those of a constant: pages whose bytes are in the descriptor.

    Raises
    ------
    DamageError
        If they are not there, or are not the page described.
    """
    where = f"{page.kind.name.lower()} page {page.id}"
    if page.data is None:
        raise DamageError(f"Cannot decode {where}: expected its bytes in the descriptor, found none.")
    constant = page.kind is PageKind.CONSTANT
    batch = decode_page(
        page.data,
        where=where,
        expected_checksum=None if constant else page.checksum,
        expected_entries=1 if constant else page.payload_entries,
    )
    if not constant:
        return batch
    _check_expansion(batch, page.entry_count, where)
    columns = [
        null_column(column.type, page.entry_count)
        if column.null_count and has_run_ends(column.type)
        else pa.repeat(column[0], page.entry_count)
        for column in batch.columns
    ]
    return pa.record_batch(columns, schema=batch.schema)


def resize_batch(batch: pa.RecordBatch, page: PageDescriptor) -> pa.RecordBatch:
    """The batch with the rows that the descriptor gives it: a prefix, or nulls behind.

    Raises
    ------
    DamageError
        If these are more than a page may have.
    """
    count = page.entry_count
    if batch.num_rows == count:
        return batch
    if count < batch.num_rows:
        return batch.slice(0, count)
    _check_expansion(batch, count, f"page {page.id} of {page.disk_path}@{page.offset}")
    lacking = count - batch.num_rows
    columns = [with_nulls(column, lacking) for column in batch.columns]
    return pa.record_batch(columns, schema=batch.schema)


def _check_expansion(batch: pa.RecordBatch, count: int, where: str) -> None:
    """Nothing, if `count` entries like those of the batch are a size that a page may have."""
    if not 0 <= count <= most_rows(batch):
        raise DamageError(
            f"Cannot expand {where}: expected at most {MAX_UNCOMPRESSED_BYTES} bytes, found {count} "
            f"entries, of which {most_rows(batch)} are so many."
        )


def most_rows(batch: pa.RecordBatch) -> int:
    """How many rows a page may show whose payload is this batch: so many as a payload could hold."""
    rows = int(batch.num_rows)
    width = referenced_bytes(batch) // max(1, rows)
    fixed = sum(_width(kind) for kind in batch.schema.types)
    return max(rows, MAX_UNCOMPRESSED_BYTES // max(1, width, fixed))


def _width(kind: pa.DataType) -> int:
    """Bytes of an entry, 0 for a type that has none of its own or less than one."""
    try:
        return int(kind.bit_width) // 8
    except ValueError:
        return 0
