"""Segments, their statistics, and nodes as Parquet. Pure: bytes to Arrow and back.

Derivable values are not stored: the offset of a page that lies behind its predecessor in the same
file, an allocation that is the used length rounded up, a payload count that equals the entries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_pages.arrow.columns import (
    no_bytes,
    number_column,
    numbers_of,
    optional_numbers,
    optional_text,
    valid_of,
)
from spark_pages.errors import DamageError
from spark_pages.format.checkpoint_tree import Node
from spark_pages.format.parquet import check_limits, decode_table, encode_table
from spark_pages.format.validate import find_invalid_page
from spark_pages.model.chain_tree import ChainKey
from spark_pages.model.page import PAGE_ALIGNMENT, PageKind
from spark_pages.model.page_schema import OPTIONAL_STATS, PAGE_SCHEMA, STATS_SCHEMA

SEGMENT_SCHEMA = pa.schema(
    [
        pa.field("table_id", pa.int64(), nullable=False),
        pa.field("field_id", pa.int32(), nullable=False),
        pa.field("page_id", pa.int64(), nullable=False),
        pa.field("entry_count", pa.int64(), nullable=False),
        pa.field("payload_entries", pa.int64()),
        pa.field("kind", pa.int8(), nullable=False),
        pa.field("path", pa.string()),
        pa.field("offset", pa.int64()),
        pa.field("alloc_len", pa.int32()),
        pa.field("actual_len", pa.int32(), nullable=False),
        pa.field("checksum", pa.int64(), nullable=False),
        pa.field("data", pa.binary()),
    ]
)
"""Columns of a segment as it is stored."""

_NODE_COLUMNS: tuple[tuple[str, pa.DataType], ...] = (
    ("level", pa.int32()),
    ("first_table", pa.int64()),
    ("first_field", pa.int32()),
    ("last_table", pa.int64()),
    ("last_field", pa.int32()),
    ("pages", pa.int64()),
    ("first_pages", pa.int64()),
    ("first_rows", pa.int64()),
    ("last_pages", pa.int64()),
    ("last_rows", pa.int64()),
    ("digest", pa.string()),
    ("length", pa.int64()),
    ("stats_digest", pa.string()),
    ("stats_length", pa.int64()),
)
NODE_SCHEMA = pa.schema([pa.field(name, kind, nullable=False) for name, kind in _NODE_COLUMNS])
"""Columns of a manifest part and of a root."""


_WRITTEN_FOR = b"spark_pages.checkpoint"


@dataclass(frozen=True, eq=False, slots=True)
class Segment:
    """Pages of several chains, sorted by chain and position.

    Attributes
    ----------
    chain_tables, chain_fields : int64, shape (n_chains,)
        The chains, in order.
    bounds : int64, shape (n_chains + 1,)
        Pages [bounds[i], bounds[i + 1]) are those of chain i.
    pages
        Batch of PAGE_SCHEMA.
    """

    chain_tables: NDArray[np.int64]
    chain_fields: NDArray[np.int64]
    bounds: NDArray[np.int64]
    pages: pa.RecordBatch

    @classmethod
    def of(cls, table_ids: NDArray[np.int64], field_ids: NDArray[np.int64], pages: pa.RecordBatch) -> Segment:
        """Create a segment from sorted pages with their chains."""
        starts = np.ones(len(table_ids), dtype=bool)
        starts[1:] = (table_ids[1:] != table_ids[:-1]) | (field_ids[1:] != field_ids[:-1])
        firsts = np.flatnonzero(starts)
        return cls(
            table_ids[firsts].astype(np.int64),
            field_ids[firsts].astype(np.int64),
            np.append(firsts, len(table_ids)),
            pages,
        )

    @property
    def table_ids(self) -> NDArray[np.int64]:
        """The table of each page."""
        return np.repeat(self.chain_tables, np.diff(self.bounds))

    @property
    def field_ids(self) -> NDArray[np.int64]:
        """The column of each page."""
        return np.repeat(self.chain_fields, np.diff(self.bounds))

    def chains(self) -> Iterator[tuple[ChainKey, int, int]]:
        """Each chain, with the [start, stop) of its pages."""
        keys = zip(self.chain_tables.tolist(), self.chain_fields.tolist(), strict=True)
        for key, (start, stop) in zip(keys, pairwise(self.bounds.tolist()), strict=True):
            yield key, start, stop

    def find(self, key: ChainKey) -> tuple[int, int]:
        """[start, stop) of the chain's pages in the segment."""
        low = int(np.searchsorted(self.chain_tables, key[0], "left"))
        high = int(np.searchsorted(self.chain_tables, key[0], "right"))
        index = low + int(np.searchsorted(self.chain_fields[low:high], key[1]))
        start = int(self.bounds[index])
        if index == high or self.chain_fields[index] != key[1]:
            return start, start
        return start, int(self.bounds[index + 1])


def written_for(version: int | None) -> dict[bytes, bytes]:
    """Return the metadata of a checkpoint object: the version that it was written for.

    It makes the names of what two checkpoints write differ: whoever deletes an object of an old checkpoint
    never meets a new one that happens to have the same content.
    """
    return {} if version is None else {_WRITTEN_FOR: str(version).encode()}


def checkpoint_of(data: bytes) -> int | None:
    """Version of the checkpoint that the object was written for; None where it does not say."""
    try:
        return int(check_limits(data).metadata[_WRITTEN_FOR])
    except (KeyError, ValueError):
        return None


def encode_segment(segment: Segment, version: int | None = None) -> bytes:
    """Encode a segment as Parquet with zstd and delta encodings; `version` is the checkpoint's."""
    pages = segment.pages
    alloc = numbers_of(pages.column("alloc_len"))
    actual = numbers_of(pages.column("actual_len"))
    offset = numbers_of(pages.column("offset"))
    entries = pages.column("entry_count")
    payload = numbers_of(pages.column("payload_entries"))
    path = pages.column("path").indices
    in_file = (numbers_of(pages.column("kind")) == PageKind.FILE) & valid_of(path)
    index = numbers_of(path)
    follows = np.zeros(len(index), dtype=bool)
    follows[1:] = (
        in_file[1:] & in_file[:-1] & (index[1:] == index[:-1]) & (offset[1:] == offset[:-1] + alloc[:-1])
    )
    columns = {
        "table_id": number_column(segment.table_ids, pa.int64()),
        "field_id": number_column(segment.field_ids, pa.int32()),
        "page_id": pages.column("page_id"),
        "entry_count": entries,
        "payload_entries": number_column(payload, pa.int64(), payload != numbers_of(entries)),
        "kind": pages.column("kind"),
        "path": pages.column("path").cast(pa.string()),
        "offset": number_column(offset, pa.int64(), ~follows),
        "alloc_len": number_column(alloc, pa.int32(), alloc != _rounded(actual)),
        "actual_len": pages.column("actual_len"),
        "checksum": pages.column("checksum"),
        "data": pages.column("data"),
    }
    table = pa.table([columns[name] for name in SEGMENT_SCHEMA.names], schema=SEGMENT_SCHEMA)
    return encode_table(
        table,
        dictionary=["table_id", "field_id", "kind", "path", "entry_count"],
        encodings={"page_id": "DELTA_BINARY_PACKED", "offset": "DELTA_BINARY_PACKED", "actual_len": "PLAIN"},
        metadata=written_for(version),
    )


def decode_segment(data: bytes, key: str) -> Segment:
    """Decode a segment whose digest has been verified.

    Raises
    ------
    DamageError
        If they do not hold one, or its numbers cannot be true.

    Notes
    -----
    About 50 bytes of memory a page: columns that say nothing of their own share memory.
    """
    stored = decode_table(data, SEGMENT_SCHEMA, key, dictionary=["path"])
    actual = numbers_of(stored["actual_len"])
    listed = valid_of(stored["alloc_len"])
    alloc = np.where(listed, numbers_of(stored["alloc_len"]), _rounded(actual)).astype(np.int32)
    entries, payload, content = stored["entry_count"], stored["payload_entries"], stored["data"]
    pages = {
        **stored,
        "payload_entries": entries if payload.null_count == len(payload) else pc.coalesce(payload, entries),
        "offset": number_column(_offsets(stored["offset"], alloc), pa.int64()),
        "alloc_len": number_column(alloc, pa.int32()),
        "data": no_bytes(len(content)) if content.null_count == len(content) else content,
    }
    batch = pa.RecordBatch.from_arrays([pages[name] for name in PAGE_SCHEMA.names], schema=PAGE_SCHEMA)
    _check(find_invalid_page(batch) or _unsorted(stored), key)
    return Segment.of(numbers_of(stored["table_id"]), numbers_of(stored["field_id"]), batch)


def _unsorted(stored: dict[str, pa.Array]) -> str | None:
    """Describe the disorder in stored chains, ids and offsets, if there is any."""
    tables, fields = numbers_of(stored["table_id"]), numbers_of(stored["field_id"])
    falls = (tables[1:] < tables[:-1]) | ((tables[1:] == tables[:-1]) & (fields[1:] < fields[:-1]))
    if falls.any():
        return f"page {int(np.argmax(falls)) + 1} belongs before the page before it"
    if len(tables) and (tables[0] < 0 or fields.min() < 0 or numbers_of(stored["page_id"]).min() < 0):
        return "a table, column or page has a negative id"
    if len(tables) and not stored["offset"][0].is_valid:
        return "the first page has no offset"
    return None


def _check(wrong: str | None, key: str) -> None:
    if wrong is not None:
        raise DamageError(f"Cannot read {key}: it holds descriptors that cannot be true: {wrong}.", key=key)


def _offsets(stored: pa.Array, alloc: NDArray[np.int32]) -> NDArray[np.int64]:
    """Offsets in full: a page without one lies behind the page before it."""
    given = valid_of(stored)
    values: NDArray[np.int64] = np.where(given, numbers_of(stored), 0)
    before = np.cumsum(alloc, dtype=np.int64) - alloc
    anchors = np.maximum.accumulate(np.where(given, np.arange(len(values)), 0))
    offsets: NDArray[np.int64] = values[anchors] + before - before[anchors]
    return offsets


def _rounded(actual: NDArray[np.int32]) -> NDArray[np.int32]:
    return (actual + (PAGE_ALIGNMENT - 1)) // PAGE_ALIGNMENT * PAGE_ALIGNMENT


def encode_stats(stats: pa.RecordBatch, version: int | None = None) -> bytes:
    """Statistics of a segment's pages as Parquet, row for row; `version` is the checkpoint's."""
    table = pa.table(_stored_stats(stats))
    return encode_table(table, dictionary=True, encodings=None, metadata=written_for(version))


def decode_stats(data: bytes, key: str) -> pa.RecordBatch:
    """Decode statistics whose digest has been verified."""
    columns = decode_table(data, STATS_SCHEMA, key, optional=OPTIONAL_STATS)
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=STATS_SCHEMA)


def _stored_stats(stats: pa.RecordBatch) -> dict[str, pa.Array]:
    """Their columns; hardly any pages have a NaN, and what nobody has takes nothing."""
    columns = dict(zip(STATS_SCHEMA.names, stats.columns, strict=True))
    if columns["nan"].null_count == stats.num_rows:
        del columns["nan"]
    return columns


def encode_manifest(pages: pa.RecordBatch, stats: pa.RecordBatch) -> bytes:
    """Encode a page manifest: descriptors, with ordinals as ids, beside their statistics."""
    columns = {name: pages.column(name) for name in PAGE_SCHEMA.names if name != "page_id"}
    columns["path"] = columns["path"].cast(pa.string())
    columns.update(_stored_stats(stats))
    return encode_table(pa.table(columns), dictionary=["path", "kind", "entry_count"], encodings=None)


def decode_manifest(data: bytes, key: str) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Descriptors (ids are ordinals from 0) and statistics of a page manifest."""
    fields = [field for field in PAGE_SCHEMA if field.name not in ("page_id", "path")]
    fields += [pa.field("path", pa.string()), *STATS_SCHEMA]
    columns = decode_table(data, pa.schema(fields), key, dictionary=["path"], optional=OPTIONAL_STATS)
    columns["page_id"] = number_column(np.arange(len(columns["path"])), pa.int64())
    pages = pa.RecordBatch.from_arrays([columns[name] for name in PAGE_SCHEMA.names], schema=PAGE_SCHEMA)
    _check(find_invalid_page(pages), key)
    return (
        pages,
        pa.RecordBatch.from_arrays([columns[name] for name in STATS_SCHEMA.names], schema=STATS_SCHEMA),
    )


def encode_nodes(nodes: Sequence[Node], metadata: dict[bytes, bytes] | None = None) -> bytes:
    """Nodes as Parquet: a manifest part, or with metadata the root of a checkpoint."""
    rows = [
        (
            *(node.level, *node.first, *node.last, node.pages),
            *(node.first_pages, node.first_rows, node.last_pages, node.last_rows),
            *(node.digest, node.length, node.stats_digest, node.stats_length),
        )
        for node in nodes
    ]
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(_NODE_COLUMNS)
    arrays = [
        optional_text(column) if kind == pa.string() else optional_numbers(column, kind)
        for column, (_, kind) in zip(columns, _NODE_COLUMNS, strict=True)
    ]
    table = pa.table(arrays, schema=NODE_SCHEMA)
    return encode_table(table, dictionary=False, encodings=None, metadata=metadata)


def decode_nodes(data: bytes, key: str) -> list[Node]:
    """Nodes of a manifest part or root; the digest has been checked."""
    columns = [column.to_pylist() for column in decode_table(data, NODE_SCHEMA, key).values()]
    return [
        Node(level, (first_table, first_field), (last_table, last_field), *rest)
        for level, first_table, first_field, last_table, last_field, *rest in zip(*columns, strict=True)
    ]
