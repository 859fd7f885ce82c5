"""The pages that a transaction lists itself: a few as values, many as Arrow columns.

To make Arrow columns of one page takes longer than all else that is done to commit it, and most small commits
are never looked at as columns. So each form is made of the other when it is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spark_pages.arrow.columns import (
    ends_of,
    no_numbers,
    number_column,
    numbers_of,
    optional_bytes,
    optional_flags,
    optional_numbers,
    optional_text,
    true_flags,
)
from spark_pages.model.page import BloomLocation, PageKind, PageStats
from spark_pages.model.page_schema import BLOOM_STATS, PAGE_SCHEMA, STATS_SCHEMA, concat_batches, have_nan

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


class AddedPages:
    """Pages, with ordinals from 0, and their statistics. Immutable.

    Parameters
    ----------
    pages, stats
        Batches of PAGE_SCHEMA, whose ids are ordinals, and of STATS_SCHEMA.

    Attributes
    ----------
    num_pages
        How many there are.
    few
        The pages as values; None where they are more than `FEW_PAGES`, or came as columns.
    """

    __slots__ = ("_batches", "few", "num_pages")

    def __init__(self, pages: pa.RecordBatch, stats: pa.RecordBatch) -> None:
        self._batches: tuple[pa.RecordBatch, pa.RecordBatch] | None = (pages, stats)
        self.few: tuple[NewPage, ...] | None = None
        self.num_pages: int = pages.num_rows

    @classmethod
    def of(cls, pages: Sequence[NewPage]) -> AddedPages:
        """Pages that are there as values."""
        if len(pages) > FEW_PAGES:
            return cls(*page_batches(pages))
        own = cls.__new__(cls)
        own._batches = None
        own.few = tuple(pages)
        own.num_pages = len(pages)
        return own

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return (AddedPages.of, (self.few,)) if self.few is not None else (AddedPages, self.batches)

    def __repr__(self) -> str:
        return f"AddedPages({self.num_pages} pages)"

    @property
    def batches(self) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Descriptors, whose ids are ordinals, and statistics."""
        if self._batches is None:
            self._batches = page_batches(self.few or ())
        return self._batches

    @property
    def nbytes(self) -> int:
        """Bytes of memory that they take, about; the same whether they are cut into runs or not."""
        return memory_bytes(self._either)

    @property
    def inline_bytes(self) -> int:
        """Bytes of those that ride in the commit, constants among them."""
        return inline_bytes(self._either)

    @property
    def _either(self) -> Sequence[NewPage] | pa.RecordBatch:
        return self.batches[0] if self.few is None else self.few

    @property
    def have_nan(self) -> bool:
        """Whether one of them says that some of its values are NaN."""
        if self.few is not None:
            return any(page.stats.nan for page in self.few)
        return have_nan(self.batches[1])

    def paths(self) -> list[str]:
        """Return the page files that hold these pages."""
        if self.few is not None:
            return list(dict.fromkeys(page.path for page in self.few if page.path))
        named: list[str | None] = self.batches[0].column("path").dictionary.to_pylist()
        return [path for path in named if path]

    def stored_bytes(self, start: int, stop: int) -> int:
        """Bytes of header and payload of pages [start, stop)."""
        if self.few is not None:
            return sum([page.actual_len for page in self.few[start:stop]])
        return int(numbers_of(self.batches[0].column("actual_len"))[start:stop].sum())

    def and_pages(self, more: Sequence[NewPage]) -> AddedPages:
        """Return these pages followed by more."""
        if not more:
            return self
        if self.few is not None:
            return AddedPages.of((*self.few, *more))
        pages, stats = self.batches
        more_pages, more_stats = page_batches(more)
        stats = concat_batches([stats, more_stats], STATS_SCHEMA)
        return AddedPages(concat_batches([pages, more_pages], PAGE_SCHEMA), stats)


NO_PAGES = AddedPages.of(())
