"""Pages against their descriptors: place, header, checksum, padding, entries, type, statistics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_pages.catalog.widening import stored_types
from spark_pages.errors import DamageError, ObjectNotFoundError, SparkPagesError, StorageError
from spark_pages.io import PageHandler, decode_page, page_stats, stats_of_pages
from spark_pages.log.checkpoint.segment import Segment
from spark_pages.model.chain import ChainKey, LazyRun, Piece
from spark_pages.model.ids import format_page_id, page_version
from spark_pages.model.page import PAGE_ALIGNMENT, PAGE_HEADER_SIZE, PageDescriptor, PageKind, PageStats
from spark_pages.model.run import STATS_SCHEMA, PageRun
from spark_pages.storage.keys import is_key
from spark_pages.storage.store import ObjectStore
from spark_pages.upkeep.blooms import check_blooms
from spark_pages.upkeep.bounds import bounds_hold
from spark_pages.upkeep.faults import RESTORE, FaultKind, Findings
from spark_pages.upkeep.names import TableNames

PagesMode = Literal["all", "sample", "none"]

_BATCH_PAGES = 512
_BATCH_BYTES = 8 << 20
_PROVABLE = pa.schema([STATS_SCHEMA.field(name) for name in ("null_count", "min", "max", "exact")])
"""The statistics that are true or not; the others are estimates and places."""
_ERRORS = (DamageError, ObjectNotFoundError, StorageError)


@dataclass(eq=False, slots=True)
class Trouble:
    """Pages of one chain in one object that are wrong in one way."""

    kind: FaultKind
    key: str
    chain: ChainKey
    what: str
    page_ids: list[int] = field(default_factory=list)


class PageCheck:
    """Checks runs of pages, and remembers what is wrong and which page files were named.

    Parameters
    ----------
    mode
        How many pages are read: all, some of each run, or none (then places only are checked).
    fraction
        Which part of a run "some" is; at least one page of each.
    sizes
        Bytes of the page files that a listing gave.
    """

    def __init__(
        self,
        store: ObjectStore,
        findings: Findings,
        names: TableNames,
        mode: PagesMode,
        fraction: float,
        seed: int,
        sizes: Mapping[str, int],
    ) -> None:
        self._store = store
        self._findings = findings
        self._names = names
        self._mode = mode
        self._fraction = fraction
        self._random = np.random.default_rng(seed)
        self._sizes: dict[str, int | None] = dict(sizes)
        self._handler = PageHandler(store, padding=True, upc_bytes=0, cpc_bytes=0)
        self._homes: dict[str, set[int]] = {}
        self.named: set[str] = set()
        self.troubles: dict[tuple[str, ChainKey, FaultKind, str], Trouble] = {}

    @property
    def bytes_read(self) -> int:
        """Bytes of pages read so far."""
        return self._handler.stats().bytes_read

    def check(self, run: PageRun, chain: ChainKey, holder: str) -> None:
        """Check a run of pages of one chain that the object `holder` lists.

        Notes
        -----
        Fetches by runs of neighbours; memory for 8 MiB of pages.
        """
        self._findings.pages += run.num_pages
        good = self._check_numbers(run, chain, holder) & self._check_places(run, chain)
        chosen = self._choose(np.flatnonzero(good))
        for start, stop in _batches(run.numbers("actual_len")[chosen]):
            self._check_values(taken(run, chosen[start:stop]), chain, holder)

    def check_segment(self, segment: Segment, run: PageRun, holder: str) -> None:
        """Check the pages of a segment that no commit names: inline pages that got a home, or all pages of
        commits that were cleaned away. Each place once.
        """
        path = run.pages.column("path")
        foreign = np.zeros(run.num_pages, bool)
        indices = path.indices.fill_null(-1).to_numpy()
        offsets = run.numbers("offset") // PAGE_ALIGNMENT
        for number, key in enumerate(path.dictionary.to_pylist()):
            if key in self.named:
                continue
            seen = self._homes.setdefault(key, set())
            here = indices == number
            foreign |= here & ~np.isin(offsets, np.fromiter(seen, np.int64, len(seen)))
            seen.update(offsets[here].tolist())
        for chain, start, stop in segment.chains():
            index = np.flatnonzero(foreign[start:stop]) + start
            if len(index):
                self.check(taken(run, index), chain, holder)

    def homes(self) -> set[str]:
        """Page files that only checkpoints name."""
        return set(self._homes)

    def _check_numbers(self, run: PageRun, chain: ChainKey, holder: str) -> NDArray[np.bool_]:
        """Which descriptors can be true."""
        kind, actual, alloc = (run.numbers(name) for name in ("kind", "actual_len", "alloc_len"))
        offset, path, data = run.numbers("offset"), run.pages.column("path"), run.pages.column("data")
        known = np.isin(kind, [int(each) for each in PageKind])
        counts = (run.numbers("entry_count") >= 0) & (run.numbers("payload_entries") >= 0)
        in_file = kind == PageKind.FILE
        placed = (offset >= 0) & (offset % PAGE_ALIGNMENT == 0) & (alloc % PAGE_ALIGNMENT == 0)
        placed &= (actual <= alloc) & path.is_valid().to_numpy(False) & data.is_null().to_numpy(False)
        lengths = pc.binary_length(data).fill_null(-1).to_numpy(False)
        held = path.is_null().to_numpy(False) & (lengths == actual)
        fits = np.where(in_file, placed, held)
        good: NDArray[np.bool_] = known & counts & (actual >= PAGE_HEADER_SIZE) & fits
        bad_keys = [key for key in path.dictionary.to_pylist() if not is_key(key)]
        if bad_keys:
            good &= ~np.isin(path.cast(pa.string()).to_numpy(False), bad_keys)
        what = "has descriptors that cannot be true"
        self._trouble(FaultKind.CONTRADICTION, holder, chain, what, run, ~good)
        column = self._names.field(chain)
        if column is not None and not column.nullable:
            lacking = run.numbers("entry_count") > run.numbers("payload_entries")
            what = "has pages with fewer entries than rows, in a column that is not nullable"
            self._trouble(FaultKind.CONTRADICTION, holder, chain, what, run, lacking & good)
        return good

    def _check_places(self, run: PageRun, chain: ChainKey) -> NDArray[np.bool_]:
        """Which pages lie inside a page file that is there, or need none."""
        good = np.ones(run.num_pages, bool)
        path = run.pages.column("path")
        indices = path.indices.fill_null(-1).to_numpy()
        ends = run.numbers("offset") + run.numbers("actual_len")
        for number in np.unique(indices[indices >= 0]).tolist():
            key = path.dictionary[number].as_py()
            here = indices == number
            if not is_key(key):
                continue
            size = self._size(key)
            if size is None:
                self._trouble(FaultKind.MISSING, key, chain, "is missing", run, here)
                good &= ~here
                continue
            beyond = here & (ends > size)
            what = f"ends at byte {size}, before pages that should be in it"
            self._trouble(FaultKind.DAMAGED, key, chain, what, run, beyond)
            good &= ~beyond
        return good

    def _size(self, key: str) -> int | None:
        if key not in self._sizes:  # a listing may miss what is new
            try:
                self._sizes[key] = self._store.size(key)
            except ObjectNotFoundError:
                self._sizes[key] = None
        return self._sizes[key]

    def _choose(self, candidates: NDArray[np.int64]) -> NDArray[np.int64]:
        if self._mode == "all" or not len(candidates):
            return candidates
        if self._mode == "none":
            return candidates[:0]
        count = max(1, round(len(candidates) * self._fraction))
        return np.sort(self._random.choice(candidates, count, replace=False))

    def _check_values(self, run: PageRun, chain: ChainKey, holder: str) -> None:
        """Read the pages and compare them with their descriptors and statistics."""
        pages = run.descriptors(0, run.num_pages)
        self._findings.pages_read += len(pages)
        kinds = run.numbers("kind")
        stored = np.flatnonzero(kinds != PageKind.CONSTANT)
        found = self._read([pages[index] for index in stored.tolist()], chain, holder)
        values = {int(index): array for index, array in zip(stored, found, strict=True) if array is not None}
        for index in np.flatnonzero(kinds == PageKind.CONSTANT).tolist():
            one = self._read_constant(pages[index], chain, holder)
            if one is not None:
                values[index] = one
        column = self._names.field(chain)
        for index, array in list(values.items()):
            if column is not None and array.type not in (column.type, *stored_types(column)):
                what = f"holds values of type {array.type} in a column of type {column.type}"
                self._add(FaultKind.CONTRADICTION, _where(pages[index], holder), chain, what, pages[index])
                del values[index]
            elif column is not None and not column.nullable and array.null_count:
                what = "holds nulls in a column that is not nullable"
                self._add(FaultKind.CONTRADICTION, _where(pages[index], holder), chain, what, pages[index])
        self._check_stats(run, pages, values, chain, holder)
        flaws = check_blooms(self._store, run, values)
        behind = "holds other bytes than zeros behind bloom filters"
        for what, wrong in (("holds damaged bloom filters", flaws.damaged), (behind, flaws.littered)):
            for key in {pages[index].disk_path for index in np.flatnonzero(wrong).tolist()}:
                here = wrong & np.array([page.disk_path == key for page in pages])
                self._trouble(FaultKind.BLOOM, key, chain, what, run, here)
        what = "names bloom filters that deny values of their pages"
        self._trouble(FaultKind.CONTRADICTION, holder, chain, what, run, flaws.false)

    def _read(self, pages: list[PageDescriptor], chain: ChainKey, holder: str) -> list[pa.Array | None]:
        try:
            return [batch.column("data") for batch in self._handler.get_pages(pages, admit=False)]
        except _ERRORS:
            return [self._read_one(page, chain, holder) for page in pages]

    def _read_one(self, page: PageDescriptor, chain: ChainKey, holder: str) -> pa.Array | None:
        try:
            return self._handler.get_page(page, admit=False).column("data")
        except _ERRORS as error:
            self._add_error(error, page, chain, holder)
            return None

    def _read_constant(self, page: PageDescriptor, chain: ChainKey, holder: str) -> pa.Array | None:
        where = page.where
        try:
            batch = decode_page(page.data or b"", where=where, expected_checksum=None, expected_entries=1)
        except _ERRORS as error:
            self._add_error(error, page, chain, holder)
            return None
        return batch.column("data")

    def _check_stats(
        self,
        run: PageRun,
        pages: list[PageDescriptor],
        values: dict[int, pa.Array],
        chain: ChainKey,
        holder: str,
    ) -> None:
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
            claimed = PageStats(row["null_count"], row["min"], row["max"], bool(row["exact"]))
            if claimed.null_count != nulls or not bounds_hold(values[index], claimed):
                what = "holds other values than its statistics say"
                self._add(FaultKind.CONTRADICTION, holder, chain, what, pages[index])

    def _add_error(self, error: SparkPagesError, page: PageDescriptor, chain: ChainKey, holder: str) -> None:
        kind = {ObjectNotFoundError: FaultKind.MISSING, StorageError: FaultKind.UNREADABLE}.get(
            type(error), FaultKind.DAMAGED
        )
        what = "is missing" if kind is FaultKind.MISSING else f"cannot be read: {error.message}"
        self._add(kind, _where(page, holder), chain, what, page)

    def _add(self, kind: FaultKind, key: str, chain: ChainKey, what: str, page: PageDescriptor) -> None:
        trouble = self.troubles.setdefault((key, chain, kind, what), Trouble(kind, key, chain, what))
        trouble.page_ids.append(page.page_id)

    def _trouble(
        self, kind: FaultKind, key: str, chain: ChainKey, what: str, run: PageRun, wrong: NDArray[np.bool_]
    ) -> None:
        if wrong.any():
            trouble = self.troubles.setdefault((key, chain, kind, what), Trouble(kind, key, chain, what))
            trouble.page_ids.extend(run.page_ids[wrong].tolist())

    def tell(self, trouble: Trouble, rows: str) -> None:
        """The trouble becomes a fault that says which rows it concerns."""
        ids = sorted(set(trouble.page_ids))
        since = sorted({page_version(page) for page in ids})
        shown = f"page {format_page_id(ids[0])}" if len(ids) == 1 else f"{len(ids)} pages"
        versions = f"version {since[0]}" if len(since) == 1 else f"versions {since[0]} to {since[-1]}"
        what = (
            f"{trouble.key} {trouble.what.rstrip('.')}: {shown} of {self._names.show(trouble.chain)}, "
            f"added by {versions}, {rows}."
        )
        remedy = "Verify again once storage answers." if trouble.kind is FaultKind.UNREADABLE else RESTORE
        if trouble.kind is FaultKind.BLOOM:
            remedy = "No answer rests on them: the pages are read. Whatever rewrites these makes them anew."
        if trouble.key in self._homes:
            remedy = "Run `spark-pages repair URL`: the log may still hold these pages inline."
        self._findings.add(trouble.kind, trouble.key, what, remedy)


def taken(run: PageRun, positions: NDArray[np.int64]) -> PageRun:
    """Some pages of a run, in order."""
    index = pa.array(positions)
    return PageRun(run.pages.take(index), lambda: run.stats.take(index))


def stream(pieces: tuple[Piece, ...] | list[Piece]) -> Iterator[PageRun]:
    """The pages of a chain, run by run, without keeping what is loaded."""
    for piece in pieces:
        if isinstance(piece, LazyRun):
            parts = list(piece.expand())
            pages, rows = sum(part.num_pages for part in parts), sum(part.num_rows for part in parts)
            if (pages, rows) != (piece.num_pages, piece.num_rows):
                raise DamageError(
                    f"A part of a checkpoint should hold {piece.num_pages} pages with {piece.num_rows} rows "
                    f"of a chain, but holds {pages} with {rows}."
                )
            yield from stream(parts)
        elif piece.num_pages:
            yield piece


def rows_of(pieces: tuple[Piece, ...] | list[Piece], page_ids: list[int], version: int) -> str:
    """Which rows some pages of a chain hold, in words."""
    wanted = np.array(page_ids, np.int64)
    ranges: list[list[int]] = []
    first_row = 0
    for run in stream(pieces):
        ends = run.prefix_entries.astype(np.int64) + first_row
        entries = run.numbers("entry_count")
        for index in np.flatnonzero(np.isin(run.page_ids, wanted)).tolist():
            start, end = int(ends[index] - entries[index]), int(ends[index])
            if ranges and ranges[-1][1] == start:
                ranges[-1][1] = end
            else:
                ranges.append([start, end])
        first_row += run.num_rows
    if not ranges:
        return f"replaced before version {version}"
    shown = ", ".join(f"[{start}, {end})" for start, end in ranges[:8])
    more = f" and {len(ranges) - 8} more ranges" if len(ranges) > 8 else ""
    return f"rows {shown}{more} at version {version}"


def _where(page: PageDescriptor, holder: str) -> str:
    return page.disk_path if page.kind is PageKind.FILE else holder


def _batches(lengths: NDArray[np.int32]) -> Iterator[tuple[int, int]]:
    """[start, stop) of batches of pages that are not too many and not too large together."""
    ends = np.cumsum(lengths, dtype=np.int64)
    start = 0
    while start < len(ends):
        before = int(ends[start - 1]) if start else 0
        stop = int(np.searchsorted(ends, before + _BATCH_BYTES, side="right"))
        stop = min(max(stop, start + 1), start + _BATCH_PAGES)
        yield start, stop
        start = stop


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
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_PROVABLE)
