"""How reads past the page cache must be aligned: asked of the kernel, else tried."""

from __future__ import annotations

import ctypes
import ctypes.util
import errno
import mmap
import os
import struct
from collections.abc import Callable

from spark_pages.model.page import PAGE_ALIGNMENT

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
    """What offset, length and memory of a read with O_DIRECT must be multiples of.

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
    told = _ask(descriptor)
    if told is not None:
        return told
    return _try_out(descriptor, size_bytes)


def _ask(descriptor: int) -> int | None:
    """What the kernel says; None where it does not."""
    if _statx is None:
        return None
    answer = ctypes.create_string_buffer(_STATX_BYTES)
    if _statx(descriptor, b"", _AT_EMPTY_PATH, _STATX_DIOALIGN, answer):
        return None
    if not _MASK.unpack_from(answer)[0] & _STATX_DIOALIGN:
        return None
    memory, offset = _DIO_ALIGN.unpack_from(answer, _DIO_ALIGN_AT)
    return max(memory, offset, PAGE_ALIGNMENT) if memory and offset else BUFFERED


def _try_out(descriptor: int, size_bytes: int) -> int:
    """The smallest alignment with which the file can be read."""
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
