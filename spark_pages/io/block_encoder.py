"""Pages of a column as bytes, many at a time: what `encode_page` does, once for pages that are cut alike.

Pages of numbers without nulls and with as many entries each have the same messages, byte by byte. So those
are made once, and numpy narrows and places the values of many pages in one call. Of each page there is left
what only C can do, its compression and its checksum. The bytes are those that `encode_page` would give.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.io.codecs import Codec
from spark_pages.io.narrow import ONE_ENTRY_BYTES, kept_bytes, one_entry
from spark_pages.io.narrow_rows import narrow_rows
from spark_pages.io.page_codec import FEWEST_NARROWED, EncodedPage, encode_page, sealed_page
from spark_pages.io.page_stream import END_OF_STREAM, stream_of
from spark_pages.io.stream_shape import FlatColumn
from spark_pages.model.page import PAGE_HEADER_SIZE

_FEWEST = 4
"""Fewer pages are encoded as quickly one by one."""

_PADDED_BYTES = 64
"""Of values that end elsewhere Arrow writes some of the next page behind them."""

_BLOCK_BYTES = 1 << 20
"""Values that are worked on together: they stay in the cache of the processor."""


def encode_pages(values: pa.Array, bounds: NDArray[np.int64], codec: Codec = Codec.LZ4) -> list[EncodedPage]:
    """The `encode_page` of each piece that `plan_pages` cut `values` into; pages hold nothing but values.

    Parameters
    ----------
    bounds : int64, shape (n_pages + 1,)
        First row of each page, and the number of rows last.

    Notes
    -----
    Some 30 µs a page of 64 KiB that LZ4 does not shrink, where `encode_page` takes 100. Pages that are stored
    as they are share memory with their neighbours, of about ``_BLOCK_BYTES``.
    """
    cuts = bounds.tolist()
    pages: list[EncodedPage] = []
    rows, width = (cuts[1] - cuts[0], _width(values)) if len(cuts) > _FEWEST else (0, 0)
    size = rows * width
    alike = _alike(bounds) if 0 < size <= _BLOCK_BYTES and not size % _PADDED_BYTES else 0
    if alike >= _FEWEST:
        together = _BLOCK_BYTES // size
        for first in range(0, alike, together):
            count = min(together, alike - first)
            pages += _encode_block(values.slice(cuts[first], count * rows), rows, width, codec)
    return pages + [encode_page(values.slice(a, b - a), codec=codec) for a, b in pairwise(cuts[len(pages) :])]


def _width(values: pa.Array) -> int:
    """Bytes of a value; 0 where pages have more than values of one width."""
    column = FlatColumn.of(values.type)
    return 0 if column is None or column.bits % 8 or values.null_count else column.bits // 8


def _alike(bounds: NDArray[np.int64]) -> int:
    """How many pages from the first on have as many entries each."""
    sizes = np.diff(bounds)
    others = np.flatnonzero(sizes != sizes[:1])
    return int(others[0]) if len(others) else len(sizes)


@lru_cache(64)
def _frame(kind: pa.DataType, rows: int, size: int) -> tuple[bytes, bytes]:
    """What stands in front of and behind the values in the stream of each page."""
    some = pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(bytes(size))], 0)
    head, body, read = stream_of({"data": some}, None)
    at = read().column(0).buffers()[1].address - body.address
    return bytes(head) + bytes(body[:at]), bytes(body[at + size :]) + END_OF_STREAM


def _encode_block(values: pa.Array, rows: int, width: int, codec: Codec) -> list[EncodedPage]:
    """Pages of as many entries each."""
    size, count = rows * width, len(values) // rows
    before, after = _frame(values.type, rows, size)
    stream_bytes = len(before) + size + len(after)
    numbers = np.frombuffer(values.buffers()[1], np.uint8, count * size, values.offset * width)
    numbers = numbers.reshape(count, size)
    pages: list[EncodedPage | None] = [None] * count
    plain = np.ones(count, np.bool_)
    if codec is not Codec.NONE and rows >= FEWEST_NARROWED and _is_integer(values.type) and width > 1:
        for which, entries, data in narrow_rows(numbers.view(f"<i{width}"), len(before)):
            plain[which] = False
            tables = np.frombuffer(b"".join(map(one_entry, entries)), np.uint8).reshape(-1, ONE_ENTRY_BYTES)
            zeros = np.zeros((1, kept_bytes(entries[0]) - data.shape[1]), np.uint8)
            block = _side_by_side([tables, before, data, zeros, after])
            _fill(pages, which, _sealed(block, rows, codec, stream_bytes))
    which = np.flatnonzero(plain)
    if len(which):
        block = _side_by_side([before, numbers if plain.all() else numbers[which], after])
        _fill(pages, which, _sealed(block, rows, codec, 0))
    return [page for page in pages if page is not None]


def _is_integer(kind: pa.DataType) -> bool:
    types = pa.types
    return bool((types.is_integer(kind) or types.is_temporal(kind)) and not types.is_interval(kind))


def _side_by_side(parts: list[NDArray[Any] | bytes]) -> NDArray[np.uint8]:
    """A row for each page, with room for its header; parts that are bytes are in each."""
    columns = [np.frombuffer(part, np.uint8)[None] if isinstance(part, bytes) else part for part in parts]
    count = max(len(part) for part in columns)
    shape = count, PAGE_HEADER_SIZE + sum(part.shape[1] for part in columns)
    block = np.ndarray(shape, np.uint8, pa.allocate_buffer(shape[0] * shape[1]))
    at = PAGE_HEADER_SIZE
    for part in columns:
        block[:, at : at + part.shape[1]] = part
        at += part.shape[1]
    return block


def _sealed(block: NDArray[np.uint8], rows: int, codec: Codec, stream_bytes: int) -> list[EncodedPage]:
    """The pages of a block; where few of them are stored as they are, these hold on to nothing else."""
    memory, stride = block.reshape(-1).data, block.shape[1]
    rooms = [memory[at : at + stride] for at in range(0, block.size, stride)]
    found = [sealed_page(codec, room[PAGE_HEADER_SIZE:], rows, stream_bytes, room) for room in rooms]
    if sum(isinstance(page.data, memoryview) for page in found) * 2 >= len(found):
        return found
    return [page.alone() for page in found]


def _fill(pages: list[EncodedPage | None], which: NDArray[np.int64], found: list[EncodedPage]) -> None:
    for index, page in zip(which.tolist(), found, strict=True):
        pages[index] = page
