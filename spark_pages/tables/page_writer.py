"""From Arrow columns to pages: cut, encode, and put into page files or inline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa

from spark_pages.io import Codec, EncodedPage, PageFileWriter, encode_page, page_stats, plan_pages
from spark_pages.model.page import PageKind, PageStats
from spark_pages.model.run import NewPage
from spark_pages.storage.store import ObjectStore

INLINE_PAGE_BYTES = 16 << 10
"""Limit of the format for a page of a user's table that rides in the commit."""

INLINE_TRANSACTION_BYTES = 64 << 10
"""A transaction whose pages are no more than this together writes no page file.

The format allows 256 KiB in a commit, which several transactions may share.
"""

PAGE_FILE_BYTES = 128 << 20
"""A page file that reaches this size is closed and the next one begun."""


@dataclass(frozen=True, slots=True)
class StagedPage:
    """A page that is encoded but has no place yet."""

    encoded: EncodedPage
    stats: PageStats
    kind: PageKind = PageKind.FILE
    entry_count: int = -1

    @property
    def entries(self) -> int:
        """Logical rows."""
        return self.entry_count if self.entry_count >= 0 else self.encoded.entry_count


def stage_column(values: pa.Array, target_bytes: int, codec: Codec = Codec.LZ4) -> list[StagedPage]:
    """The pages of a column's values, cut at about `target_bytes` of uncompressed buffers."""
    bounds = plan_pages(values, target_bytes).tolist()
    pages = []
    for start, stop in pairwise(bounds):
        piece = values.slice(start, stop - start)
        pages.append(StagedPage(encode_page(piece, codec=codec), page_stats(piece)))
    return pages


def stage_constant(value: pa.Scalar, count: int) -> StagedPage:
    """One page of `count` equal values: no bytes but those of a single entry."""
    one = pa.array([value.as_py()], value.type)
    stats = page_stats(one)
    null_count = count if stats.null_count else 0
    return StagedPage(
        encode_page(one), PageStats(null_count, stats.min, stats.max, stats.exact), PageKind.CONSTANT, count
    )


class PlacedPages:
    """Gives staged pages their place: all inline if they are few and small, else page files by table.

    Parameters
    ----------
    store
        Where page files go.
    next_key
        Gives the key of the next page file.
    """

    def __init__(self, store: ObjectStore, next_key: Callable[[], str]) -> None:
        self._store = store
        self._next_key = next_key
        self._file: PageFileWriter | None = None
        self._key = ""

    def place(self, pages: Sequence[StagedPage], inline: bool) -> list[NewPage]:
        """The pages with their places, in order."""
        return [self._place(page, inline) for page in pages]

    def _place(self, page: StagedPage, inline: bool) -> NewPage:
        encoded = page.encoded
        if page.kind is PageKind.CONSTANT:
            return NewPage(
                page.entries, page.entries, page.kind, None, 0, 0, encoded.actual_len,
                encoded.checksum, bytes(encoded.data), page.stats,
            )  # fmt: skip
        if inline:
            return NewPage(
                page.entries, encoded.entry_count, PageKind.INLINE, None, 0, 0, encoded.actual_len,
                encoded.checksum, bytes(encoded.data), page.stats,
            )  # fmt: skip
        if self._file is None:
            self._key = self._next_key()
            self._file = PageFileWriter(self._store, self._key)
        offset = self._file.add(encoded)
        placed = NewPage(
            page.entries, encoded.entry_count, PageKind.FILE, self._key, offset, encoded.alloc_len,
            encoded.actual_len, encoded.checksum, None, page.stats,
        )  # fmt: skip
        if self._file.size_bytes >= PAGE_FILE_BYTES:
            self.finish_file()
        return placed

    def finish_file(self) -> None:
        """Make the page file durable; the next page begins another one."""
        if self._file is not None:
            self._file.finish()
            self._file = None


def fits_inline(pages: Sequence[StagedPage]) -> bool:
    """Whether all pages together are small enough to ride in the commit."""
    sizes = [page.encoded.actual_len for page in pages]
    return sum(sizes) <= INLINE_TRANSACTION_BYTES and all(size <= INLINE_PAGE_BYTES for size in sizes)
