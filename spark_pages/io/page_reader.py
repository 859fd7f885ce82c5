"""Loads file pages: as few requests as their places allow, checked and decoded where they were read."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from spark_pages.errors import DamageError, SparkPagesError
from spark_pages.format.pages.batch_codec import decode_batch
from spark_pages.format.pages.lazy_page import LazyPage
from spark_pages.format.pages.page_codec import open_page
from spark_pages.format.pages.page_header import footprint
from spark_pages.io.cache_tiers import ENTRY_OVERHEAD_BYTES
from spark_pages.io.disk_cache import DiskCache
from spark_pages.io.file_writer import check_padding, padding_of
from spark_pages.io.linux_aio import HAS_QUEUES
from spark_pages.io.local_reads import LocalRangeReader, Read, split
from spark_pages.io.read_counts import ReadCounts, request_counts
from spark_pages.io.read_plan import ReadRange, join_spans, most_bytes, most_spans, plan_spans
from spark_pages.io.single_flight import LoadedPage, PendingLoad, StoredBlock
from spark_pages.io.workers import SerialQueue, Workers
from spark_pages.model.run import PageKey
from spark_pages.storage.checks import check_answer, read_checked

if TYPE_CHECKING:
    from spark_pages.storage.store import ObjectStore

LOCAL_SPAN_BYTES = 1 << 20
"""Neighbours on a local disk share a request up to this many bytes: more would not be quicker, and what was
just read should still be in the cache of the processor when it is decoded."""

REMOTE_SPAN_BYTES = 8 << 20
"""Neighbours in an object store share a request up to this many bytes."""

_SPANS_OF_A_JOB = 64
_LOCAL_THREADS = 8

_PAGES_OF_A_LOOK = 256
"""Pages of the disk cache whose stored bytes are in memory together."""


@dataclass(slots=True)
class Load:
    """One call's pages to load, and what that took so far.

    Attributes
    ----------
    pending
        Takes the pages as they come, and what went wrong.
    keep_packed
        Whether the compressed bytes are kept with the pages.
    admit
        Whether the pages are loaded to be kept.
    spare_bytes
        Stored bytes that may be kept all the same, in free room of the compressed cache.
    tally
        What each job that is done has read.
    wrong
        Pages of which the first answer was wrong.
    """

    pending: PendingLoad
    keep_packed: bool
    admit: bool
    spare_bytes: int = 0
    tally: list[ReadCounts] = field(default_factory=list)
    wrong: set[PageKey] = field(default_factory=set)

    def keep_spare(self, span: ReadRange, view: memoryview, owned: bool) -> None:
        """Keep the stored bytes of a span whose pages have been checked, if there is free room for them.

        Parameters
        ----------
        view
            What was read.
        owned
            Whether nobody else uses that memory; else the pages are copied, in one piece.
        """
        if not owned:
            view = view[: span.used_stop - span.start]
        size = len(view) + ENTRY_OVERHEAD_BYTES * len(span.keys)
        if size > self.spare_bytes:
            return
        self.spare_bytes -= size
        memory = view if owned else memoryview(bytes(view))
        sound = [key for key in span.keys if key not in self.wrong]
        pages = {key: memory[(first := key[1] - span.start) : first + key[3]] for key in sound}
        self.pending.spare.append(StoredBlock(len(memory), pages))


class PageReader:
    """Loads file pages of one store: whole spans of neighbours, several at once.

    Parameters
    ----------
    store
        Where the page files are. Local files (``store.local_path``) are read past the page cache of the
        kernel, others by ``store.get_range``.
    workers
        The threads for it; one of them has one request in flight.
    gap_bytes
        See `join_spans`; for object stores alone.
    disk
        Where pages of object stores are looked for first.
    padding
        Whether padding of a page that is not zeros is damage too.

    Notes
    -----
    Of one process: a forked child makes its own. Safe to share between threads.
    """

    def __init__(
        self,
        store: ObjectStore,
        workers: Workers,
        *,
        gap_bytes: int | None = None,
        disk: DiskCache | None = None,
        padding: bool = False,
    ) -> None:
        self._store = store
        self._workers = workers
        self._gap_bytes = gap_bytes
        self._disk = disk
        self._padding = padding
        self._local = LocalRangeReader(store.local_path)
        self._is_local: bool | None = None

    def load(self, keys: Sequence[PageKey], load: Load) -> None:
        """Every page is in the pending load, or an error is raised and in the pending load too.

        Parameters
        ----------
        keys
            File pages, each once.
        load
            Where they go.

        Raises
        ------
        ObjectNotFoundError
            If a page file is gone.
        DamageError
            If a page file is shorter than a descriptor says, a page is not the one that was written, or a
            descriptor cannot be true.
        StorageError
            If the storage fails.

        Notes
        -----
        A span of neighbours is one request. A thread reads and decodes a whole span, so that it asks for the
        GIL a few times a page and hands over nothing.
        """
        if not keys:
            return
        if self.is_local(keys[0][0]):
            self._load_local(keys, load)
        else:
            self._load_remote(keys, load)

    def is_local(self, path: str) -> bool:
        """Whether page files are on a local disk; of a store as a whole, so that any path will do."""
        if self._is_local is None:
            self._is_local = self._store.local_path(path) is not None
        return self._is_local

    def estimate_requests(self, keys: Sequence[PageKey]) -> tuple[int, int]:
        """Estimate the requests and bytes of `load` for these pages with an empty disk cache."""
        if not keys:
            return 0, 0
        local = self.is_local(keys[0][0])
        most = LOCAL_SPAN_BYTES if local else REMOTE_SPAN_BYTES
        spans = plan_spans(keys, most)
        if local:
            return len(spans), sum(span.stop - span.start for span in spans)
        spans = join_spans(spans, most, self._gap_bytes)
        return len(spans), sum(span.used_stop - span.start for span in spans)

    def estimate_most_requests(self, keys: Sequence[PageKey]) -> tuple[int, int]:
        """Estimate the most requests and bytes that `load` of some of these pages takes.

        They may be loaded in two parts, each of neighbours.
        """
        if not keys:
            return 0, 0
        spans = plan_spans(keys, sys.maxsize)
        if self.is_local(keys[0][0]):
            most, size = LOCAL_SPAN_BYTES, sum(span.stop - span.start for span in spans)
        else:
            most, size = REMOTE_SPAN_BYTES, most_bytes(spans, self._gap_bytes)
        return min(len(keys), most_spans(spans, most) + 1), size

    def read_ahead(self, spans: Sequence[ReadRange], load: Load) -> Generator[Read, None, None]:
        """Spans of local files, in order; while the caller uses some, others are read.

        Raises
        ------
        ObjectNotFoundError, DamageError, StorageError
            As `load`; nothing is said yet of what is inside of the pages.
        """
        return self._checked(self._local.read_ahead(spans, load.pending), load)

    def forget(self, paths: Iterable[str]) -> None:
        """No such file is held open."""
        self._local.forget(paths)

    def clear_disk(self) -> None:
        """Empty the folder of the disk cache, if there is one."""
        if self._disk is not None:
            self._disk.clear()

    def close(self) -> None:
        """No file is held open, nor memory to read into; the reader may be used again."""
        self._local.close()

    def _load_local(self, keys: Sequence[PageKey], load: Load) -> None:
        """Every job is a share of the spans, of one file or several."""
        spans = self._plan(keys, load, LOCAL_SPAN_BYTES)
        # A thread with a queue keeps the disk busy by itself. A second one of the same call would only take
        # the GIL from it: ten thousand rows from all over a table took 1.7 times as long with two.
        at_once = 1 if HAS_QUEUES else min(self._workers.threads, _LOCAL_THREADS)
        most = min(_SPANS_OF_A_JOB, -(-len(spans) // at_once))
        self._workers.run([partial(self._read_files, some, load) for some in split(spans, most)], at_once)

    def _load_remote(self, keys: Sequence[PageKey], load: Load) -> None:
        """Every job is a request, after the disk cache was asked."""
        if self._disk is not None:
            keys = self._read_disk_cache(self._disk, keys, load)
        spans = self._plan(keys, load, REMOTE_SPAN_BYTES)
        spans = join_spans(spans, REMOTE_SPAN_BYTES, self._gap_bytes)
        decoding = SerialQueue[tuple[ReadRange, bytes]](lambda answer: self._take(*answer, load))
        self._workers.run([partial(self._fetch, span, load, decoding) for span in spans])

    def _plan(self, keys: Sequence[PageKey], load: Load, most: int) -> list[ReadRange]:
        try:
            return plan_spans(keys, most)
        except DamageError as error:
            load.pending.fail(keys, error)
            raise

    def _read_files(self, spans: Sequence[ReadRange], load: Load) -> None:
        """Read and decode spans of local files."""
        with closing(self._checked(self._local.read(spans, load.pending), load)) as read:
            for together in read:
                decode_into(load, *packed_pages(together), False, partial(self.reread, load=load))
                for span, view in together:
                    load.keep_spare(span, view, owned=False)

    def _checked(self, read: Iterator[Read], load: Load) -> Generator[Read, None, None]:
        """Count a read, and verify its padding."""
        counts = ReadCounts()
        try:
            for together in read:
                for span, view in together:
                    counts.add(request_counts(len(view), len(span.keys), span.way))
                if self._padding:
                    self._check_paddings(together, load)
                yield together
        finally:
            load.tally.append(counts)

    def _fetch(self, span: ReadRange, load: Load, decoding: SerialQueue[tuple[ReadRange, bytes]]) -> None:
        """Read one span of a remote object, and have it decoded."""
        length = (span.stop if self._padding else span.used_stop) - span.start
        try:
            answer = self._answer(span.path, span.start, length)
        except SparkPagesError as error:
            load.pending.fail(span.keys, error)
            raise
        load.tally.append(request_counts(length, len(span.keys)))
        decoding.submit((span, answer))

    def _answer(self, path: str, offset: int, length: int) -> bytes:
        """Read a range, once more if the answer is too short."""
        return read_checked(
            lambda: check_answer(path, offset, length, self._store.get_range(path, offset, length))
        )

    def reread(self, key: PageKey, load: Load) -> memoryview:
        """Read header and payload of one page again, of which the first answer was wrong."""
        path, offset, _, actual_len, _, _ = key
        load.tally.append(request_counts(actual_len, 0))
        load.wrong.add(key)
        return memoryview(self._store.get_range(path, offset, actual_len))

    def _check_paddings(self, read: Read, load: Load) -> None:
        """Check what follows each page up to the next block; read it again where it is wrong."""
        for span, view in read:
            for key in span.keys:
                path, offset, _, actual_len, _, _ = key
                end, length = offset + actual_len, padding_of(actual_len)
                first = end - span.start
                where = f"{path}@{offset}"
                try:
                    try:
                        check_padding(view[first : first + length], where=where)
                    except DamageError:
                        check_padding(memoryview(self._store.get_range(path, end, length)), where=where)
                except SparkPagesError as error:
                    load.pending.fail((key,), error)
                    raise

    def _take(self, span: ReadRange, answer: bytes, load: Load) -> None:
        """Decode a span that was fetched, and keep it on disk."""
        view = memoryview(answer)
        if self._padding:
            self._check_paddings([(span, view)], load)
        second: list[memoryview] = []

        def place(key: PageKey) -> slice:
            first = key[1] - span.start
            return slice(first, first + key[3])

        def reread(key: PageKey) -> memoryview:
            """Read all of the span again, once: other pages of it may have come wrong, too."""
            if not second:
                load.tally.append(request_counts(len(view), 0))
                second.append(memoryview(self._answer(span.path, span.start, len(view))))
            load.wrong.add(key)
            again[key] = second[0][place(key)]
            return again[key]

        again: dict[PageKey, memoryview] = {}
        decode_into(load, *packed_pages([(span, view)]), len(span.keys) == 1, reread)
        if self._disk is not None and load.admit:
            for key in span.keys:
                self._disk.put(key, again.get(key, view[place(key)]))
        load.keep_spare(span, view, owned=True)

    def _read_disk_cache(self, disk: DiskCache, keys: Sequence[PageKey], load: Load) -> list[PageKey]:
        """Decode what the disk cache has; gives the rest. What is damaged there is as good as missing."""
        hits = 0
        for first in range(0, len(keys), _PAGES_OF_A_LOOK):
            some = ((key, disk.get(key)) for key in keys[first : first + _PAGES_OF_A_LOOK])
            found = {key: packed for key, packed in some if packed is not None}
            alike = decode_batch(list(found.values()), list(found), apart=load.admit)
            for (key, packed), page in zip(found.items(), alike, strict=True):
                try:
                    kept = (
                        decode_loaded(key, packed, load.keep_packed, True)
                        if page is None
                        else _loaded(page, packed, load.keep_packed)
                    )
                except DamageError:
                    disk.drop(key)
                else:
                    load.pending.complete(key, kept)
                    place = ReadRange(key[0], key[1], key[1] + key[3], key[1] + key[3], [key])
                    load.keep_spare(place, packed, owned=True)
                    hits += 1
        load.tally.append(ReadCounts(disk_hits=hits))
        return [key for key in keys if key not in load.pending.loaded] if hits else list(keys)


def packed_pages(read: Read) -> tuple[list[PageKey], list[memoryview]]:
    """Return the pages of spans, each with its header and payload."""
    keys = [key for span, _ in read for key in span.keys]
    packed: list[memoryview] = []
    for span, view in read:
        start = span.start
        packed += [view[(first := key[1] - start) : first + key[3]] for key in span.keys]
    return keys, packed


def decode_into(
    load: Load,
    keys: Sequence[PageKey],
    packed: Sequence[memoryview],
    owned: bool,
    reread: Callable[[PageKey], memoryview] | None = None,
) -> None:
    """Verify and decode pages into the pending load.

    Parameters
    ----------
    load
        Says what is kept of them.
    keys, packed
        File pages, with header and payload of each.
    owned
        See `decode_loaded`.
    reread
        Reads a page again that is not what was written; None where that would not help.

    Raises
    ------
    DamageError
        Names path and offset of the first that is not what was written. The pending load has it too,
        and those before it as pages.
    """
    pending, keep = load.pending, load.keep_packed
    if load.admit and not owned:
        packed = [memoryview(bytes(page)) if keep or footprint(page)[0] else page for page in packed]
        owned = True
    alike = decode_batch(packed, keys, apart=load.admit)
    for key, each, found in zip(keys, packed, alike, strict=True):
        try:
            if found is not None:
                page = _loaded(found, each, keep)
            else:
                page = _decode_or_reread(key, each, keep, owned, reread)
        except SparkPagesError as error:
            pending.fail((key,), error)
            raise
        pending.complete(key, page)


def _decode_or_reread(
    key: PageKey,
    packed: memoryview,
    keep: bool,
    owned: bool,
    reread: Callable[[PageKey], memoryview] | None,
) -> LoadedPage:
    try:
        return decode_loaded(key, packed, keep, owned)
    except DamageError:
        if reread is None:
            raise
        return decode_loaded(key, memoryview(bytes(reread(key))), keep, True)


def decode_loaded(key: PageKey, packed: memoryview, keep: bool, owned: bool) -> LoadedPage:
    """Verify and decode a page for the caches.

    Parameters
    ----------
    key
        Of a file page.
    packed
        Header and payload.
    keep
        Whether they are kept with the page.
    owned
        Whether `packed` holds its memory alone. Else what is kept is a copy: pages that were read together
        share memory, and budgets could not hold.

    Raises
    ------
    DamageError
        Names path and offset.
    """
    if (keep or footprint(packed)[0]) and not owned:
        packed = memoryview(bytes(packed))
    page = open_page(packed, where=f"{key[0]}@{key[1]}", expected_checksum=key[4], expected_entries=key[5])
    return _loaded(page, packed, keep)


def _loaded(page: pa.RecordBatch | LazyPage, packed: memoryview, keep: bool) -> LoadedPage:
    """Return a page with the memory that it takes in a cache."""
    if isinstance(page, LazyPage) and len(page.block.where) > 1:  # not apart: it shares nothing of `packed`
        return LoadedPage(page, page.block.memory_bytes + ENTRY_OVERHEAD_BYTES, None)
    shared, size = footprint(packed)
    if isinstance(page, LazyPage):
        size = page.block.memory_bytes - (page.block.stride if shared else 0)
    held = size + (len(packed) if shared or keep else 0)
    return LoadedPage(page, held + ENTRY_OVERHEAD_BYTES, packed if keep else None)
