"""What a thread needs to read local files, lent to one after another."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from spark_pages.io.linux_aio import QUEUE_BYTES, ReadQueue, open_queue
from spark_pages.io.local_file import huge_memory


class ReadTool:
    """Some memory and a queue, of one thread at a time; each is made when it is first asked for."""

    __slots__ = ("_is_refused", "_memory", "_queue")

    def __init__(self) -> None:
        self._queue: ReadQueue | None = None
        self._is_refused = False
        self._memory: memoryview | None = None

    @property
    def is_sound(self) -> bool:
        """Whether it may be used again; see `ReadQueue.is_sound`."""
        return self._queue is None or self._queue.is_sound

    def queue(self) -> ReadQueue | None:
        """The queue, or None where the system has none."""
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
        """It has so much memory while the block runs; the queue stays, which takes long to open and close."""
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


class ReadTools:
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
        self._idle: list[ReadTool] = []
        self._turns = threading.BoundedSemaphore(turns)

    @contextmanager
    def lend(self) -> Iterator[ReadTool]:
        """A tool that no other thread has while the block runs; nor later, if it is not sound then."""
        try:
            tool = self._idle.pop()
        except IndexError:
            tool = ReadTool()
        try:
            yield tool
        finally:
            if tool.is_sound:
                self._idle.append(tool)

    @contextmanager
    def lend_in_turn(self) -> Iterator[ReadTool]:
        """The same, once there are turns left."""
        with self._turns, self.lend() as tool:
            yield tool


def processors() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
