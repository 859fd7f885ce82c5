"""Large files are written past the page cache of the kernel: nothing is copied, and the sync is short."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os

DIRECT_BYTES = 1 << 20
"""Less than this is written as quickly through the page cache."""

BLOCK_BYTES = 4096
"""Of memory and lengths that may go past the page cache."""

_O_DIRECT: int = getattr(os, "O_DIRECT", 0)
_REFUSALS = (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP)


def write_direct(descriptor: int, data: memoryview) -> int:
    """Bytes of `data` that were written past the page cache; those behind them are for `os.write`.

    Parameters
    ----------
    descriptor
        A new file, open for writing at its beginning.
    data
        Bytes. Only memory that may be written to, begins at a multiple of ``BLOCK_BYTES`` and is long
        enough goes this way.

    Raises
    ------
    OSError
        If the disk failed; that a file system has no such way is no failure.
    """
    whole = len(data) - len(data) % BLOCK_BYTES
    if not _O_DIRECT or whole < DIRECT_BYTES or data.readonly:
        return 0
    if ctypes.addressof(ctypes.c_char.from_buffer(data)) % BLOCK_BYTES:
        return 0
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    done = 0
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | _O_DIRECT)
        while done < whole:
            done += os.write(descriptor, data[done:whole])
    except OSError as error:
        if error.errno not in _REFUSALS:
            raise
    finally:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)
    return done
