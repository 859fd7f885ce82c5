"""A page that a transaction brings, before it has an id; many of them as Arrow batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spark_pages.arrow.columns import (
    ends_of,
    no_numbers,
    number_column,
    optional_bytes,
    optional_flags,
    optional_numbers,
    optional_text,
    true_flags,
)
from spark_pages.model.page import BloomLocation, PageKind, PageStats
from spark_pages.model.page_schema import BLOOM_STATS, PAGE_SCHEMA, STATS_SCHEMA

FEW_PAGES = 64
"""So many pages and no more are kept as values."""

_PAGE_BYTES = 120
_DATA = PAGE_SCHEMA.get_field_index("data")


@dataclass(frozen=True, slots=True)
class NewPage:
    """A page that a transaction has written or holds inline; its id is formed at replay."""

    entry_count: int
    payload_entries: int
    kind: PageKind
    path: str | None
    offset: int
    alloc_len: int
    actual_len: int
    checksum: int
    data: bytes | None
    stats: PageStats

    def __reduce__(self) -> tuple[type[NewPage], tuple[object, ...]]:
        return NewPage, (  # thousands come from a Spark task; by default that takes longer
            self.entry_count, self.payload_entries, self.kind, self.path, self.offset, self.alloc_len,
            self.actual_len, self.checksum, self.data, self.stats,
        )  # fmt: skip


def inline_bytes(pages: Sequence[NewPage] | pa.RecordBatch) -> int:
    """Bytes of the pages that ride in a commit, constants among them."""
    if not isinstance(pages, pa.RecordBatch):
        return sum([len(page.data) for page in pages if page.data is not None])
    data = pages.column(_DATA)
    if data.null_count == len(data):
        return 0
    ends = ends_of(data)
    return int(ends[-1] - ends[0])


def memory_bytes(pages: Sequence[NewPage] | pa.RecordBatch) -> int:
    """Bytes of memory that pages and their statistics take, about."""
    count = pages.num_rows if isinstance(pages, pa.RecordBatch) else len(pages)
    return _PAGE_BYTES * count + inline_bytes(pages)


def page_batches(
    pages: Sequence[NewPage], ids: Sequence[int] | None = None
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Descriptors and statistics of new pages as Arrow, with these ids, or with ordinals from 0 on."""
    paths = dict.fromkeys(page.path for page in pages if page.path is not None)
    index: dict[str | None, int] = {path: i for i, path in enumerate(paths)}
    placed = np.array([index.get(page.path, -1) for page in pages], dtype=np.int32)
    columns = [
        number_column(np.array(range(len(pages)) if ids is None else ids, dtype=np.int64), pa.int64()),
        optional_numbers([page.entry_count for page in pages], pa.int64()),
        optional_numbers([page.payload_entries for page in pages], pa.int64()),
        optional_numbers([int(page.kind) for page in pages], pa.int8()),
        pa.DictionaryArray.from_arrays(
            number_column(placed, pa.int32(), placed >= 0), optional_text(list(paths))
        ),
        optional_numbers([page.offset for page in pages], pa.int64()),
        optional_numbers([page.alloc_len for page in pages], pa.int32()),
        optional_numbers([page.actual_len for page in pages], pa.int32()),
        number_column(np.array([page.checksum for page in pages], np.uint64).view(np.int64), pa.int64()),
        optional_bytes([page.data for page in pages]),
    ]
    stats = [
        optional_numbers([page.stats.null_count for page in pages], pa.int64()),
        optional_bytes([page.stats.min for page in pages]),
        optional_bytes([page.stats.max for page in pages]),
        optional_flags([page.stats.exact for page in pages]),
        optional_numbers([page.stats.distinct for page in pages], pa.int64()),
        *_bloom_columns([page.stats.bloom for page in pages]),
        true_flags([page.stats.nan for page in pages]),
    ]
    return (
        pa.RecordBatch.from_arrays(columns, schema=PAGE_SCHEMA),
        pa.RecordBatch.from_arrays(stats, schema=STATS_SCHEMA),
    )


def _bloom_columns(blooms: Sequence[BloomLocation | None]) -> list[pa.Array]:
    if not any(blooms):
        return [no_numbers(len(blooms), STATS_SCHEMA.field(name).type) for name in BLOOM_STATS]
    given = np.array([bloom is not None for bloom in blooms])
    checksums = np.array([bloom.checksum if bloom else 0 for bloom in blooms], np.uint64).view(np.int64)
    return [
        optional_numbers([bloom.offset if bloom else None for bloom in blooms], pa.int64()),
        optional_numbers([bloom.length if bloom else None for bloom in blooms], pa.int32()),
        number_column(checksums, pa.int64(), given),
    ]
