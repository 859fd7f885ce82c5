"""From Arrow columns to pages: cut, encode, and put into page files or inline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.arrow.nested import one_entry
from spark_pages.errors import InternalError
from spark_pages.format.bloom import bloom_checksum, build_bloom
from spark_pages.io import (
    Codec,
    EncodedPage,
    PageFileWriter,
    encode_page,
    encode_pages,
    page_stats,
    plan_pages,
    stats_of_pages,
)
from spark_pages.io.file_writer import BufferPool
from spark_pages.model.added_pages import NewPage
from spark_pages.model.page import BloomLocation, PageKind, PageStats
from spark_pages.query.page_metadata import NO_META, PageMeta
from spark_pages.storage.store import ObjectStore

INLINE_PAGE_BYTES = 16 << 10
"""Limit of the format for a page of a user's table that rides in the commit."""

INLINE_TRANSACTION_BYTES = 64 << 10
"""A transaction whose pages are no more than this together writes no page file.

The format allows 256 KiB in a commit, which several transactions may share.
"""

PAGE_FILE_BYTES = 128 << 20
"""A page file that reaches this size is closed and the next one begun."""

_CONSTANT_ROWS = 1 << 16
"""Rows of one page of equal ones: whoever reads a single row of it unfolds a page."""


@dataclass(frozen=True, slots=True)
class StagedPage:
    """A page that is encoded but has no place yet."""

    encoded: EncodedPage
    stats: PageStats
    kind: PageKind = PageKind.FILE
    entry_count: int = -1
    bloom: bytes | None = None

    @property
    def entries(self) -> int:
        """Logical rows."""
        return self.entry_count if self.entry_count >= 0 else self.encoded.entry_count


def stage_column(
    values: pa.Array,
    target_bytes: int,
    codec: Codec = Codec.LZ4,
    bloom: float | None = None,
    meta: PageMeta = NO_META,
) -> list[StagedPage]:
    """Encode the values of a column as pages of about `target_bytes` of uncompressed buffers.

    Parameters
    ----------
    bloom
        False positives of their bloom filters; None for none.
    meta
        What the values have beside them.
    """
    return stage_pages(values, plan_pages(meta.join_with(values), target_bytes), codec, bloom, meta)


def stage_pages(
    values: pa.Array,
    bounds: NDArray[np.int64],
    codec: Codec = Codec.LZ4,
    bloom: float | None = None,
    meta: PageMeta = NO_META,
) -> list[StagedPage]:
    """Encode the values and their metadata as pages split at `bounds`.

    Parameters
    ----------
    bounds : int64, shape (n_pages + 1,)
        First row of each page, and the number of rows last.
    """
    if not meta.is_nothing:
        stats = stats_of_pages(values, bounds)
        return [
            stage_page(values.slice(start, stop - start), each, codec, bloom, meta.slice(start, stop))
            for (start, stop), each in zip(pairwise(bounds.tolist()), stats, strict=True)
        ]
    pages = zip(encode_pages(values, bounds, codec), stats_of_pages(values, bounds), strict=True)
    if bloom is None:
        return [StagedPage(encoded, stats) for encoded, stats in pages]
    return [
        StagedPage(encoded, stats, bloom=_bloom_of(values.slice(start, stop - start), encoded, bloom))
        for (start, stop), (encoded, stats) in zip(pairwise(bounds.tolist()), pages, strict=True)
    ]


def stage_page(
    values: pa.Array,
    stats: PageStats,
    codec: Codec = Codec.LZ4,
    bloom: float | None = None,
    meta: PageMeta = NO_META,
) -> StagedPage:
    """One page; with a bloom filter where it is wanted and smaller than the page."""
    encoded = encode_page(
        values, codec=codec, prefix_meta=meta.prefix, suffix_meta=meta.suffix, page_metadata=meta.page
    )
    return StagedPage(encoded, stats, bloom=_bloom_of(values, encoded, bloom))


def _bloom_of(values: pa.Array, encoded: EncodedPage, bloom: float | None) -> bytes | None:
    return build_bloom(values, bloom, most_bytes=encoded.actual_len - 1) if bloom else None


def stage_constant(value: pa.Scalar, count: int) -> StagedPage:
    """One page of `count` equal values: no bytes but those of a single entry."""
    one = one_entry(value)
    stats = page_stats(one)
    null_count = count if stats.null_count else 0
    return StagedPage(encode_page(one), replace(stats, null_count=null_count), PageKind.CONSTANT, count)


def stage_constants(value: pa.Scalar, count: int) -> list[StagedPage]:
    """Pages of a column in which `count` rows are equal."""
    whole, rest = divmod(count, _CONSTANT_ROWS)
    page = stage_constant(value, _CONSTANT_ROWS)
    return [page] * whole + ([stage_constant(value, rest)] if rest else [])


def inline_page(page: StagedPage) -> NewPage:
    """Return the page with its bytes, to be stored in the commit."""
    encoded, constant = page.encoded, page.kind is PageKind.CONSTANT
    return NewPage(
        page.entries,
        page.entries if constant else encoded.entry_count,
        PageKind.CONSTANT if constant else PageKind.INLINE,
        None, 0, 0, encoded.actual_len, encoded.checksum, bytes(encoded.data), page.stats,
    )  # fmt: skip


class PlacedPages:
    """Gives staged pages their place: all inline if they are few and small, else page files by table.

    Parameters
    ----------
    store
        Where page files go.
    next_key
        Gives the key of the next page file; see `begin`.
    finish
        Makes a page file durable, or begins to.
    file_bytes
        A page file that reaches this size is closed and the next one begun.
    rooms
        See `PageFileWriter`.
    """

    def __init__(
        self,
        store: ObjectStore,
        next_key: Callable[[], str] | None = None,
        finish: Callable[[PageFileWriter], object] = PageFileWriter.finish,
        file_bytes: int = PAGE_FILE_BYTES,
        rooms: BufferPool | None = None,
    ) -> None:
        self._store = store
        self._next_key = next_key
        self._finish = finish
        self._file_bytes, self._rooms = file_bytes, rooms
        self._file: PageFileWriter | None = None
        self._key = ""

    def begin(self, next_key: Callable[[], str]) -> None:
        """Begin a file with the next page, whose key and those after it come from `next_key`."""
        self.finish_file()
        self._next_key = next_key

    def place(self, pages: Sequence[StagedPage | NewPage], inline: bool) -> list[NewPage]:
        """Assign locations to pages, in order, and put their bloom filters together after them."""
        placed: list[NewPage] = []
        waiting: dict[int, bytes] = {}
        for page in pages:
            if isinstance(page, NewPage):
                placed.append(page)
                continue
            placed.append(self._place(page, inline))
            if page.bloom is not None and placed[-1].kind is PageKind.FILE:
                waiting[len(placed) - 1] = page.bloom
            if self._file is not None and self._file.size_bytes >= self._file_bytes:
                self._add_blooms(placed, waiting)
                self.finish_file()
        self._add_blooms(placed, waiting)
        return placed

    def _add_blooms(self, placed: list[NewPage], waiting: dict[int, bytes]) -> None:
        """Put the filters into the file in which their pages are, and tell the pages where."""
        if not waiting or self._file is None:
            return
        offsets = self._file.add_blooms(list(waiting.values()))
        for offset, (index, bloom) in zip(offsets, waiting.items(), strict=True):
            page = placed[index]
            where = BloomLocation(offset, len(bloom), bloom_checksum(bloom))
            placed[index] = replace(page, stats=replace(page.stats, bloom=where))
        waiting.clear()

    def _place(self, page: StagedPage, inline: bool) -> NewPage:
        if inline or page.kind is PageKind.CONSTANT:
            return inline_page(page)
        encoded = page.encoded
        if self._file is None:
            if self._next_key is None:
                raise InternalError(
                    "Cannot place a page: it needs a page file, and came before it was said which."
                )
            self._key = self._next_key()
            self._file = PageFileWriter(self._store, self._key, self._rooms)
        offset = self._file.add(encoded)
        return NewPage(
            page.entries, encoded.entry_count, PageKind.FILE, self._key, offset, encoded.alloc_len,
            encoded.actual_len, encoded.checksum, None, page.stats,
        )  # fmt: skip

    def finish_file(self, finish: Callable[[PageFileWriter], object] | None = None) -> None:
        """Make the page file durable, in this way if one is given; the next page begins another one."""
        if self._file is not None:
            (finish or self._finish)(self._file)
            self._file = None


def fits_inline(pages: Sequence[StagedPage | NewPage]) -> bool:
    """Whether all pages together are small enough to ride in the commit."""
    sizes = [page.encoded.actual_len if isinstance(page, StagedPage) else page.actual_len for page in pages]
    return sum(sizes) <= INLINE_TRANSACTION_BYTES and all(size <= INLINE_PAGE_BYTES for size in sizes)
