"""Reads compressed pages, as few requests as their places allow."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spark_pages.errors import DamageError
from spark_pages.io.direct import read_aligned
from spark_pages.io.read_counts import ReadCounts
from spark_pages.model.page import PAGE_ALIGNMENT, PAGE_HEADER_SIZE, PageDescriptor, PageKind

if TYPE_CHECKING:
    from spark_pages.storage.store import ObjectStore

MAX_RUN_BYTES = 8 << 20
"""Adjacent pages share a request up to this many bytes."""

READ_THREADS = 4
"""Requests in flight; more does not help a local disk much (performance.md, section 5)."""

Place = tuple[str, int, int, int]
"""Key, offset, reserved bytes and used bytes of a page."""


@dataclass(slots=True)
class _Run:
    """Pages that lie one after another in one object, read by one request."""

    path: str
    start: int
    end: int
    used_end: int
    places: list[Place]


@dataclass(slots=True)
class _Live:
    """What a fork must not inherit."""

    pid: int = field(default_factory=os.getpid)
    lock: threading.Lock = field(default_factory=threading.Lock)
    counts: ReadCounts = field(default_factory=ReadCounts)
    pool: ThreadPoolExecutor | None = None


class PageReader:
    """Reads file pages of one store: whole runs of adjacent pages, several runs at once.

    Parameters
    ----------
    store
        Where the page files are. Local files (``store.local_path``) are read with O_DIRECT, others by
        ``store.get_ranges``.
    max_run_bytes
        Adjacent pages share a request up to this many bytes; a page larger than that has its own.
    threads
        Most requests in flight.

    Notes
    -----
    Safe to share between threads and across a fork.
    """

    def __init__(
        self, store: ObjectStore, *, max_run_bytes: int = MAX_RUN_BYTES, threads: int = READ_THREADS
    ) -> None:
        self._store = store
        self._max_run_bytes = max_run_bytes
        self._threads = threads
        self._state = _Live()

    @property
    def counts(self) -> ReadCounts:
        """Everything read by this process so far."""
        return self._live().counts

    def read(self, pages: Sequence[PageDescriptor]) -> list[memoryview]:
        """Header and payload of every page, as `fetch` gets them, without the counts."""
        return self.fetch(pages)[0]

    def fetch(self, pages: Sequence[PageDescriptor]) -> tuple[list[memoryview], ReadCounts]:
        """Header and payload of every page in the order asked, and what that took.

        Parameters
        ----------
        pages
            Descriptors of kind FILE, in any order; one that comes twice is read once.

        Returns
        -------
        list of memoryview
            ``actual_len`` bytes each, not checked. Pages of one run share its memory: copy what is
            kept for long.
        ReadCounts
            Of this call.

        Raises
        ------
        ObjectNotFoundError
            If a page file is gone.
        DamageError
            If a page file is shorter than a descriptor says, or a descriptor cannot be true.
        StorageError
            If the storage fails.
        """
        places = [_place(page) for page in pages]
        found: dict[Place, memoryview] = {}
        runs = self._plan_runs(places)
        jobs = self._jobs(runs, found)
        width = min(self._threads, len(jobs))
        if width > 1:
            # A strided share per thread, because a future per page would cost as much as the page.
            list(self._pool().map(_call_all, [jobs[first::width] for first in range(width)]))
        else:
            _call_all(jobs)
        read = sum(run.end - run.start for run in runs)
        counts = ReadCounts(requests=len(runs), bytes=read, pages=len(found))
        live = self._live()
        with live.lock:
            live.counts += counts
        return [found[place] for place in places], counts

    def close(self) -> None:
        """No thread of this reader is left; it may be used again."""
        live = self._live()
        with live.lock:
            pool, live.pool = live.pool, None
        if pool is not None:
            pool.shutdown()

    def _plan_runs(self, places: list[Place]) -> list[_Run]:
        runs: list[_Run] = []
        for place in sorted(set(places)):
            path, offset, alloc_len, actual_len = place
            run = runs[-1] if runs else None
            if (
                run is not None
                and run.path == path
                and run.end == offset
                and run.end - run.start + alloc_len <= self._max_run_bytes
            ):
                run.end, run.used_end = offset + alloc_len, offset + actual_len
                run.places.append(place)
            else:
                runs.append(_Run(path, offset, offset + alloc_len, offset + actual_len, [place]))
        return runs

    def _jobs(self, runs: list[_Run], found: dict[Place, memoryview]) -> list[Callable[[], None]]:
        """One call per local run, and one per remote object for all of its runs."""
        local: dict[str, str | None] = {}
        remote: dict[str, list[_Run]] = {}
        jobs: list[Callable[[], None]] = []
        for run in runs:
            if run.path not in local:
                local[run.path] = self._store.local_path(run.path)
            file = local[run.path]
            if file is None:
                remote.setdefault(run.path, []).append(run)
            else:
                jobs.append(_local_job(file, run, found))
        jobs.extend(self._remote_job(path, group, found) for path, group in remote.items())
        return jobs

    def _remote_job(self, path: str, runs: list[_Run], found: dict[Place, memoryview]) -> Callable[[], None]:
        def job() -> None:
            ranges = [(run.start, run.used_end - run.start) for run in runs]
            for run, answer in zip(runs, self._store.get_ranges(path, ranges), strict=True):
                _share_out(run, memoryview(answer), found)

        return job

    def _live(self) -> _Live:
        live = self._state
        if live.pid != os.getpid():
            self._state = live = _Live()
        return live

    def _pool(self) -> ThreadPoolExecutor:
        live = self._live()
        with live.lock:
            if live.pool is None:
                live.pool = ThreadPoolExecutor(self._threads, thread_name_prefix="spark-pages-read")
            return live.pool

    def __reduce__(self) -> tuple[type[PageReader], tuple[ObjectStore]]:
        return (PageReader, (self._store,))


def _local_job(file: str, run: _Run, found: dict[Place, memoryview]) -> Callable[[], None]:
    def job() -> None:
        _share_out(run, read_aligned(file, run.start, run.end - run.start), found)

    return job


def _share_out(run: _Run, buffer: memoryview, found: dict[Place, memoryview]) -> None:
    for place in run.places:
        start = place[1] - run.start
        found[place] = buffer[start : start + place[3]]


def _call_all(jobs: list[Callable[[], None]]) -> None:
    for job in jobs:
        job()


def _place(page: PageDescriptor) -> Place:
    offset, alloc_len, actual_len = page.offset, page.alloc_len, page.actual_len
    if (
        page.kind is not PageKind.FILE
        or offset < 0
        or offset % PAGE_ALIGNMENT
        or alloc_len % PAGE_ALIGNMENT
        or not PAGE_HEADER_SIZE <= actual_len <= alloc_len
    ):
        raise DamageError(
            f"Cannot read page {page.id} of {page.disk_path!r}: expected a file page at a multiple of "
            f"{PAGE_ALIGNMENT} that fits its reserve, found kind {page.kind!r}, offset {offset}, alloc_len "
            f"{alloc_len}, actual_len {actual_len}."
        )
    return (page.disk_path, offset, alloc_len, actual_len)
