"""Move live pages out of page files, byte for byte, so that vacuum can delete the files."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from spark_pages.errors import CommitConflictError
from spark_pages.io import EncodedPage, PageFileWriter
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.maintenance.compact import BeginTransaction
from spark_pages.model.added_pages import NewPage
from spark_pages.model.chain_tree import ChainKey
from spark_pages.model.ids import CATALOG_TABLE, FieldId, TableId
from spark_pages.model.page import BloomLocation, PageDescriptor, PageKind, PageStats
from spark_pages.model.run import PageRun
from spark_pages.transaction.page_writer import PAGE_FILE_BYTES
from spark_pages.transaction.transaction import Transaction

_MOST_TRIES = 8
_BYTES_AT_ONCE = 16 << 20


def move_pages(begin: BeginTransaction, files: Collection[str]) -> int | None:
    """Move all pages of the newest version out of some page files; return the version, None without any.

    Raises
    ------
    CommitConflictError
        If other commits replaced some of the pages meanwhile, each time that it was tried.

    Notes
    -----
    Looks for them in every segment of the newest checkpoint. Reads and writes each page once; one page file
    is in memory.
    """
    tries = 0
    while True:
        tries += 1
        txn = begin("move pages")
        runs = list(_runs_in(txn.snapshot.log, frozenset(files)))
        if not runs:
            return None
        try:
            with txn:
                _Copies(txn).replace(runs)
            return txn.version
        except CommitConflictError:
            if tries == _MOST_TRIES:
                raise


def _runs_in(log: LogSnapshot, files: frozenset[str]) -> Iterator[tuple[ChainKey, int, PageRun]]:
    """Yield runs of pages that lie in the files, with their chain and first row."""
    for key in sorted(_chains_in(log, files)):
        if key[0] == CATALOG_TABLE:
            continue
        run = log.chain(key).all_pages()
        paths = run.pages.column("path").cast("string").to_pylist()
        inside = np.array([path in files for path in paths], bool) & (run.numbers("kind") == PageKind.FILE)
        edges = np.flatnonzero(np.diff(np.concatenate([[0], inside.astype(np.int8), [0]])))
        for start, stop in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            yield key, run.rows_before(start), run.slice(start, stop)


def _chains_in(log: LogSnapshot, files: frozenset[str]) -> set[ChainKey]:
    """Chains that may have pages in the files, those of dropped tables and columns included."""
    found: set[ChainKey] = set(log.state.edits)
    if log.checkpoint is None:
        return found
    tree = log.checkpoint.tree
    for parts in log.checkpoint.levels().values():
        for part in parts:
            for node in tree.part(part):
                segment = tree.segment(node)
                if files.isdisjoint(filter(None, segment.pages.column("path").dictionary.to_pylist())):
                    continue
                found.update(key for key, _, _ in segment.chains())
    return found


class _Copies:
    """Copies of pages in new page files of a transaction."""

    def __init__(self, txn: Transaction) -> None:
        self._txn = txn
        self._file: PageFileWriter | None = None

    def replace(self, runs: list[tuple[ChainKey, int, PageRun]]) -> None:
        """Replace the pages by copies."""
        for (table_id, field_id), first_row, run in runs:
            pages = list(self._copied(run))
            removed = run.page_ids.tolist()
            self._txn.replace_pages(TableId(table_id), FieldId(field_id), first_row, removed, pages)
        if self._file is not None:
            self._file.finish()

    def _copied(self, run: PageRun) -> Iterator[NewPage]:
        sizes = run.numbers("alloc_len").astype(np.int64)
        bounds = np.append(0, np.flatnonzero(np.diff(np.cumsum(sizes) // _BYTES_AT_ONCE)) + 1)
        for start, stop in pairwise([*bounds.tolist(), run.num_pages]):
            yield from self._part(run.slice(start, stop))

    def _part(self, run: PageRun) -> Iterator[NewPage]:
        pages = run.descriptors()
        stats = [_stats_of(row) for row in run.stats.to_pylist()]
        data = self._read([(page.disk_path, page.offset, page.actual_len) for page in pages])
        filters = [(page, each.bloom) for page, each in zip(pages, stats, strict=True) if each.bloom]
        blooms = iter(self._read([(page.disk_path, each.offset, each.length) for page, each in filters]))
        if self._file is None:
            self._file = PageFileWriter(self._txn.store, self._txn.next_page_file())
        file = self._file
        offsets = [file.add(_encoded(page, each)) for page, each in zip(pages, data, strict=True)]
        places = iter(file.add_blooms(list(blooms)) if filters else ())
        for page, each, offset in zip(pages, stats, offsets, strict=True):
            yield _new_page(page, each, file.key, offset, places)
        if file.size_bytes >= PAGE_FILE_BYTES:
            file.finish()
            self._file = None

    def _read(self, places: list[tuple[str, int, int]]) -> list[bytes]:
        """Bytes at some places, in order; neighbours of one file in one call."""
        found: list[bytes] = []
        edges = [i for i in range(1, len(places)) if places[i][0] != places[i - 1][0]]
        for start, stop in pairwise([0, *edges, len(places)]) if places else ():
            ranges = [(offset, length) for _, offset, length in places[start:stop]]
            found += self._txn.store.get_ranges(places[start][0], ranges)
        return found


def _encoded(page: PageDescriptor, data: bytes) -> EncodedPage:
    return EncodedPage(data, page.actual_len, page.alloc_len, page.payload_entries, page.checksum)


def _stats_of(row: Mapping[str, Any]) -> PageStats:
    """Statistics of a page, as `STATS_SCHEMA` has them."""
    bloom = None
    if row["bloom_offset"] is not None:
        checksum = row["bloom_checksum"] & 0xFFFF_FFFF_FFFF_FFFF
        bloom = BloomLocation(row["bloom_offset"], row["bloom_length"], checksum)
    known = {name: row[name] for name in ("null_count", "min", "max", "exact", "distinct")}
    return PageStats(**known, bloom=bloom, nan=bool(row["nan"]))


def _new_page(
    page: PageDescriptor, stats: PageStats, key: str, offset: int, places: Iterator[int]
) -> NewPage:
    if stats.bloom is not None:
        stats = replace(stats, bloom=replace(stats.bloom, offset=next(places)))
    return NewPage(
        page.entry_count, page.payload_entries, PageKind.FILE, key, offset, page.alloc_len,
        page.actual_len, page.checksum, None, stats,
    )  # fmt: skip
