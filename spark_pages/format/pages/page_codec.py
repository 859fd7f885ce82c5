"""One page as bytes and back: a header (`page_header`) and an Arrow IPC stream of one record batch."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from numpy.typing import NDArray

from spark_pages.arrow.columns import has_dictionary, valid_of
from spark_pages.arrow.compact import compacted, owned_copy, referenced_bytes
from spark_pages.arrow.dictionaries import with_nulls
from spark_pages.arrow.nested import children, has_run_ends, null_column, with_children
from spark_pages.arrow.validate_array import validate_array
from spark_pages.errors import DamageError, InvalidInputError
from spark_pages.format.pages.arrow_message import is_compressed_within
from spark_pages.format.pages.codecs import MAX_UNCOMPRESSED_BYTES, BytesLike, Codec, compress, decompress
from spark_pages.format.pages.integer_encoding import decode, encode
from spark_pages.format.pages.ipc_layout import FlatColumn, register
from spark_pages.format.pages.lazy_page import LazyPage, as_batch, plain_page
from spark_pages.format.pages.page_header import PageHeader, encode_header, header_fields
from spark_pages.model.page import PAGE_ALIGNMENT, PAGE_HEADER_SIZE, PageDescriptor, PageKind

END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"


def stream_of(
    columns: Mapping[str, pa.Array], metadata: Mapping[str | bytes, str | bytes] | None
) -> tuple[pa.Buffer, pa.Buffer, Callable[[], pa.RecordBatch]]:
    """Write columns as an Arrow IPC stream of one batch, without its end: the schema, then the batch.

    Also what reads the batch from there, without a copy.
    """
    schema, message = _schema_of(columns, metadata)
    batch = pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)
    if message is None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema) as writer:
            writer.write_batch(batch)
        whole = sink.getvalue()
        stream = whole.slice(0, whole.size - len(END_OF_STREAM))
        return whole.slice(0, 0), stream, lambda: pa.ipc.open_stream(whole).read_next_batch()
    body = batch.serialize()  # half of the time of a stream writer
    return message, body, lambda: pa.ipc.read_record_batch(body, schema)


def _schema_of(
    columns: Mapping[str, pa.Array], metadata: Mapping[str | bytes, str | bytes] | None
) -> tuple[pa.Schema, pa.Buffer | None]:
    """Return the schema of columns and its message; None for the message if dictionaries follow it."""
    if not metadata and len(columns) == 1:
        kind = columns["data"].type
        if kind.num_fields == 0 and not pa.types.is_dictionary(kind):  # types that are equal are the same
            return _plain_schema(kind)
    return _with_message([pa.field(name, column.type) for name, column in columns.items()], metadata)


@lru_cache(256)
def _plain_schema(kind: pa.DataType) -> tuple[pa.Schema, pa.Buffer | None]:
    return _with_message([pa.field("data", kind)], None)


def _with_message(
    fields: list[pa.Field], metadata: Mapping[str | bytes, str | bytes] | None
) -> tuple[pa.Schema, pa.Buffer | None]:
    schema = pa.schema(fields, metadata)
    return schema, None if any(map(has_dictionary, schema.types)) else schema.serialize()


FEWEST_NARROWED = 32
"""Pages of fewer entries are not narrowed: there is nothing to gain."""


@dataclass(frozen=True, slots=True)
class EncodedPage:
    """A page ready to be placed.

    Attributes
    ----------
    data
        Header and payload, not padded.
    actual_len, alloc_len
        Bytes of `data`; the same rounded up to ``PAGE_ALIGNMENT``.
    entry_count
        Entries of the payload.
    checksum
        xxh3_64 of the payload as stored, unsigned.
    """

    data: bytes | memoryview
    actual_len: int
    alloc_len: int
    entry_count: int
    checksum: int

    def alone(self) -> EncodedPage:
        """Copy the page out of memory that it shares with others."""
        return self if isinstance(self.data, bytes) else replace(self, data=bytes(self.data))


def encode_page(
    data: pa.Array,
    *,
    codec: Codec = Codec.LZ4,
    prefix_meta: pa.Array | None = None,
    suffix_meta: pa.Array | None = None,
    page_metadata: Mapping[str | bytes, str | bytes] | None = None,
) -> EncodedPage:
    """Encode the entries of `data` as a page.

    Parameters
    ----------
    data
        The entries; of a slice only the slice is written.
    codec
        Wanted codec. A payload that it would not shrink is stored as it is.
    prefix_meta, suffix_meta
        Binary arrays as long as `data`: what belongs in front of and behind each entry (seed 003).
    page_metadata
        Metadata of the page as a whole; becomes the schema's.

    Raises
    ------
    InvalidInputError
        If the arrays differ in length, or need more than 2 GiB - 1: make smaller pages.

    Notes
    -----
    One copy into IPC form, one through the codec, one behind the header; some 100 µs for 64 KiB, most of it
    without the GIL. Integers are narrowed where that saves bytes, but not under ``Codec.NONE``, which is for
    pages that are read without a copy. What stood under a null is not written (`null_masking`). Source: seed
    003, "Entry" and "Persistent Storage Layout".
    """
    columns = {"data": compacted_for_ipc(data), "prefix_meta": prefix_meta, "suffix_meta": suffix_meta}
    present = {name: column for name, column in columns.items() if column is not None}
    lengths = {name: len(column) for name, column in present.items()}
    if len(set(lengths.values())) > 1:
        raise InvalidInputError(
            f"Cannot encode a page: expected columns of one length, found {lengths}.",
            hint="Give columns of one length: see `lengths` in the message.",
        )
    head, body, read = stream_of(present, page_metadata)
    size = head.size + body.size + len(END_OF_STREAM)
    if size > MAX_UNCOMPRESSED_BYTES:
        raise InvalidInputError(
            f"Cannot encode a page of {size} bytes: expected at most {MAX_UNCOMPRESSED_BYTES}.",
            hint=f"Set `page_bytes` of the table to at most {MAX_UNCOMPRESSED_BYTES}, and split larger "
            "values.",
        )
    plain = None
    stream_size = 0
    if codec is not Codec.NONE and len(data) >= FEWEST_NARROWED:
        plain = encode(head, body, END_OF_STREAM, read().columns)
    if plain is not None:
        stream_size = size
    else:
        plain = b"".join((head, body, END_OF_STREAM))
    return finish_page(codec, plain, len(data), stream_size)


def finish_page(
    codec: Codec, plain: BytesLike, entries: int, stream_size: int, room: memoryview | None = None
) -> EncodedPage:
    """Compress the payload of a page, and add its header.

    Parameters
    ----------
    codec
        Wanted codec.
    plain
        The payload.
    entries, stream_size
        For the header.
    room
        Memory at whose end `plain` lies, behind room for the header. Where the payload is stored as it is, it
        becomes the page.
    """
    payload: BytesLike = plain if codec is Codec.NONE else compress(codec, plain)
    if len(payload) >= len(plain):
        codec, payload = Codec.NONE, plain
    checksum = xxhash.xxh3_64_intdigest(payload)
    header = encode_header(PageHeader(codec, len(payload), len(plain), entries, checksum, stream_size))
    if payload is plain and room is not None:
        room[:PAGE_HEADER_SIZE] = header
        data: bytes | memoryview = room
    else:
        data = b"".join((header, payload))
    alloc_len = -(-len(data) // PAGE_ALIGNMENT) * PAGE_ALIGNMENT
    return EncodedPage(data, len(data), alloc_len, entries, checksum)


def decode_page(
    buffer: BytesLike, *, where: str, expected_checksum: int | None, expected_entries: int | None
) -> pa.RecordBatch:
    """Verify and decode the batch that `encode_page` encoded.

    Parameters
    ----------
    buffer
        Header and payload; bytes behind the payload are ignored.
    where
        What is being read, for error messages: ``path@offset``.
    expected_checksum
        xxh3_64 that the descriptor holds; None to trust the header's.
    expected_entries
        Entries that the descriptor says the payload holds; None to trust the header.

    Returns
    -------
    pyarrow.RecordBatch
        Column ``data``, then ``prefix_meta`` and ``suffix_meta`` where present. Its buffers share the
        memory of `buffer` if the codec is NONE, else that of one decompressed block.

    Raises
    ------
    DamageError
        If any byte differs from what was written, or the page is another one than described.
    UnsupportedFormatError
        If a newer release wrote the page.

    Notes
    -----
    O(bytes), no object per entry. Guards against damage and mix-ups, not against an attacker who can
    write: of a forged page with valid checksums the size is bounded, its values lie inside of it and its text
    is text, but they are believed.
    """
    found = open_page(
        buffer, where=where, expected_checksum=expected_checksum, expected_entries=expected_entries
    )
    return as_batch(found)


def open_page(
    buffer: BytesLike, *, where: str, expected_checksum: int | None, expected_entries: int | None
) -> LazyPage | pa.RecordBatch:
    """Verify a page, and defer its conversion to Arrow values where possible.

    Notes
    -----
    What is left to find out is whether text and binary lie inside of the page, and nulls are as many as it
    says: `LazyPage` and `tables.reading.assembling` do so, once their values are put together.
    """
    codec, read_size, size, entries, checksum, stream_size = header_fields(buffer, where)
    payload = memoryview(buffer)[PAGE_HEADER_SIZE : PAGE_HEADER_SIZE + read_size]
    if len(payload) != read_size:
        raise _damage(where, "payload bytes", read_size, len(payload))
    found = xxhash.xxh3_64_intdigest(payload)
    if found != checksum:
        raise _damage(where, "payload checksum", f"{checksum:016x}", f"{found:016x}")
    if expected_checksum is not None and found != expected_checksum:
        raise _damage(where, "the descriptor's checksum", f"{expected_checksum:016x}", f"{found:016x}")
    if expected_entries is not None and entries != expected_entries:
        raise _damage(where, "the descriptor's payload entries", expected_entries, entries)
    plain = decompress(codec, payload, size, where=where)
    page = plain_page(plain, stream_size, where=where)
    if page is None:
        stream = decode(plain, stream_size, where=where) if stream_size else plain
        batch = read_payload(stream, where=where)
        if batch.num_rows != entries:
            raise _damage(where, "entries", entries, batch.num_rows)
        return batch
    if page.rows != entries:
        raise _damage(where, "entries", entries, page.rows)
    return page


def arrow_stream(header: PageHeader, payload: BytesLike, *, where: str) -> pa.Buffer:
    """Restore the Arrow stream of a payload: decompress it, and widen its integers.

    Raises
    ------
    DamageError
        If sizes cannot be true, or the payload is malformed.
    """
    plain = decompress(header.codec, payload, header.uncompressed_size, where=where)
    return decode(plain, header.stream_size, where=where) if header.stream_size else plain


def _damage(where: str, what: str, expected: object, found: object) -> DamageError:
    return DamageError(f"Cannot decode {where}: expected {what} {expected}, found {found}.")


def compacted_for_ipc(array: pa.Array) -> pa.Array:
    """Return the same entries without memory that IPC would write although no entry uses it.

    IPC cuts fixed-width, variable-width and list buffers to the slice, but writes a dictionary and
    the buffers of view types whole.
    """
    kind = array.type
    if has_dictionary(kind):
        return _with_used_values(array if pa.types.is_dictionary(kind) else compacted(array))
    return zero_nulls(owned_copy(array))


def _with_used_values(array: pa.Array) -> pa.Array:
    """Dictionaries, of the array or inside of it, have no more values than there are indices of them."""
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return pa.ExtensionArray.from_storage(kind, _with_used_values(array.storage))
    if not pa.types.is_dictionary(kind):
        inside = children(array) if has_dictionary(kind) else []
        return with_children(array, kind, [_with_used_values(each) for each in inside]) if inside else array
    if len(array.dictionary) <= len(array):
        return array
    used = pc.drop_null(pc.unique(array.indices)).sort()
    indices = pc.index_in(array.indices, value_set=used, skip_nulls=True).cast(kind.index_type)
    return pa.DictionaryArray.from_arrays(indices, array.dictionary.take(used), ordered=kind.ordered)


_COLUMNS = (
    ["data"],
    ["data", "prefix_meta"],
    ["data", "suffix_meta"],
    ["data", "prefix_meta", "suffix_meta"],
)
_MESSAGE = struct.Struct("<II")
_CONTINUATION = 0xFFFF_FFFF
_KNOWN_SCHEMAS = 512


@dataclass(frozen=True, slots=True)
class _Schema:
    """The schema at the start of a stream, and whether the record batch follows it at once."""

    schema: pa.Schema
    batch_follows: bool


_schemas: dict[bytes, _Schema] = {}
"""By the bytes of the schema message: pages of a column have the same, which is parsed once."""


def read_payload(stream: pa.Buffer, *, where: str) -> pa.RecordBatch:
    """Read the batch of a stream. Its buffers share the memory of `stream`.

    Parameters
    ----------
    stream
        The decompressed payload.
    where
        What is being read, for error messages: ``path@offset``.

    Raises
    ------
    DamageError
        If this is not an Arrow stream of one record batch with the columns of a page, if it is compressed by
        Arrow, or if its buffers lie outside of it, or its values outside of them.

    Notes
    -----
    5 µs for a schema seen before, 15 µs else. No copy.
    """
    try:
        length = _schema_length(stream)
        message = memoryview(stream)[:length].tobytes()
        known = _schemas.get(message)
        if known is None:
            known = _read_schema(stream, message, where)
        if is_compressed_within(stream):
            raise DamageError(f"Cannot read {where}: its Arrow payload is compressed once more.")
        if known.batch_follows:
            batch = pa.ipc.read_record_batch(stream.slice(length), known.schema)
        else:
            with pa.ipc.open_stream(stream) as reader:
                batch = reader.read_next_batch()
        for column in batch.columns:
            validate_array(column)
        if known.batch_follows:
            register(message, memoryview(stream)[length:], known.schema)
    except (pa.ArrowException, OSError, EOFError, ValueError, StopIteration, struct.error) as error:
        raise DamageError(
            f"Cannot decode {where}: expected an Arrow stream of one record batch, found {error!r}."
        ) from error
    return batch


def _schema_length(stream: pa.Buffer) -> int:
    """Bytes of the first message of the stream: a schema has no body."""
    if stream.size < _MESSAGE.size:
        raise ValueError(f"{stream.size} bytes")
    mark, length = _MESSAGE.unpack_from(stream)
    if mark != _CONTINUATION or not 0 < length <= stream.size - _MESSAGE.size:
        raise ValueError(f"a first message of {length} bytes behind the mark {mark:08x}")
    return _MESSAGE.size + int(length)


def _read_schema(stream: pa.Buffer, message: bytes, where: str) -> _Schema:
    with pa.ipc.open_stream(stream) as reader:
        schema = reader.schema
    if schema.names not in _COLUMNS:
        raise DamageError(
            f"Cannot decode {where}: expected columns data, prefix_meta?, suffix_meta?, found {schema.names}."
        )
    strange = [field.name for field in schema if field.name != "data" and field.type != pa.binary()]
    if strange:
        raise DamageError(f"Cannot decode {where}: expected {', '.join(strange)} to be binary.")
    known = _Schema(schema, batch_follows=not any(map(has_dictionary, schema.types)))
    if len(_schemas) >= _KNOWN_SCHEMAS:  # metadata of its own in every page would fill the memory
        _schemas.clear()
    _schemas[message] = known
    return known


def zero_nulls(array: pa.Array) -> pa.Array:
    """Return the same entries of a flat type with zeros at nulls.

    Notes
    -----
    O(n). Under a null number stands the one before it, which costs the fewest bytes; under null text nothing.
    What a list or struct has under its nulls, and a boolean, stays.
    """
    column = FlatColumn.of(array.type) if array.null_count else None
    if column is None:
        return array
    if column.offset_bytes:
        return array.take(pa.array(np.arange(len(array)))) if hides(array) else array
    if column.bits % 8:
        return array
    width = column.bits // 8
    numbers = np.frombuffer(array.buffers()[1], np.uint8, len(array) * width, width * array.offset)
    valid = valid_of(array)[None]
    shown = fill_nulls(numbers[None], valid)
    bitmap = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(array.type, len(array), [bitmap, pa.py_buffer(shown)], array.null_count)


def hides(array: pa.Array) -> bool:
    """Whether there are bytes under nulls of text or binary values."""
    column = FlatColumn.of(array.type) if array.null_count else None
    if column is None:
        return False
    width = column.offset_bytes
    ends = np.frombuffer(array.buffers()[1], f"<i{width}", len(array) + 1, width * array.offset)
    return bool((ends[1:] != ends[:-1])[~valid_of(array)].any())


def fill_nulls(numbers: NDArray[np.uint8], valid: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Under each null of several pages the number before it; where there is none, the first; else zeros.

    Parameters
    ----------
    numbers : shape (n_pages, n_bytes)
    valid : shape (n_pages, n_rows)
    """
    count, rows = valid.shape
    values: NDArray[Any] = numbers.view(f"V{numbers.shape[1] // rows}")
    before = np.where(valid, np.arange(rows), valid.argmax(axis=1)[:, None])
    np.maximum.accumulate(before, axis=1, out=before)
    before += rows * np.arange(count)[:, None]
    shown = np.take(values.reshape(-1), before).view(np.uint8)
    shown[~valid.any(axis=1)] = 0
    return shown


def decode_detached(page: PageDescriptor) -> pa.RecordBatch:
    """Decode an inline page or a constant page, whose bytes are in the descriptor.

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
    """Resize a batch to the row count of its descriptor: a prefix, or nulls at the end.

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
