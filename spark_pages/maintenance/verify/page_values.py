"""The pages themselves against their descriptors: header, checksum, padding, entries, type, statistics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_pages.arrow.columns import nulls_of, valid_of
from spark_pages.arrow.types import cast_to_column, storage_of
from spark_pages.catalog.evolution import stored_types
from spark_pages.errors import (
    DamageError,
    ObjectNotFoundError,
    SparkPagesError,
    StorageError,
    UnsupportedFormatError,
)
from spark_pages.format.bloom import BLOCK_BYTES, Blooms, bloom_checksum
from spark_pages.format.statistics import bounds_are_valid
from spark_pages.format.value_hash import hash_values
from spark_pages.io import PageHandler, decode_page, page_stats, stats_of_pages
from spark_pages.io.bloom_reader import has_bloom
from spark_pages.io.file_writer import padding_of
from spark_pages.maintenance.verify.faults import FaultGroup, FaultGroups, FaultKind
from spark_pages.model.chain_tree import ChainKey
from spark_pages.model.ids import LIVENESS
from spark_pages.model.page import PageDescriptor, PageKind, PageStats
from spark_pages.model.page_schema import STATS_SCHEMA
from spark_pages.model.run import PageRun
from spark_pages.progress import advance
from spark_pages.storage.store import ObjectStore

_PROVABLE = pa.schema([STATS_SCHEMA.field(name) for name in ("null_count", "min", "max", "exact", "nan")])
"""The statistics that are true or not; the others are estimates and places."""
_ERRORS = (DamageError, ObjectNotFoundError, StorageError)
_KINDS: dict[type[SparkPagesError], FaultKind] = {
    ObjectNotFoundError: FaultKind.MISSING,
    StorageError: FaultKind.UNREADABLE,
    UnsupportedFormatError: FaultKind.NEWER,
}


@dataclass(frozen=True, eq=False, slots=True)
class PagesToRead:
    """Some pages that should be read, and what must be true of them.

    Attributes
    ----------
    run
        Their descriptors and statistics.
    chain
        Whose they are.
    holder
        The object that lists them.
    column
        What the table says of the column; None where the table is not known.
    """

    run: PageRun
    chain: ChainKey
    holder: str
    column: pa.Field | None


@dataclass(frozen=True, slots=True)
class PagesRead:
    """How many pages were read, of how many bytes, and what is wrong with them."""

    pages: int = 0
    bytes: int = 0
    troubles: tuple[FaultGroup, ...] = ()

    @classmethod
    def sum(cls, parts: Iterable[PagesRead]) -> PagesRead:
        """Add the counts of several readers."""
        every, troubles = list(parts), FaultGroups()
        for each in every:
            troubles.merge(each.troubles)
        return cls(sum(each.pages for each in every), sum(each.bytes for each in every), tuple(troubles))


class PageReader(Protocol):
    """Reads the pages that a survey chooses: at once, or later and elsewhere."""

    def read(self, some: PagesToRead) -> None:
        """Read these pages now or later."""

    def finish(self) -> PagesRead:
        """All pages are read; what was found."""


class PageValues:
    """Reads pages at once, in this process.

    Parameters
    ----------
    store
        Where the page files are.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._handler = PageHandler(store, padding=True, decoded_bytes=0, compressed_bytes=0)
        self._troubles = FaultGroups()
        self._pages = 0

    def read(self, some: PagesToRead) -> None:
        """Read pages, and compare them with their descriptors."""
        run, column = some.run, some.column
        pages = run.descriptors(0, run.num_pages)
        self._pages += len(pages)
        kinds = run.numbers("kind")
        stored = np.flatnonzero(kinds != PageKind.CONSTANT)
        found = self._fetch([pages[index] for index in stored.tolist()], some)
        values = {int(index): array for index, array in zip(stored, found, strict=True) if array is not None}
        for index in np.flatnonzero(kinds == PageKind.CONSTANT).tolist():
            one = self._read_constant(pages[index], some)
            if one is not None:
                values[index] = one
        for index, array in list(values.items()):
            if column is not None and not _may_hold(column, array.type):
                what = f"holds values of type {array.type} in a column of type {column.type}"
                self._add(FaultKind.CONTRADICTION, what, pages[index], some)
                del values[index]
            elif column is not None and not _fits(column, array):
                what = f"holds values of type {array.type} that do not fit its column of type {column.type}"
                self._add(FaultKind.CONTRADICTION, what, pages[index], some)
            elif some.chain[1] == LIVENESS and pc.any(pc.invert(array)).as_py():
                what = "holds an entry that is neither true, as of a live row, nor null, as of a dead one"
                self._add(FaultKind.CONTRADICTION, what, pages[index], some)
            elif column is not None and not column.nullable and nulls_of(array):
                what = "holds nulls in a column that is not nullable"
                self._add(FaultKind.CONTRADICTION, what, pages[index], some)
        self._check_stats(some, pages, values)
        self._check_blooms(some, pages, values)
        advance(len(pages), int(run.numbers("actual_len")[stored].astype(np.int64).sum()))

    def finish(self) -> PagesRead:
        """All that was read."""
        return PagesRead(self._pages, self._handler.stats().bytes_read, tuple(self._troubles))

    def _fetch(self, pages: list[PageDescriptor], some: PagesToRead) -> list[pa.Array | None]:
        try:
            return [batch.column("data") for batch in self._handler.get_pages(pages, admit=False)]
        except _ERRORS:
            return [self._fetch_one(page, some) for page in pages]

    def _fetch_one(self, page: PageDescriptor, some: PagesToRead) -> pa.Array | None:
        try:
            return self._handler.get_page(page, admit=False).column("data")
        except _ERRORS as error:
            self._add_error(error, page, some)
            return None

    def _read_constant(self, page: PageDescriptor, some: PagesToRead) -> pa.Array | None:
        where = page.where
        try:
            batch = decode_page(page.data or b"", where=where, expected_checksum=None, expected_entries=1)
        except _ERRORS as error:
            self._add_error(error, page, some)
            return None
        return batch.column("data")

    def _check_stats(
        self, some: PagesToRead, pages: list[PageDescriptor], values: dict[int, pa.Array]
    ) -> None:
        run = some.run
        known = run.stats.column("null_count").is_valid().to_numpy(False)
        order = [index for index in values if known[index]]
        if not order:
            return
        told = run.stats.take(pa.array(order)).select(_PROVABLE.names)
        found = _as_batch(_stats([values[index] for index in order]), order, pages)
        if found.equals(told):
            return
        for position, index in enumerate(order):
            if found.slice(position, 1).equals(told.slice(position, 1)):
                continue
            row = told.slice(position, 1).to_pylist()[0]
            nulls = found.column("null_count")[position].as_py()
            claimed = PageStats(
                row["null_count"], row["min"], row["max"], bool(row["exact"]), nan=bool(row["nan"])
            )
            if claimed.null_count != nulls or not bounds_are_valid(values[index], claimed):
                what = "holds other values than its statistics say"
                self._troubles.add(
                    FaultKind.CONTRADICTION, some.holder, some.chain, what, [pages[index].page_id]
                )

    def _check_blooms(
        self, some: PagesToRead, pages: list[PageDescriptor], values: dict[int, pa.Array]
    ) -> None:
        run, troubles = some.run, self._troubles
        flaws = check_blooms(self._store, run, values)
        behind = "holds other bytes than zeros behind bloom filters"
        for what, wrong in (("holds damaged bloom filters", flaws.damaged), (behind, flaws.littered)):
            for key in {pages[index].disk_path for index in np.flatnonzero(wrong).tolist()}:
                here = wrong & np.array([page.disk_path == key for page in pages])
                troubles.add(FaultKind.BLOOM, key, some.chain, what, run.page_ids[here])
        what = "names bloom filters that deny values of their pages"
        troubles.add(FaultKind.CONTRADICTION, some.holder, some.chain, what, run.page_ids[flaws.false])

    def _add_error(self, error: SparkPagesError, page: PageDescriptor, some: PagesToRead) -> None:
        kind = _KINDS.get(type(error), FaultKind.DAMAGED)
        if kind is FaultKind.MISSING:
            self._add(kind, "is missing", page, some)
        else:
            self._add(kind, "holds pages that cannot be read", page, some, error.message)

    def _add(
        self, kind: FaultKind, what: str, page: PageDescriptor, some: PagesToRead, detail: str = ""
    ) -> None:
        key = page.disk_path if page.kind is PageKind.FILE else some.holder
        self._troubles.add(kind, key, some.chain, what, [page.page_id], detail)


def _may_hold(column: pa.Field, kind: pa.DataType) -> bool:
    return storage_of(kind) in map(storage_of, (column.type, *stored_types(column)))


def _fits(column: pa.Field, array: pa.Array) -> bool:
    """Whether values of a page that was written under another type are values of the column."""
    same = storage_of(array.type) == storage_of(column.type)
    return same or cast_to_column(array, column.type) is not None


def _stats(arrays: list[pa.Array]) -> list[PageStats]:
    kind = arrays[0].type
    if any(array.type != kind for array in arrays):  # the column has got another type
        return [page_stats(array) for array in arrays]
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind) or pa.types.is_nested(kind):
        return [page_stats(array) for array in arrays]
    bounds = np.cumsum([0, *(len(array) for array in arrays)])
    return stats_of_pages(pa.concat_arrays(arrays), bounds)


def _as_batch(stats: list[PageStats], order: list[int], pages: list[PageDescriptor]) -> pa.RecordBatch:
    nulls = [
        (pages[index].entry_count if each.null_count else 0)
        if pages[index].kind is PageKind.CONSTANT
        else each.null_count
        for index, each in zip(order, stats, strict=True)
    ]
    columns = [
        pa.array(nulls, pa.int64()),
        pa.array([each.min for each in stats], pa.binary()),
        pa.array([each.max for each in stats], pa.binary()),
        pa.array([each.exact for each in stats], pa.bool_()),
        pa.array([each.nan or None for each in stats], pa.bool_()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_PROVABLE)


Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False, slots=True)
class BloomFlaws:
    """What is wrong with the filters of some pages.

    Attributes
    ----------
    damaged, false, littered : bool, shape (n_pages,)
        Pages whose filter is damaged, whose filter denies a value that they hold, and behind whose filter is
        what is neither a filter nor zeros.
    """

    damaged: Flags
    false: Flags
    littered: Flags


def check_blooms(store: ObjectStore, run: PageRun, values: Mapping[int, pa.Array]) -> BloomFlaws:
    """Describe the faults of the bloom filters of a run, and of the bytes after them.

    Parameters
    ----------
    values
        Payloads of pages, by their index in the run; only these are looked at.

    Notes
    -----
    A request for each stretch of filters that follow one another.
    """
    flaws = BloomFlaws(*np.zeros((3, run.num_pages), dtype=bool))
    named = valid_of(run.stats.column("bloom_offset")) | valid_of(run.stats.column("bloom_length"))
    readable = has_bloom(run)
    by_path: dict[str, list[int]] = {}
    for index in values:
        if readable[index]:
            by_path.setdefault(run.pages.column("path")[index].as_py(), []).append(index)
        elif named[index]:
            flaws.damaged[index] = True
    for path, indices in by_path.items():
        for index, read in zip(indices, _read(store, path, run, indices), strict=True):
            flaws.damaged[index] = read.bloom is None
            flaws.littered[index] = not _clean(read.behind)
            hashes = None if read.bloom is None else hash_values(values[index])
            if read.bloom is not None and hashes is not None:
                flaws.false[index] = not Blooms.of([read.bloom]).contain_all(hashes)
    return flaws


class _Read(NamedTuple):
    """A filter, None if it is damaged, and what lies behind it up to the next page."""

    bloom: bytes | None
    behind: bytes


def _read(store: ObjectStore, path: str, run: PageRun, indices: list[int]) -> list[_Read]:
    """Read the filters of pages in one file, and each that is damaged once more."""
    found = _read_once(store, path, run, indices)
    for place, index in enumerate(indices):
        if found[place].bloom is None:
            (found[place],) = _read_once(store, path, run, [index])
    return found


def _read_once(store: ObjectStore, path: str, run: PageRun, indices: list[int]) -> list[_Read]:
    """Read the bloom filters of pages in one file, and the bytes after those without a successor."""
    places = [
        tuple(run.stats.column(f"bloom_{name}")[index].as_py() for name in ("offset", "length", "checksum"))
        for index in indices
    ]
    starts = {offset for offset, _, _ in places}
    ends = [offset + length for offset, length, _ in places]
    behind = {end: padding_of(end) for end in ends if end not in starts and padding_of(end)}
    wanted = [(offset, length) for offset, length, _ in places]
    try:
        answers = [bytes(found) for found in store.get_ranges(path, [*wanted, *behind.items()])]
    except (DamageError, ObjectNotFoundError):
        if len(indices) == 1:
            return [_Read(None, b"")]
        return [found for index in indices for found in _read_once(store, path, run, [index])]
    rests = dict(zip(behind, answers[len(places) :], strict=True))
    return [
        _Read(
            bloom if bloom_checksum(bloom) == checksum & 0xFFFF_FFFF_FFFF_FFFF else None, rests.get(end, b"")
        )
        for bloom, end, (_, _, checksum) in zip(answers, ends, places, strict=False)
    ]


def _clean(behind: bytes) -> bool:
    """Whether bytes behind a filter are zeros and filters: of these each block has all of its words, or none.

    Notes
    -----
    Filters may lie there that nobody names any more.
    """
    if len(behind) % BLOCK_BYTES:
        return not any(behind)
    words = np.frombuffer(behind, "<u4").reshape(-1, BLOCK_BYTES // 4) != 0
    return bool((words.all(axis=1) == words.any(axis=1)).all())
