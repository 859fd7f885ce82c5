"""Pages by descriptor, through two cache tiers in memory, one on disk, and storage (seed 003)."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.arguments import as_flag, as_list, as_names, as_str, check_kind
from spark_pages.arrow.compact import referenced_bytes
from spark_pages.boundary import guarded
from spark_pages.errors import SparkPagesError
from spark_pages.format.pages.lazy_page import LazyPage, as_batch
from spark_pages.format.pages.page_codec import decode_detached, resize_batch
from spark_pages.format.value_hash import Hashes
from spark_pages.io.bloom_reader import BloomReader
from spark_pages.io.bulk_read import read_numbers
from spark_pages.io.cache_config import CacheConfig, budgets_of
from spark_pages.io.cache_tiers import ENTRY_OVERHEAD_BYTES
from spark_pages.io.disk_cache import DiskCache
from spark_pages.io.page_cache import CacheLookup, PageCache
from spark_pages.io.page_reader import Load, PageReader, decode_into
from spark_pages.io.read_counts import CacheStats, ReadCounts, ReadTrace
from spark_pages.io.single_flight import LoadedPage, PendingLoad
from spark_pages.io.workers import Workers
from spark_pages.model.ids import PageId, format_page_id
from spark_pages.model.page import PageDescriptor, PageKind
from spark_pages.model.run import PageKey, PageRun, key_of, keys_of_run

if TYPE_CHECKING:
    from spark_pages.storage.store import ObjectStore


@dataclass(slots=True)
class _Live:
    """What a fork must not inherit: locks, threads, open files, maps that another thread may be changing."""

    pid: int
    cache: PageCache
    workers: Workers
    reader: PageReader
    lock: threading.Lock
    total: ReadCounts


def _check_trace(trace: object) -> None:
    check_kind(trace, ReadTrace | None, "trace", "a ReadTrace")


@guarded("get_page", "pinned", "read_numbers", "may_hold", "is_local")
class PageHandler:
    """Reader of pages: from the decoded, the compressed or the disk cache, or from storage.

    Parameters
    ----------
    store
        Where the page files are.
    config
        Budgets, threads, and the disk cache; see `CacheConfig`.
    padding
        Whether padding of a page that is not zeros is damage too; a reader of rows does not ask.
    decoded_bytes, compressed_bytes
        Budgets of the two tiers in memory, in place of those of `config`; 0 switches one off.

    Notes
    -----
    Safe to share between threads and across a fork (the child starts with empty caches); pickles without its
    contents. However many threads ask for a page at once, it is loaded once.

    Pages never change, so the caches hold nothing that is not in storage too, and what leaves them is
    dropped. The dirty pages that seed 003 flushes from the compressed cache to disk are here the new pages
    of a transaction: its workspace holds them, and writes them before the commit that names them.
    """

    def __init__(
        self,
        store: ObjectStore,
        config: CacheConfig | None = None,
        padding: bool = False,
        *,
        decoded_bytes: int | None = None,
        compressed_bytes: int | None = None,
    ) -> None:
        given = {"decoded_bytes": decoded_bytes, "compressed_bytes": compressed_bytes}
        chosen = {each.name: getattr(config or CacheConfig(), each.name) for each in fields(CacheConfig)}
        self._config = CacheConfig(**{**chosen, **{k: v for k, v in given.items() if v is not None}})
        self._store = store
        self._padding = padding
        self._store_id = ""
        self._state = self._fresh()

    @cached_property
    def _blooms(self) -> BloomReader:
        """Reader of the bloom filters of pages."""
        return BloomReader(self._store, budgets_of(self._config).blooms)

    @property
    def is_local(self) -> bool:
        """Whether page files are on a local disk."""
        return self._live().reader.is_local("pages/any")

    @property
    def config(self) -> CacheConfig:
        """Budgets, threads, and the disk cache."""
        return self._config

    def get_page(
        self, page: PageDescriptor, *, admit: bool = True, trace: ReadTrace | None = None
    ) -> pa.RecordBatch:
        """Read one page; see `get_pages`.

        Notes
        -----
        2 µs for a page of the decoded cache; 15 µs more than its decompression for one of the compressed
        cache.
        """
        if admit is True and trace is None and type(page) is PageDescriptor:
            live = self._live()
            key = key_of(page)
            batch = live.cache.hit(key)
            if batch is None:
                batch = self._unpack(live, key)
            if batch is not None:
                return resize_batch(batch, page)
        return self.get_pages((page,), admit=admit, trace=trace)[0]

    def get_pages(
        self, pages: Sequence[PageDescriptor], *, admit: bool = True, trace: ReadTrace | None = None
    ) -> list[pa.RecordBatch]:
        """Read pages, in the given order.

        Parameters
        ----------
        pages
            Descriptors of any kind and in any order; duplicates are materialised once.
        admit
            Whether what is found or fetched counts as used and is kept in the caches. False for large scans:
            they put stored bytes into free room of the compressed cache, and evict nothing.
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
        One request per run of adjacent pages that no cache holds; no lock is held while reading or decoding.
        A page that another call is loading is waited for. Memory: all pages asked for at once. Source: seed
        003, "Batch Retrieval Flow".
        """
        pages, admit = as_list(pages, PageDescriptor, "pages", "page descriptors"), as_flag(admit, "admit")
        _check_trace(trace)
        keys = [key_of(page) for page in pages]
        wanted = dict(zip(keys, pages, strict=True))
        ready, spent = self._get_or_load(wanted, wanted, admit)
        if trace is not None:
            trace.page_ids.extend(page.id for page in wanted.values())
            trace.add(spent)
        for block in {page.block for page in ready.values() if isinstance(page, LazyPage)}:
            block.materialize()
        return [resize_batch(as_batch(ready[key]), page) for key, page in zip(keys, pages, strict=True)]

    def get_values(
        self,
        runs: Sequence[PageRun],
        *,
        admit: bool = True,
        trace: ReadTrace | None = None,
        whole: bool = False,
    ) -> list[list[pa.Array | LazyPage]]:
        """Read the column ``data`` of every page of runs, run by run, in one fetch; see `get_pages`.

        Returns
        -------
        list of list of pyarrow.Array or LazyPage
            Most are not put together yet: who joins them, or takes a few entries of each, saves a copy. With
            `whole` all other pages are batches, which hold what entries have beside their values, too.

        Notes
        -----
        Goes from the columns of the runs to requests without a descriptor for each page. Saves 4 µs a page.
        """
        runs, admit = as_list(runs, PageRun, "runs", "PageRuns"), as_flag(admit, "admit")
        whole = as_flag(whole, "whole")
        _check_trace(trace)
        keys: list[list[PageKey]] = []
        loose: dict[PageKey, PageDescriptor] = {}
        for run in runs:
            of_run, without_file = keys_of_run(run) if run.num_pages else ([], {})
            keys.append(of_run)
            loose.update(without_file)
        ready, spent = self._get_or_load(dict.fromkeys(chain.from_iterable(keys)), loose, admit)
        if trace is not None:
            ids: dict[PageKey, int] = {}
            for of_run, run in zip(keys, runs, strict=True):
                ids.update(zip(of_run, run.page_ids.tolist(), strict=True))
            trace.page_ids.extend(format_page_id(PageId(each)) for each in ids.values())
            trace.add(spent)
        found = [[ready[key] for key in each] for each in keys]
        return [_values_of(run, each, whole) for run, each in zip(runs, found, strict=True)]

    def read_numbers(self, runs: Sequence[tuple[PageRun, pa.DataType]]) -> Iterator[pa.Array | None]:
        """Read each run as one array, the next run while the caller works on the current one.

        For who reads each page once: the caches are not asked, and hold nothing of it afterwards.

        Parameters
        ----------
        runs
            Each with the type that its pages should have.

        Yields
        ------
        pyarrow.Array or None
            None for a run that `get_values` should be asked for: all but numbers in files on a local disk.
        """
        live = self._live()
        load = Load(PendingLoad(), keep_packed=False, admit=False)
        try:
            yield from read_numbers(runs, live.reader, load) if self.is_local else (None for _ in runs)
        finally:
            with live.lock:
                live.total.add(_counted(load))

    def estimate_reads(self, run: PageRun, *, some: bool = False) -> CacheStats:
        """Estimate what `get_values` would take now: hits, misses, requests, bytes. Loads nothing.

        Parameters
        ----------
        some
            Whether it is not known yet which of the pages will be wanted: then these are the most that it can
            be.

        Notes
        -----
        The disk cache is not asked: what it holds counts as missing.
        """
        check_kind(run, PageRun, "run", "a PageRun")
        some = as_flag(some, "some")
        live = self._live()
        keys = list(dict.fromkeys(keys_of_run(run)[0]))
        decoded, packed = live.cache.peek(keys)
        unread = [key for key in keys if key[0] and key not in decoded and key not in packed]
        requests, size = (live.reader.estimate_most_requests if some else live.reader.estimate_requests)(
            unread
        )
        return CacheStats(
            decoded_hits=len(decoded),
            compressed_hits=len(keys) - len(decoded) - len(unread),
            misses=len(unread),
            requests=requests,
            bytes_read=size,
            coalesced=len(unread) - requests,
        )

    def may_contain(
        self,
        run: PageRun,
        chosen: NDArray[np.bool_],
        hashes: Hashes,
        *,
        trace: ReadTrace | None = None,
    ) -> NDArray[np.bool_]:
        """Which of the pages chosen may hold some of the values, by bloom filters; see `BloomReader`."""
        spent = ReadCounts()
        found = self._blooms.may_contain(run, chosen, hashes, spent)
        live = self._live()
        with live.lock:
            live.total.add(spent)
        if trace is not None:
            trace.add(spent)
        return found

    @contextmanager
    def pinned(
        self, pages: Sequence[PageDescriptor], *, trace: ReadTrace | None = None
    ) -> Iterator[list[pa.RecordBatch]]:
        """Read pages, and pin them in the decoded cache during the block.

        For work that comes back to the same pages while other calls load many. Pins are counted: a page stays
        until the last of them is gone, also if it is forgotten meanwhile. Pages that do not fit the budget
        beside each other are given, but not kept.
        """
        pages = as_list(pages, PageDescriptor, "pages", "page descriptors")
        cache = self._live().cache
        pid = os.getpid()
        keys = list(dict.fromkeys(map(key_of, pages)))
        cache.pin(keys)
        try:
            yield self.get_pages(pages, trace=trace)
        finally:
            if pid == os.getpid():
                cache.unpin(keys)

    def forget(self, paths: Collection[str]) -> int:
        """Nothing of these page files is kept in memory or open; gives how many pages went.

        For files that no version can reach any more, such as those that vacuum deleted. Pinned pages go with
        their last pin. What the disk cache has of them is never asked for again, and leaves it as least used.
        """
        names = as_names(paths, "paths")
        live = self._live()
        live.reader.forget(names)
        return live.cache.forget(frozenset(names))

    def stats(self) -> CacheStats:
        """Return the counts of this handler so far, and the content of its caches."""
        live = self._live()
        held = live.cache.counts()
        total = live.total
        with live.lock:
            return CacheStats(
                decoded_hits=held.decoded_hits,
                compressed_hits=total.compressed_hits,
                misses=total.misses,
                requests=total.requests,
                bytes_read=total.bytes_read,
                direct_requests=total.direct_requests,
                cached_requests=total.cached_requests,
                evictions=held.evictions,
                decoded_bytes=held.decoded_bytes,
                compressed_bytes=held.compressed_bytes,
                bloom_cache_bytes=self._blooms.held_bytes,
                coalesced=total.coalesced,
                joined=total.joined,
                disk_hits=total.disk_hits,
                demotions=held.demotions,
                bloom_hits=total.bloom_hits,
                bloom_requests=total.bloom_requests,
                bloom_bytes=total.bloom_bytes,
            )

    def clear(self, *, disk: bool = False) -> None:
        """Empty the caches in memory, but for pinned pages; the counters stay.

        Parameters
        ----------
        disk
            Whether to empty the folder of the disk cache, too.
        """
        live = self._live()
        live.cache.clear()
        self._blooms.clear()
        if as_flag(disk, "disk"):
            live.reader.clear_disk()

    def close(self) -> None:
        """Empty the caches, close files and end threads; the handler may be used again."""
        self.clear()
        live = self._live()
        live.reader.close()
        live.workers.close()

    def _unpack(self, live: _Live, key: PageKey) -> pa.RecordBatch | None:
        """Decode a page of the compressed cache; `_get_or_load` for one page and nothing else."""
        pending = PendingLoad()
        try:
            found = live.cache.claim(key, pending)
            if found is None:
                return None
            packed, owned = found
            decode_into(Load(pending, keep_packed=True, admit=True), [key], [packed], owned=owned)
        finally:
            self._finish(live, pending, True)
        with live.lock:
            live.total.compressed_hits += 1
        return pending.loaded[key].batch

    def _finish(self, live: _Live, pending: PendingLoad, admit: bool) -> int:
        """End the pending load; return how many pages left memory for those that it brought."""
        try:
            for key in [key for key in pending.wanted if key in pending.loaded]:
                pending.loaded[key].detach()
            return live.cache.store_loaded(pending, admit) if pending.keys else 0
        finally:
            pending.finish()

    def _get_or_load(
        self, wanted: Mapping[PageKey, object], loose: Mapping[PageKey, PageDescriptor], admit: bool
    ) -> tuple[dict[PageKey, pa.RecordBatch | LazyPage], ReadCounts]:
        """Return the payload of every page, and the counts.

        Parameters
        ----------
        wanted
            The pages, each once.
        loose
            Descriptors, at least of the pages that are in no file.
        """
        live = self._live()
        pending = PendingLoad()
        load = Load(pending, keep_packed=admit and live.cache.keeps_packed, admit=admit)
        if not admit:
            load.spare_bytes = live.cache.spare_bytes()
        try:
            found = live.cache.lookup(wanted, pending, admit)
            if len(found.ready) == len(wanted):
                return {**found.ready}, ReadCounts(decoded_hits=len(wanted))
            at_hand = self._load(live, found, loose, load)
        except BaseException:
            with live.lock:  # what a call that failed has asked of the storage was asked of it, too
                live.total.add(_counted(load))
            raise
        finally:
            evictions = self._finish(live, pending, admit)
        ready: dict[PageKey, pa.RecordBatch | LazyPage] = {**found.ready}
        spent = ReadCounts(
            decoded_hits=len(ready), compressed_hits=at_hand, joined=len(found.awaited), evictions=evictions
        )
        spent.add(_counted(load))
        with live.lock:
            live.total.add(spent)
        for key, page in pending.loaded.items():
            ready[key] = page.content
        if found.awaited:
            spent.add(self._await(found.awaited, loose, admit, ready))
        return ready, spent

    def _load(
        self, live: _Live, found: CacheLookup, loose: Mapping[PageKey, PageDescriptor], load: Load
    ) -> int:
        """All pages that fall to this call are in its pending load; gives how many of them were at hand."""
        in_files = found.unread
        # By this thread alone: several take the GIL from each other, and 16 took more than twice as long.
        for owned in (True, False):
            some = [key for key in found.packed if (key in found.in_blocks) != owned]
            decode_into(load, some, [found.packed[key] for key in some], owned=owned)
        at_hand = len(found.packed)
        if loose:
            in_files = [key for key in found.unread if key[0]]
            for key in (key for key in found.unread if not key[0]):
                _load_loose(key, loose[key], load.pending)
            at_hand += len(found.unread) - len(in_files)
        live.reader.load(in_files, load)
        return at_hand

    def _await(
        self,
        awaited: Mapping[PageKey, PendingLoad],
        loose: Mapping[PageKey, PageDescriptor],
        admit: bool,
        ready: dict[PageKey, pa.RecordBatch | LazyPage],
    ) -> ReadCounts:
        """Wait for pages that other calls load, load those that they gave up, and return the counts."""
        groups: dict[int, tuple[PendingLoad, list[PageKey]]] = {}
        for key, pending in awaited.items():
            groups.setdefault(id(pending), (pending, []))[1].append(key)
        for pending, keys in groups.values():
            ready.update((key, page.content) for key, page in pending.wait(keys).items())
        left = [key for key in awaited if key not in ready]
        if not left:
            return ReadCounts()
        more, spent = self._get_or_load(dict.fromkeys(left), loose, admit)
        ready.update(more)
        return spent

    def bind_store(self, store_id: str) -> None:
        """Cache pages of this store only; drop cached pages of any other one.

        Parameters
        ----------
        store_id
            Identity of the store whose versions are read.
        """
        store_id = as_str(store_id, "store_id")
        if store_id != self._store_id:
            self._store_id = store_id
            self._state = self._fresh()

    def _fresh(self) -> _Live:
        config = self._config
        workers = Workers(config.threads)
        disk = None
        if config.disk_path is not None and config.disk_bytes:
            url = getattr(self._store, "url", "")
            address = f"{url}#{self._store_id}" if self._store_id else url
            disk = DiskCache(config.disk_path, config.disk_bytes, address)
        return _Live(
            pid=os.getpid(),
            cache=PageCache(budgets_of(config)),
            workers=workers,
            reader=PageReader(
                self._store, workers, gap_bytes=config.gap_bytes, disk=disk, padding=self._padding
            ),
            lock=threading.Lock(),
            total=ReadCounts(),
        )

    def _live(self) -> _Live:
        live = self._state
        if live.pid != os.getpid():
            self._state = live = self._fresh()
        return live

    def __reduce__(self) -> tuple[type[PageHandler], tuple[ObjectStore, CacheConfig, bool]]:
        return (PageHandler, (self._store, self._config, self._padding))


def _values_of(
    run: PageRun, found: list[pa.RecordBatch | LazyPage], whole: bool
) -> list[pa.Array | LazyPage]:
    """Return the values of the pages of a run, as many as each page shows."""
    if not found:
        return []
    values = [page if whole or isinstance(page, LazyPage) else page.column(0) for page in found]
    counts = run.numbers("entry_count")
    differ = (counts != run.numbers("payload_entries")) & (run.numbers("kind") != PageKind.CONSTANT)
    for index in differ.nonzero()[0].tolist():
        batch = resize_batch(as_batch(found[index]), run.descriptor(index))
        values[index] = batch if whole else batch.column(0)
    return values


def _counted(load: Load) -> ReadCounts:
    """Return the counts of a call so far."""
    counts = ReadCounts()
    for each in load.tally:
        counts.add(each)
    return counts


def _load_loose(key: PageKey, page: PageDescriptor, pending: PendingLoad) -> None:
    """Decode a page that is in no file into the pending load."""
    try:
        batch = decode_detached(page)
    except SparkPagesError as error:
        pending.fail((key,), error)
        raise
    pending.complete(key, LoadedPage(batch, referenced_bytes(batch) + ENTRY_OVERHEAD_BYTES, None))
