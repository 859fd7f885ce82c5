"""Arrow data that leaves memory before its transaction ends: in a file without a name, mapped from there."""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from spark_pages.errors import StorageError

_ALIGNMENT = 64


class SpillFile:
    """Record batches of one transaction, in the folder for temporary files.

    Notes
    -----
    The file comes with the first batch. It has no name, so it is gone with the last one who refers to it, and
    with the process, however that ends. A forked process begins a file of its own, and still reads what was
    in this one.
    """

    def __init__(self) -> None:
        self._file: _NamelessFile | None = None

    def put(self, batch: pa.RecordBatch) -> Spilled:
        """Write a batch to the file.

        Raises
        ------
        StorageError
            If the file cannot be made or has no room.
        """
        with _told():
            if self._file is None or self._file.process != os.getpid():
                self._file = _NamelessFile()
            return self._file.append(batch)


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(
            "Cannot keep updates of a transaction, which are more than its memory may hold, in a file in the "
            f"folder {_folder()}: {error}.",
            hint="Make room there, name another folder by TMPDIR, or give the transaction more memory_bytes.",
        ) from error


def _folder() -> str:
    try:
        return repr(tempfile.gettempdir())
    except OSError:  # none can be written to
        return "for temporary files"


@dataclass(frozen=True, eq=False, slots=True)
class Spilled:
    """A record batch in a file.

    Attributes
    ----------
    file
        The file.
    start, end
        Bytes [start, end) of it: a stream of Arrow's IPC.
    """

    file: _NamelessFile
    start: int
    end: int

    def open(self) -> pa.RecordBatch:
        """Map the batch: it uses only page cache, which the system can reclaim."""
        with _told():
            stream = self.file.mapped(self.end).slice(self.start, self.end - self.start)
        return pa.ipc.open_stream(pa.BufferReader(stream)).read_next_batch()


class _NamelessFile:
    """A file that grows, and is mapped as a whole."""

    def __init__(self) -> None:
        file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed with the last who refers to it
        weakref.finalize(self, file.close).atexit = False  # what runs even later may still commit
        self.process = os.getpid()
        self._number = file.fileno()
        self._end = 0
        self._mapping: mmap.mmap | None = None

    def append(self, batch: pa.RecordBatch) -> Spilled:
        start = -(-self._end // _ALIGNMENT) * _ALIGNMENT
        sink = _Sink(self._number, start)
        writer = pa.ipc.new_stream(pa.PythonFile(sink, "w"), batch.schema)
        writer.write_batch(batch)
        writer.close()
        self._end = sink.end
        return Spilled(self, start, sink.end)

    def mapped(self, end: int) -> pa.Buffer:
        """Map the file at least up to an offset."""
        if self._mapping is None or len(self._mapping) < end:
            self._mapping = mmap.mmap(self._number, self._end, access=mmap.ACCESS_READ)
        return pa.py_buffer(self._mapping)


class _Sink:
    """What Arrow writes goes to a place in a file, whatever was to stand there before."""

    closed = False

    def __init__(self, number: int, start: int) -> None:
        self._number = number
        self.end = start

    def write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            written = os.pwrite(self._number, rest, self.end)
            self.end += written
            rest = rest[written:]

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True
