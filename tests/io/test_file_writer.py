from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from spark_pages.errors import InternalError, StorageError
from spark_pages.io import PageFileWriter, encode_page
from spark_pages.io.file_writer import BufferPool
from spark_pages.storage.direct import BLOCK_BYTES, DIRECT_BYTES
from tests.io.fakes import FolderStore, MemoryStore, write_pages

ARRAYS = [pa.array(np.random.default_rng(n).integers(0, 2**62, 600)) for n in range(6)]


def test_a_page_file_is_written_by_one_put_with_every_page_aligned():
    store = MemoryStore()

    pages = write_pages(store, ARRAYS)

    assert store.puts == 1
    assert len(store.objects["pages/a.pages"]) == sum(page.alloc_len for page in pages)
    assert all(page.offset % 4096 == 0 for page in pages)
    assert all(a.offset + a.alloc_len == b.offset for a, b in pairwise(pages))


def test_a_page_file_without_pages_is_not_written():
    store = MemoryStore()

    size = PageFileWriter(store, "pages/a.pages").finish()

    assert (size, store.puts) == (0, 0)


def test_a_finished_page_file_takes_no_more_pages():
    writer = PageFileWriter(MemoryStore(), "pages/a.pages")
    writer.finish()

    with pytest.raises(InternalError, match="finished"):
        writer.add(encode_page(ARRAYS[0]))


def test_a_large_file_of_a_local_disk_is_given_in_memory_that_the_disk_takes_from(tmp_path):
    class Remembers(FolderStore):
        def put(self, key, data):
            self.given = data
            super().put(key, data)

    arrays = [pa.array(np.random.default_rng(n).integers(0, 2**62, 60_000)) for n in range(4)]
    local, other = Remembers(tmp_path), MemoryStore()

    write_pages(local, arrays)
    write_pages(other, arrays)

    assert len(local.given) >= DIRECT_BYTES
    assert np.frombuffer(local.given, np.uint8).ctypes.data % BLOCK_BYTES == 0
    assert bytes(local.given) == other.objects["pages/a.pages"]


@pytest.mark.parametrize("lacking", [10 << 20, 1 << 20, 1, 0, -(1 << 20)])
def test_a_file_is_the_same_whatever_room_it_was_given(tmp_path, lacking):
    store = FolderStore(tmp_path)
    random = np.random.default_rng(1)
    pages = [encode_page(pa.array(random.random(size))) for size in (8000, 100, 200_000, 60_000, 9)]
    expected = b"".join(bytes(page.data).ljust(page.alloc_len, b"\0") for page in pages)
    rooms, room = BufferPool(1), memoryview(bytearray(b"\xff" * (len(expected) + 4096 - lacking)))
    rooms.release(room)  # in which another file has been before
    writer = PageFileWriter(store, "pages/a.pages", rooms)

    offsets = [writer.add(page) for page in pages]
    blooms = writer.add_blooms([b"bloom", b"another"])
    size = writer.finish()

    assert offsets == [sum(page.alloc_len for page in pages[:number]) for number in range(len(pages))]
    assert blooms == [len(expected), len(expected) + 5]
    assert size == len(expected) + 4096
    assert (tmp_path / "pages/a.pages").read_bytes() == expected + b"bloomanother".ljust(4096, b"\0")


def test_a_room_is_of_one_file_until_that_is_durable(tmp_path):
    class IsAway(FolderStore):
        def put(self, key, data):
            raise StorageError("It is away.")

    rooms = BufferPool(8192)
    first, second = (
        PageFileWriter(store(tmp_path), "pages/a.pages", rooms) for store in (IsAway, FolderStore)
    )
    for writer, values in ((first, [1, 2]), (second, [3, 4])):
        writer.add(encode_page(pa.array(values)))

    with pytest.raises(StorageError):
        first.finish()
    second.finish()
    back, another = rooms.acquire(), rooms.acquire()

    assert bytes(back[:4096]) == (tmp_path / "pages/a.pages").read_bytes()
    assert bytes(another) == bytes(8192)
