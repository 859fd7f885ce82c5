"""One page as bytes: a 64-byte header and an Arrow IPC stream of one record batch.

Header, little-endian::

    0   4s   magic, b"SPPG"
    4   u16  format version, 1
    6   u8   codec
    7   u8   flags, 0
    8   u64  read_size: payload bytes that follow the header
    16  u64  uncompressed size of the payload
    24  u64  entries in the payload
    32  u64  xxh3_64 of the payload as stored
    40  16s  reserved, zero
    56  u64  xxh3_64 of bytes 0 to 55

Every later format keeps the magic, the version and the header's own checksum at these places. The
padding behind the payload is covered by nothing, and nothing reads it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from spark_pages.errors import DamageError, InvalidInputError, UnsupportedFormatError
from spark_pages.io.codecs import (
    MAX_UNCOMPRESSED_BYTES,
    BytesLike,
    Codec,
    check_uncompressed_size,
    compress,
    decompress,
)
from spark_pages.model.page import PAGE_ALIGNMENT, PAGE_HEADER_SIZE

PAGE_MAGIC = b"SPPG"
PAGE_FORMAT_VERSION = 1

_HEADER = struct.Struct("<4sHBBQQQQ16s")
_HEADER_CHECKSUM = struct.Struct("<Q")
_RESERVED = bytes(16)
_COLUMNS = (
    ["data"],
    ["data", "prefix_meta"],
    ["data", "suffix_meta"],
    ["data", "prefix_meta", "suffix_meta"],
)


@dataclass(frozen=True, slots=True)
class PageHeader:
    """The fixed header in front of a page's payload, already checked.

    Attributes
    ----------
    codec
        How the payload is compressed.
    read_size, uncompressed_size
        Bytes of the payload as stored, and decompressed.
    entry_count
        Entries of the payload.
    checksum
        xxh3_64 of the payload as stored, unsigned.
    """

    codec: Codec
    read_size: int
    uncompressed_size: int
    entry_count: int
    checksum: int

    @property
    def actual_len(self) -> int:
        """Bytes of header and payload."""
        return PAGE_HEADER_SIZE + self.read_size


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

    data: bytes
    actual_len: int
    alloc_len: int
    entry_count: int
    checksum: int


def encode_page(
    data: pa.Array,
    *,
    codec: Codec = Codec.LZ4,
    prefix_meta: pa.Array | None = None,
    suffix_meta: pa.Array | None = None,
    page_metadata: Mapping[str | bytes, str | bytes] | None = None,
) -> EncodedPage:
    """The page that holds the entries of `data`.

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
    One copy into IPC form, one through the codec, one behind the header. Source: seed 003, "Entry"
    and "Persistent Storage Layout".
    """
    columns = {"data": _compact(data), "prefix_meta": prefix_meta, "suffix_meta": suffix_meta}
    present = {name: column for name, column in columns.items() if column is not None}
    lengths = {name: len(column) for name, column in present.items()}
    if len(set(lengths.values())) > 1:
        raise InvalidInputError(f"Cannot encode a page: expected columns of one length, found {lengths}.")
    schema = pa.schema([pa.field(name, column.type) for name, column in present.items()], page_metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.record_batch(list(present.values()), schema=schema))
    stream = sink.getvalue()
    if stream.size > MAX_UNCOMPRESSED_BYTES:
        raise InvalidInputError(
            f"Cannot encode a page of {stream.size} bytes: expected at most {MAX_UNCOMPRESSED_BYTES}.",
            hint="Use smaller pages.",
        )
    payload: bytes | pa.Buffer = compress(codec, stream) if codec is not Codec.NONE else stream
    if len(payload) >= stream.size:
        codec, payload = Codec.NONE, stream
    checksum = xxhash.xxh3_64_intdigest(payload)
    header = _HEADER.pack(
        PAGE_MAGIC, PAGE_FORMAT_VERSION, codec, 0, len(payload), stream.size, len(data), checksum, _RESERVED
    )
    seal = _HEADER_CHECKSUM.pack(xxhash.xxh3_64_intdigest(header))
    page = b"".join((header, seal, payload))
    alloc_len = -(-len(page) // PAGE_ALIGNMENT) * PAGE_ALIGNMENT
    return EncodedPage(page, len(page), alloc_len, len(data), checksum)


def parse_header(buffer: BytesLike, *, where: str = "a page") -> PageHeader:
    """The checked header at the start of `buffer`.

    Parameters
    ----------
    buffer
        At least ``PAGE_HEADER_SIZE`` bytes; what follows them is not looked at.
    where
        What is being read, for error messages: ``path@offset``.

    Raises
    ------
    DamageError
        If these are not the bytes of a page header, or its sizes cannot be true.
    UnsupportedFormatError
        If a newer release wrote it: read it with that one.
    """
    if len(buffer) < PAGE_HEADER_SIZE:
        raise _damage(where, "a header of", f"{PAGE_HEADER_SIZE} bytes", f"{len(buffer)}")
    magic, version, codec, flags, read_size, size, entries, checksum, reserved = _HEADER.unpack_from(buffer)
    if magic != PAGE_MAGIC:
        raise _damage(where, "magic", PAGE_MAGIC, magic)
    (promised,) = _HEADER_CHECKSUM.unpack_from(buffer, _HEADER.size)
    found = xxhash.xxh3_64_intdigest(memoryview(buffer)[: _HEADER.size])
    if found != promised:
        raise _damage(where, "header checksum", f"{promised:016x}", f"{found:016x}")
    if version != PAGE_FORMAT_VERSION or flags or codec not in _CODECS:
        raise UnsupportedFormatError(
            f"Cannot read {where}: expected page format {PAGE_FORMAT_VERSION}, flags 0 and a codec of "
            f"{sorted(_CODECS)}, found format {version}, flags {flags} and codec {codec}.",
            hint="Read it with the release that wrote it, or a later one.",
        )
    if reserved != _RESERVED:
        raise _damage(where, "reserved bytes", "zero", reserved.hex())
    check_uncompressed_size(_CODECS[codec], read_size, size, where=where)
    return PageHeader(_CODECS[codec], read_size, size, entries, checksum)


def decode_page(
    buffer: BytesLike, *, where: str, expected_checksum: int | None, expected_entries: int | None
) -> pa.RecordBatch:
    """The record batch that `encode_page` was given, every byte of it checked.

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
    write: a forged page with valid checksums is bounded in size, but its values are believed.
    """
    header = parse_header(buffer, where=where)
    payload = memoryview(buffer)[PAGE_HEADER_SIZE : header.actual_len]
    if len(payload) != header.read_size:
        raise _damage(where, "payload bytes", header.read_size, len(payload))
    checksum = xxhash.xxh3_64_intdigest(payload)
    if checksum != header.checksum:
        raise _damage(where, "payload checksum", f"{header.checksum:016x}", f"{checksum:016x}")
    if expected_checksum is not None and checksum != expected_checksum:
        raise _damage(where, "the descriptor's checksum", f"{expected_checksum:016x}", f"{checksum:016x}")
    if expected_entries is not None and header.entry_count != expected_entries:
        raise _damage(where, "the descriptor's payload entries", expected_entries, header.entry_count)
    stream = decompress(header.codec, payload, header.uncompressed_size, where=where)
    try:
        with pa.ipc.open_stream(stream) as reader:
            names = reader.schema.names
            batch = reader.read_next_batch()
        batch.validate()
    except (pa.ArrowException, OSError, ValueError, StopIteration) as error:
        raise DamageError(
            f"Cannot decode {where}: expected an Arrow stream of one record batch, found {error!r}."
        ) from error
    if names not in _COLUMNS:
        raise _damage(where, "columns", "data, prefix_meta?, suffix_meta?", names)
    if batch.num_rows != header.entry_count:
        raise _damage(where, "entries", header.entry_count, batch.num_rows)
    return batch


_CODECS = {codec.value: codec for codec in Codec}


def _damage(where: str, what: str, expected: object, found: object) -> DamageError:
    return DamageError(f"Cannot decode {where}: expected {what} {expected}, found {found}.")


def _compact(array: pa.Array) -> pa.Array:
    """The same entries, holding on to nothing that a slice left behind and IPC would write.

    IPC cuts fixed-width, variable-width and list buffers to the slice, but writes a dictionary and
    the buffers of view types whole.
    """
    kind = array.type
    if pa.types.is_dictionary(kind) and len(array.dictionary) > len(array):
        used = pc.drop_null(pc.unique(array.indices)).sort()
        indices = pc.index_in(array.indices, value_set=used, skip_nulls=True).cast(kind.index_type)
        return pa.DictionaryArray.from_arrays(indices, array.dictionary.take(used), ordered=kind.ordered)
    if pa.types.is_string_view(kind):
        return array.cast(pa.large_string()).cast(kind)
    if pa.types.is_binary_view(kind):
        return array.cast(pa.large_binary()).cast(kind)
    return array
