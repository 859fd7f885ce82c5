"""Aligned reads past the page cache of the kernel."""

from __future__ import annotations

import errno
import mmap
import os

from spark_pages.errors import DamageError, InvalidInputError, ObjectNotFoundError, StorageError
from spark_pages.model.page import PAGE_ALIGNMENT

_O_DIRECT: int = getattr(os, "O_DIRECT", 0)
_REFUSALS = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP})
_buffered_devices: set[int] = set()
"""Devices (st_dev) whose file system refused O_DIRECT; they are read through the page cache."""


def read_aligned(path: str, offset: int, length: int) -> memoryview:
    """Exactly the bytes ``[offset, offset + length)`` of a local file.

    Parameters
    ----------
    path
        Path of the file.
    offset, length
        Bytes, multiples of ``PAGE_ALIGNMENT``.

    Returns
    -------
    memoryview
        Read-only in spirit; owns its memory, which is aligned to a page.

    Raises
    ------
    ObjectNotFoundError
        If there is no such file.
    DamageError
        If the file ends before the range does; found out before anything is allocated.
    InvalidInputError
        If offset or length are not aligned.
    StorageError
        If the system cannot read.

    Notes
    -----
    One request, O_DIRECT where the file system has it. About 100 µs for 64 KiB from a cold local disk.
    """
    if offset < 0 or length < 0 or offset % PAGE_ALIGNMENT or length % PAGE_ALIGNMENT:
        raise InvalidInputError(
            f"Cannot read {path}: expected offset and length in multiples of {PAGE_ALIGNMENT}, "
            f"found {offset} and {length}."
        )
    try:
        found = os.stat(path)
        if offset + length > found.st_size:
            raise _cut(path, offset, length, found.st_size)
        if length == 0:
            return memoryview(b"")
        view = memoryview(_anonymous(length))
        done = 0
        if _O_DIRECT and found.st_dev not in _buffered_devices:
            done = _read_direct(path, offset, view, found.st_dev)
        if done < length:
            done = _read_buffered(path, offset, view, done)
    except FileNotFoundError as error:
        raise ObjectNotFoundError(f"Cannot read {path}: there is no such file.") from error
    except OSError as error:
        raise StorageError(f"Cannot read {length} bytes at {offset} of {path}: {error.strerror}.") from error
    if done < length:
        raise _cut(path, offset, length, offset + done)
    return view


def _anonymous(length: int) -> mmap.mmap:
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_POPULATE", 0)
    return mmap.mmap(-1, length, flags=flags)


def _read_direct(path: str, offset: int, view: memoryview, device: int) -> int:
    """Bytes read with O_DIRECT; fewer than asked where the file system refuses or the file ends."""
    done = 0
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | _O_DIRECT)
        try:
            while done < len(view) and done % PAGE_ALIGNMENT == 0:
                count = os.preadv(descriptor, [view[done:]], offset + done)
                if count == 0:
                    break
                done += count
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in _REFUSALS:
            raise
        if done == 0:
            _buffered_devices.add(device)
    return done


def _read_buffered(path: str, offset: int, view: memoryview, done: int) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while done < len(view):
            count = os.preadv(descriptor, [view[done:]], offset + done)
            if count == 0:
                break
            done += count
    finally:
        os.close(descriptor)
    return done


def _cut(path: str, offset: int, length: int, size: int) -> DamageError:
    return DamageError(
        f"Cannot read {path}: expected {length} bytes at {offset}, found that the file ends at {size}."
    )
