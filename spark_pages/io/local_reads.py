"""Spans of page files on a local disk, with their bytes: several reads in flight, few files open."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TypeAlias

from spark_pages.errors import DamageError, SparkPagesError
from spark_pages.io.linux_aio import QUEUE_BYTES, ReadQueue, open_queue
from spark_pages.io.local_file import LocalFile, OpenFiles, huge_memory
from spark_pages.io.read_plan import ReadRange
from spark_pages.io.single_flight import PendingLoad
from spark_pages.io.system_cache import Way

_FILES_OF_A_JOB = 16
"""A job has its files open at the same time, and a process has many jobs and few file descriptors."""

_AHEAD_BYTES = 16 << 20
"""Of what is read while somebody works on what was read before; a run of a page compaction is about half."""

Read: TypeAlias = Sequence[tuple[ReadRange, memoryview]]
"""Spans with their bytes, which are to be used before more are asked for."""


class LocalRangeReader:
    """Reads spans of local page files.

    Parameters
    ----------
    locate
        Gives the path of an object, or None where it is not on a local disk.

    Notes
    -----
    Of one process. Safe to share between threads.
    """

    def __init__(self, locate: Callable[[str], str | None]) -> None:
        self._files = OpenFiles(locate)
        self._tools = ReadBufferPool(processors())

    def read(self, spans: Sequence[ReadRange], pending: PendingLoad) -> Iterator[Read]:
        """Read the spans of a job, one part of `split`, in order.

        Parameters
        ----------
        pending
            Is told what went wrong with which pages.

        Raises
        ------
        ObjectNotFoundError
            If a page file is gone.
        DamageError
            If a page file is shorter than a descriptor says.
        StorageError
            If the storage fails.
        """
        with ExitStack() as leases:
            files = self._lease(spans, leases, pending)
            lent: AbstractContextManager[ReadBuffers]
            lent = self._tools.lend_limited() if _can_overlap(files, spans) else self._tools.lend()
            yield from _read(files, spans, leases.enter_context(lent), pending)

    def read_ahead(self, spans: Sequence[ReadRange], pending: PendingLoad) -> Iterator[Read]:
        """Any number of spans, for who works long on each: more are in flight, and nobody else waits for it.

        Raises
        ------
        ObjectNotFoundError, DamageError, StorageError
            As `read`.

        Notes
        -----
        Memory: `_AHEAD_BYTES`, for as long as somebody asks.
        """
        with self._tools.lend() as tools, tools.enlarged(_AHEAD_BYTES):
            for some in split(spans, len(spans)):
                with ExitStack() as leases:
                    yield from _read(self._lease(some, leases, pending), some, tools, pending)

    def forget(self, paths: Iterable[str]) -> None:
        """No such file is held open."""
        self._files.forget(paths)

    def close(self) -> None:
        """No file is held open, nor memory to read into; more may be read."""
        self._files.close()
        self._tools = ReadBufferPool(processors())

    def _lease(
        self, spans: Sequence[ReadRange], leases: ExitStack, pending: PendingLoad
    ) -> dict[str, LocalFile]:
        """Open the files of spans for as long as `leases` is open."""
        files: dict[str, LocalFile] = {}
        for path in dict.fromkeys(span.path for span in spans):
            try:
                file = leases.enter_context(self._files.lease(path))
                if file is None:
                    raise DamageError(f"Cannot read {path!r}: it is on no local disk, as others are.")
            except SparkPagesError as error:
                pending.fail([key for span in spans if span.path == path for key in span.keys], error)
                raise
            files[path] = file
        return files


def split(spans: Sequence[ReadRange], most: int) -> list[list[ReadRange]]:
    """Split spans into parts of at most so many spans and `_FILES_OF_A_JOB` files."""
    found: list[list[ReadRange]] = []
    paths: set[str] = set()
    for span in spans:
        is_one_too_many = span.path not in paths and len(paths) == _FILES_OF_A_JOB
        if not found or len(found[-1]) == most or is_one_too_many:
            found.append([])
            paths = set()
        found[-1].append(span)
        paths.add(span.path)
    return found


def _can_overlap(files: Mapping[str, LocalFile], spans: Sequence[ReadRange]) -> bool:
    """Whether several of the spans may be read at the same time."""
    return len(spans) > 1 and all(file.is_direct for file in files.values())


def _read(
    files: Mapping[str, LocalFile], spans: Sequence[ReadRange], tools: ReadBuffers, pending: PendingLoad
) -> Iterator[Read]:
    read = 0
    try:
        _choose_ways(files, spans)
        queue = tools.queue() if _can_overlap(files, spans) else None
        if queue is not None:
            for together in queue.read(files, spans):
                read += len(together)
                yield together
        else:
            for span in spans:
                view = _read_alone(files[span.path], span, tools.memory())
                read += 1
                yield [(span, view)]
    except SparkPagesError as error:
        pending.fail(spans[read].keys if read < len(spans) else (), error)
        raise


def _choose_ways(files: Mapping[str, LocalFile], spans: Sequence[ReadRange]) -> None:
    """Set `way` of each span: through the operating system's cache where that has all of it.

    Notes
    -----
    One look at each file where it caches nothing between the spans, else one more at each span.
    """
    places: dict[str, list[ReadRange]] = {}
    for span in spans:
        places.setdefault(span.path, []).append(span)
    for path, some in places.items():
        file = files[path]
        first, stop = min(span.start for span in some), max(span.stop for span in some)
        some_cached = file.cached_bytes(first, stop - first) > 0
        for span in some:
            length = span.stop - span.start
            whole = some_cached and (len(some) == 1 or file.cached_bytes(span.start, length) >= length)
            span.way = Way.CACHED if whole else Way.DIRECT if file.is_direct else Way.STORAGE


def _read_alone(file: LocalFile, span: ReadRange, memory: memoryview) -> memoryview:
    length = span.stop - span.start
    if span.way is Way.CACHED:
        view = memory[:length] if length <= len(memory) else memoryview(bytearray(length))
        if file.read_cached(span.start, view):
            return view
        span.way = Way.DIRECT
    return file.read(span.start, length, memory)


class ReadBuffers:
    """Some memory and a queue, of one thread at a time; each is made when it is first asked for."""

    __slots__ = ("_is_refused", "_memory", "_queue")

    def __init__(self) -> None:
        self._queue: ReadQueue | None = None
        self._is_refused = False
        self._memory: memoryview | None = None

    @property
    def is_reusable(self) -> bool:
        """Whether it may be used again; see `ReadQueue.is_sound`."""
        return self._queue is None or self._queue.is_reusable

    def queue(self) -> ReadQueue | None:
        """Return the queue, or None if the system has none."""
        if self._queue is None and not self._is_refused:
            self._queue = open_queue(self.memory())
            self._is_refused = self._queue is None
        return self._queue

    def memory(self) -> memoryview:
        """Memory for what was read and is about to be decoded; the queue reads into the same."""
        if self._memory is None:
            self._memory = huge_memory(QUEUE_BYTES)
        return self._memory

    @contextmanager
    def enlarged(self, memory_bytes: int) -> Iterator[None]:
        """Enlarge the memory during the block; the queue stays, because opening it is slow."""
        usual = self.memory()
        queue, self._memory = self.queue(), huge_memory(memory_bytes)
        if queue is not None:
            queue.use(self._memory)
        try:
            yield
        finally:
            self._memory = usual
            if queue is not None:
                queue.use(usual)


class ReadBufferPool:
    """As many tools as threads have read at the same time.

    Parameters
    ----------
    turns
        Most threads that read through a queue at the same time. One keeps the disk busy by itself, so more
        than there are processors would only take caches and the GIL from each other.

    Notes
    -----
    Not thread-local: the kernel takes milliseconds to close a queue, and programs start threads for little.
    """

    def __init__(self, turns: int) -> None:
        self._idle: list[ReadBuffers] = []
        self._turns = threading.BoundedSemaphore(turns)

    @contextmanager
    def lend(self) -> Iterator[ReadBuffers]:
        """Lend read buffers to one thread during the block; broken ones are not lent again."""
        try:
            tool = self._idle.pop()
        except IndexError:
            tool = ReadBuffers()
        try:
            yield tool
        finally:
            if tool.is_reusable:
                self._idle.append(tool)

    @contextmanager
    def lend_limited(self) -> Iterator[ReadBuffers]:
        """Wait for a turn, and lend read buffers during the block."""
        with self._turns, self.lend() as tool:
            yield tool


def processors() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
