"""A page of another writer, every part of it checked before anything of it is used. Pure.

`page_codec.decode_page` is for pages whose checksum the log holds: somebody has vouched for their bytes. Here
nobody has, so the messages of the Arrow stream, and what values of its types may be, are looked at too.
Once the checksum of such a page is in the log, it is a page like any other.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import pyarrow as pa

from spark_pages.arrow.types import storage_of
from spark_pages.errors import DamageError, SchemaMismatchError
from spark_pages.format.pages.arrow_message import is_compressed
from spark_pages.format.pages.codecs import BytesLike
from spark_pages.format.pages.page_codec import arrow_stream, decode_page, most_rows
from spark_pages.format.pages.page_header import PageHeader, parse_header
from spark_pages.model.page import PAGE_HEADER_SIZE

MOST_PAYLOAD_ENTRIES = (1 << 31) - 1
"""Entries of one page: types that need no bytes for them, such as null, would allow any number."""


@dataclass(frozen=True, eq=False, slots=True)
class UntrustedPage:
    """A page that has passed every check.

    Attributes
    ----------
    header
        Sizes, entries and checksum.
    batch
        The entries, all of them.
    """

    header: PageHeader
    batch: pa.RecordBatch

    def reaches(self, entry_count: int) -> bool:
        """Whether so many rows of this page, nulls behind its entries, can be read again at all."""
        return 0 <= entry_count <= most_rows(self.batch)


def check_untrusted_page(buffer: BytesLike, kind: pa.DataType, *, where: str) -> UntrustedPage:
    """Verify that a page is complete, of the given type, and safe to read.

    Parameters
    ----------
    buffer
        Header and payload and nothing else.
    kind
        Type of the column that it is to be a page of.
    where
        What is being read, for error messages: ``path@offset``.

    Raises
    ------
    DamageError
        If header, checksum, sizes, Arrow structure, offsets or text are not right, or if the stream is not
        one record batch. Also if Arrow's own compression is used inside of the payload: nothing bounds what
        that expands to.
    UnsupportedFormatError
        If a newer release wrote it.
    SchemaMismatchError
        If its entries are of another type.

    Notes
    -----
    Reads every byte, decompresses twice: some 100 µs for 64 KiB.
    """
    header = parse_header(buffer, where=where)
    if len(buffer) != header.actual_len:
        raise DamageError(
            f"Cannot take {where}: its header says {header.actual_len} bytes, found {len(buffer)}."
        )
    if header.entry_count > MOST_PAYLOAD_ENTRIES:
        raise DamageError(
            f"Cannot read {where}: expected at most {MOST_PAYLOAD_ENTRIES} entries, found "
            f"{header.entry_count}."
        )
    payload = memoryview(buffer)[PAGE_HEADER_SIZE:]
    _check_stream(arrow_stream(header, payload, where=where), where)
    batch = decode_page(buffer, where=where, expected_checksum=None, expected_entries=None)
    try:
        batch.validate(full=True)
    except (pa.ArrowException, ValueError) as error:
        raise DamageError(f"Cannot take {where}: its Arrow payload is not valid: {error}") from error
    for column, field in zip(batch.columns, batch.schema, strict=True):
        if field.name == "data" and storage_of(column.type) != storage_of(kind):
            raise SchemaMismatchError(
                f"Cannot register {where} for a column of type {kind}: its entries are of type "
                f"{column.type}.",
                hint=f"Write its entries as {kind}, or add a column of type {column.type}: "
                "`transaction.add_column`.",
            )
        if field.name != "data" and column.type != pa.binary():
            raise SchemaMismatchError(
                f"Cannot register {where}: {field.name} must be binary, but is of type {column.type}.",
                hint=f"Write {field.name} as pyarrow.binary().",
            )
    return UntrustedPage(header, batch)


def _check_stream(stream: pa.Buffer, where: str) -> None:
    """Nothing, if the stream is a schema, dictionaries, and one record batch, none of them compressed.

    Raises
    ------
    DamageError
    """
    try:
        kinds = []
        for message in pa.ipc.MessageReader.open_stream(stream):
            kinds.append(message.type)
            if message.type in ("record batch", "dictionary") and is_compressed(
                message.metadata.to_pybytes(), message.type == "dictionary"
            ):
                raise DamageError(f"Cannot read {where}: its Arrow payload is compressed once more.")
    except (pa.ArrowException, OSError, ValueError, struct.error) as error:
        raise DamageError(f"Cannot take {where}: expected an Arrow stream, found {error!r}.") from error
    if kinds[:1] != ["schema"] or kinds[-1] != "record batch" or set(kinds[1:-1]) - {"dictionary"}:
        raise DamageError(
            f"Cannot take {where}: expected a schema, dictionaries and one record batch, found {kinds[:8]}."
        )
