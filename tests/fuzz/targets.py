"""What is fuzzed: every decoder of bytes that come from storage, and the first use of what it gives.

A target takes any bytes. A decoder may answer with `DamageError` (and so `UnsupportedFormatError`); whatever
else comes out is a finding, and so is an allocation of more than `MOST_BYTES`. Objects that carry their own
checksums are sealed first, or no mutation would get past the checksum: what is tried is a forger, not a disk.
"""

from __future__ import annotations

import re
import resource
import struct
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NoReturn, TypeVar

import pyarrow as pa
import xxhash

from spark_pages.errors import DamageError, SchemaMismatchError
from spark_pages.format.commit import decode_slot, definition_from_plain
from spark_pages.format.container import avro_count
from spark_pages.format.digest import digest_of
from spark_pages.format.pages.codecs import Codec, decompress
from spark_pages.format.pages.untrusted_page import check_untrusted_page
from spark_pages.format.segment import decode_manifest, decode_nodes, decode_segment, decode_stats
from spark_pages.io import decode_page, parse_header
from spark_pages.log.checkpoint.root import decode_catalog, decode_root
from spark_pages.log.compaction.archive import BLOCK, decode_index, index_size
from spark_pages.log.compaction.compacted_range import CompactedRange, decode_range
from spark_pages.log.last_checkpoint import read_hints
from spark_pages.log.replay import Fold
from spark_pages.log.state import LogState
from spark_pages.model.actions import Commit, ManifestRef
from spark_pages.model.chain import ColumnChain
from spark_pages.model.run import PageRun
from spark_pages.model.table import TableDefinition
from tests.fuzz.forging import forged_parquet, forged_slot

Answer = TypeVar("Answer")
Target = Callable[[bytes], None]

TYPES = (
    pa.int64(), pa.string(), pa.dictionary(pa.int32(), pa.string()), pa.list_(pa.int64()), pa.float64(),
)  # fmt: skip
"""Types of the columns that a page is offered to."""

RANGE = CompactedRange(0, 3)
"""The compacted range that is expected: slots 0 to 7."""

BUNDLE = CompactedRange(0, 6, bundled=True)
"""The bundle that is expected: slots 0 to 63."""

MOST_BYTES = 256 << 20
"""Arrow may allocate so much for inputs of at most 64 KiB: LZ4 expands 255 times."""

_MOST_PAGES = 200
_MOST_ROWS = 100_000
_HEADER_CHECKSUM = 56
_DIGEST = re.compile(rb"spark_pages\.digest\x80\x01([0-9a-f]{64})")


def header(data: bytes) -> None:
    """A page header, as it is and with its checksum right."""
    for each in (data, _with_header_checksum(data)):
        _tolerant(lambda each=each: parse_header(each, where="fuzz@0"))


def page(data: bytes) -> None:
    """A page; what is taken, of whatever writer, can be read to the last entry."""
    sealed = sealed_page(data)
    for _ in range(2):  # the second time the shape of its stream may be known
        found = _tolerant(
            lambda: decode_page(sealed, where="fuzz@0", expected_checksum=None, expected_entries=None)
        )
        if found is not None and found.num_rows <= _MOST_ROWS:
            with suppress(ValueError, OverflowError):  # a date that Python does not have
                found.to_pylist()
    for kind in TYPES:
        try:
            taken = check_untrusted_page(sealed, kind, where="fuzz@0")
        except (DamageError, SchemaMismatchError):
            continue
        if taken.batch.num_rows <= _MOST_ROWS:
            taken.batch.to_pylist()
        taken.reaches(1 << 40)


def lz4_block(data: bytes) -> None:
    """A compressed block with a size that lies; the first two bytes are the size."""
    if len(data) >= 2:
        size = int.from_bytes(data[:2], "little")
        _tolerant(lambda: decompress(Codec.LZ4, data[2:], size, where="fuzz@0"))


def slot(data: bytes) -> None:
    """A commit or tombstone, and replay of what it says."""
    for each in (data, sealed_container(data)):
        found = _tolerant(lambda each=each: decode_slot(each, "fuzz"))
        if isinstance(found, Commit):
            _tolerant(lambda found=found: _replay(found))


def compacted_range(data: bytes) -> None:
    """A compacted range."""
    for each in (data, sealed_container(data)):
        _tolerant(lambda each=each: decode_range(each, RANGE))


def bundle_index(data: bytes) -> None:
    """The index of a bundle, also with a container whose digest fits."""
    end = 8 + int.from_bytes(data[:8], "little")
    for each in (data, data[:8] + sealed_container(data[8:end]) + data[end:]):
        _tolerant(lambda each=each: decode_index(each[: index_size(each[:BLOCK], BUNDLE)], BUNDLE))


def segment(data: bytes) -> None:
    """A segment, its chains and descriptors."""
    found = _tolerant(lambda: decode_segment(data, "fuzz"))
    if found is not None:
        for key, start, stop in found.chains():
            assert found.find(key) == (start, stop)
            _walk(PageRun(found.pages.slice(start, min(stop - start, _MOST_PAGES))))


def manifest(data: bytes) -> None:
    """A page manifest, its descriptors and statistics."""
    found = _tolerant(lambda: decode_manifest(data, "fuzz"))
    if found is not None:
        pages, stats = found
        _walk(PageRun(pages.slice(0, _MOST_PAGES), lambda: stats.slice(0, _MOST_PAGES)))


def stats(data: bytes) -> None:
    """Statistics of a segment."""
    found = _tolerant(lambda: decode_stats(data, "fuzz"))
    if found is not None:
        found.slice(0, _MOST_PAGES).to_pylist()


def nodes(data: bytes) -> None:
    """A manifest part."""
    _tolerant(lambda: decode_nodes(data, "fuzz"))


def root(data: bytes) -> None:
    """The root of a checkpoint."""
    _tolerant(lambda: decode_root(data, "fuzz"))


def catalog(data: bytes) -> None:
    """A catalog file, and the definitions in it."""
    found = _tolerant(lambda: decode_catalog(data, "fuzz"))
    for index in range(min(len(found), _MOST_PAGES) if found is not None else 0):
        _tolerant(lambda index=index: _define(found[index]))


def arrow_schema(data: bytes) -> None:
    """The schema of a table, as catalogs and intents hold it."""
    plain = {"schema": data, "next_field_id": 9, "aligned": True, "properties": {}, "created_at_us": 0}
    found = _tolerant(lambda: definition_from_plain(plain, 1, 2, "fuzz"))
    if found is not None:
        _tolerant(lambda: _define(found))


def foreign_container(data: bytes) -> None:
    """A sealed container of any codec, schema and blocks, with a colon and a zero between them."""
    head, _, blocks = data.partition(b"\0")
    codec, _, schema = head.partition(b":")
    pairs = ((b"avro.codec", codec), (b"avro.schema", schema), (b"spark_pages.digest", b"0" * 64))
    parts = [avro_count(len(each)) + each for pair in pairs for each in pair]
    whole = b"".join((b"Obj\x01", avro_count(len(pairs)), *parts, avro_count(0), bytes(16), blocks))
    slot(sealed_container(whole))


def hint(data: bytes) -> None:
    """The hint, from which nothing may follow."""
    read_hints(_Hinted(data))  # type: ignore[arg-type]


class _Hinted:
    """A store that holds a hint and nothing else."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def get(self, key: str, most_bytes: int) -> bytes:
        """The hint."""
        if len(self._data) > most_bytes:
            raise DamageError(f"{key} is too long.", key=key)
        return self._data


def forged(data: bytes) -> None:
    """Objects of a store with lying content; the first byte says which one."""
    if data:
        objects = good_objects()
        name, good = objects[data[0] % len(objects)]
        make = forged_slot if name == "slot" else forged_parquet
        TARGETS[name](make(good, data[1:]))


@cache
def good_objects() -> list[tuple[str, bytes]]:
    """Target and bytes of the objects that are kept for forging."""
    folder = Path(__file__).with_name("objects")
    return [(path.stem.partition("-")[0], path.read_bytes()) for path in sorted(folder.iterdir())]


TARGETS: dict[str, Target] = {
    each.__name__: each
    for each in (
        header, page, lz4_block, slot, compacted_range, bundle_index, segment, manifest, stats, nodes, root,
        catalog, arrow_schema, foreign_container, hint, forged,
    )
}  # fmt: skip


def attempt(name: str, data: bytes) -> None:
    """Give the bytes to a target.

    Raises
    ------
    AssertionError
        If it took more memory than it may.

    """
    pool = pa.default_memory_pool()
    before, resident = pool.max_memory() or 0, _resident_bytes()
    TARGETS[name](data)
    reserved = pool.max_memory() or 0
    assert reserved <= max(before, MOST_BYTES), f"{name}: {reserved} bytes reserved for {len(data)}"
    grown = _resident_bytes() - resident
    assert grown <= MOST_BYTES, f"{name}: {grown} bytes used for {len(data)}"


def _resident_bytes() -> int:
    """The most memory that this process has had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def sealed_page(data: bytes) -> bytes:
    """The bytes with length and checksums in the header made right, whatever they are."""
    if len(data) < 64:
        return data
    head = bytearray(data[:64])
    struct.pack_into("<Q", head, 8, len(data) - 64)
    struct.pack_into("<Q", head, 32, xxhash.xxh3_64_intdigest(data[64:]))
    return _with_header_checksum(bytes(head)) + data[64:]


def sealed_container(data: bytes) -> bytes:
    """The bytes with the digest of the container made right, if they have a place for one."""
    place = _DIGEST.search(data)
    if place is None:
        return data
    start, end = place.span(1)
    zeroed = data[:start] + b"0" * (end - start) + data[end:]
    return data[:start] + digest_of(zeroed).encode() + data[end:]


def _with_header_checksum(data: bytes) -> bytes:
    seal = xxhash.xxh3_64_intdigest(data[:_HEADER_CHECKSUM])
    return data[:_HEADER_CHECKSUM] + struct.pack("<Q", seal) + data[_HEADER_CHECKSUM + 8 :]


def _tolerant(work: Callable[[], Answer]) -> Answer | None:
    try:
        return work()
    except DamageError:
        return None


def _replay(commit: Commit) -> None:
    fold = Fold(LogState(), _no_manifest)
    for record in commit.records:
        fold.record(record, commit.version)
    for edits in fold.state().edits.values():
        chain = ColumnChain().apply(edits)
        if chain.num_pages <= _MOST_PAGES:
            _walk(chain.all_pages())
        if chain.num_rows:
            chain.locate_row(chain.num_rows - 1)


def _define(definition: TableDefinition) -> None:
    assert len(definition.field_ids) == len(definition.bare_schema)


def _no_manifest(ref: ManifestRef) -> NoReturn:
    raise DamageError(f"There is no {ref.location.key}.")


def _walk(run: PageRun) -> None:
    assert run.num_rows == sum(each.entry_count for each in run.descriptors(0, run.num_pages))
    assert run.stats.num_rows == run.num_pages
