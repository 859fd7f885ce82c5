"""Page files for the benchmarks of the read path, and the descriptors of their pages."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from spark_pages.io import EncodedPage, PageFileWriter, encode_page
from spark_pages.model.ids import PageId
from spark_pages.model.page import PageDescriptor, PageKind
from spark_pages.storage.store import ObjectStore

ENTRIES = 8192
KINDS = ("prices", "numbers", "words")
_DIFFERENT = 48
_FILE_BYTES = 64 << 20


def encoded(kind: str, seed: int) -> EncodedPage:
    """A page of 64 KiB: prices are LZ4 alone, numbers are narrowed too, words are text."""
    random = np.random.default_rng(seed)
    if kind == "prices":
        return encode_page(pa.array(np.round(random.normal(100, 20, ENTRIES), 2)))
    if kind == "numbers":
        return encode_page(pa.array(random.integers(0, 1_000_000, ENTRIES)))
    return encode_page(
        pa.array([f"word {n % 97} of {n}" for n in random.integers(0, 9_999, ENTRIES // 2).tolist()])
    )


def write_page_files(store: ObjectStore, count: int, kinds: tuple[str, ...] = KINDS) -> list[PageDescriptor]:
    """So many pages in files of 64 MiB; what is different about them repeats every few pages."""
    some = [encoded(kinds[number % len(kinds)], number) for number in range(_DIFFERENT)]
    pages: list[PageDescriptor] = []
    writer = PageFileWriter(store, "pages/0.pages")
    for number in range(count):
        if writer.size_bytes >= _FILE_BYTES:
            writer.finish()
            writer = PageFileWriter(store, f"pages/{number}.pages")
        page = some[number % _DIFFERENT]
        pages.append(
            PageDescriptor(
                page_id=PageId(number),
                entry_count=page.entry_count,
                payload_entries=page.entry_count,
                kind=PageKind.FILE,
                disk_path=writer.key,
                offset=writer.add(page),
                alloc_len=page.alloc_len,
                actual_len=page.actual_len,
                checksum=page.checksum,
            )
        )
    writer.finish()
    return pages
