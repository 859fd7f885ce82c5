"""A run of pages: consecutive pages of one chain as Arrow columns, and their keys in caches."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from copy import copy
from functools import cached_property
from itertools import accumulate, groupby, repeat
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from spark_pages.arrow.columns import number_column, numbers_of, valid_of
from spark_pages.display.text import count
from spark_pages.model.added_pages import FEW_PAGES, NewPage, memory_bytes, page_batches
from spark_pages.model.ids import PageId
from spark_pages.model.immutable import read_only
from spark_pages.model.page import PageDescriptor, PageKind
from spark_pages.model.page_schema import PAGE_SCHEMA, STATS_SCHEMA, concat_batches, no_stats


class PageRun:
    """Consecutive pages of one chain. Immutable.

    Parameters
    ----------
    pages
        Record batch of PAGE_SCHEMA.
    load_stats
        Gives the statistics, row for row, as a batch of STATS_SCHEMA; called once, or by threads that ask at
        the same time once each.
    base_position
        Position of the first page in the chain's base of a checkpoint, or -1 for pages added since.

    Attributes
    ----------
    num_pages, num_rows
        What it holds.
    few
        The pages as values, where a small commit brought them; they become a batch when it is asked for.

    Notes
    -----
    A plain class, because small commits make one for each chain, and a frozen dataclass takes long to build.
    Fields are set in `__dict__`, where Python lets nobody set them afterwards.
    """

    def __init__(
        self,
        pages: pa.RecordBatch,
        load_stats: Callable[[], pa.RecordBatch] | None = None,
        base_position: int = -1,
    ) -> None:
        fields = self.__dict__
        fields["_batch"] = pages
        fields["few"] = None
        fields["load_stats"] = load_stats
        fields["base_position"] = base_position
        fields["num_pages"] = pages.num_rows
        fields["num_rows"] = int(self.prefix_entries[-1]) if pages.num_rows else 0

    @classmethod
    def of_few(cls, ids: Sequence[int], few: tuple[NewPage, ...]) -> PageRun:
        """Pages that are there as values, and the ids that they have."""
        run = cls.__new__(cls)
        fields = run.__dict__
        fields["_batch"] = None
        fields["_ids"] = ids
        fields["few"] = few
        fields["load_stats"] = run._small_stats
        fields["base_position"] = -1
        fields["num_pages"] = len(few)
        fields["num_rows"] = sum([page.entry_count for page in few])
        return run

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"Cannot set {name!r} of a PageRun: it is immutable.")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"Cannot delete {name!r} of a PageRun: it is immutable.")

    few: tuple[NewPage, ...] | None
    load_stats: Callable[[], pa.RecordBatch] | None
    base_position: int
    num_pages: int
    num_rows: int
    _batch: pa.RecordBatch | None
    _ids: Sequence[int] = ()
    _ends_of: tuple[NDArray[np.uint64], int] | None = None
    """Of a slice: the running sums of what it is a slice of, and the rows there before it."""
    _slice_of: tuple[PageRun, int] | None = None
    """Of a slice, and of slices of it: the run that was sliced first, and the pages there before it."""

    def _small_stats(self) -> pa.RecordBatch:
        return page_batches(self.few or (), self._ids)[1]

    def __repr__(self) -> str:
        return f"PageRun({count(self.num_pages, 'page')}, {count(self.num_rows, 'row')})"

    @property
    def pages(self) -> pa.RecordBatch:
        """Record batch of PAGE_SCHEMA."""
        if self._batch is None:
            self.__dict__["_batch"] = page_batches(self.few or (), self._ids)[0]
        return self._batch

    @property
    def ids(self) -> Sequence[int]:
        """Ids as Python numbers: for runs of few pages."""
        return self._ids if self.few is not None else self.page_ids.tolist()

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it takes, about."""
        return memory_bytes(self.pages if self.few is None else self.few)

    @classmethod
    def concat(cls, runs: Sequence[PageRun]) -> PageRun:
        """Concatenate runs into one. Statistics are joined on first use."""
        if len(runs) == 1:
            return runs[0]
        runs = _batch_small_runs(_join_small_runs(runs))
        if len(runs) == 1:
            return runs[0]
        batch = concat_batches([run.pages for run in runs], PAGE_SCHEMA)
        return cls(batch, lambda: concat_batches([run.stats for run in runs], STATS_SCHEMA))

    @cached_property
    def page_ids(self) -> NDArray[np.int64]:
        """Ids, shape (num_pages,)."""
        ids = np.array(self._ids, np.int64) if self.few is not None else self.numbers("page_id")
        return read_only(ids)

    @cached_property
    def prefix_entries(self) -> NDArray[np.uint64]:
        """Running sum of entry counts inside the run, shape (num_pages,)."""
        if self._ends_of is not None:
            ends, before = self._ends_of
            return read_only(ends - np.uint64(before))
        return read_only(np.cumsum(self.numbers("entry_count"), dtype=np.uint64))

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

    def with_base_position(self, base_position: int) -> PageRun:
        """Return the same pages at this position of their chain's base."""
        moved = copy(self)
        moved.__dict__["base_position"] = base_position
        return moved

    def numbers(self, column: str) -> NDArray[Any]:
        """One numeric column without a copy, read-only."""
        return read_only(numbers_of(self.pages.column(column)))

    def paths(self) -> list[str]:
        """Return the path of each page, or an empty string for a page in no file."""
        return _paths(self.pages.column("path"))

    def slice(self, start: int, stop: int) -> PageRun:
        """Pages [start, stop) of the run, as far as it has them: no copy, and no loop over them."""
        if start == 0 and stop == self.num_pages:
            return self
        if self.few is not None:
            return PageRun.of_few(self._ids[start:stop], self.few[start:stop])
        stop = min(stop, self.num_pages)
        start = min(start, stop)
        run = PageRun.__new__(PageRun)
        fields = run.__dict__
        fields["_batch"] = self.pages.slice(start, stop - start)
        fields["few"] = None
        whole, before = self._slice_of or (self, 0)  # a slice of a slice: thousands of splices make those
        skipped, taken = before + start, stop - start
        fields["_slice_of"] = (whole, skipped)
        fields["load_stats"] = None if whole.load_stats is None else lambda: whole.stats.slice(skipped, taken)
        fields["base_position"] = self.base_position + start if self.base_position >= 0 else -1
        fields["num_pages"] = stop - start
        ends, before = self._ends
        first = int(ends[start - 1]) if start else before
        fields["num_rows"] = int(ends[stop - 1]) - first if stop > start else 0
        fields["_ends_of"] = (ends[start:stop], first)
        fields["page_ids"] = self.page_ids[start:stop]
        return run

    @property
    def _ends(self) -> tuple[NDArray[np.uint64], int]:
        """Running sums, and how much too large all of them are."""
        return (self.prefix_entries, 0) if self._ends_of is None else self._ends_of

    def rows_before(self, index: int) -> int:
        """Rows before a page of the run, or all of them."""
        if self.few is not None:
            return sum([page.entry_count for page in self.few[:index]])
        ends, before = self._ends
        return int(ends[index - 1]) - before if index else 0

    def overlapping(self, first: int, last: int) -> tuple[int, int]:
        """Pages [start, stop) of the run that may touch rows [first, last] of it, empty pages included.

        Notes
        -----
        A binary search; of runs of few pages, all of them.
        """
        if self.few is not None:
            return 0, self.num_pages
        ends, before = self._ends
        start = int(np.searchsorted(ends, np.uint64(max(first, 0) + before), side="left"))
        stop = int(np.searchsorted(ends, np.uint64(max(last, 0) + before), side="right")) + 1
        return start, max(start, min(stop, self.num_pages))

    def contained_in(self, first: int, last: int) -> tuple[int, int]:
        """Pages [start, stop) of the run that begin in rows [first, last) of it, and end there.

        Notes
        -----
        A binary search; of runs of few pages, their sums.
        """
        if self.few is not None:
            ends: Sequence[int] = list(accumulate(page.entry_count for page in self.few))
            before = 0
        else:
            ends, before = self._ends[0].data, self._ends[1]
        start = bisect_left(ends, first + before) + 1 if first > 0 else 0
        stop = min(bisect_right(ends, last + before), bisect_left(ends, last + before) + 1)
        return start, stop

    def descriptor(self, index: int) -> PageDescriptor:
        """Return the descriptor of one page.

        Notes
        -----
        3 µs, where `descriptors` would take 20 for one page.
        """
        if self.few is not None:
            new = self.few[index]
            return PageDescriptor(
                PageId(self._ids[index]), new.entry_count, new.payload_entries, new.kind, new.path or "",
                new.offset, new.alloc_len, new.actual_len, new.checksum, new.data,
            )  # fmt: skip
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

    def take(self, indices: NDArray[np.int64]) -> PageRun:
        """Return the pages at some indices of the run, in that order."""
        if len(indices) and int(indices[-1]) - int(indices[0]) + 1 == len(indices) and _counts_up(indices):
            return self.slice(int(indices[0]), int(indices[-1]) + 1)
        chosen = number_column(indices, pa.int64())
        load_stats = None if self.load_stats is None else lambda: self.stats.take(chosen)
        return PageRun(self.pages.take(chosen), load_stats)

    def descriptors(self, start: int = 0, stop: int | None = None) -> list[PageDescriptor]:
        """Return the descriptors of pages [start, stop), for pages about to be fetched.

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


def _join_small_runs(runs: Sequence[PageRun]) -> Sequence[PageRun]:
    """Join consecutive runs of few pages, because one batch for each run is slow."""
    if not any(run.few is not None for run in runs):
        return runs
    joined: list[PageRun] = []
    for is_few, group in groupby(runs, key=lambda run: run.few is not None):
        same = list(group)
        if not is_few or len(same) == 1:
            joined += same
            continue
        ids = [number for run in same for number in run.ids]
        few = tuple(page for run in same for page in run.few or ())
        joined.append(PageRun.of_few(ids, few) if len(few) <= FEW_PAGES else _of_many(ids, few))
    return joined


def _batch_small_runs(runs: Sequence[PageRun]) -> Sequence[PageRun]:
    """Move runs of few pages into slices of one batch, because one batch for each run is slow."""
    some = [run for run in runs if run.few is not None]
    if len(some) < 2:
        return runs
    whole = _of_many(
        [number for run in some for number in run.ids], [p for run in some for p in run.few or ()]
    )
    ends = list(accumulate(run.num_pages for run in some))
    slices = iter([whole.slice(end - run.num_pages, end) for run, end in zip(some, ends, strict=True)])
    return [run if run.few is None else next(slices) for run in runs]


def _of_many(ids: Sequence[int], pages: Sequence[NewPage]) -> PageRun:
    batch, stats = page_batches(pages, ids)
    return PageRun(batch, lambda: stats)


def _counts_up(indices: NDArray[np.int64]) -> bool:
    return bool((indices[1:] - indices[:-1] == 1).all())


def _paths(column: pa.DictionaryArray) -> list[str]:
    """Return the path of each page, or an empty string for a page in no file."""
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


PageKey: TypeAlias = tuple[str, int, int, int, int, int]
"""Path, offset, reserved bytes, used bytes, checksum and payload entries.

The key of a file page is also all that is needed to read and check it. Two descriptions of one page that
disagree are two pages, so a wrong one is found out even while the right one is cached. Pages without a file
have an empty path, which no key of an object is, and a number of their own for the offset.
"""


def key_of(page: PageDescriptor) -> PageKey:
    """Return the key of a page of any kind."""
    if page.kind is PageKind.FILE:
        return (
            page.disk_path,
            page.offset,
            page.alloc_len,
            page.actual_len,
            page.checksum,
            page.payload_entries,
        )
    if page.kind is PageKind.INLINE:
        return ("", page.page_id, 0, 0, page.checksum, page.payload_entries)
    # A constant has no checksum and, before its commit, no lasting id either: its bytes tell it.
    return ("", -1, 0, 0, xxhash.xxh3_64_intdigest(page.data or b""), page.entry_count)


def keys_of_run(run: PageRun) -> tuple[list[PageKey], dict[PageKey, PageDescriptor]]:
    """Return the keys of all pages of a run, and the descriptors of those in no file.

    Notes
    -----
    About 0.5 µs a page; descriptors would take 3.
    """
    names = ("offset", "alloc_len", "actual_len", "checksum", "payload_entries")
    columns = [run.paths(), *(run.numbers(name).tolist() for name in names)]
    columns[4] = run.numbers("checksum").view("uint64").tolist()
    keys: list[PageKey] = list(zip(*columns, strict=True))
    if run.numbers("kind").any():
        loose = {}
        for index in run.numbers("kind").nonzero()[0].tolist():
            page = run.descriptor(index)
            keys[index] = key_of(page)
            loose[keys[index]] = page
        return keys, loose
    return keys, {}
