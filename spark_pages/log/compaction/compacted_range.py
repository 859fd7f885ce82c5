"""Compacted ranges: which there are, which to read for some slots, and their bytes. Pure.

`docs/format.md` ("Log compaction") is the specification. A range never changes an answer: the newest slot of
whatever is read comes from the slot itself and vouches for all before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any, TypeVar

import fastavro
import pyarrow as pa

from spark_pages.errors import DamageError, SparkPagesError
from spark_pages.format.container import ContainerSchema, decode_container, encode_container
from spark_pages.format.digest import digest_of
from spark_pages.format.features import FORMAT_VERSION, check_readable
from spark_pages.format.names import bundle_key, commit_key, compacted_key

Answer = TypeVar("Answer")

WHOLE = 4
"""Exponent of the smallest range that stays in use: 16 slots."""

LARGEST = 10
"""Exponent of the largest range that is one frame: 1,024 slots."""

MAX_RANGE_BYTES = 8 << 20
"""Slots with more bytes than this are not made one frame; bundles take them as they are."""

BUNDLES = range(6, 40, 4)
"""Exponents of bundles. Those up to `LARGEST` are made where the slots have too many bytes for one frame."""

_MAX_READ_BYTES = 64 << 20
MAX_RANGE_OBJECT_BYTES = _MAX_READ_BYTES + (1 << 20)
"""A longer object is refused unread: its slots have 64 MiB, and zstd adds little to what it cannot shrink."""

_ZSTD_LEVEL = 3
_SPARE = 8
"""A range is read for an eighth of its slots, not for less."""

_PARSED = fastavro.parse_schema(
    {
        "type": "record",
        "name": "CompactedRange",
        "namespace": "spark_pages",
        "fields": [
            {"name": "format_version", "type": "int"},
            {"name": "start", "type": "long"},
            {"name": "lengths", "type": {"type": "array", "items": "long"}},
            {"name": "original_length", "type": "long"},
            {"name": "data", "type": "bytes"},
        ],
    }
)
_SCHEMA = ContainerSchema(_PARSED)


@dataclass(frozen=True, slots=True)
class CompactedRange:
    """An aligned range of slots.

    Attributes
    ----------
    start
        First version; a multiple of the size.
    exponent
        Its size is 2 to this power; 0 is a single slot.
    bundled
        Whether the object is an archive, see `spark_pages.log.compaction.archive`.
    """

    start: int
    exponent: int
    bundled: bool = False

    @property
    def stop(self) -> int:
        """One past the last version."""
        return self.start + (1 << self.exponent)

    @property
    def key(self) -> str:
        """Name of the object that holds it."""
        if not self.exponent:
            return commit_key(self.start)
        return (bundle_key if self.bundled else compacted_key)(self.start, self.stop - 1)

    @property
    def halves(self) -> tuple[CompactedRange, CompactedRange]:
        """The two ranges that it is made of."""
        below = self.exponent - 1
        return CompactedRange(self.start, below), CompactedRange(self.start + (1 << below), below)

    @property
    def archive(self) -> CompactedRange:
        """The bundle of the same slots."""
        return replace(self, bundled=True)

    @property
    def frame(self) -> CompactedRange:
        """The range of the same slots that is one frame."""
        return replace(self, bundled=False)

    @property
    def bundles_below(self) -> list[CompactedRange]:
        """The bundles of the next smaller size that have these slots."""
        below = self.exponent - BUNDLES.step
        starts = range(self.start, self.stop, 1 << below) if below in BUNDLES else ()
        return [CompactedRange(start, below, bundled=True) for start in starts]


def is_one_frame(size_bytes: int) -> bool:
    """Whether slots with so many bytes are made one frame."""
    return size_bytes <= MAX_RANGE_BYTES


def range_around(version: int, exponent: int) -> CompactedRange:
    """Return the aligned range of this size that holds a version."""
    return CompactedRange(version >> exponent << exponent, exponent)


def small_ranges(compacted: int) -> list[CompactedRange]:
    """Return the ranges of 8, 4 and 2 slots in use when every slot below `compacted` is compacted."""
    found = []
    start = compacted >> WHOLE << WHOLE
    for exponent in range(WHOLE - 1, 0, -1):
        if compacted & (1 << exponent):
            found.append(CompactedRange(start, exponent))
            start += 1 << exponent
    return found


def plan_ranges(compacted: int, stop: int) -> Iterator[CompactedRange]:
    """Ranges that are due when slots below `stop` exist and those below `compacted` are done, halves first.

    Notes
    -----
    Two slots' worth of ranges for 16 slots, and fewer than three small ones at the end. Bundles are not among
    them, see `top_bundles`.
    """
    for end in range((compacted >> WHOLE) + 1, (stop >> WHOLE) + 1):
        version = (end << WHOLE) - 1
        for exponent in range(WHOLE, LARGEST + 1):
            around = range_around(version, exponent)
            if around.stop != version + 1:
                break
            yield around
    known = small_ranges(compacted)
    yield from (each for each in small_ranges(stop) if each not in known)


def top_bundles(start: int, stop: int) -> Iterator[CompactedRange]:
    """Iterate over the largest bundles below `stop`, except those that end before `start`."""
    position = 0
    for exponent in reversed(BUNDLES):
        end = stop >> exponent << exponent
        for first in range(max(position, start >> exponent << exponent), end, 1 << exponent):
            yield CompactedRange(first, exponent, bundled=True)
        position = end


def plan_reads(
    start: int,
    stop: int,
    compacted: int,
    usable: Callable[[CompactedRange], bool] = lambda piece: not piece.bundled,
) -> Iterator[CompactedRange]:
    """Ranges and single slots to read for slots [start, stop), in order; they may overlap.

    Parameters
    ----------
    compacted
        Everything below this version has been compacted.
    usable
        Whether a range is to be taken into account.

    Notes
    -----
    Below `compacted` logarithmic in ``stop - start``; without bundles up to the size of the largest range,
    and one for each of that size beyond. At most 8 times as many slots as asked for, and twice where `stop`
    is `compacted`; of a bundle only what is asked for has to be read.
    """
    small = small_ranges(compacted)
    position = start
    while position < stop:
        best = CompactedRange(position, 0)
        for around in _around(position, compacted >> WHOLE << WHOLE, small, usable):
            useful = min(around.stop, stop) - position
            spare = max(2, min((1 << around.exponent) // _SPARE, 2 << LARGEST))
            # Of two that reach equally far the smaller one, which comes first, is enough.
            if around.start <= position and useful > min(best.stop, stop) - position and useful >= spare:
                best = around
        yield best
        position = best.stop


def _around(
    position: int, body: int, small: Sequence[CompactedRange], usable: Callable[[CompactedRange], bool]
) -> Iterator[CompactedRange]:
    """Iterate over usable ranges that may hold a slot, smaller ones first, then bundles."""
    for exponent in range(WHOLE, BUNDLES.stop):
        around = range_around(position, exponent)
        if around.stop > body:
            break
        if exponent <= LARGEST and usable(around):
            yield around
        elif exponent in BUNDLES and usable(around.archive):
            yield around.archive
    yield from filter(usable, small)


def encode_range(start: int, slots: Sequence[bytes]) -> bytes:
    """Encode a compacted range.

    Parameters
    ----------
    start
        Version of the first slot.
    slots
        The slots as they are in storage; a power of two of them.
    """
    whole = b"".join(slots)
    record = {
        "format_version": FORMAT_VERSION,
        "start": start,
        "lengths": [len(slot) for slot in slots],
        "original_length": len(whole),
        "data": pa.Codec("zstd", _ZSTD_LEVEL).compress(whole, asbytes=True),
    }
    return encode_container(_PARSED, [record], bytes.fromhex(digest_of(whole)[:32]))[0]


def decode_range(data: bytes, wanted: CompactedRange) -> list[bytes]:
    """Return the bytes of each slot in a range, without decoding them.

    Raises
    ------
    DamageError
        If it is not what was written, or another range.
    UnsupportedFormatError
        If it needs a newer release.
    """
    return decode_one(data, _SCHEMA, wanted.key, "a compacted range", lambda record: _slots(record, wanted))


def decode_one(
    data: bytes, schema: ContainerSchema, key: str, what: str, read: Callable[[dict[str, Any]], Answer]
) -> Answer:
    """Decode the one record of a container.

    Raises
    ------
    DamageError
        If it is no such container, or `read` fails; names the object, and what it should be.
    UnsupportedFormatError
        If it needs a newer release.
    """
    try:
        (record,), _ = decode_container(data, schema, key)
        check_readable(record["format_version"], (), key)
        return read(record)
    except SparkPagesError:
        raise
    except Exception as error:
        raise DamageError(
            f"Cannot read {key}: it is not {what}: expected an Avro container of spark_pages, found "
            f"{len(data)} bytes that fail with {type(error).__name__}.",
            key=key,
        ) from error


def _slots(record: dict[str, Any], wanted: CompactedRange) -> list[bytes]:
    lengths, length = record["lengths"], record["original_length"]
    told = record["start"], len(lengths), sum(lengths)
    expected = wanted.start, 1 << wanted.exponent, length
    if told != expected or min(lengths) < 0 or length > _MAX_READ_BYTES:
        raise DamageError(
            f"Cannot read {wanted.key}: expected slots {wanted.start} to {wanted.stop - 1}, found "
            f"{len(lengths)} slots announced from {record['start']} on, with {length} bytes.",
            key=wanted.key,
        )
    whole = pa.Codec("zstd").decompress(record["data"], decompressed_size=length, asbytes=True)
    return [whole[first:last] for first, last in pairwise(accumulate(lengths, initial=0))]
