"""Page files: encoded pages one after another, each at a 4 KiB-aligned place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from spark_pages.errors import DamageError, InternalError
from spark_pages.format.pages.codecs import BytesLike
from spark_pages.format.pages.page_codec import EncodedPage
from spark_pages.io.local_file import huge_memory
from spark_pages.model.page import PAGE_ALIGNMENT
from spark_pages.storage.direct import DIRECT_BYTES

if TYPE_CHECKING:
    from spark_pages.storage.store import ObjectStore

_ZEROS = bytes(PAGE_ALIGNMENT)


def padding_of(actual_len: int) -> int:
    """Bytes from the end of a page to the next multiple of ``PAGE_ALIGNMENT``."""
    return -actual_len % PAGE_ALIGNMENT


def check_padding(padding: BytesLike, *, where: str) -> None:
    """Nothing, if what lies behind a page up to the next multiple of ``PAGE_ALIGNMENT`` is zeros.

    Parameters
    ----------
    where
        The page, for error messages: ``path@offset``.

    Raises
    ------
    DamageError
        If it is not.
    """
    if bytes(padding) != _ZEROS[: len(padding)]:
        raise DamageError(
            f"Cannot read {where}: it should have {len(padding)} zeros behind it up to the next page, "
            "but has other bytes: the file was damaged, or not padded with zeros."
        )


class BufferPool:
    """Memory of one size in which page files are made, one after another: none of it is fetched twice.

    Parameters
    ----------
    room_bytes
        How large a file is going to be, about.
    """

    def __init__(self, room_bytes: int) -> None:
        self._room_bytes = room_bytes
        self._free: list[memoryview] = []

    def acquire(self) -> memoryview:
        """Return a buffer that no other writer has, with arbitrary content, aligned for the disk."""
        try:
            return self._free.pop()
        except IndexError:
            return huge_memory(self._room_bytes)

    def release(self, room: memoryview) -> None:
        """Somebody else may have it."""
        self._free.append(room)


class PageFileWriter:
    """Gathers pages in memory and writes them as one immutable object.

    Add the pages of a chain one after another: pages that lie next to each other are later read by
    one request.

    Parameters
    ----------
    store
        Where the object goes.
    key
        Its key, relative to the root: ``pages/<read_version>-<transaction id>-<n>.pages``.
    rooms
        Where a local file is made, which then holds on to no page that was added; it is given back when the
        file is durable. None where nobody knows how large the file is going to be.

    Notes
    -----
    Memory: a room; else, or if that is too little, twice `size_bytes` while `finish` runs. Start the next
    file when `size_bytes` is large enough.
    """

    def __init__(self, store: ObjectStore, key: str, rooms: BufferPool | None = None) -> None:
        self.key = key
        self._store = store
        self._parts: list[bytes | memoryview] = []
        self._size = 0
        self._finished = False
        self._rooms = rooms if store.local_path(key) is not None else None
        self._room = self._rooms.acquire() if self._rooms is not None else None

    @property
    def size_bytes(self) -> int:
        """Bytes of the object so far, a multiple of ``PAGE_ALIGNMENT``."""
        return self._size

    def add(self, page: EncodedPage) -> int:
        """Add a page, and return its offset, a multiple of ``PAGE_ALIGNMENT``.

        Raises
        ------
        InternalError
            If the file was finished already.
        """
        if self._finished:
            raise InternalError(f"Cannot add a page to {self.key}: the file is finished.")
        offset = self._size
        self._put(page.data, page.alloc_len - page.actual_len)
        return offset

    def add_blooms(self, blooms: Sequence[bytes]) -> list[int]:
        """Add bloom filters one after another, and return their offsets.

        Notes
        -----
        What comes next begins at a multiple of ``PAGE_ALIGNMENT`` again: add those of many pages together.
        """
        if self._finished:
            raise InternalError(f"Cannot add bloom filters to {self.key}: the file is finished.")
        offsets = []
        for bloom in blooms:
            offsets.append(self._size)
            self._put(bloom, 0)
        self._put(b"", -self._size % PAGE_ALIGNMENT)
        return offsets

    def finish(self) -> int:
        """Size of the object in bytes, now durably stored; 0 if there was no page and so no object.

        Raises
        ------
        AlreadyExistsError, StorageError
            What the store's ``put`` raises; the pages are kept, so that `finish` may be called again.
        InternalError
            If the file was finished already.

        Notes
        -----
        One request.
        """
        if self._finished:
            raise InternalError(f"Cannot finish {self.key}: it is finished already.")
        if self._size:
            self._store.put(self.key, self._joined_parts())
        self._finished = True
        if self._rooms is not None and self._room is not None:
            self._rooms.release(self._room)
        self._parts, self._room = [], None
        return self._size

    def _put(self, data: bytes | memoryview, padding: int) -> None:
        """Write data and so many zeros next."""
        room = self._room
        if room is not None and self._size + len(data) + padding > len(room):
            self._parts, self._room = [room[: self._size]], None
            room = None
        zeros = _ZEROS[:padding] if padding < len(_ZEROS) else bytes(padding)
        if room is None:
            self._parts += [data, zeros]
        else:
            end = self._size + len(data)
            room[self._size : end] = data
            room[end : end + padding] = zeros
        self._size += len(data) + padding

    def _joined_parts(self) -> bytes | memoryview:
        """All parts; for a large local file in memory that the disk takes from where it is."""
        if self._room is not None:
            return self._room[: self._size]
        if self._size < DIRECT_BYTES or self._store.local_path(self.key) is None:
            return b"".join(self._parts)
        whole = huge_memory(self._size)
        at = 0
        for part in self._parts:
            whole[at : at + len(part)] = part
            at += len(part)
        return whole
