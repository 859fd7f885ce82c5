"""A run of pages: consecutive pages of one chain, held as Arrow columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.model.columns import (
    no_numbers,
    number_column,
    numbers_of,
    optional_bytes,
    optional_flags,
    optional_numbers,
    optional_text,
    valid_of,
)
from spark_pages.model.ids import PageId
from spark_pages.model.page import BloomLocation, PageDescriptor, PageKind, PageStats

PAGE_SCHEMA = pa.schema(
    [
        pa.field("page_id", pa.int64(), nullable=False),
        pa.field("entry_count", pa.int64(), nullable=False),
        pa.field("payload_entries", pa.int64(), nullable=False),
        pa.field("kind", pa.int8(), nullable=False),
        pa.field("path", pa.dictionary(pa.int32(), pa.string())),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("alloc_len", pa.int32(), nullable=False),
        pa.field("actual_len", pa.int32(), nullable=False),
        pa.field("checksum", pa.int64(), nullable=False),
        pa.field("data", pa.binary()),
    ]
)
"""Columns of a page descriptor in memory; a path is null unless the page is in a file."""

STATS_SCHEMA = pa.schema(
    [
        pa.field("null_count", pa.int64()),
        pa.field("min", pa.binary()),
        pa.field("max", pa.binary()),
        pa.field("exact", pa.bool_()),
        pa.field("distinct", pa.int64()),
        pa.field("bloom_offset", pa.int64()),
        pa.field("bloom_length", pa.int32()),
        pa.field("bloom_checksum", pa.int64()),
    ]
)
"""Columns of page statistics, row for row beside the pages; null where nothing is known."""

OPTIONAL_STATS = ("distinct", "bloom_offset", "bloom_length", "bloom_checksum")
"""Statistics that objects of earlier releases lack."""

LOCATION_COLUMNS = ("kind", "path", "offset", "alloc_len", "data")
"""The columns that say where a page is; two descriptions of one page may differ in them."""


def no_stats(num_pages: int) -> pa.RecordBatch:
    """Statistics of pages of which nothing is known."""
    return pa.RecordBatch.from_arrays(
        [pa.nulls(num_pages, column.type) for column in STATS_SCHEMA], schema=STATS_SCHEMA
    )


def concat_batches(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """One batch that holds the rows of all, with one path dictionary."""
    if len(batches) == 1:
        return batches[0]
    if not batches:
        return empty_batch(schema)
    columns = [[batch.column(index) for batch in batches] for index in range(len(schema))]
    joined = [
        _join_paths(some) if pa.types.is_dictionary(field.type) else pa.concat_arrays(some)
        for field, some in zip(schema, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(joined, schema=schema)


def _join_paths(columns: Sequence[pa.DictionaryArray]) -> pa.DictionaryArray:
    """The paths of all columns, with one dictionary.

    Notes
    -----
    Arrow's own unification follows the indices at nulls too, which may be anything: it reads outside of
    its memory, and crashes.
    """
    numbers: dict[str, int] = {}
    indices, valid = [], []
    for column in columns:
        of_column = [numbers.setdefault(path, len(numbers)) for path in column.dictionary.to_pylist()]
        given = valid_of(column)
        followed = np.where(given, numbers_of(column.indices), 0)
        indices.append(np.array(of_column or [0], dtype=np.int32)[followed])
        valid.append(given)
    joined = number_column(np.concatenate(indices), pa.int32(), np.concatenate(valid))
    return pa.DictionaryArray.from_arrays(joined, optional_text(list(numbers)))


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    """A batch without rows."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, column.type) for column in schema], schema=schema)


@dataclass(frozen=True, eq=False)
class PageRun:
    """Consecutive pages of one chain.

    Attributes
    ----------
    pages
        Record batch of PAGE_SCHEMA.
    load_stats
        Gives the statistics, row for row, as a batch of STATS_SCHEMA; called once, or by threads that ask at
        the same time once each.
    base_position
        Position of the first page in the chain's base of a checkpoint, or -1 for pages added since.
    """

    pages: pa.RecordBatch
    load_stats: Callable[[], pa.RecordBatch] | None = None
    base_position: int = -1
    num_pages: int = field(init=False)
    num_rows: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_pages", self.pages.num_rows)
        object.__setattr__(self, "num_rows", int(self.prefix_entries[-1]) if self.pages.num_rows else 0)

    @classmethod
    def concat(cls, runs: Sequence[PageRun]) -> PageRun:
        """The pages of all runs as one run; statistics are joined when they are asked for."""
        if len(runs) == 1:
            return runs[0]
        batch = concat_batches([run.pages for run in runs], PAGE_SCHEMA)
        return cls(batch, lambda: concat_batches([run.stats for run in runs], STATS_SCHEMA))

    @cached_property
    def page_ids(self) -> NDArray[np.int64]:
        """Ids, shape (num_pages,)."""
        return self.numbers("page_id")

    @cached_property
    def prefix_entries(self) -> NDArray[np.uint64]:
        """Running sum of entry counts inside the run, shape (num_pages,)."""
        return np.cumsum(self.numbers("entry_count"), dtype=np.uint64)

    @cached_property
    def prefix_view(self) -> memoryview:
        """The same sums for `bisect`, which is quicker than numpy for one row."""
        return self.prefix_entries.data

    @property
    def stats(self) -> pa.RecordBatch:
        """Statistics, row for row beside the pages."""
        # Not `cached_property`: before Python 3.12 it holds one lock for all runs while one of them reads.
        loaded: pa.RecordBatch | None = self.__dict__.get("_loaded_stats")
        if loaded is None:
            loaded = no_stats(self.num_pages) if self.load_stats is None else self.load_stats()
            self.__dict__["_loaded_stats"] = loaded
        return loaded

    def numbers(self, column: str) -> NDArray[Any]:
        """One numeric column without a copy."""
        return numbers_of(self.pages.column(column))

    def paths(self) -> list[str]:
        """The path of each page; empty where there is none."""
        return _paths(self.pages.column("path"))

    def slice(self, start: int, stop: int) -> PageRun:
        """Pages [start, stop) of the run, without a copy."""
        if start == 0 and stop == self.num_pages:
            return self
        return PageRun(
            self.pages.slice(start, stop - start),
            None if self.load_stats is None else lambda: self.stats.slice(start, stop - start),
            self.base_position + start if self.base_position >= 0 else -1,
        )

    def descriptor(self, index: int) -> PageDescriptor:
        """The descriptor of one page.

        Notes
        -----
        3 µs, where `descriptors` would take 20 for one page.
        """
        page, entries, payload, kind, offset, alloc, actual = (view[index] for view in self._views)
        data = self.pages.column("data")[index].as_py() if kind else None
        return PageDescriptor(
            PageId(page),
            entries,
            payload,
            _KINDS[kind],
            "" if kind else self._path_names[self._path_numbers[index]],
            offset,
            alloc,
            actual,
            self._checksums[index],
            data,
        )

    @cached_property
    def _views(self) -> list[memoryview]:
        """Columns of numbers, from which one is taken more quickly than by numpy or Arrow."""
        return [self.numbers(name).data for name in _NUMBERS]

    @cached_property
    def _checksums(self) -> memoryview:
        return self.numbers("checksum").view(np.uint64).data

    @cached_property
    def _path_numbers(self) -> memoryview:
        return numbers_of(self.pages.column("path").indices).data

    @cached_property
    def _path_names(self) -> list[str]:
        names: list[str] = self.pages.column("path").dictionary.to_pylist()
        return names

    def taken(self, indices: NDArray[np.int64]) -> PageRun:
        """The pages at some indices of the run, in that order."""
        if len(indices) and int(indices[-1]) - int(indices[0]) + 1 == len(indices) and _counts_up(indices):
            return self.slice(int(indices[0]), int(indices[-1]) + 1)
        chosen = number_column(indices, pa.int64())
        load_stats = None if self.load_stats is None else lambda: self.stats.take(chosen)
        return PageRun(self.pages.take(chosen), load_stats)

    def descriptors(self, start: int = 0, stop: int | None = None) -> list[PageDescriptor]:
        """The descriptors of pages [start, stop): for pages that are about to be fetched.

        Notes
        -----
        About 2 µs a page.
        """
        pages = self.pages.slice(start, (self.num_pages if stop is None else stop) - start)
        columns = [numbers_of(pages.column(name)).tolist() for name in _NUMBERS]
        data = pages.column("data")
        return list(
            map(
                PageDescriptor,
                *columns[:3],
                [_KINDS[kind] for kind in columns[3]],
                _paths(pages.column("path")),
                *columns[4:7],
                numbers_of(pages.column("checksum")).view(np.uint64).tolist(),
                repeat(None) if data.null_count == len(data) else data.to_pylist(),
            )
        )


_NUMBERS = ("page_id", "entry_count", "payload_entries", "kind", "offset", "alloc_len", "actual_len")
_KINDS = tuple(PageKind)


def _counts_up(indices: NDArray[np.int64]) -> bool:
    return bool((indices[1:] - indices[:-1] == 1).all())


def _paths(column: pa.DictionaryArray) -> list[str]:
    """The path of each page; empty where there is none."""
    names = [*column.dictionary.to_pylist(), ""]
    given = valid_of(column)
    return [names[index] for index in np.where(given, numbers_of(column.indices), -1).tolist()]


class RowLocation:
    """The page that holds a row, and the row's offset inside it (seed 000).

    Attributes
    ----------
    page_position
        Position of the page in its chain.
    row_in_page
        Offset of the row in that page.

    Notes
    -----
    Built on the hot path, without validation; `page` makes the descriptor when it is asked for. A plain
    class, because a frozen dataclass takes 1.2 µs to build and this takes 0.2.
    """

    __slots__ = ("_index", "_run", "page_position", "row_in_page")

    def __init__(self, page_position: int, row_in_page: int, run: PageRun, index: int) -> None:
        self.page_position = page_position
        self.row_in_page = row_in_page
        self._run = run
        self._index = index

    @property
    def page(self) -> PageDescriptor:
        """The page's descriptor."""
        return self._run.descriptor(self._index)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RowLocation):
            return NotImplemented
        return (self.page_position, self.row_in_page) == (other.page_position, other.row_in_page)

    def __hash__(self) -> int:
        return hash((self.page_position, self.row_in_page))

    def __repr__(self) -> str:
        return f"RowLocation(page {self.page_position}, row {self.row_in_page} of it: {self.page!r})"


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


def page_batches(pages: Sequence[NewPage], ordinal: int = 0) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Descriptors and statistics of new pages as Arrow; the ids hold ordinals from `ordinal` on."""
    n = len(pages)
    paths = dict.fromkeys(page.path for page in pages if page.path is not None)
    index: dict[str | None, int] = {path: i for i, path in enumerate(paths)}
    placed = np.array([index.get(page.path, -1) for page in pages], dtype=np.int32)
    columns = [
        number_column(np.arange(ordinal, ordinal + n, dtype=np.int64), pa.int64()),
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
    ]
    return (
        pa.RecordBatch.from_arrays(columns, schema=PAGE_SCHEMA),
        pa.RecordBatch.from_arrays(stats, schema=STATS_SCHEMA),
    )


def _bloom_columns(blooms: Sequence[BloomLocation | None]) -> list[pa.Array]:
    if not any(blooms):
        return [no_numbers(len(blooms), STATS_SCHEMA.field(name).type) for name in OPTIONAL_STATS[1:]]
    given = np.array([bloom is not None for bloom in blooms])
    checksums = np.array([bloom.checksum if bloom else 0 for bloom in blooms], np.uint64).view(np.int64)
    return [
        optional_numbers([bloom.offset if bloom else None for bloom in blooms], pa.int64()),
        optional_numbers([bloom.length if bloom else None for bloom in blooms], pa.int32()),
        number_column(checksums, pa.int64(), given),
    ]
