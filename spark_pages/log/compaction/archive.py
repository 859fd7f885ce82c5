"""Bundles: a long range of slots in one object, whatever their bytes. Pure.

`docs/format.md` ("Bundles") is the specification. Behind an index lie compacted ranges and slots end to end,
as they are in storage. So a bundle is written without decoding them, and read in part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import fastavro
import numpy as np
from numpy.typing import NDArray

from spark_pages.errors import DamageError
from spark_pages.format.container import ContainerSchema, encode_container
from spark_pages.format.digest import digest_of
from spark_pages.format.features import FORMAT_VERSION
from spark_pages.log.compaction.compacted_range import (
    LARGEST,
    MAX_RANGE_OBJECT_BYTES,
    CompactedRange,
    decode_one,
    decode_range,
)

BLOCK = 4096
"""The index takes a multiple of so many bytes; the first block is always there."""

IntArray: TypeAlias = NDArray[Any]

_LENGTH_BYTES = 8
_MAX_INDEX_BYTES = 64 << 20

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

    piece: CompactedRange
    offset: int
    length: int

    def slots(self, data: bytes) -> list[bytes]:
        """Return the bytes of each slot in the part, without decoding them.

        Raises
        ------
        DamageError
            If they are not what was written.
        """
        return decode_range(data, self.piece) if self.piece.exponent else [data]


class Index:
    """The parts of a bundle, 25 bytes of memory for each.

    Parameters
    ----------
    exponents, lengths
        Of each part its size and its bytes.
    starts, offsets
        The first version of each part and the place of its bytes in the bundle; one more tells the end.
    """

    def __init__(self, exponents: IntArray, lengths: IntArray, starts: IntArray, offsets: IntArray) -> None:
        self._exponents = exponents
        self._lengths = lengths
        self._starts = starts
        self._offsets = offsets

    def __len__(self) -> int:
        return len(self._lengths)

    @property
    def size_bytes(self) -> int:
        """Bytes of the bundle."""
        return int(self._offsets[-1])

    def parts(self, first: int, stop: int) -> Iterator[Part]:
        """Iterate over the parts that hold slots [first, stop), in order."""
        low = int(np.searchsorted(self._starts, first, "right")) - 1
        for at in range(max(low, 0), len(self)):
            if self._starts[at] >= stop:
                return
            piece = CompactedRange(int(self._starts[at]), int(self._exponents[at]))
            yield Part(piece, int(self._offsets[at]), int(self._lengths[at]))


def encode_index(bundle: CompactedRange, parts: Sequence[tuple[CompactedRange, int]]) -> bytes:
    """Encode the index at the start of a bundle.

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


def index_size(block: bytes, bundle: CompactedRange) -> int:
    """How many bytes the index takes, by the first block of the bundle.

    Raises
    ------
    DamageError
        If it would be longer than that of any bundle of so many slots.
    """
    length = int.from_bytes(block[:_LENGTH_BYTES], "little")
    if length > (most := min(BLOCK + (16 << bundle.exponent), _MAX_INDEX_BYTES)):
        raise DamageError(
            f"Cannot read {bundle.key}: expected an index of at most {most} bytes, found {length} announced.",
            key=bundle.key,
        )
    return -(-(_LENGTH_BYTES + length) // BLOCK) * BLOCK


def decode_index(data: bytes, bundle: CompactedRange) -> Index:
    """Where the parts of a bundle are.

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
    found = decode_one(
        index, _SCHEMA, bundle.key, "a bundle", lambda record: _index(record, bundle, len(data))
    )
    if any(rest):
        raise DamageError(
            f"Cannot read {bundle.key}: expected zeros behind its index, so it was damaged.", key=bundle.key
        )
    return found


def check_size(index: Index, bundle: CompactedRange, size_bytes: int) -> None:
    """Refuse a bundle that is not as long as its index says.

    Raises
    ------
    DamageError
    """
    if size_bytes != index.size_bytes:
        raise DamageError(
            f"Cannot read {bundle.key}: expected {index.size_bytes} bytes, found {size_bytes}.",
            key=bundle.key,
        )


def _index(record: dict[str, Any], bundle: CompactedRange, begin: int) -> Index:
    exponents = np.asarray(record["exponents"], np.int8)
    lengths = np.asarray(record["lengths"], np.int64)
    is_sound = len(exponents) == len(lengths) and ((exponents >= 0) & (exponents <= LARGEST)).all()
    if is_sound and ((lengths > 0) & (lengths <= MAX_RANGE_OBJECT_BYTES)).all():
        sizes = np.left_shift(np.int64(1), exponents.astype(np.int64))
        starts = record["start"] + np.cumsum([0, *sizes])
        if record["start"] == bundle.start and starts[-1] == bundle.stop and not (starts[:-1] % sizes).any():
            return Index(exponents, lengths, starts, begin + np.cumsum([0, *lengths]))
    raise DamageError(
        f"Cannot read {bundle.key}: expected slots {bundle.start} to {bundle.stop - 1}, found "
        f"{len(exponents)} parts from slot {record['start']} on that are not these.",
        key=bundle.key,
    )


def runs(parts: Iterable[Part], most_bytes: int) -> Iterator[list[Part]]:
    """Group neighbouring parts into runs of at most so many bytes."""
    run: list[Part] = []
    for part in parts:
        if run and part.offset + part.length - run[0].offset > most_bytes:
            yield run
            run = []
        run.append(part)
    if run:
        yield run
