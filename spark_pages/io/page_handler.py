"""Pages by descriptor, through two cache tiers (seed 003)."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import xxhash

from spark_pages.errors import DamageError
from spark_pages.io.codecs import MAX_UNCOMPRESSED_BYTES
from spark_pages.io.page_cache import ByteBudgetCache
from spark_pages.io.page_codec import decode_page, parse_header
from spark_pages.io.page_reader import PageReader
from spark_pages.io.read_counts import CacheStats, ReadCounts, ReadTrace
from spark_pages.model.page import PageDescriptor, PageKind

if TYPE_CHECKING:
    from spark_pages.storage.store import ObjectStore

DEFAULT_CACHE_BYTES = 256 << 20
"""Budget of each of the two caches."""

_ENTRY_OVERHEAD_BYTES = 512
"""What an entry costs besides its bytes: its objects in Python and Arrow, about."""

_NO_READ = ReadCounts()

Key = tuple[str, int, int]
"""Identity of a page's content: where it is and the checksum of what is there."""


@dataclass(slots=True)
class _Live:
    """What a fork must not inherit: locks, threads, and maps that another thread may be changing."""

    pid: int
    upc: ByteBudgetCache[Key, pa.RecordBatch]
    cpc: ByteBudgetCache[Key, memoryview]
    reader: PageReader
    lock: threading.Lock
    upc_hits: int = 0
    cpc_hits: int = 0
    misses: int = 0


class PageHandler:
    """Materialises pages: from the UPC, else from the CPC, else from storage.

    Parameters
    ----------
    store
        Where the page files are.
    upc_bytes, cpc_bytes
        Budgets of the uncompressed and the compressed page cache; 0 switches one off.

    Notes
    -----
    Safe to share between threads and across a fork (the child starts with empty caches); pickles
    without its contents. Two threads that miss the same page at once both read it.
    """

    def __init__(
        self, store: ObjectStore, upc_bytes: int = DEFAULT_CACHE_BYTES, cpc_bytes: int = DEFAULT_CACHE_BYTES
    ) -> None:
        self._store = store
        self._upc_bytes = upc_bytes
        self._cpc_bytes = cpc_bytes
        self._state = self._fresh()

    def get_page(
        self, page: PageDescriptor, *, admit: bool = True, trace: ReadTrace | None = None
    ) -> pa.RecordBatch:
        """The entries of one page; see `get_pages`."""
        return self.get_pages((page,), admit=admit, trace=trace)[0]

    def get_pages(
        self, pages: Sequence[PageDescriptor], *, admit: bool = True, trace: ReadTrace | None = None
    ) -> list[pa.RecordBatch]:
        """The entries of every page, in the order asked.

        Parameters
        ----------
        pages
            Descriptors of any kind and in any order; duplicates are materialised once.
        admit
            Whether what had to be fetched is kept in the caches; False for large scans.
        trace
            Receives what this call touched.

        Returns
        -------
        list of pyarrow.RecordBatch
            ``entry_count`` rows each: column ``data``, and ``prefix_meta`` and ``suffix_meta`` where the
            page has them. Entries past ``payload_entries`` are null.

        Raises
        ------
        ObjectNotFoundError
            If a page file is gone.
        DamageError
            If a page is not the one that was written, or another one than its descriptor says.
        StorageError
            If the storage fails.

        Notes
        -----
        One request per run of adjacent pages that neither cache holds; no lock is held while reading
        or decoding. Memory: all pages asked for at once. Source: seed 003, "Batch Retrieval Flow".
        """
        live = self._live()
        keys = [_key(page) for page in pages]
        wanted = dict(zip(keys, pages, strict=True))
        ready = live.upc.get_many(wanted)
        upc_hits = len(ready)
        cpc_hits = misses = 0
        read = _NO_READ
        if upc_hits < len(wanted):
            missing = {key: page for key, page in wanted.items() if key not in ready}
            in_file = [key for key, page in missing.items() if page.kind is PageKind.FILE]
            held = live.cpc.get_many(in_file)
            unread = [key for key in in_file if key not in held]
            fetched: dict[Key, memoryview] = {}
            if unread:
                buffers, read = live.reader.fetch([missing[key] for key in unread])
                # Pages of a run share its memory: what the caches keep is a copy, so that their budgets hold.
                fetched = dict(zip(unread, map(_own, buffers) if admit else buffers, strict=True))
            misses, cpc_hits = len(unread), len(missing) - len(unread)
            decoded: list[tuple[Key, pa.RecordBatch, int]] = []
            for key, page in missing.items():
                ready[key], size_bytes = _decode(page, held.get(key) or fetched.get(key))
                decoded.append((key, ready[key], size_bytes))
            if admit:  # only after decoding, so that neither cache ever holds a damaged page
                live.cpc.put_many(
                    [(key, raw, len(raw) + _ENTRY_OVERHEAD_BYTES) for key, raw in fetched.items()]
                )
                live.upc.put_many(decoded)
        with live.lock:
            live.upc_hits += upc_hits
            live.cpc_hits += cpc_hits
            live.misses += misses
        if trace is not None:
            ids = [page.id for page in wanted.values()]
            trace.add(page_ids=ids, upc_hits=upc_hits, cpc_hits=cpc_hits, misses=misses, read=read)
        return [_resize(ready[key], page) for key, page in zip(keys, pages, strict=True)]

    def stats(self) -> CacheStats:
        """What this process has asked of the handler so far, and what its caches hold."""
        live = self._live()
        upc, cpc, read = live.upc.counts(), live.cpc.counts(), live.reader.counts
        with live.lock:
            return CacheStats(
                upc_hits=live.upc_hits,
                cpc_hits=live.cpc_hits,
                misses=live.misses,
                requests=read.requests,
                bytes_read=read.bytes,
                evictions=upc.evictions + cpc.evictions,
                upc_bytes=upc.size_bytes,
                cpc_bytes=cpc.size_bytes,
            )

    def clear(self) -> None:
        """Both caches are empty; the counters stay."""
        live = self._live()
        live.upc.clear()
        live.cpc.clear()

    def close(self) -> None:
        """The caches are empty and no thread of this handler is left; it may be used again."""
        self.clear()
        self._live().reader.close()

    def _fresh(self) -> _Live:
        return _Live(
            pid=os.getpid(),
            upc=ByteBudgetCache(self._upc_bytes),
            cpc=ByteBudgetCache(self._cpc_bytes),
            reader=PageReader(self._store),
            lock=threading.Lock(),
        )

    def _live(self) -> _Live:
        live = self._state
        if live.pid != os.getpid():
            self._state = live = self._fresh()
        return live

    def __reduce__(self) -> tuple[type[PageHandler], tuple[ObjectStore, int, int]]:
        return (PageHandler, (self._store, self._upc_bytes, self._cpc_bytes))


def _key(page: PageDescriptor) -> Key:
    """Identity of what is cached for `page`; a file path is never empty, so kinds do not mix."""
    if page.kind is PageKind.FILE:
        return (page.disk_path, page.offset, page.checksum)
    if page.kind is PageKind.INLINE:
        return ("", page.page_id, page.checksum)
    # A constant has no checksum and, before its commit, no lasting id either: its bytes tell it.
    return ("", -1 - page.entry_count, xxhash.xxh3_64_intdigest(page.data or b""))


def _own(buffer: memoryview) -> memoryview:
    return memoryview(bytes(buffer))


def _decode(page: PageDescriptor, raw: memoryview | None) -> tuple[pa.RecordBatch, int]:
    """The page's payload as a batch, and the bytes that it holds on to."""
    if page.kind is PageKind.FILE:
        batch = decode_page(
            cast(memoryview, raw),
            where=f"{page.disk_path}@{page.offset}",
            expected_checksum=page.checksum,
            expected_entries=page.payload_entries,
        )
        return batch, parse_header(cast(memoryview, raw)).uncompressed_size + _ENTRY_OVERHEAD_BYTES
    where = f"{page.kind.name.lower()} page {page.id}"
    if page.data is None:
        raise DamageError(f"Cannot decode {where}: expected its bytes in the descriptor, found none.")
    constant = page.kind is PageKind.CONSTANT
    batch = decode_page(
        page.data,
        where=where,
        expected_checksum=None if constant else page.checksum,
        expected_entries=1 if constant else page.payload_entries,
    )
    if constant:
        batch = _repeat(batch, page.entry_count, where)
    return batch, batch.nbytes + _ENTRY_OVERHEAD_BYTES


def _repeat(one: pa.RecordBatch, count: int, where: str) -> pa.RecordBatch:
    _check_expansion(one, count, where)
    columns = [pa.repeat(column[0], count) for column in one.columns]
    return pa.record_batch(columns, schema=one.schema)


def _resize(batch: pa.RecordBatch, page: PageDescriptor) -> pa.RecordBatch:
    """The batch with the rows that the descriptor gives it: a prefix, or nulls behind."""
    count = page.entry_count
    if batch.num_rows == count and (count == page.payload_entries or page.kind is PageKind.CONSTANT):
        return batch
    where = f"page {page.id} of {page.disk_path}@{page.offset}"
    if batch.num_rows != page.payload_entries:
        raise DamageError(
            f"Cannot decode {where}: expected {page.payload_entries} entries, found {batch.num_rows}."
        )
    if count < batch.num_rows:
        return batch.slice(0, count)
    _check_expansion(batch, count, where)
    lacking = count - batch.num_rows
    columns = [pa.concat_arrays([column, pa.nulls(lacking, column.type)]) for column in batch.columns]
    return pa.record_batch(columns, schema=batch.schema)


def _check_expansion(batch: pa.RecordBatch, count: int, where: str) -> None:
    """Nothing, if `count` entries like those of the batch are a size that a page may have."""
    entry_bytes = max(1, batch.nbytes // max(1, batch.num_rows))
    if not 0 <= count * entry_bytes <= MAX_UNCOMPRESSED_BYTES:
        raise DamageError(
            f"Refused to expand {where}: expected at most {MAX_UNCOMPRESSED_BYTES} bytes, found {count} "
            f"entries of about {entry_bytes} bytes."
        )
