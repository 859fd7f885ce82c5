"""Local page files, kept open, and read past the page cache of the kernel unless that has the pages."""

from __future__ import annotations

import ctypes
import ctypes.util
import errno
import mmap
import os
import stat
import struct
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

from spark_pages.errors import DamageError, ObjectNotFoundError, StorageError
from spark_pages.io.system_cache import NO_WAIT, cached_bytes
from spark_pages.model.page import PAGE_ALIGNMENT
from spark_pages.storage.folders import kind_of

MAX_OPEN_FILES = 64
"""Page files that a reader keeps open; those in use may be more."""

HUGE_PAGE_BYTES = 2 << 20
"""What huge pages are aligned to."""

_MADV_HUGEPAGE: int | None = getattr(mmap, "MADV_HUGEPAGE", None)
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | getattr(os, "O_NOFOLLOW", 0)
_FULL = (errno.EMFILE, errno.ENFILE)


def _no_file(path: str, status: os.stat_result) -> DamageError:
    return DamageError(
        f"Cannot read {path}: {kind_of(status)} lies in its place.",
        hint="Move it away with `mv`, and put the object back from a copy of the store.",
        path=path,
    )


class LocalFile:
    """A page file, open for reading.

    Parameters
    ----------
    path
        An absolute path without symbolic links.

    Raises
    ------
    OSError
        If it cannot be opened.
    DamageError
        If it is no file.
    """

    __slots__ = ("_alignment", "_buffered", "_descriptor", "path", "size_bytes", "users")

    def __init__(self, path: str) -> None:
        self.path = path
        self.users = 0
        self.size_bytes = 0
        self._descriptor = self._buffered = -1
        self._alignment = BUFFERED
        self._descriptor, direct = _open(path)
        status = os.fstat(self._descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise _no_file(path, status)
        self.size_bytes = status.st_size
        if direct:
            self._alignment = find_alignment(self._descriptor, status.st_size)
            if self._alignment == BUFFERED:
                self._reopen_buffered()

    @property
    def is_direct(self) -> bool:
        """Whether it is read past the page cache, in multiples of the alignment of pages."""
        return self._alignment == PAGE_ALIGNMENT

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._descriptor

    def is_current(self) -> bool:
        """Whether the file still has its name; its size is looked up again. One system call."""
        status = os.fstat(self._descriptor)
        self.size_bytes = status.st_size
        return status.st_nlink > 0

    def read(self, offset: int, length: int, scratch: memoryview) -> memoryview:
        """Exactly the bytes ``[offset, offset + length)``.

        Parameters
        ----------
        offset, length
            Bytes. What lies around them is read too, where the disk wants larger blocks.
        scratch
            Memory aligned to a page of the system. The answer lies in it if it is large enough, and is
            overwritten by whoever uses it next; else the answer owns its memory.

        Raises
        ------
        DamageError
            If the file ends before the range does; found out before anything is allocated.
        StorageError
            If the system cannot read.

        Notes
        -----
        One request, with O_DIRECT where the file system has it. 100 µs for 64 KiB from a cold local disk.
        """
        end = offset + length
        if offset < 0 or length < 0 or end > self.size_bytes:
            raise _short_read_error(self.path, offset, length, self.size_bytes)
        block = self._alignment or 1
        first = offset - offset % block
        asked = -(-end // block) * block - first
        view = scratch[:asked] if asked <= len(scratch) else aligned_memory(asked)
        try:
            done = self._fill(view, first, end - first)
        except OSError as error:
            raise StorageError(
                f"Cannot read {length} bytes at {offset} of {self.path}: {error.strerror}.",
                hint="Check the disk with `dmesg` or `spark-pages doctor URL`, then read again.",
            ) from error
        if done < end - first:
            raise _short_read_error(self.path, offset, length, first + done)
        return view[offset - first : end - first]

    def cached_bytes(self, offset: int, length: int) -> int:
        """How many bytes of a range can be had from the operating system's cache; 0 if that is not known."""
        return cached_bytes(self._descriptor, offset, length) if self._alignment != BUFFERED else 0

    def read_cached(self, offset: int, view: memoryview) -> bool:
        """Fill the memory from the operating system's cache; whether that held all of the range.

        Notes
        -----
        Never waits for the disk. Opens the file a second time, once.
        """
        try:
            if self._buffered < 0:
                self._open_buffered()
            return os.preadv(self._buffered, [view], offset, NO_WAIT) == len(view)
        except OSError:  # not in the cache any more, no descriptor left, or another file has the name
            return False

    def close(self) -> None:
        """Close the file."""
        for descriptor in (self._descriptor, self._buffered):
            if descriptor >= 0:
                os.close(descriptor)
        self._descriptor = self._buffered = -1

    def __del__(self) -> None:
        with suppress(OSError):
            self.close()

    def _fill(self, view: memoryview, first: int, needed: int) -> int:
        """Bytes read into the view, from `first` on; fewer than needed only where the file ends."""
        done = 0
        while done < needed:
            try:
                count = os.preadv(self._descriptor, [view[done:]], first + done)
            except OSError as error:
                if self._alignment == BUFFERED or error.errno not in REFUSALS:
                    raise
                # After a short answer O_DIRECT may refuse to go on from where that ended.
                return self._fill_buffered(view, first, done)
            if count == 0:
                break
            done += count
        return done

    def _open_buffered(self) -> None:
        descriptor = os.open(self.path, _FLAGS)
        if os.path.samestat(os.fstat(descriptor), os.fstat(self._descriptor)):
            self._buffered = descriptor
        else:
            os.close(descriptor)
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.path)

    def _fill_buffered(self, view: memoryview, first: int, done: int) -> int:
        descriptor = os.open(self.path, _FLAGS)
        try:
            while done < len(view):
                count = os.preadv(descriptor, [view[done:]], first + done)
                if count == 0:
                    break
                done += count
        finally:
            os.close(descriptor)
        return done

    def _reopen_buffered(self) -> None:
        self.close()
        self._descriptor = os.open(self.path, _FLAGS)


class OpenFiles:
    """The local page files of a store that were read last, kept open.

    Parameters
    ----------
    locate
        Gives the path of an object, or None where it is not on a local disk: ``ObjectStore.local_path``.
    limit
        Most files that are kept open while nobody reads them.

    Notes
    -----
    Of one process: a forked child makes its own. A file that was deleted or replaced since is noticed at its
    next use; until then, or until `forget`, the system keeps its blocks.
    """

    def __init__(self, locate: Callable[[str], str | None], limit: int = MAX_OPEN_FILES) -> None:
        self._locate = locate
        self._limit = limit
        self._lock = threading.Lock()
        self._files: OrderedDict[str, LocalFile] = OrderedDict()

    @contextmanager
    def lease(self, key: str) -> Iterator[LocalFile | None]:
        """Lend the open file of an object during the block; None if it is not on a local disk.

        Raises
        ------
        ObjectNotFoundError
            If there is no such file.
        StorageError
            If it cannot be opened.

        Notes
        -----
        One system call for a file that is open, some five for another.
        """
        file = self._lease_cached(key)
        if file is None:
            path = self._locate(key)
            if path is None:
                yield None
                return
            file = self._keep(key, self._open(key, path))
        try:
            yield file
        finally:
            with self._lock:
                file.users -= 1
                idle = not file.users and self._files.get(key) is not file
            if idle:
                file.close()

    def forget(self, keys: Iterable[str]) -> None:
        """Close the files of these objects, after running reads."""
        with self._lock:
            gone = [self._files.pop(key) for key in keys if key in self._files]
            idle = [file for file in gone if not file.users]
        for file in idle:
            file.close()

    def close(self) -> None:
        """No file is held open."""
        self.forget(list(self._files))

    def _lease_cached(self, key: str) -> LocalFile | None:
        with self._lock:
            file = self._files.get(key)
            if file is None:
                return None
            self._files.move_to_end(key)
            file.users += 1
        if file.is_current():
            return file
        with self._lock:
            file.users -= 1
            if self._files.get(key) is file:
                del self._files[key]
            idle = not file.users
        if idle:
            file.close()
        return None

    def _open(self, key: str, path: str) -> LocalFile:
        try:
            try:
                return LocalFile(path)
            except OSError as error:
                if error.errno not in _FULL:
                    raise
                self.close()
                return LocalFile(path)
        except FileNotFoundError as error:
            raise ObjectNotFoundError(
                f"Cannot read {path}: there is no such file.",
                hint="Put the file back from a copy of the store; `spark-pages verify URL` names all that "
                "are missing.",
                key=key,
            ) from error
        except OSError as error:
            with suppress(OSError):
                status = os.stat(path, follow_symlinks=False)
                if not stat.S_ISREG(status.st_mode) and not stat.S_ISLNK(status.st_mode):
                    raise _no_file(path, status) from error  # such as a socket
            raise StorageError(
                f"Cannot open {path}: {error.strerror}.",
                hint=f"Check by `ls -l {path}` that the file can be read.",
                key=key,
            ) from error

    def _keep(self, key: str, file: LocalFile) -> LocalFile:
        """Return the file for a key: the one given, or the one that another thread opened meanwhile."""
        with self._lock:
            other = self._files.get(key)
            kept = file if other is None else other
            kept.users += 1
            self._files[key] = kept
            surplus = []
            while len(self._files) > self._limit:
                surplus.append(self._files.popitem(last=False)[1])
            surplus = [each for each in surplus if not each.users]
        if other is not None:
            surplus.append(file)
        for each in surplus:
            each.close()
        return kept


def aligned_memory(length: int) -> memoryview:
    """Memory of this process alone, aligned to a page of the system."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_POPULATE", 0)
    return memoryview(mmap.mmap(-1, length, flags=flags))


def huge_memory(length: int) -> memoryview:
    """Allocate aligned memory in huge pages if possible, for repeated reads.

    Notes
    -----
    A direct read hands the disk one piece of a huge page where it hands over 256 small ones: 1 MiB takes half
    the time, and half the processor time.
    """
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    memory = mmap.mmap(-1, length + HUGE_PAGE_BYTES, flags=flags)
    if _MADV_HUGEPAGE is not None:
        with suppress(OSError):
            memory.madvise(_MADV_HUGEPAGE)
    first = -ctypes.addressof(ctypes.c_char.from_buffer(memory)) % HUGE_PAGE_BYTES
    return memoryview(memory)[first : first + length]


def _open(path: str) -> tuple[int, bool]:
    """Open a file, and return whether it bypasses the page cache of the system."""
    if O_DIRECT:
        try:
            return os.open(path, _FLAGS | O_DIRECT), True
        except OSError as error:
            if error.errno not in REFUSALS:
                raise
    return os.open(path, _FLAGS), False


def _short_read_error(path: str, offset: int, length: int, size: int) -> DamageError:
    return DamageError(
        f"Cannot read {path}: expected {length} bytes at {offset}, found that the file ends at {size}."
    )


O_DIRECT: int = getattr(os, "O_DIRECT", 0)
REFUSALS = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP})
"""What a file system says that does not read past the page cache, or not so."""

BUFFERED = 0
"""In place of an alignment: the file can only be read through the page cache."""

_AT_EMPTY_PATH = 0x1000
_STATX_DIOALIGN = 0x2000
_STATX_BYTES = 256
_MASK = struct.Struct("<I")
_DIO_ALIGN = struct.Struct("<II")
_DIO_ALIGN_AT = 152
_TRIED = (PAGE_ALIGNMENT, 4 * PAGE_ALIGNMENT, 16 * PAGE_ALIGNMENT)


def _bind_statx() -> Callable[..., int] | None:
    try:
        function = ctypes.CDLL(None, use_errno=True).statx
    except (OSError, AttributeError):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, ctypes.c_char_p)
    function.restype = ctypes.c_int
    return function


_statx = _bind_statx() if os.name == "posix" else None


def find_alignment(descriptor: int, size_bytes: int) -> int:
    """Return the alignment of offset, length and memory for reads with O_DIRECT.

    Parameters
    ----------
    descriptor
        A file opened with O_DIRECT.
    size_bytes
        Its length.

    Returns
    -------
    int
        At least `PAGE_ALIGNMENT`, to which pages are aligned anyway; `BUFFERED` if there is no way.

    Raises
    ------
    OSError
        If a read that was tried fails for another reason than its alignment.

    Notes
    -----
    One system call where the kernel knows (``STATX_DIOALIGN``, Linux 6.1), else a read or a few.
    """
    told = _statx_alignment(descriptor)
    if told is not None:
        return told
    return _probe_alignment(descriptor, size_bytes)


def _statx_alignment(descriptor: int) -> int | None:
    """Return the alignment that the kernel reports, or None."""
    if _statx is None:
        return None
    answer = ctypes.create_string_buffer(_STATX_BYTES)
    if _statx(descriptor, b"", _AT_EMPTY_PATH, _STATX_DIOALIGN, answer):
        return None
    if not _MASK.unpack_from(answer)[0] & _STATX_DIOALIGN:
        return None
    memory, offset = _DIO_ALIGN.unpack_from(answer, _DIO_ALIGN_AT)
    return max(memory, offset, PAGE_ALIGNMENT) if memory and offset else BUFFERED


def _probe_alignment(descriptor: int, size_bytes: int) -> int:
    """Find the smallest alignment with which the file can be read."""
    if not size_bytes:
        return PAGE_ALIGNMENT
    with mmap.mmap(-1, _TRIED[-1]) as memory, memoryview(memory) as view:
        for alignment in _TRIED:
            try:
                os.preadv(descriptor, [view[:alignment]], 0)
            except OSError as error:
                if error.errno not in REFUSALS:
                    raise
            else:
                return alignment
    return BUFFERED
