"""Many reads of a local file in flight from one thread, by the asynchronous I/O of Linux.

A thread for each read in flight spends more on waking up, and on taking the GIL again, than on the page
that it has read: with 16 threads a page costs twice the processor time that it costs here. So a thread
submits a wave of reads by one system call, decodes the wave before it in the meantime, and collects the
new one by another. This works for O_DIRECT only, which is what page files are read with. Where there is
no such system call, or it is not allowed, the caller reads one span after another.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

import numpy as np

from spark_pages.io.local_file import LocalFile
from spark_pages.io.read_plan import ReadRange
from spark_pages.io.system_cache import Way

WAVE_READS = 32
"""Reads of one wave; two waves are in flight."""

QUEUE_BYTES = 4 << 20
"""Memory of a queue whose reads are decoded as they come."""

_CALLS = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}
"""Numbers of io_setup, io_destroy, io_getevents and io_submit."""

HAS_QUEUES = sys.platform == "linux" and platform.machine() in _CALLS and sys.maxsize > 1 << 32
"""Whether the system calls are known here; the kernel may refuse them all the same."""

_REQUEST = np.dtype(
    [
        ("data", "u8"), ("key", "u4"), ("rw_flags", "u4"), ("opcode", "u2"), ("priority", "i2"),
        ("file", "u4"), ("memory", "u8"), ("length", "u8"), ("offset", "i8"), ("reserved", "u8"),
        ("flags", "u4"), ("event", "u4"),
    ]
)  # fmt: skip
_spare: list[tuple[int, int]] = []
"""Contexts that nobody uses, each with its process: the kernel takes 30 ms to give one back, and 0.2 to make
one."""

_EVENT = np.dtype([("data", "u8"), ("request", "u8"), ("result", "i8"), ("second", "i8")])


class ReadQueue:
    """Reads spans of local files in two waves, one of which is decoded while the other is read.

    Of one thread of one process. Use `open_queue`.

    Parameters
    ----------
    memory
        Half of it for each wave, aligned to a page of the system; nobody else uses it while something is
        being read.

    Raises
    ------
    OSError
        If the system has no asynchronous I/O for this process.
    """

    def __init__(self, memory: memoryview) -> None:
        self._waves = (_AioBatch(), _AioBatch())
        self.use(memory)

    def use(self, memory: memoryview) -> None:
        """From now on it reads into this memory; not while something is being read."""
        half = len(memory) // 2
        self._waves[0].use(memory[:half])
        self._waves[1].use(memory[half:])

    @property
    def is_reusable(self) -> bool:
        """Whether it may be used again: not where somebody was interrupted in the middle of a system call."""
        return all(wave.is_sound for wave in self._waves)

    def read(
        self, files: Mapping[str, LocalFile], spans: Sequence[ReadRange]
    ) -> Iterator[list[tuple[ReadRange, memoryview]]]:
        """Each span with its bytes, in order, as many together as have come together.

        Parameters
        ----------
        files
            By the path of a span; open for reading past the page cache.
        spans
            Of those files. The bytes that come together are to be used before the next are asked for.

        Raises
        ------
        DamageError
            If the file ends before a span does.
        StorageError
            If the system cannot read.

        Notes
        -----
        Two system calls for up to `WAVE_READS` spans, of however many files. A span that the queue cannot
        read, or not whole, is read by itself, which tells what is wrong.
        """
        ahead: list[_AioBatch] = []
        free = list(self._waves)
        taken = 0
        try:
            while taken < len(spans) or ahead:
                while free and taken < len(spans):
                    wave = free.pop()
                    taken += wave.submit(files, spans, taken)
                    ahead.append(wave)
                wave = ahead.pop(0)
                free.append(wave)
                yield from wave.collect(files)
        finally:
            for wave in self._waves:
                wave.wait_all()


class _AioBatch:
    """Reads that are submitted together and collected together.

    Attributes
    ----------
    is_sound
        Whether it is known what is in flight. What a system call has answered is lost where a signal comes
        with it and its handler raises, as Ctrl-C does.
    """

    def __init__(self) -> None:
        self.is_sound = True
        self._pid = os.getpid()
        self._context = _context()
        self._memory = memoryview(b"")
        self._address = 0
        self._requests = np.zeros(WAVE_READS, _REQUEST)
        self._requests["data"] = np.arange(WAVE_READS)
        self._pointers = (
            self._requests.ctypes.data + np.arange(WAVE_READS, dtype=np.uint64) * _REQUEST.itemsize
        ).astype(np.uint64)
        self._events = np.zeros(WAVE_READS, _EVENT)
        self._spans: Sequence[ReadRange] = ()
        self._starts: list[int] = []
        self._submitted = 0
        self._cached: dict[int, int] = {}  # bytes of spans that needed no submission

    def use(self, memory: memoryview) -> None:
        """From now on it reads into this memory."""
        self.wait_all()
        self._memory = memory
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(memory))

    def submit(self, files: Mapping[str, LocalFile], spans: Sequence[ReadRange], first: int) -> int:
        """As many spans from `first` on as there is room for are being read, at least one; gives how many."""
        self.wait_all()
        starts: list[int] = []
        used = 0
        for span in spans[first : first + WAVE_READS]:
            length = span.stop - span.start
            if used + length > len(self._memory):
                break
            starts.append(used)
            used += length
        count = len(starts)
        self._spans, self._starts, self._submitted = spans[first : first + max(1, count)], starts, 0
        self._cached = self._read_cached(files) if count else {}
        left = [index for index in range(count) if index not in self._cached]
        count = len(left)
        if count:
            chosen = [self._spans[index] for index in left]
            requests = self._requests[:count]
            requests["data"] = left
            requests["file"] = [files[span.path].fileno() for span in chosen]
            requests["memory"] = [self._address + starts[index] for index in left]
            requests["length"] = [span.stop - span.start for span in chosen]
            requests["offset"] = [span.start for span in chosen]
            self.is_sound = False
            try:
                self._submitted = _call(
                    3,
                    ctypes.c_ulong(self._context),
                    ctypes.c_long(count),
                    ctypes.c_void_p(self._pointers.ctypes.data),
                )
            except OSError:
                self._submitted = 0  # collect reads them by themselves
            self.is_sound = True
        return len(self._spans)

    def collect(self, files: Mapping[str, LocalFile]) -> Iterator[list[tuple[ReadRange, memoryview]]]:
        """Iterate over the submitted spans with their bytes, together except those to be read again."""
        results = self._cached | self.wait_all()
        together: list[tuple[ReadRange, memoryview]] = []
        for index, span in enumerate(self._spans):
            length = span.stop - span.start
            if results.get(index) == length:
                start = self._starts[index]
                together.append((span, self._memory[start : start + length]))
                continue
            if together:
                yield together
                together = []
            span.way = Way.DIRECT
            yield [(span, files[span.path].read(span.start, length, memoryview(b"")))]
        if together:
            yield together

    def _read_cached(self, files: Mapping[str, LocalFile]) -> dict[int, int]:
        """Read spans that the operating system has in its cache; gives their bytes by place in the batch."""
        found: dict[int, int] = {}
        for index, (span, start) in enumerate(zip(self._spans, self._starts, strict=False)):
            if span.way is Way.CACHED:
                length = span.stop - span.start
                if files[span.path].read_cached(span.start, self._memory[start : start + length]):
                    found[index] = length
                else:
                    span.way = Way.DIRECT
        return found

    def wait_all(self) -> dict[int, int]:
        """Nothing is in flight any more; what the system said of each read, by its place in the wave.

        If that is not known, nobody waits: it may still be read into memory that is not used again.
        """
        results: dict[int, int] = {}
        while self._submitted and self.is_sound:
            self.is_sound = False
            try:
                found = _call(
                    2,
                    ctypes.c_ulong(self._context),
                    ctypes.c_long(self._submitted),
                    ctypes.c_long(self._submitted),
                    ctypes.c_void_p(self._events.ctypes.data),
                    None,
                )
            except InterruptedError:
                found = 0
            self._submitted -= found
            self.is_sound = True
            events = self._events[:found]
            results.update(zip(events["data"].tolist(), events["result"].tolist(), strict=True))
        return results

    def __del__(self) -> None:
        # Nothing may be written to memory that is given back: what is still in flight is waited for.
        if getattr(self, "_context", 0) and self._pid == os.getpid():
            if self._submitted or not self.is_sound:
                _call(1, ctypes.c_ulong(self._context))
            else:
                _spare.append((self._pid, self._context))


def open_queue(memory: memoryview) -> ReadQueue | None:
    """Open a queue for this thread that reads into `memory`; None if the system has none."""
    try:
        return ReadQueue(memory)
    except OSError:
        return None


def _context() -> int:
    """Return a context of this process for `WAVE_READS` reads."""
    with suppress(IndexError):
        while True:
            pid, context = _spare.pop()
            if pid == os.getpid():
                return context
    made = ctypes.c_ulong(0)
    _call(0, ctypes.c_long(WAVE_READS), ctypes.byref(made))
    return made.value


def _call(which: int, *arguments: object) -> int:
    if not HAS_QUEUES:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    result = int(_syscall(ctypes.c_long(_NUMBERS[which]), *arguments))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


if HAS_QUEUES:
    _NUMBERS = _CALLS[platform.machine()]
    _syscall = ctypes.CDLL(None, use_errno=True).syscall
    _syscall.restype = ctypes.c_long
