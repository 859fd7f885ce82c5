"""Spans of page files on a local disk, with their bytes: several reads in flight, few files open."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import TypeAlias

from spark_pages.errors import DamageError, SparkPagesError
from spark_pages.io.local_file import LocalFile, OpenFiles
from spark_pages.io.read_buffers import ReadTool, ReadTools, processors
from spark_pages.io.read_plan import PageSpan
from spark_pages.io.single_flight import Flight

_FILES_OF_A_JOB = 16
"""A job has its files open at the same time, and a process has many jobs and few file descriptors."""

_AHEAD_BYTES = 16 << 20
"""Of what is read while somebody works on what was read before; a run of a page compaction is about half."""

Read: TypeAlias = Sequence[tuple[PageSpan, memoryview]]
"""Spans with their bytes, which are to be used before more are asked for."""


class LocalSpans:
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
        self._tools = ReadTools(processors())

    def read(self, spans: Sequence[PageSpan], flight: Flight) -> Iterator[Read]:
        """The spans of a job, one of `shares`, in order.

        Parameters
        ----------
        flight
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
            files = self._lease(spans, leases, flight)
            lent: AbstractContextManager[ReadTool]
            lent = self._tools.lend_in_turn() if _in_flight(files, spans) else self._tools.lend()
            yield from _read(files, spans, leases.enter_context(lent), flight)

    def read_ahead(self, spans: Sequence[PageSpan], flight: Flight) -> Iterator[Read]:
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
            for some in shares(spans, len(spans)):
                with ExitStack() as leases:
                    yield from _read(self._lease(some, leases, flight), some, tools, flight)

    def forget(self, paths: Iterable[str]) -> None:
        """No such file is held open."""
        self._files.forget(paths)

    def close(self) -> None:
        """No file is held open, nor memory to read into; more may be read."""
        self._files.close()
        self._tools = ReadTools(processors())

    def _lease(self, spans: Sequence[PageSpan], leases: ExitStack, flight: Flight) -> dict[str, LocalFile]:
        """The files of some spans, open as long as `leases` is."""
        files: dict[str, LocalFile] = {}
        for path in dict.fromkeys(span.path for span in spans):
            try:
                file = leases.enter_context(self._files.lease(path))
                if file is None:
                    raise DamageError(f"Cannot read {path!r}: it is on no local disk, as others are.")
            except SparkPagesError as error:
                flight.fail([key for span in spans if span.path == path for key in span.keys], error)
                raise
            files[path] = file
        return files


def shares(spans: Sequence[PageSpan], most: int) -> list[list[PageSpan]]:
    """The spans in order, no more than so many together, and of no more than `_FILES_OF_A_JOB` files."""
    found: list[list[PageSpan]] = []
    paths: set[str] = set()
    for span in spans:
        is_one_too_many = span.path not in paths and len(paths) == _FILES_OF_A_JOB
        if not found or len(found[-1]) == most or is_one_too_many:
            found.append([])
            paths = set()
        found[-1].append(span)
        paths.add(span.path)
    return found


def _in_flight(files: Mapping[str, LocalFile], spans: Sequence[PageSpan]) -> bool:
    """Whether several of the spans may be read at the same time."""
    return len(spans) > 1 and all(file.is_direct for file in files.values())


def _read(
    files: Mapping[str, LocalFile], spans: Sequence[PageSpan], tools: ReadTool, flight: Flight
) -> Iterator[Read]:
    read = 0
    try:
        queue = tools.queue() if _in_flight(files, spans) else None
        if queue is not None:
            for together in queue.read(files, spans):
                read += len(together)
                yield together
        else:
            for span in spans:
                view = files[span.path].read(span.start, span.stop - span.start, tools.memory())
                read += 1
                yield [(span, view)]
    except SparkPagesError as error:
        flight.fail(spans[read].keys if read < len(spans) else (), error)
        raise
