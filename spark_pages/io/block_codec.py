"""Pages as bytes, many at a time: what `page_codec.open_page` does, once for pages that were cut alike.

Neighbours mostly are pages of one column with as many entries each: their headers, tables and messages are
the same, byte by byte, but for a few numbers. So those of the first are held against the rules, and those of
the others against the first. Of each page there is left what only C can do, its checksums and its
decompression. Whatever differs is left to `open_page`, and so is whatever is wrong, which that says best.
Nothing is believed here that is not believed there.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from spark_pages.errors import SparkPagesError
from spark_pages.io.codecs import Codec, check_uncompressed_size
from spark_pages.io.lz4_block import decompress_blocks
from spark_pages.io.narrow import ONE_ENTRY_BYTES, SAME_ENTRY_BYTES
from spark_pages.io.page_block import PageBlock
from spark_pages.io.page_header import ALIKE, CHECKSUM, SEAL, STORED, header_fields, header_words, seal_of
from spark_pages.io.page_key import PageKey
from spark_pages.io.plain_page import PlainPage, layout_of
from spark_pages.io.stream_shape import nulls_of_alike
from spark_pages.model.page import PAGE_HEADER_SIZE

_FEWEST = 4
"""Fewer pages are opened more quickly one by one."""

_LINE = 64


def open_alike(packed: Sequence[memoryview], keys: Sequence[PageKey]) -> list[PlainPage | None]:
    """Those of the pages that look like their neighbours, checked and decompressed; None for the others.

    Parameters
    ----------
    packed
        Header and payload of each, and nothing else.
    keys
        What is expected of each.

    Notes
    -----
    Some 5 µs a page beside checksums and decompression, where `open_page` takes some 25. The pages of a
    block share its memory, and nothing of `packed`.
    """
    found: list[PlainPage | None] = [None] * len(packed)
    if len(packed) < _FEWEST:
        return found
    words = header_words(packed)
    alike = words[:, ALIKE]
    edges = (np.flatnonzero((alike[1:] != alike[:-1]).any(1)) + 1).tolist()
    for first, stop in pairwise([0, *edges, len(packed)]):
        if stop - first >= _FEWEST:
            share = slice(first, stop)
            found[share] = _open_block(packed[share], keys[share], words[share]) or found[share]
    return found


def _open_block(
    packed: Sequence[memoryview], keys: Sequence[PageKey], words: NDArray[np.uint64]
) -> list[PlainPage] | None:
    """Pages whose headers say the same; None where they are to be opened one by one."""
    where = [f"{key[0]}@{key[1]}" for key in keys]
    try:
        codec, _, size, entries, _, stream_size = header_fields(packed[0], where[0])
        check_uncompressed_size(codec, int(words[:, STORED].min()), size)
    except SparkPagesError:
        return None
    payloads = [page[PAGE_HEADER_SIZE:] for page in packed]
    _, _, _, _, sums, expected = zip(*keys, strict=True)
    if (
        words[:, STORED].tolist() != list(map(len, payloads))
        or words[:, SEAL].tolist() != list(map(seal_of, packed))
        or not words[:, CHECKSUM].tolist() == list(map(xxhash.xxh3_64_intdigest, payloads)) == list(sums)
        or expected.count(entries) != len(keys)
    ):
        return None
    stride = -(-size // _LINE) * _LINE
    memory = pa.allocate_buffer(stride * len(packed))
    if codec is Codec.NONE:
        pages = np.frombuffer(memory, np.uint8).reshape(len(packed), stride)
        for page, payload in zip(pages, payloads, strict=True):
            page[:size] = np.frombuffer(payload, np.uint8)
    elif codec is not Codec.LZ4 or not decompress_blocks(payloads, size, memory, stride):
        return None
    return _as_pages(memory, stride, size, stream_size, entries, where)


def _as_pages(
    memory: pa.Buffer, stride: int, size: int, stream_size: int, entries: int, where: Sequence[str]
) -> list[PlainPage] | None:
    """The decompressed pages, of which the first tells where everything lies in all."""
    try:
        found = layout_of(memory.slice(0, size), stream_size, where=where[0])
    except SparkPagesError:
        return None
    if found is None or found[0].rows != entries:
        return None
    extent, entry = found
    pages = np.frombuffer(memory, np.uint8).reshape(len(where), stride)
    bases = firsts = [0] * len(where)
    shift = 0
    if entry is not None:
        shift = ONE_ENTRY_BYTES
        if (pages[:, :SAME_ENTRY_BYTES] != pages[0, :SAME_ENTRY_BYTES]).any():
            return None
        numbers = np.ascontiguousarray(pages[:, SAME_ENTRY_BYTES:ONE_ENTRY_BYTES]).view("<i8")
        bases, firsts = numbers.T.tolist()
    nulls = nulls_of_alike(pages[:, shift:], extent)
    if nulls is None:
        return None
    block = PageBlock(memory, stride, extent, entry, nulls.tolist(), bases, firsts, where)
    return [PlainPage(block, index) for index in range(len(where))]
