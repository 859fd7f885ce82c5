"""Every flipped bit of a small page file is an error that names file and page.

Whoever reads rows does not look at padding; whoever verifies does, and finds each bit of it too.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from spark_pages.errors import DamageError
from spark_pages.io import Codec, PageFileWriter, PageHandler, encode_page
from spark_pages.io.file_writer import check_padding, padding_of
from tests.io.fakes import FolderStore, MemoryStore, descriptor

ARRAYS = [
    pa.array([1, None, 3]),
    pa.array(np.arange(40) * 1000),
    pa.array([f"word {n}" for n in range(30)]).dictionary_encode(),
    pa.array([[1.5], None, []]),
]
CODECS = [Codec.LZ4, Codec.LZ4, Codec.ZSTD, Codec.NONE]
KEY = "pages/a.pages"


def written(store):
    writer = PageFileWriter(store, KEY)
    encoded = [encode_page(array, codec=codec) for array, codec in zip(ARRAYS, CODECS, strict=True)]
    pages = [descriptor(page, KEY, writer.add(page), number) for number, page in enumerate(encoded)]
    writer.finish()
    return pages


def flipped(whole: bytes, bit: int) -> bytes:
    data = bytearray(whole)
    data[bit // 8] ^= 1 << bit % 8
    return bytes(data)


@pytest.mark.parametrize("number", range(len(ARRAYS)))
def test_every_flipped_bit_of_a_page_names_its_file_and_its_place(number):
    store = MemoryStore()
    pages = written(store)
    whole = store.objects[KEY]
    handler = PageHandler(store, decoded_bytes=0, compressed_bytes=0)
    page = pages[number]
    others = [each for each in pages if each is not page]

    for bit in range(8 * page.offset, 8 * (page.offset + page.actual_len)):
        store.objects[KEY] = flipped(whole, bit)
        with pytest.raises(DamageError, match=rf"pages/a\.pages@{page.offset}\b"):
            handler.get_page(page)
        if bit % 97 == 0:
            assert len(handler.get_pages(others)) == 3


def test_every_flipped_bit_of_the_padding_is_refused():
    for page in written(MemoryStore()):
        padding = bytes(padding_of(page.actual_len))
        check_padding(padding, where="pages/a.pages@0")
        for bit in range(8 * len(padding)):
            with pytest.raises(DamageError):
                check_padding(flipped(padding, bit), where="pages/a.pages@0")


@pytest.mark.parametrize("in_a_folder", [False, True])
def test_a_flipped_bit_of_the_padding_is_named_with_file_and_page_to_who_looks_at_it(in_a_folder, tmp_path):
    store = FolderStore(tmp_path) if in_a_folder else MemoryStore()
    pages = written(store)
    whole = (tmp_path / KEY).read_bytes() if in_a_folder else store.objects[KEY]
    handler = PageHandler(store, padding=True, decoded_bytes=0, compressed_bytes=0)
    assert [batch.column("data") for batch in handler.get_pages(pages)] == ARRAYS

    for page in pages:
        start, stop = page.offset + page.actual_len, page.offset + page.alloc_len
        for bit in (8 * start, 8 * start + 1003, 8 * stop - 1):
            store.put(KEY, flipped(whole, bit))
            with pytest.raises(DamageError, match=rf"^Cannot read pages/a\.pages@{page.offset}: "):
                handler.get_pages(pages)
            with pytest.raises(DamageError, match=rf"^Cannot read pages/a\.pages@{page.offset}: "):
                handler.get_page(page)
    store.put(KEY, whole)
    assert [batch.column("data") for batch in handler.get_pages(pages)] == ARRAYS


def test_a_flipped_bit_of_the_padding_changes_nothing_for_who_reads_rows():
    store = MemoryStore()
    pages = written(store)
    whole = store.objects[KEY]

    for page in pages:
        for bit in range(8 * (page.offset + page.actual_len), 8 * (page.offset + page.alloc_len), 501):
            store.objects[KEY] = flipped(whole, bit)
            found = PageHandler(store).get_pages(pages)
            assert [batch.column("data") for batch in found] == ARRAYS


def test_a_flipped_bit_of_a_file_on_disk_is_found_in_one_page_of_a_batch(tmp_path):
    store = FolderStore(tmp_path)
    pages = written(store)
    path = tmp_path / KEY
    whole = path.read_bytes()

    for page in pages:
        path.write_bytes(flipped(whole, 8 * (page.offset + page.actual_len) - 3))
        with pytest.raises(DamageError, match=rf"pages/a\.pages@{page.offset}\b"):
            PageHandler(store).get_pages(pages)
