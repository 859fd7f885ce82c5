"""Page descriptors: each by itself, against the page file that it names, and which pages to read for more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_pages.errors import DamageError, InvalidKeyError, ObjectNotFoundError
from spark_pages.format.segment import Segment
from spark_pages.maintenance.verify.faults import (
    INLINE,
    NEWER,
    RESTORE,
    FaultGroup,
    FaultGroups,
    FaultKind,
    Findings,
)
from spark_pages.maintenance.verify.object_names import TableNames
from spark_pages.maintenance.verify.page_types import type_evidence, wider_types
from spark_pages.maintenance.verify.page_values import PageReader, PagesToRead
from spark_pages.model.chain_tree import ChainKey, Piece, UnloadedRun
from spark_pages.model.ids import format_page_id, page_version
from spark_pages.model.page import PAGE_ALIGNMENT, PAGE_HEADER_SIZE, PageKind
from spark_pages.model.run import PageRun
from spark_pages.storage.checks import is_key
from spark_pages.storage.store import ObjectStore

PagesMode = Literal["all", "sample", "none"]

_MOST_CHAINS = 8
"""Columns that one fault names."""

_BATCH_PAGES = 512
_BATCH_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class PageSample:
    """Which pages are read.

    Attributes
    ----------
    mode
        All, some of each run, or none (then descriptors and places only are checked). Of "some" are always
        those that lie in the log, and those whose type only their bytes prove.
    fraction
        Which part of a run "some" is; at least one page of each.
    seed
        Of the choice.
    """

    mode: PagesMode
    fraction: float
    seed: int


class PageCheck:
    """Checks runs of pages, and remembers what is wrong and which page files were named.

    Parameters
    ----------
    sample
        Which pages are read.
    sizes
        Bytes of the page files that a listing gave.
    reader
        Is given the pages to read: of one chain, 512 and 8 MiB at most.

    Attributes
    ----------
    named
        Page files that commits name.
    troubles
        What is wrong with descriptors; what is wrong with pages, the reader knows.
    """

    def __init__(
        self,
        store: ObjectStore,
        findings: Findings,
        names: TableNames,
        sample: PageSample,
        sizes: Mapping[str, int],
        reader: PageReader,
    ) -> None:
        self._store = store
        self._findings = findings
        self._names = names
        self._sample = sample
        self._random = np.random.default_rng(sample.seed)
        self._sizes: dict[str, int | None] = dict(sizes)
        self._reader = reader
        self._homes: dict[str, set[int]] = {}
        self._narrowed: dict[ChainKey, tuple[set[int], pa.Field | None]] = {}
        self.named: set[str] = set()
        self.troubles = FaultGroups()

    def check(self, run: PageRun, chain: ChainKey, holder: str) -> None:
        """Check a run of pages of one chain that the object `holder` lists."""
        self._findings.pages += run.num_pages
        good = self._check_numbers(run, chain, holder) & self._check_places(run, chain)
        if self._names.unavailable(chain):
            return
        chosen = self._choose(run, good, self._check_types(run, chain, holder))
        self._read(run, chosen, chain, holder)

    def _read(self, run: PageRun, chosen: NDArray[np.int64], chain: ChainKey, holder: str) -> None:
        for start, stop in _batches(run.numbers("actual_len")[chosen]):
            some = run_at(run, chosen[start:stop])
            self._reader.read(PagesToRead(some, chain, holder, self._names.field(chain)))

    def check_segment(self, segment: Segment, run: PageRun, holder: str) -> None:
        """Check the pages of a segment that no commit names, each location once.

        These are inline pages that moved to a file, or all pages of commits that vacuum removed.
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
            self._names.mark(chain)
            index = np.flatnonzero(foreign[start:stop]) + start
            if len(index):
                self.check(run_at(run, index), chain, holder)

    def checkpoint_page_files(self) -> set[str]:
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
        self.troubles.add(FaultKind.CONTRADICTION, holder, chain, what, run.page_ids[~good])
        column = self._names.field(chain)
        if column is not None and not column.nullable:
            lacking = run.numbers("entry_count") > run.numbers("payload_entries")
            what = "has pages with fewer entries than rows, in a column that is not nullable"
            self.troubles.add(FaultKind.CONTRADICTION, holder, chain, what, run.page_ids[lacking & good])
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
            try:
                size = self._size(key)
            except (
                DamageError,
                InvalidKeyError,
            ) as error:  # no file: a link, which no store follows, or a pipe
                what = f"cannot be read: {error.message}"
                self.troubles.add(FaultKind.DAMAGED, key, chain, what, run.page_ids[here])
                good &= ~here
                continue
            if size is None:
                self.troubles.add(FaultKind.MISSING, key, chain, "is missing", run.page_ids[here])
                good &= ~here
                continue
            beyond = here & (ends > size)
            what = f"ends at byte {size}, before pages that should be in it"
            self.troubles.add(FaultKind.DAMAGED, key, chain, what, run.page_ids[beyond])
            good &= ~beyond
        return good

    def _size(self, key: str) -> int | None:
        if key not in self._sizes:  # a listing may miss what is new
            try:
                self._sizes[key] = self._store.size(key)
            except ObjectNotFoundError:
                self._sizes[key] = None
        return self._sizes[key]

    def check_narrowed(self, run: PageRun, chain: ChainKey, holder: str) -> None:
        """Check pages of a column that had a wider type once, unless they were as it became narrower."""
        known, _ = self._narrowed.get(chain, (set(), None))
        unchecked = np.array([page not in known for page in run.page_ids.tolist()], bool)
        if unchecked.any():
            run = run_at(run, np.flatnonzero(unchecked))
            chosen = np.flatnonzero(self._check_types(run, chain, holder))
            self._read(run, chosen, chain, holder)

    def _check_types(self, run: PageRun, chain: ChainKey, holder: str) -> NDArray[np.bool_]:
        """Which pages must be read for their type; where none are read, tell what statistics prove."""
        column = self._names.field(chain)
        if column is None:
            return np.zeros(run.num_pages, bool)
        found = type_evidence(run, column)
        if self._sample.mode == "none":
            what = f"has pages whose statistics are of another type than their column, {column.type}"
            self.troubles.add(FaultKind.CONTRADICTION, holder, chain, what, run.page_ids[found.wrong])
        if wider_types(column):
            known, of_column = self._narrowed.get(chain, (set(), column))
            known = known if of_column == column else set()
            self._narrowed[chain] = known | set(run.page_ids.tolist()), column
        return found.wrong | found.open if self._sample.mode != "none" else np.zeros(run.num_pages, bool)

    def _choose(self, run: PageRun, good: NDArray[np.bool_], always: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Positions of the pages to read: a sample, those that lie in the log, and those in question."""
        candidates = np.flatnonzero(good)
        if self._sample.mode == "all" or not len(candidates):
            return candidates
        if self._sample.mode == "none":
            return candidates[:0]
        always = good & (always | (run.numbers("kind") != PageKind.FILE))
        others = np.flatnonzero(good & ~always)
        count = max(0 if always.any() else 1, round(len(others) * self._sample.fraction))
        sample = self._random.choice(others, count, replace=False)
        return np.sort(np.concatenate([np.flatnonzero(always), sample]))

    def report(self, troubles: Sequence[tuple[FaultGroup, str]]) -> None:
        """Report troubles of one object that differ in their chains alone as one fault.

        Parameters
        ----------
        troubles
            Each with the rows of its pages, in words.
        """
        troubles = sorted(troubles, key=lambda each: each[0].chain)
        trouble, _ = troubles[0]
        shown = [self._shown(*each) for each in troubles[:_MOST_CHAINS]]
        more = len(troubles) - len(shown)
        shown += [f"pages of {more} more columns"] if more else []
        detail = f" {trouble.detail}" if trouble.detail else ""
        what = f"{trouble.key} {trouble.what.rstrip('.')}: {'; '.join(shown)}.{detail}"
        remedy = "Verify again once storage answers." if trouble.kind is FaultKind.UNREADABLE else RESTORE
        if trouble.kind is FaultKind.BLOOM:
            remedy = "No answer rests on them: the pages are read. Whatever rewrites these makes them anew."
        if trouble.kind is FaultKind.NEWER:
            remedy = NEWER
        elif trouble.key in self._homes:
            remedy = INLINE
        self._findings.add(trouble.kind, trouble.key, what, remedy)

    def _shown(self, trouble: FaultGroup, rows: str) -> str:
        ids = sorted(set(trouble.page_ids))
        since = sorted({page_version(page) for page in ids})
        pages = f"page {format_page_id(ids[0])}" if len(ids) == 1 else f"{len(ids)} pages"
        versions = f"version {since[0]}" if len(since) == 1 else f"versions {since[0]} to {since[-1]}"
        return f"{pages} of {self._names.show(trouble.chain)}, added by {versions}, {rows}"


def run_at(run: PageRun, positions: NDArray[np.int64]) -> PageRun:
    """Return some pages of a run, in order."""
    index = pa.array(positions)
    return PageRun(run.pages.take(index), lambda: run.stats.take(index))


def stream(pieces: tuple[Piece, ...] | list[Piece]) -> Iterator[PageRun]:
    """Iterate over the pages of a chain, run by run, without retaining them."""
    for piece in pieces:
        if isinstance(piece, UnloadedRun):
            parts = list(piece.expand())
            pages, rows = sum(part.num_pages for part in parts), sum(part.num_rows for part in parts)
            if (pages, rows) != (piece.num_pages, piece.num_rows):
                raise DamageError(
                    f"Cannot read a part of a checkpoint: it should hold {piece.num_pages} pages with "
                    f"{piece.num_rows} rows of a chain, but holds {pages} with {rows}."
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
