"""The 64 bytes in front of the payload of a page.

Header, little-endian::

    0   4s   magic, b"SPPG"
    4   u16  format version, 1
    6   u8   codec
    7   u8   flags: 1 where integers of the payload are narrowed
    8   u64  read_size: payload bytes that follow the header
    16  u64  uncompressed size of the payload
    24  u64  entries in the payload
    32  u64  xxh3_64 of the payload as stored
    40  u64  bytes of the Arrow stream, where integers are narrowed; else 0
    48  8s   reserved, zero
    56  u64  xxh3_64 of bytes 0 to 55

Every later format keeps the magic, the version and the header's own checksum at these places. The
padding behind the payload is covered by no checksum: it is zeros, and `page_file.check_padding` says so.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import xxhash
from numpy.typing import NDArray

from spark_pages.errors import DamageError, UnsupportedFormatError
from spark_pages.format.pages.codecs import BytesLike, Codec, check_uncompressed_size
from spark_pages.format.pages.integer_encoding import check_stream_bytes
from spark_pages.model.page import PAGE_HEADER_SIZE

PAGE_MAGIC = b"SPPG"
PAGE_FORMAT_VERSION = 1

_HEADER = struct.Struct("<4sHBBQQQQQ8s")
_SEAL = struct.Struct("<Q")
_FOOTPRINT = struct.Struct("<6xBB8xQ16xQ")
_RESERVED = bytes(8)
_NARROWED = 1
_CODECS = {codec.value: codec for codec in Codec}

STORED, SIZE, CHECKSUM, STREAM_SIZE, SEAL = 1, 2, 4, 5, 7
"""Which of the eight numbers of a header tell pages from others that are cut alike; the second and the fourth
only where there is text."""
ALIKE = (0, 3, 6)
"""Which of them do not."""


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
    stream_size
        Bytes of the Arrow stream where integers are narrowed, which makes it larger than the decompressed
        payload; else 0.
    """

    codec: Codec
    read_size: int
    uncompressed_size: int
    entry_count: int
    checksum: int
    stream_size: int = 0

    @property
    def actual_len(self) -> int:
        """Bytes of header and payload."""
        return PAGE_HEADER_SIZE + self.read_size

    @property
    def arrow_size(self) -> int:
        """Bytes of the Arrow stream that the payload stands for."""
        return self.stream_size or self.uncompressed_size


def encode_header(header: PageHeader) -> bytes:
    """Encode a header with its own checksum."""
    flags = _NARROWED if header.stream_size else 0
    fields = _HEADER.pack(
        PAGE_MAGIC, PAGE_FORMAT_VERSION, header.codec, flags, header.read_size, header.uncompressed_size,
        header.entry_count, header.checksum, header.stream_size, _RESERVED,
    )  # fmt: skip
    return fields + _SEAL.pack(xxhash.xxh3_64_intdigest(fields))


def parse_header(buffer: BytesLike, *, where: str = "a page") -> PageHeader:
    """Parse and verify the header at the start of `buffer`.

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
    return PageHeader(*header_fields(buffer, where))


def footprint(buffer: BytesLike) -> tuple[bool, int]:
    """Whether a page may share the memory of its payload, and what its Arrow stream takes beside it, bytes.

    Parameters
    ----------
    buffer
        Header and payload. Only what `decode_page` has accepted is sure to be told the truth of.

    Notes
    -----
    Narrowed numbers that are stored as they are share it too, until they are widened.
    """
    codec, flags, size, stream_size = _FOOTPRINT.unpack_from(buffer)
    shares = codec == Codec.NONE
    return shares, 0 if shares and not flags else stream_size or size


def header_fields(buffer: BytesLike, where: str) -> tuple[Codec, int, int, int, int, int]:
    """Return the fields of `PageHeader` in order, without creating the object."""
    if len(buffer) < PAGE_HEADER_SIZE:
        raise _damage(where, "a header of", f"{PAGE_HEADER_SIZE} bytes", f"{len(buffer)}")
    magic, version, code, flags, read_size, size, entries, checksum, stream_size, reserved = (
        _HEADER.unpack_from(buffer)
    )
    if magic != PAGE_MAGIC:
        raise _damage(where, "magic", PAGE_MAGIC, magic)
    (promised,) = _SEAL.unpack_from(buffer, _HEADER.size)
    found = xxhash.xxh3_64_intdigest(memoryview(buffer)[: _HEADER.size])
    if found != promised:
        raise _damage(where, "header checksum", f"{promised:016x}", f"{found:016x}")
    codec = _CODECS.get(code)
    if version != PAGE_FORMAT_VERSION or flags & ~_NARROWED or codec is None:
        raise UnsupportedFormatError(
            f"Cannot read {where}: expected page format {PAGE_FORMAT_VERSION}, flags 0 or 1 and a codec of "
            f"{sorted(_CODECS)}, found format {version}, flags {flags} and codec {code}.",
            hint="Upgrade to the release that wrote the page: `pip install --upgrade spark-pages`.",
        )
    if reserved != _RESERVED:
        raise _damage(where, "reserved bytes", "zero", reserved.hex())
    check_uncompressed_size(codec, read_size, size, where=where)
    if flags:
        check_stream_bytes(size, stream_size, where=where)
    elif stream_size:
        raise _damage(where, "no size of a widened stream", "0", stream_size)
    return codec, read_size, size, entries, checksum, stream_size


def header_words(packed: Sequence[memoryview]) -> NDArray[np.uint64]:
    """Return the headers of many pages as numbers, shape (n_pages, 8), unverified.

    Parameters
    ----------
    packed
        Header and payload of each; at least ``PAGE_HEADER_SIZE`` bytes.
    """
    return np.frombuffer(b"".join([page[:PAGE_HEADER_SIZE] for page in packed]), "<u8").reshape(-1, 8)


def header_checksums(packed: Sequence[memoryview]) -> list[int]:
    """Return the expected checksum of the header of each page."""
    seal, size = xxhash.xxh3_64_intdigest, _HEADER.size
    return [seal(page[:size]) for page in packed]


def _damage(where: str, what: str, expected: object, found: object) -> DamageError:
    return DamageError(f"Cannot decode {where}: expected {what} {expected}, found {found}.")
