"""Planted secrets, and a search for them in every byte of a store."""

from __future__ import annotations

import io
from collections.abc import Iterator

import lz4.block
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from spark_pages.format.commit import decode_slot
from spark_pages.log.compaction.compacted_range import CompactedRange, decode_range
from spark_pages.model.actions import Commit
from spark_pages.model.page import PAGE_ALIGNMENT
from spark_pages.storage.store import ObjectStore

HEADER = 64


def places_of(secret: bytes, objects: ObjectStore) -> set[str]:
    """Objects in which some text is, as stored or decompressed."""
    return {
        info.key
        for info in objects.list("")
        if any(secret in part for part in unpacked(info.key, objects.get(info.key)))
    }


def unpacked(key: str, data: bytes) -> Iterator[bytes]:
    """An object as it is, and everything in it that is compressed."""
    yield bytes(data)
    if key.endswith(".parquet"):
        yield from _columns(pq.read_table(io.BytesIO(data)))
    elif key.endswith(".pages"):
        yield from pages_in(data, PAGE_ALIGNMENT)
    elif key.endswith(".compacted.avro"):
        start, end = key.rpartition("/")[2].partition(".")[0].split("-")
        size = int(end) - int(start) + 1
        for slot in decode_range(data, CompactedRange(int(start), size.bit_length() - 1)):
            yield from unpacked("_log/slot.avro", slot)
    elif key.endswith(".avro"):
        slot = decode_slot(data, key)
        if isinstance(slot, Commit):
            for record in slot.records:
                column = record.own.batches[0].column("data")
                for page in filter(None, column.to_pylist()):
                    yield from pages_in(page, len(page))


def _columns(table: pa.Table) -> Iterator[bytes]:
    for column in table.columns:
        if pa.types.is_binary(column.type) or pa.types.is_string(column.type):
            for value in filter(None, column.to_pylist()):
                yield value if isinstance(value, bytes) else value.encode()
                if isinstance(value, bytes) and value[:4] == b"SPPG":
                    yield from pages_in(value, len(value))


def pages_in(data: bytes, step: int) -> Iterator[bytes]:
    """Payloads of all pages at multiples of a number of bytes, decompressed."""
    for offset in range(0, len(data), step):
        if data[offset : offset + 4] != b"SPPG":
            continue
        codec = data[offset + 6]
        stored, plain = (int.from_bytes(data[offset + at : offset + at + 8], "little") for at in (8, 16))
        payload = data[offset + HEADER : offset + HEADER + stored]
        if codec == 1:
            payload = lz4.block.decompress(payload, uncompressed_size=plain)
        elif codec == 2:
            payload = zstandard.ZstdDecompressor().decompress(payload, max_output_size=plain)
        yield payload
