"""Bundles: a long range of slots in one object, whatever their bytes. Pure.

`docs/format.md` ("Bundles") is the specification. Behind an index lie compacted ranges and slots end to end,
as they are in storage. So a bundle is written without decoding them, and read in part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import fastavro

from spark_pages.errors import DamageError, SparkPagesError
from spark_pages.log.digest import digest_of
from spark_pages.log.encoding.container import ContainerSchema, decode_container, encode_container
from spark_pages.log.features import FORMAT_VERSION, check_readable
from spark_pages.log.ranges.log_range import LARGEST, LogRange, decode_range

BLOCK = 4096
"""The index takes a multiple of so many bytes; the first block is always there."""

_LENGTH_BYTES = 8

_PARSED = fastavro.parse_schema(
    {
        "type": "record",
        "name": "BundleIndex",
        "namespace": "spark_pages",
        "fields": [
            {"name": "format_version", "type": "int"},
            {"name": "start", "type": "long"},
            {"name": "exponents", "type": {"type": "array", "items": "int"}},
            {"name": "lengths", "type": {"type": "array", "items": "long"}},
        ],
    }
)
_SCHEMA = ContainerSchema(_PARSED)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a bundle: the object of a compacted range or of a slot.

    Attributes
    ----------
    piece
        Which slots.
    offset, length
        Where its bytes are in the bundle.
    """

    piece: LogRange
    offset: int
    length: int

    def slots(self, data: bytes) -> list[bytes]:
        """The slots in the bytes of the part, bit by bit; what is in them has not been looked at.

        Raises
        ------
        DamageError
            If they are not what was written.
        """
        return decode_range(data, self.piece) if self.piece.exponent else [data]


def encode_index(bundle: LogRange, parts: Sequence[tuple[LogRange, int]]) -> bytes:
    """What a bundle begins with.

    Parameters
    ----------
    parts
        The ranges and slots behind it, in order, and the bytes of each.
    """
    record = {
        "format_version": FORMAT_VERSION,
        "start": bundle.start,
        "exponents": [piece.exponent for piece, _ in parts],
        "lengths": [length for _, length in parts],
    }
    index, _ = encode_container(_PARSED, [record], bytes.fromhex(digest_of(bundle.key.encode())[:32]))
    whole = len(index).to_bytes(_LENGTH_BYTES, "little") + index
    return whole + bytes(-len(whole) % BLOCK)


def index_size(block: bytes, bundle: LogRange) -> int:
    """How many bytes the index takes, by the first block of the bundle.

    Raises
    ------
    DamageError
        If it would be longer than that of any bundle of so many slots.
    """
    length = int.from_bytes(block[:_LENGTH_BYTES], "little")
    if length > (most := BLOCK + (16 << bundle.exponent)):
        raise DamageError(
            f"{bundle.key} should have an index of at most {most} bytes, but announces {length}.",
            key=bundle.key,
        )
    return -(-(_LENGTH_BYTES + length) // BLOCK) * BLOCK


def decode_index(data: bytes, bundle: LogRange) -> list[Part]:
    """The parts of a bundle.

    Parameters
    ----------
    data
        Its first `index_size` bytes.

    Raises
    ------
    DamageError
        If it is not what was written, or the index of another bundle.
    UnsupportedFormatError
        If it needs a newer release.
    """
    length = int.from_bytes(data[:_LENGTH_BYTES], "little")
    index, rest = data[_LENGTH_BYTES : _LENGTH_BYTES + length], data[_LENGTH_BYTES + length :]
    try:
        (record,), _ = decode_container(index, _SCHEMA, bundle.key)
        check_readable(record["format_version"], (), bundle.key)
    except SparkPagesError:
        raise
    except Exception as error:
        raise DamageError(
            f"{bundle.key} is not a bundle: expected an index in an Avro container of spark_pages, found "
            f"{len(data)} bytes that fail with {type(error).__name__}.",
            key=bundle.key,
        ) from error
    if any(rest):
        raise DamageError(f"{bundle.key} should have zeros behind its index: it was damaged.", key=bundle.key)
    return _parts(record, bundle, len(data))


def _parts(record: dict[str, Any], bundle: LogRange, offset: int) -> list[Part]:
    exponents, lengths = record["exponents"], record["lengths"]
    parts = []
    version = record["start"]
    if version == bundle.start and len(exponents) == len(lengths):
        for exponent, length in zip(exponents, lengths, strict=True):
            if not 0 <= exponent <= LARGEST or length <= 0 or version % (1 << exponent):
                break
            piece = LogRange(version, exponent)
            parts.append(Part(piece, offset, length))
            version, offset = piece.stop, offset + length
    if version != bundle.stop or len(parts) != len(exponents):
        raise DamageError(
            f"{bundle.key} should hold slots {bundle.start} to {bundle.stop - 1}, but announces parts of "
            f"slots {record['start']} to {version - 1}.",
            key=bundle.key,
        )
    return parts


def runs(parts: Iterable[Part], first: int, stop: int, most_bytes: int) -> Iterator[list[Part]]:
    """The parts that slots [first, stop) are in, neighbours together up to so many bytes."""
    run: list[Part] = []
    for part in parts:
        if part.piece.stop <= first or part.piece.start >= stop:
            continue
        if run and part.offset + part.length - run[0].offset > most_bytes:
            yield run
            run = []
        run.append(part)
    if run:
        yield run
