"""Pages as bytes, many at a time: what `page_codec.open_page` does, once for pages that were cut alike.

Neighbours mostly are pages of one column with as many entries each: their headers, tables and messages are
the same, byte by byte, but for a few numbers. So those of the first are held against the rules, and those of
the others against the first. Of each page there is left what only C can do, its checksums and its
decompression. Whatever differs is left to `open_page`, and so is whatever is wrong, which that says best.
Nothing is believed here that is not believed there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from spark_pages.errors import SparkPagesError
from spark_pages.format.pages.codecs import (
    Codec,
    check_uncompressed_size,
    decompress_lz4,
    decompress_lz4_batch,
)
from spark_pages.format.pages.integer_encoding import ONE_ENTRY_BYTES, SAME_ENTRY_BYTES, check_stream_bytes
from spark_pages.format.pages.ipc_layout import match_layouts
from spark_pages.format.pages.lazy_page import LazyPage, layout_of
from spark_pages.format.pages.page_batch import PageBatch, PageNumbers, PageShape
from spark_pages.format.pages.page_header import (
    ALIKE,
    CHECKSUM,
    SEAL,
    SIZE,
    STORED,
    STREAM_SIZE,
    header_checksums,
    header_fields,
    header_words,
)
from spark_pages.model.page import PAGE_HEADER_SIZE
from spark_pages.model.run import PageKey

_FEWEST = 4
"""Fewer pages are opened more quickly one by one."""

_OF_ONE_SIZE = (*ALIKE, SIZE, STREAM_SIZE)
_LINE = 64
_MOST_ROOM = 2
"""Pages of text lie side by side in room for the longest, unless that takes more than twice their bytes."""
_HEAD_BYTES = 1024
"""Of pages that lie apart so many are held against each other; longer messages are for `open_page`."""


def decode_batch(
    packed: Sequence[memoryview], keys: Sequence[PageKey], *, apart: bool = False, borrowed: bool = False
) -> list[LazyPage | None]:
    """Those of the pages that look like others, checked and decompressed; None for the rest.

    Parameters
    ----------
    packed
        Header and payload of each, and nothing else.
    keys
        What is expected of each.
    apart
        Whether each has memory of its own, so that it can be kept without the others. Then pages that are
        stored as they are share that of `packed`, else none does.
    borrowed
        Whether pages that are stored as they are, and as far from each other, share the memory of `packed`
        all the same: for who is done with them before that is used for others.

    Notes
    -----
    Some 5 µs a page beside checksums and decompression, where `open_page` takes some 25.
    """
    found: list[LazyPage | None] = [None] * len(packed)
    for indices, block in open_batches(packed, keys, apart=apart, borrowed=borrowed):
        for number, index in enumerate(indices):
            found[index] = LazyPage(block, number)
    return found


def open_batches(
    packed: Sequence[memoryview], keys: Sequence[PageKey], *, apart: bool = False, borrowed: bool = False
) -> Iterator[tuple[list[int], PageBatch]]:
    """Open pages block by block, each block with the indices of its pages.

    Parameters
    ----------
    packed, keys, apart, borrowed
        See `decode_batch`.
    """
    if len(packed) < _FEWEST:
        return
    words = header_words(packed)
    for share in _equal_header_runs(words):
        if len(share) >= _FEWEST:
            some, theirs = [packed[index] for index in share], [keys[index] for index in share]
            blocks = _open_batch(some, theirs, words[share], apart, borrowed)
            if apart:
                yield from (([index], block) for index, block in zip(share, blocks, strict=False))
            else:
                yield from ((share, block) for block in blocks)


def _equal_header_runs(words: NDArray[np.uint64]) -> list[list[int]]:
    """Group pages by the content of their headers.

    Neighbours stay neighbours: they are of one size, or of text if nearly each has a size of its own. Pages
    from all over are put together by size, and those left over, of text perhaps, without it.
    """
    of_one_size, of_text = words[:, _OF_ONE_SIZE], words[:, [*ALIKE, STREAM_SIZE]]
    narrowed = of_text[:, -1] != 0
    of_text[narrowed, -1] -= words[narrowed, SIZE]  # what that saves does not hang on the length of the text
    for alike in (of_one_size, of_text):
        edges = _edges(alike)
        if len(edges) * _FEWEST <= len(words):
            return [[*range(first, stop)] for first, stop in pairwise([0, *edges, len(words)])]
    groups = _groups(of_one_size)
    left = [index for group in groups if len(group) < _FEWEST for index in group]
    return groups + [[left[index] for index in group] for group in _groups(of_text[left])]


def _groups(words: NDArray[np.uint64]) -> list[list[int]]:
    """Group the indices of equal rows."""
    found: dict[tuple[int, ...], list[int]] = {}
    for index, row in enumerate(map(tuple, words.tolist())):
        found.setdefault(row, []).append(index)
    return list(found.values())


def _edges(words: NDArray[np.uint64]) -> list[int]:
    """Where a row differs from the one before."""
    found: list[int] = (np.flatnonzero((words[1:] != words[:-1]).any(1)) + 1).tolist()
    return found


def _open_batch(
    packed: Sequence[memoryview],
    keys: Sequence[PageKey],
    words: NDArray[np.uint64],
    apart: bool,
    borrowed: bool,
) -> list[PageBatch]:
    """Pages whose headers say the same: one block, or one of each; none where each is to be opened alone."""
    where = [f"{key[0]}@{key[1]}" for key in keys]
    stored, sizes = words[:, STORED].tolist(), words[:, SIZE].tolist()
    streams = words[:, STREAM_SIZE].tolist()
    try:
        codec, _, _, entries, _, narrowed = header_fields(packed[0], where[0])
        for each, size, stream in {*zip(stored, sizes, streams, strict=True)}:
            check_uncompressed_size(codec, each, size)
            if narrowed:
                check_stream_bytes(size, stream)
    except SparkPagesError:
        return []
    payloads = [page[PAGE_HEADER_SIZE:] for page in packed]
    _, _, _, _, sums, expected = zip(*keys, strict=True)
    stride = -(-max(sizes) // _LINE) * _LINE
    if (
        stored != list(map(len, payloads))
        or words[:, SEAL].tolist() != header_checksums(packed)
        or not words[:, CHECKSUM].tolist() == list(map(xxhash.xxh3_64_intdigest, payloads)) == list(sums)
        or expected.count(entries) != len(keys)
        or not min(sizes)
        or (not narrowed and any(streams))
        or stride * len(sizes) > _MOST_ROOM * sum(sizes)
    ):
        return []
    if apart:
        plains = _each_plain(codec, payloads, sizes)
        if plains is None:
            return []
        width = min(*sizes, _HEAD_BYTES)
        joined = b"".join([memoryview(plain)[:width] for plain in plains])
        heads = np.frombuffer(joined, np.uint8).reshape(-1, width)
        alike = _compare_with_first(plains[0], heads, words, entries, where[0])
        if alike is None:
            return []
        shape, numbers = alike
        each_page = zip(plains, *numbers, where, strict=True)
        return [
            PageBatch(plain, plain.size, shape, PageNumbers((nulls,), (text,), (base,), (first,)), (at,))
            for plain, nulls, text, base, first, at in each_page
        ]
    where_they_are = _evenly_spaced(payloads, max(sizes)) if borrowed and codec is Codec.NONE else None
    if where_they_are is not None:
        memory, stride = where_they_are
    else:
        memory = _all_plain(codec, payloads, sizes, stride)
    if memory is None:
        return []
    heads = np.ndarray((len(packed), min(stride, *sizes)), np.uint8, memory, 0, (stride, 1))
    alike = _compare_with_first(memory.slice(0, sizes[0]), heads, words, entries, where[0])
    if alike is None:
        return []
    return [PageBatch(memory, stride, *alike, where)]


def _each_plain(codec: Codec, payloads: Sequence[memoryview], sizes: Sequence[int]) -> list[pa.Buffer] | None:
    """Decompress each payload into memory of its own; None if one has an unexpected size."""
    stored = list(map(pa.py_buffer, payloads))
    if codec is Codec.NONE:
        return stored
    try:
        return list(map(decompress_lz4, stored, sizes)) if codec is Codec.LZ4 else None
    except ValueError:
        return None


def _evenly_spaced(payloads: Sequence[memoryview], size: int) -> tuple[pa.Buffer, int] | None:
    """Return the memory that holds payloads of at most `size` bytes at even distances, and the payloads."""
    addresses = [pa.py_buffer(payload).address for payload in payloads]
    stride = addresses[1] - addresses[0]
    if stride < size or addresses != [*range(addresses[0], addresses[-1] + 1, stride)]:
        return None
    return pa.foreign_buffer(addresses[0], addresses[-1] - addresses[0] + len(payloads[-1]), payloads), stride


def _all_plain(
    codec: Codec, payloads: Sequence[memoryview], sizes: Sequence[int], stride: int
) -> pa.Buffer | None:
    """Decompress all payloads one after another; None if one has an unexpected size."""
    memory = pa.allocate_buffer(stride * len(payloads))
    if codec is Codec.NONE:
        places = np.frombuffer(memory, np.uint8).reshape(-1, stride)
        for place, payload, size in zip(places, payloads, sizes, strict=True):
            place[:size] = np.frombuffer(payload, np.uint8)
        return memory
    return memory if codec is Codec.LZ4 and decompress_lz4_batch(payloads, sizes, memory, stride) else None


def _compare_with_first(
    first: pa.Buffer, heads: NDArray[np.uint8], words: NDArray[np.uint64], entries: int, where: str
) -> tuple[PageShape, PageNumbers] | None:
    """Return the shape of the first page and the numbers that vary; None if the pages differ in more.

    Parameters
    ----------
    first
        The first page, decompressed.
    heads : shape (n_pages, width)
        The first bytes of each, as far as the messages at least.
    words
        Their headers, which have been checked.

    Returns
    -------
    PageShape, PageNumbers
        What the pages have in common, and in what they differ.
    """
    sizes, streams = words[:, SIZE].astype(np.int64), words[:, STREAM_SIZE].astype(np.int64)
    try:
        found = layout_of(first, int(streams[0]), where=where)
    except SparkPagesError:
        return None
    if found is None or found[0].rows != entries:
        return None
    extent, entry = found
    bases = firsts = [0] * len(heads)
    shift = 0
    if entry is None:
        streams = sizes
    else:
        shift = ONE_ENTRY_BYTES
        saved = streams - sizes
        if (heads[:, :SAME_ENTRY_BYTES] != heads[0, :SAME_ENTRY_BYTES]).any() or (saved != saved[0]).any():
            return None
        numbers = np.ascontiguousarray(heads[:, SAME_ENTRY_BYTES:ONE_ENTRY_BYTES]).view("<i8")
        bases, firsts = numbers.T.tolist()
    alike = match_layouts(heads[:, shift:], streams, extent)
    if alike is None:
        return None
    nulls, texts = alike
    return PageShape.of(extent, entry), PageNumbers(nulls.tolist(), texts.tolist(), bases, firsts)
