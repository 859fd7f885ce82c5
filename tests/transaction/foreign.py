"""Page files of another writer, for tests of registration."""

from __future__ import annotations

import pyarrow as pa

from spark_pages.io import EncodedPage, encode_page
from spark_pages.model.page import PendingPage
from spark_pages.storage.store import ObjectStore


def write_file(store: ObjectStore, key: str, *values: pa.Array, **meta: pa.Array) -> list[EncodedPage]:
    """A page file with a page of each array, one after another."""
    pages = [encode_page(each, **meta) for each in values]
    store.put(key, b"".join(page.data + bytes(page.alloc_len - page.actual_len) for page in pages))
    return pages


def pending(
    column: str, key: str, pages: list[EncodedPage], index: int = 0, rows: int | None = None, **more: object
) -> PendingPage:
    """The request to publish one page of such a file, with its own number of rows by default."""
    page = pages[index]
    offset = sum(before.alloc_len for before in pages[:index])
    rows = page.entry_count if rows is None else rows
    return PendingPage(column, key, offset, page.alloc_len, page.actual_len, rows, **more)  # type: ignore[arg-type]
