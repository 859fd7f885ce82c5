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
from spark_pages.io.lz4_block import decompress_block, decompress_blocks
from spark_pages.io.narrow import ONE_ENTRY_BYTES, SAME_ENTRY_BYTES, TableEntry
from spark_pages.io.page_block import PageBlock
from spark_pages.io.page_header import ALIKE, CHECKSUM, SEAL, STORED, header_fields, header_words, seal_of
from spark_pages.io.page_key import PageKey
from spark_pages.io.plain_page import PlainPage, layout_of
from spark_pages.io.stream_shape import Extent, nulls_of_alike
from spark_pages.model.page import PAGE_HEADER_SIZE

_FEWEST = 4
"""Fewer pages are opened more quickly one by one."""

_LINE = 64
_HEAD_BYTES = 1024
"""Of pages that lie apart so many are held against each other; longer messages are for `open_page`."""


def open_alike(
    packed: Sequence[memoryview], keys: Sequence[PageKey], *, apart: bool = False
) -> list[PlainPage | None]:
    """Those of the pages that look like their neighbours, checked and decompressed; None for the others.

    Parameters
    ----------
    packed
        Header and payload of each, and nothing else.
    keys
        What is expected of each.
    apart
        Whether each has memory of its own, so that it can be kept without the others. Then pages that are
        stored as they are share that of `packed`, else none does.

    Notes
    -----
    Some 5 µs a page beside checksums and decompression, where `open_page` takes some 25.
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
            found[share] = _open_block(packed[share], keys[share], words[share], apart) or found[share]
    return found


def _open_block(
    packed: Sequence[memoryview], keys: Sequence[PageKey], words: NDArray[np.uint64], apart: bool
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
        or not size
    ):
        return None
    if apart:
        plains = _each_plain(codec, payloads, size)
        if plains is None:
            return None
        heads = np.stack([np.frombuffer(plain, np.uint8, min(size, _HEAD_BYTES)) for plain in plains])
        alike = _held_against_first(plains[0], heads, stream_size, entries, where[0])
        if alike is None:
            return None
        extent, entry, *numbers = alike
        each = zip(plains, *numbers, where, strict=True)
        blocks = [PageBlock(p, size, extent, entry, (n,), (b,), (f,), (w,)) for p, n, b, f, w in each]
        return [PlainPage(block, 0) for block in blocks]
    stride = -(-size // _LINE) * _LINE
    memory = _all_plain(codec, payloads, size, stride)
    if memory is None:
        return None
    heads = np.frombuffer(memory, np.uint8).reshape(len(packed), stride)
    alike = _held_against_first(memory.slice(0, size), heads, stream_size, entries, where[0])
    if alike is None:
        return None
    block = PageBlock(memory, stride, *alike, where)
    return [PlainPage(block, index) for index in range(len(where))]


def _each_plain(codec: Codec, payloads: Sequence[memoryview], size: int) -> list[pa.Buffer] | None:
    """The payloads decompressed, each into memory of its own; None if one is not what was promised."""
    stored = list(map(pa.py_buffer, payloads))
    if codec is Codec.NONE:
        return stored
    try:
        return [decompress_block(each, size) for each in stored] if codec is Codec.LZ4 else None
    except ValueError:
        return None


def _all_plain(codec: Codec, payloads: Sequence[memoryview], size: int, stride: int) -> pa.Buffer | None:
    """The payloads decompressed, one after another; None if one is not what was promised."""
    memory = pa.allocate_buffer(stride * len(payloads))
    if codec is Codec.NONE:
        for page, payload in zip(np.frombuffer(memory, np.uint8).reshape(-1, stride), payloads, strict=True):
            page[:size] = np.frombuffer(payload, np.uint8)
        return memory
    return memory if codec is Codec.LZ4 and decompress_blocks(payloads, size, memory, stride) else None


def _held_against_first(
    first: pa.Buffer, heads: NDArray[np.uint8], stream_size: int, entries: int, where: str
) -> tuple[Extent, TableEntry | None, list[int], list[int], list[int]] | None:
    """What the first page says of itself, and in what alone the others differ; None if there is more.

    Parameters
    ----------
    first
        The first page, decompressed.
    heads : shape (n_pages, width)
        The first bytes of each, as far as the messages at least.

    Returns
    -------
    Extent, TableEntry or None, and three lists of int
        Nulls of each page, and `base` and `first` of its narrowed numbers.
    """
    try:
        found = layout_of(first, stream_size, where=where)
    except SparkPagesError:
        return None
    if found is None or found[0].rows != entries:
        return None
    extent, entry = found
    bases = firsts = [0] * len(heads)
    shift = 0
    if entry is not None:
        shift = ONE_ENTRY_BYTES
        if (heads[:, :SAME_ENTRY_BYTES] != heads[0, :SAME_ENTRY_BYTES]).any():
            return None
        numbers = np.ascontiguousarray(heads[:, SAME_ENTRY_BYTES:ONE_ENTRY_BYTES]).view("<i8")
        bases, firsts = numbers.T.tolist()
    nulls = nulls_of_alike(heads[:, shift:], extent)
    return None if nulls is None else (extent, entry, nulls.tolist(), bases, firsts)
