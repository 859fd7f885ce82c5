"""A third tier: pages of a store far away, on a local disk, shared by the processes of a machine.

``<folder>/v1-<shards>/<shard>/<name>`` holds one page as it is in storage, header and payload. The name is
the digest of the store's address and id, and of everything that the descriptor says of the page. So what is
under a name never changes, and two stores never meet. Nothing is believed: the reader checks a page from
here as it checks one from storage, and takes one that fails for missing.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from spark_pages.model.run import PageKey
from spark_pages.storage.folders import open_folder

SHARD_BYTES = 64 << 20
"""About what one folder holds. To make room means to look at one folder."""

_MAX_SHARDS = 256
_RESCAN = 8
"""A folder is looked at again after this process has written an eighth of what it may hold."""

_BLOCK = 4096
_UNFINISHED = ".tmp"
_PAGE = re.compile(rf"[0-9a-f]{{40}}(\.[0-9]+-[0-9a-f]{{16}}{re.escape(_UNFINISHED)})?")
"""Names that `DiskCache.put` gives; what else lies in its folders is left alone."""

_READ = os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0) | os.O_NONBLOCK
"""A pipe in place of a file would be waited for otherwise."""
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class DiskCache:
    """Pages on a local disk, those used last as far as they fit.

    Parameters
    ----------
    folder
        Where; made when the first page is kept, for this user alone.
    budget_bytes
        Most bytes on the disk. Processes that share a folder should be given the same number; each may exceed
        it by an eighth for a while.
    store_url
        Address and id of the store, part of every name.

    Notes
    -----
    No call raises: a disk that fails or is full costs requests, never an answer. Nothing is synced: what a
    power cut tears fails its check. Safe to share between threads.
    """

    def __init__(self, folder: str | os.PathLike[str], budget_bytes: int, store_url: str) -> None:
        shards = 1
        while shards < _MAX_SHARDS and shards * SHARD_BYTES < budget_bytes:
            shards *= 2
        self._shards = shards
        self._shard_bytes = budget_bytes // shards
        self._base = os.path.abspath(os.path.expanduser(os.fspath(folder)))
        self._version = f"v1-{shards}"
        self._url = store_url.encode()
        self._written: dict[int, int] = {}  # bytes since a folder was last looked at; absent if it never was
        self._lock = threading.Lock()

    def get(self, key: PageKey) -> memoryview | None:
        """Header and payload under the name of the page, not checked but for their length; None if absent.

        Notes
        -----
        About 20 µs. Reading counts as use.
        """
        shard, path = self._place(key)
        try:
            with self._opened(shard) as folder:
                descriptor = os.open(os.path.basename(path), _READ, dir_fd=folder)
        except OSError:
            return None
        try:
            status = os.fstat(descriptor)
            if stat.S_ISREG(status.st_mode) and status.st_size == key[3]:
                found = os.read(descriptor, key[3])
                if len(found) == key[3]:
                    os.utime(descriptor)
                    return memoryview(found)
        except OSError:
            return None
        finally:
            os.close(descriptor)
        self.drop(key)
        return None

    def put(self, key: PageKey, packed: memoryview) -> None:
        """Store the page, if the disk accepts it and it fits a folder.

        Notes
        -----
        About 60 µs; now and then a folder is listed, some milliseconds.
        """
        shard, path = self._place(key)
        size = -(-len(packed) // _BLOCK) * _BLOCK
        if size > self._shard_bytes:
            return
        name = os.path.basename(path)
        temporary = f"{name}.{os.getpid()}-{secrets.token_hex(8)}{_UNFINISHED}"
        with suppress(OSError):  # a folder that is a link is none
            self._evict_for(shard, size)
            with self._opened(shard, make=True) as folder:
                try:
                    descriptor = os.open(temporary, _WRITE, 0o600, dir_fd=folder)
                    try:
                        written = os.write(descriptor, packed)
                    finally:
                        os.close(descriptor)
                    if written == len(packed):  # else the disk is full
                        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
                finally:
                    with suppress(OSError):
                        os.unlink(temporary, dir_fd=folder)

    def drop(self, key: PageKey) -> None:
        """Remove the page."""
        shard, path = self._place(key)
        with suppress(OSError), self._opened(shard) as folder:
            os.unlink(os.path.basename(path), dir_fd=folder)

    def clear(self) -> None:
        """Remove all pages from the folder, those of other stores that share it too."""
        for shard in range(self._shards):
            found = self._files(shard)
            with suppress(OSError), self._opened(shard) as folder:
                for _, _, name in found:
                    with suppress(OSError):
                        os.unlink(name, dir_fd=folder)

    def size_bytes(self) -> int:
        """Bytes that the cache takes on the disk now. Lists all folders."""
        return sum(size for shard in range(self._shards) for _, size, _ in self._files(shard))

    def _place(self, key: PageKey) -> tuple[int, str]:
        path, offset, _, actual_len, checksum, entries = key
        told = b"%d %d %d %d %s %s" % (offset, actual_len, checksum, entries, path.encode(), self._url)
        digest = hashlib.blake2b(told, digest_size=20)
        shard = digest.digest()[0] % self._shards
        return shard, os.path.join(self._base, self._version, f"{shard:02x}", digest.hexdigest())

    @contextmanager
    def _opened(self, shard: int, make: bool = False) -> Iterator[int]:
        """Open a folder of the cache without following links."""
        parts = [self._version, f"{shard:02x}"]
        try:
            folder = open_folder(self._base, parts)
        except FileNotFoundError:
            if not make:
                raise
            self._make_folder(parts)
            folder = open_folder(self._base, parts)
        try:
            yield folder
        finally:
            os.close(folder)

    def _make_folder(self, parts: Sequence[str]) -> None:
        os.makedirs(os.path.join(self._base, parts[0]), mode=0o700, exist_ok=True)
        above = open_folder(self._base, parts[:-1])
        try:
            with suppress(FileExistsError):
                os.mkdir(parts[-1], 0o700, dir_fd=above)
        finally:
            os.close(above)

    def _evict_for(self, shard: int, size: int) -> None:
        """Make room in the folder, as far as its size is known."""
        with self._lock:
            written = self._written.get(shard)
            due = written is None or (written + size) * _RESCAN > self._shard_bytes
            self._written[shard] = size if due else size + (written or 0)
        if not due:
            return
        files = sorted(self._files(shard))
        # What this and other processes write until they look again must fit too.
        surplus = sum(found for _, found, _ in files) + size - self._shard_bytes * (_RESCAN - 1) // _RESCAN
        if surplus <= 0:
            return
        with self._opened(shard) as folder:
            for _, found, name in files:
                if surplus <= 0:
                    break
                with suppress(OSError):
                    os.unlink(name, dir_fd=folder)
                    surplus -= found

    def _files(self, shard: int) -> list[tuple[int, int, str]]:
        """Time of last use, bytes on the disk and name of every page in a folder, unfinished ones too."""
        found = []
        with suppress(OSError), self._opened(shard) as folder, os.scandir(folder) as entries:
            for entry in entries:
                with suppress(OSError):
                    status = os.stat(entry.name, dir_fd=folder, follow_symlinks=False)
                    if _PAGE.fullmatch(entry.name) and stat.S_ISREG(status.st_mode):
                        size = max(status.st_size, getattr(status, "st_blocks", 0) * 512)
                        found.append((status.st_mtime_ns, size, entry.name))
        return found
