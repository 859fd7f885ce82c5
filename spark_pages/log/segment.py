"""Segments, their statistics, and nodes as Parquet. Pure: bytes to Arrow and back.

Derivable values are not stored: the offset of a page that lies behind its predecessor in the same
file, an allocation that is the used length rounded up, a payload count that equals the entries.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from spark_pages.errors import DamageError
from spark_pages.log.tree import Node
from spark_pages.model.chain import ChainKey
from spark_pages.model.page import PAGE_ALIGNMENT, PageKind
from spark_pages.model.run import PAGE_SCHEMA, STATS_SCHEMA

_SEGMENT_SCHEMA = pa.schema(
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
_NODE_SCHEMA = pa.schema([pa.field(name, kind, nullable=False) for name, kind in _NODE_COLUMNS])


@dataclass(frozen=True, eq=False, slots=True)
class Segment:
    """Pages of several chains, sorted by chain and position.

    Attributes
    ----------
    table_ids, field_ids : int64, shape (n_pages,)
        The chain of each page.
    pages
        Batch of PAGE_SCHEMA.
    """

    table_ids: NDArray[np.int64]
    field_ids: NDArray[np.int64]
    pages: pa.RecordBatch

    @property
    def keys(self) -> NDArray[np.int64]:
        """Table and field id of each page as one sortable number."""
        return (self.table_ids << 32) | self.field_ids

    def find(self, key: ChainKey) -> tuple[int, int]:
        """[start, stop) of the chain's pages in the segment."""
        keys, wanted = self.keys, (key[0] << 32) | key[1]
        return int(np.searchsorted(keys, wanted, "left")), int(np.searchsorted(keys, wanted, "right"))


def encode_segment(segment: Segment) -> bytes:
    """A segment as Parquet: zstd, delta encodings, no column statistics."""
    pages = segment.pages
    alloc = pages.column("alloc_len").to_numpy()
    actual = pages.column("actual_len").to_numpy()
    offset = pages.column("offset").to_numpy()
    entries, payload = pages.column("entry_count"), pages.column("payload_entries")
    kind = pages.column("kind").to_numpy()
    path = pages.column("path").indices.fill_null(-1).to_numpy()
    in_file = kind == PageKind.FILE
    follows = np.zeros(len(kind), dtype=bool)
    follows[1:] = in_file[1:] & (path[1:] == path[:-1]) & (offset[1:] == offset[:-1] + alloc[:-1])
    columns = {
        "table_id": pa.array(segment.table_ids),
        "field_id": pa.array(segment.field_ids.astype(np.int32)),
        "page_id": pages.column("page_id"),
        "entry_count": entries,
        "payload_entries": pc.if_else(pc.equal(entries, payload), pa.scalar(None, pa.int64()), payload),
        "kind": pages.column("kind"),
        "path": pages.column("path").cast(pa.string()),
        "offset": pa.array(offset, pa.int64(), mask=follows),
        "alloc_len": pa.array(alloc, pa.int32(), mask=alloc == _rounded(actual)),
        "actual_len": pages.column("actual_len"),
        "checksum": pages.column("checksum"),
        "data": pages.column("data"),
    }
    table = pa.table([columns[name] for name in _SEGMENT_SCHEMA.names], schema=_SEGMENT_SCHEMA)
    return _parquet(
        table,
        dictionary=["table_id", "field_id", "kind", "path", "entry_count"],
        encodings={"page_id": "DELTA_BINARY_PACKED", "offset": "DELTA_BINARY_PACKED", "actual_len": "PLAIN"},
    )


def decode_segment(data: bytes, key: str) -> Segment:
    """The segment that the bytes hold; their digest has been checked."""
    table = _read(data, _SEGMENT_SCHEMA, key)
    kind = table.column("kind").to_numpy()
    actual = table.column("actual_len").to_numpy()
    alloc_column = table.column("alloc_len")
    alloc = np.where(
        alloc_column.is_null().to_numpy(), _rounded(actual), alloc_column.fill_null(0).to_numpy()
    ).astype(np.int32)
    offsets = _offsets(table.column("offset"), alloc)
    entries = table.column("entry_count")
    path = table.column("path").combine_chunks().dictionary_encode()
    columns = {
        "page_id": table.column("page_id"),
        "entry_count": entries,
        "payload_entries": pc.coalesce(table.column("payload_entries"), entries),
        "kind": pa.array(kind),
        "path": path,
        "offset": pa.array(offsets),
        "alloc_len": pa.array(alloc),
        "actual_len": table.column("actual_len"),
        "checksum": table.column("checksum"),
        "data": table.column("data"),
    }
    pages = pa.RecordBatch.from_arrays(
        [_flat(columns[name]) for name in PAGE_SCHEMA.names], schema=PAGE_SCHEMA
    )
    return Segment(
        table.column("table_id").to_numpy(), table.column("field_id").to_numpy().astype(np.int64), pages
    )


def _offsets(stored: pa.ChunkedArray, alloc: NDArray[np.int32]) -> NDArray[np.int64]:
    """Offsets in full: a page without one lies behind the page before it."""
    missing = stored.is_null().to_numpy()
    values: NDArray[np.int64] = stored.fill_null(0).to_numpy()
    before = np.cumsum(alloc, dtype=np.int64) - alloc
    anchors = np.maximum.accumulate(np.where(missing, 0, np.arange(len(values))))
    offsets: NDArray[np.int64] = values[anchors] + before - before[anchors]
    return offsets


def _rounded(actual: NDArray[np.int32]) -> NDArray[np.int32]:
    return (actual + (PAGE_ALIGNMENT - 1)) // PAGE_ALIGNMENT * PAGE_ALIGNMENT


def encode_stats(stats: pa.RecordBatch) -> bytes:
    """Statistics of a segment's pages as Parquet, row for row."""
    return _parquet(pa.Table.from_batches([stats]), dictionary=True, encodings=None)


def decode_stats(data: bytes, key: str) -> pa.RecordBatch:
    """The statistics that the bytes hold; their digest has been checked."""
    table = _read(data, STATS_SCHEMA, key)
    return pa.RecordBatch.from_arrays([_flat(column) for column in table.columns], schema=STATS_SCHEMA)


def encode_manifest(pages: pa.RecordBatch, stats: pa.RecordBatch) -> bytes:
    """A page manifest: descriptors, whose ids are ordinals, and their statistics, side by side."""
    columns = {name: pages.column(name) for name in PAGE_SCHEMA.names if name != "page_id"}
    columns["path"] = columns["path"].cast(pa.string())
    columns.update({name: stats.column(name) for name in STATS_SCHEMA.names})
    return _parquet(pa.table(columns), dictionary=["path", "kind", "entry_count"], encodings=None)


def decode_manifest(data: bytes, key: str) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Descriptors (ids are ordinals from 0) and statistics of a page manifest."""
    fields = [field for field in PAGE_SCHEMA if field.name not in ("page_id", "path")]
    fields += [pa.field("path", pa.string()), *STATS_SCHEMA]
    table = _read(data, pa.schema(fields), key)
    ids = pa.array(np.arange(table.num_rows, dtype=np.int64))
    path = table.column("path").combine_chunks().dictionary_encode()
    given = {"page_id": ids, "path": path}
    pages = [given[name] if name in given else _flat(table.column(name)) for name in PAGE_SCHEMA.names]
    stats = [_flat(table.column(name)) for name in STATS_SCHEMA.names]
    return (
        pa.RecordBatch.from_arrays(pages, schema=PAGE_SCHEMA),
        pa.RecordBatch.from_arrays(stats, schema=STATS_SCHEMA),
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
    arrays = [pa.array(column, kind) for column, (_, kind) in zip(columns, _NODE_COLUMNS, strict=True)]
    table = pa.table(arrays, schema=_NODE_SCHEMA)
    return _parquet(table, dictionary=False, encodings=None, metadata=metadata)


def decode_nodes(data: bytes, key: str) -> list[Node]:
    """Nodes of a manifest part or root; the digest has been checked."""
    table = _read(data, _NODE_SCHEMA, key)
    columns = [table.column(name).to_pylist() for name in _NODE_SCHEMA.names]
    return [
        Node(level, (first_table, first_field), (last_table, last_field), *rest)
        for level, first_table, first_field, last_table, last_field, *rest in zip(*columns, strict=True)
    ]


def _flat(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _parquet(
    table: pa.Table,
    dictionary: bool | list[str],
    encodings: dict[str, str] | None,
    metadata: dict[bytes, bytes] | None = None,
) -> bytes:
    out = io.BytesIO()
    with pq.ParquetWriter(
        out,
        table.schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=dictionary,
        column_encoding=encodings,
        write_statistics=False,
        store_schema=False,
    ) as writer:
        writer.write_table(table)
        if metadata:
            writer.add_key_value_metadata(metadata)
    return out.getvalue()


def _read(data: bytes, schema: pa.Schema, key: str) -> pa.Table:
    try:
        table = pq.read_table(io.BytesIO(data), use_threads=False)
        return table.select(schema.names).cast(schema).replace_schema_metadata(table.schema.metadata)
    except (pa.ArrowException, KeyError, OSError, ValueError) as error:
        raise DamageError(
            f"{key} should be Parquet with columns {', '.join(schema.names)}: "
            f"{type(error).__name__}: {error}",
            key=key,
        ) from error
