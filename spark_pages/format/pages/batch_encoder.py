"""Pages of a column as bytes, many at a time: what `encode_page` does, once for pages that are cut alike.

The values of pages of numbers with as many entries each are narrowed and placed by a few calls of numpy, and
their messages made once (`batch_messages`). Of each page there is left what only C can do, its compression
and its checksum. The bytes are those that `encode_page` would give.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, zip_longest
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.arrow.columns import valid_of
from spark_pages.format.pages.codecs import MAX_UNCOMPRESSED_BYTES, Codec
from spark_pages.format.pages.integer_encoding import (
    DELTA,
    FRAME_OF_REFERENCE,
    ONE_ENTRY_BYTES,
    RESERVED,
    TRIED,
    TableEntry,
    differences,
    encoded_bytes,
    is_scattered,
    is_smaller,
    one_entry,
)
from spark_pages.format.pages.ipc_layout import FlatColumn, number_offsets
from spark_pages.format.pages.page_codec import (
    END_OF_STREAM,
    FEWEST_NARROWED,
    EncodedPage,
    encode_page,
    fill_nulls,
    finish_page,
    hides,
    stream_of,
)
from spark_pages.model.page import PAGE_HEADER_SIZE

_FEWEST = 4
"""Fewer pages are encoded as quickly one by one."""

_BLOCK_BYTES = 1 << 20
"""Values that are worked on together: they stay in the cache of the processor."""


def encode_pages(values: pa.Array, bounds: NDArray[np.int64], codec: Codec = Codec.LZ4) -> list[EncodedPage]:
    """Encode each piece of `values` that `plan_pages` made, as pages without metadata.

    Parameters
    ----------
    bounds : int64, shape (n_pages + 1,)
        First row of each page, and the number of rows last.

    Notes
    -----
    Some 30 µs a page of 64 KiB that LZ4 does not shrink, where `encode_page` takes 100. Pages that are stored
    as they are share memory with their neighbours, of about ``_BLOCK_BYTES``.
    """
    return [
        page or encode_page(values.slice(a, b - a), codec=codec)
        for page, (a, b) in zip_longest(_encode_uniform(values, bounds, codec), pairwise(bounds.tolist()))
    ]


def _encode_uniform(
    values: pa.Array, bounds: NDArray[np.int64], codec: Codec
) -> Sequence[EncodedPage | None]:
    """Encode the first pages together where possible; None for each page that cannot be."""
    if len(bounds) <= _FEWEST:
        return []
    column = FlatColumn.of(values.type)
    if column is None or _writes_whole_bitmap(values, bounds):
        return []
    if column.offset_bytes:
        return encode_text_pages(values, bounds, codec)
    rows, width = int(bounds[1] - bounds[0]), column.bits // 8
    size = rows * width
    if column.bits % 8 or size % SLICED_BYTES or not 0 < size <= _BLOCK_BYTES:
        return []
    pages: list[EncodedPage] = []
    alike, together = _uniform_prefix(bounds), _BLOCK_BYTES // size
    for first in range(0, alike if alike >= _FEWEST else 0, together):
        count = min(together, alike - first)
        some = values.slice(int(bounds[0]) + first * rows, count * rows)
        pages += _encode_batch(some, rows, width, codec)
    return pages


def _writes_whole_bitmap(values: pa.Array, bounds: NDArray[np.int64]) -> bool:
    """Whether Arrow writes with the first page what is valid in all: it does so where that is no longer."""
    bitmap, bits = values.buffers()[0], int(bounds[1] - bounds[0])
    padded = -(-bits // (8 * SLICED_BYTES)) * SLICED_BYTES
    return bool(values.null_count and not values.offset + bounds[0] and bitmap.size <= padded)


def _uniform_prefix(bounds: NDArray[np.int64]) -> int:
    """How many pages from the first on have as many entries each."""
    sizes = np.diff(bounds)
    others = np.flatnonzero(sizes != sizes[:1])
    return int(others[0]) if len(others) else len(sizes)


def _encode_batch(values: pa.Array, rows: int, width: int, codec: Codec) -> list[EncodedPage]:
    """Pages of as many entries each."""
    count = len(values) // rows
    numbers = np.frombuffer(values.buffers()[1], f"V{width}", len(values), values.offset * width)
    numbers = numbers.view(np.uint8).reshape(count, rows * width)
    if not values.null_count:
        return _encode_same_nulls(values.type, numbers, None, rows, codec)
    valid = valid_of(values).reshape(count, rows)
    pages: list[EncodedPage | None] = [None] * count
    has_null = ~valid.all(axis=1)
    for which, bits in ((np.flatnonzero(~has_null), None), (np.flatnonzero(has_null), valid)):
        if len(which):
            of_which = None if bits is None else bits[which]
            _fill(pages, which, _encode_same_nulls(values.type, numbers[which], of_which, rows, codec))
    return [page for page in pages if page is not None]


def _encode_same_nulls(
    kind: pa.DataType,
    numbers: NDArray[np.uint8],
    valid: NDArray[np.bool_] | None,
    rows: int,
    codec: Codec,
) -> list[EncodedPage]:
    """Pages of as many entries each, that either all have nulls or none.

    Parameters
    ----------
    numbers : shape (n_pages, n_bytes)
        Their values.
    valid : shape (n_pages, rows), or None
        Which of them are not null; None where all are.
    """
    count, width = len(numbers), numbers.shape[1] // rows
    nulls = np.zeros(count, np.int64) if valid is None else rows - np.count_nonzero(valid, axis=1)
    of_each = np.full(count, rows)
    messages = BatchMessages.of(kind)
    batches, streams = messages.message(of_each, nulls, of_each * width)
    before: list[NDArray[Any] | bytes] = [messages.schema, batches.view(np.uint8)]
    if valid is not None:
        numbers = fill_nulls(numbers, valid)
        bitmaps = np.packbits(valid, axis=1, bitorder="little")
        before += [bitmaps, zeros_behind(bitmaps.shape[1])]
    start, stream_bytes = int(streams[0]) - rows * width, int(streams[0]) + len(END_OF_STREAM)
    pages: list[EncodedPage | None] = [None] * count
    plain = np.ones(count, np.bool_)
    if codec is not Codec.NONE and rows >= FEWEST_NARROWED and _is_integer(kind) and width > 1:
        for which, entries, data in encode_rows(numbers.view(f"<i{width}"), start):
            plain[which] = False
            tables = np.frombuffer(b"".join(map(one_entry, entries)), np.uint8).reshape(-1, ONE_ENTRY_BYTES)
            zeros = bytes(encoded_bytes(entries[0]) - data.shape[1])
            block = _as_matrix([tables, *_select(before, which), data, zeros, END_OF_STREAM])
            _fill(pages, which, _with_headers(block, rows, codec, stream_bytes))
    which = np.flatnonzero(plain)
    if len(which):
        block = _as_matrix([*_select([*before, numbers], which), END_OF_STREAM])
        _fill(pages, which, _with_headers(block, rows, codec, 0))
    return [page for page in pages if page is not None]


def _select(parts: list[NDArray[Any] | bytes], which: NDArray[np.int64]) -> list[NDArray[Any] | bytes]:
    """Select the parts of some pages. Parts that all pages share stay as they are."""
    return [part if isinstance(part, bytes) or len(part) == len(which) else part[which] for part in parts]


def _is_integer(kind: pa.DataType) -> bool:
    types = pa.types
    return bool((types.is_integer(kind) or types.is_temporal(kind)) and not types.is_interval(kind))


def _as_matrix(parts: list[NDArray[Any] | bytes]) -> NDArray[np.uint8]:
    """Create a row for each page, with room for its header; shared bytes are repeated in each row."""
    columns = [np.frombuffer(part, np.uint8)[None] if isinstance(part, bytes) else part for part in parts]
    count = max(len(part) for part in columns)
    shape = count, PAGE_HEADER_SIZE + sum(part.shape[1] for part in columns)
    block = np.ndarray(shape, np.uint8, pa.allocate_buffer(shape[0] * shape[1]))
    at = PAGE_HEADER_SIZE
    for part in columns:
        block[:, at : at + part.shape[1]] = part
        at += part.shape[1]
    return block


def _with_headers(block: NDArray[np.uint8], rows: int, codec: Codec, stream_bytes: int) -> list[EncodedPage]:
    """Add headers to the pages of a block. Few uncompressed pages are copied out of the block."""
    memory, stride = block.reshape(-1).data, block.shape[1]
    rooms = [memory[at : at + stride] for at in range(0, block.size, stride)]
    found = [finish_page(codec, room[PAGE_HEADER_SIZE:], rows, stream_bytes, room) for room in rooms]
    if sum(isinstance(page.data, memoryview) for page in found) * 2 >= len(found):
        return found
    return [page.alone() for page in found]


def _fill(pages: list[EncodedPage | None], which: NDArray[np.int64], found: list[EncodedPage]) -> None:
    for index, page in zip(which.tolist(), found, strict=True):
        pages[index] = page


def encode_text_pages(values: pa.Array, bounds: NDArray[np.int64], codec: Codec) -> list[EncodedPage | None]:
    """Encode each piece of text or binary values as a page.

    Returns
    -------
    list
        None for pages whose offsets cannot be narrowed: those of few entries, or of very long ones.

    Notes
    -----
    Some 20 µs a page, beside what the codec takes.
    """
    column, held = FlatColumn.of(values.type), values.buffers()[2]
    if column is None or held is None or codec is Codec.NONE or hides(values):
        return []
    values, cuts = values.slice(int(bounds[0]), int(bounds[-1] - bounds[0])), bounds - bounds[0]
    firsts, rows, width = cuts[:-1], np.diff(cuts), column.offset_bytes
    ends = np.frombuffer(values.buffers()[1], f"<i{width}", len(values) + 1, width * values.offset)
    lengths = np.subtract(ends[1:], ends[:-1])
    of_each, bases = fewest_bytes(
        np.minimum.reduceat(lengths, firsts), np.maximum.reduceat(lengths, firsts), width
    )
    starts = ends[firsts].astype(np.int64)
    sizes = ends[cuts[1:]] - starts
    sizes = np.minimum(-(-sizes // SLICED_BYTES) * SLICED_BYTES, held.size - starts)
    valid, nulls = valid_of(values), np.zeros_like(rows)
    if values.null_count:
        nulls = np.add.reduceat(~valid, firsts, dtype=np.int64)
    messages = BatchMessages.of(values.type)
    batches, streams = messages.message(rows, nulls, (rows + 1) * width, sizes)
    streams += len(END_OF_STREAM)
    fits = (rows >= FEWEST_NARROWED) & (of_each < width) & (streams <= MAX_UNCOMPRESSED_BYTES)
    begins = messages.size_bytes + aligned(bitmap_bytes(rows, nulls))
    above = lengths - np.repeat(bases.astype(lengths.dtype), rows) if bases.any() else lengths
    kept = {narrow: above.astype(f"<u{narrow}") for narrow in {*of_each[fits].tolist()}}
    memory = memoryview(held)

    def page(index: int) -> EncodedPage:
        first, end = cuts[index : index + 2].tolist()
        count, narrow, base, begin, start, size = (
            int(each[index]) for each in (rows + 1, of_each, bases, begins, starts, sizes)
        )
        bitmap = np.packbits(valid[first:end], bitorder="little").tobytes() if nulls[index] else b""
        plain = b"".join(
            (
                one_entry((begin, count, DELTA, width, narrow, RESERVED, base, 0)),
                messages.schema,
                batches[index].data,
                bitmap,
                zeros_behind(len(bitmap)),
                bytes(narrow),  # the first has no length before it
                kept[narrow][first:end].data,
                zeros_behind(count * narrow) + zeros_behind(count * width),
                memory[start : start + size],
                zeros_behind(size),
                END_OF_STREAM,
            )
        )
        return finish_page(codec, plain, end - first, int(streams[index]))

    return [page(index) if fit else None for index, fit in enumerate(fits.tolist())]


# What stands in front of the values in the Arrow streams of many pages of one type. Pure.
#
# These messages differ in a few numbers alone: how many entries and nulls there are, and where each buffer
# lies. So they are made once for each type, and the numbers are put in.

_SAMPLE = 1000
"""No number of its message is left out for being zero."""

SLICED_BYTES = 64
"""Of a slice Arrow writes bytes up to a multiple of this, where there are some."""

_ALIGNED = 8
"""Buffers begin at multiples of it."""


def aligned(size: Any) -> Any:
    """Bytes up to where the next buffer begins; of a number or of many."""
    return -(-size // _ALIGNED) * _ALIGNED


def zeros_behind(size: int) -> bytes:
    """Return the padding between so many bytes and the next buffer."""
    return bytes(-size % _ALIGNED)


@dataclass(frozen=True, eq=False, slots=True)
class BatchMessages:
    """The messages of streams of one flat column.

    Attributes
    ----------
    schema
        The first.
    batch : int64
        The second.
    places
        In `batch`: bytes of the body, entries, entries again, nulls, then start and bytes of each buffer.
    """

    schema: bytes
    batch: NDArray[np.int64]
    places: list[int]

    @classmethod
    @lru_cache(256)
    def of(cls, kind: pa.DataType) -> BatchMessages:
        """Those of a type that `FlatColumn` knows."""
        column = FlatColumn.of(kind)
        assert column is not None
        sizes = (
            [(_SAMPLE + 1) * column.offset_bytes, 1] if column.offset_bytes else [_SAMPLE * column.bits // 8]
        )
        some = pa.Array.from_buffers(kind, _SAMPLE, [None, *(pa.py_buffer(bytes(size)) for size in sizes)], 0)
        schema, batch, _ = stream_of({"data": some}, None)
        length, places = number_offsets(memoryview(batch), buffers=1 + len(sizes))
        return cls(bytes(schema), np.frombuffer(batch, "<i8", length // 8), [at // 8 for at in places])

    @property
    def size_bytes(self) -> int:
        """Of both messages."""
        return len(self.schema) + self.batch.nbytes

    def message(
        self, rows: NDArray[np.int64], nulls: NDArray[np.int64], *sizes: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the second message of several streams, and the length of each stream without its end.

        Parameters
        ----------
        rows, nulls, sizes : int64, shape (n_streams,)
            Entries, nulls, and bytes of each buffer behind the bitmap of what is valid, which is there only
            where something is null.
        """
        places, at = [], np.zeros_like(rows)
        for size in (bitmap_bytes(rows, nulls), *sizes):
            places += [at, size]
            at = at + aligned(size)
        batches = np.tile(self.batch, (len(rows), 1))
        batches[:, self.places] = np.stack([at, rows, rows, nulls, *places], axis=1)
        return batches, self.size_bytes + at


def bitmap_bytes(rows: NDArray[np.int64], nulls: NDArray[np.int64]) -> NDArray[np.int64]:
    """Bytes of the bitmap of what is valid."""
    found: NDArray[np.int64] = np.where(nulls > 0, -(-rows // 8), 0)
    return found


_WIDTHS = np.array([1, 2, 4, 8])
_LIMITS = np.array([1 << 8, 1 << 16, 1 << 32], np.uint64)
"""Numbers below these fit into as many bytes."""


def encode_rows(
    values: NDArray[Any], start: int
) -> Iterator[tuple[NDArray[np.int64], list[TableEntry], NDArray[np.uint8]]]:
    """Narrow the only integer buffer of each of several streams, as `encode` does.

    Parameters
    ----------
    values : signed integers, shape (n_streams, n_numbers)
        The buffers.
    start
        First byte of the buffer in each stream.

    Yields
    ------
    Streams that are narrowed likewise, the entry in the table of each, and their differences as bytes. Those
    that are never named are not narrowed.
    """
    wide, numbers = values.itemsize, values.shape[1]
    least = _fewest_of_rows(values, wide)
    wanted = np.ones(len(values), np.bool_)
    tight = np.flatnonzero(least[0] == 1).tolist()
    wanted[[index for index in tight if is_scattered(values[index])]] = False
    stepped = np.flatnonzero(wanted)
    steps = np.subtract(_select_rows(values[:, 1:], stepped), _select_rows(values[:, :-1], stepped))
    neighbour = np.full(len(values), wide), np.zeros(len(values), np.int64)
    if len(stepped):
        neighbour[0][stepped], neighbour[1][stepped] = _fewest_of_rows(steps, wide)
    by_step = neighbour[0] < least[0]
    for index in np.flatnonzero((neighbour[0] == least[0]) & (least[0] < wide)).tolist():
        some, narrow = values[index, :TRIED], int(least[0][index])
        by_step[index] = is_smaller(
            differences(some, int(least[1][index]), narrow),
            differences(np.subtract(some[1:], some[:-1]), int(neighbour[1][index]), narrow, first=1),
        )
    place = np.cumsum(wanted) - 1  # of a stream among those with steps
    for kind, chosen, (widths, bases) in (
        (FRAME_OF_REFERENCE, ~by_step, least),
        (DELTA, by_step, neighbour),
    ):
        for narrow in {*widths[chosen].tolist()} - {wide}:
            which = np.flatnonzero(chosen & (widths == narrow))
            given = (
                _select_rows(values, which)
                if kind == FRAME_OF_REFERENCE
                else _select_rows(steps, place[which])
            )
            firsts = values[which, 0] if kind == DELTA else np.zeros_like(which)
            kept = np.zeros((len(which), numbers), f"<u{narrow}")
            shown = kept[:, numbers - given.shape[1] :]  # the first has no step
            base = bases[which].astype(values.dtype)[:, None]
            np.subtract(given, base, out=shown, dtype=values.dtype, casting="unsafe")
            of_each = zip(bases[which].tolist(), firsts.tolist(), strict=True)
            entries: list[TableEntry] = [
                (start, numbers, kind, wide, narrow, RESERVED, *each) for each in of_each
            ]
            yield which, entries, kept.view(np.uint8)


def _select_rows(values: NDArray[Any], which: NDArray[np.int64]) -> NDArray[Any]:
    """Select rows, without a copy if all are selected."""
    return values if len(which) == len(values) else values[which]


def _fewest_of_rows(values: NDArray[Any], wide: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return fewest_bytes(values.min(1), values.max(1), wide)


def fewest_bytes(
    least: NDArray[Any], most: NDArray[Any], wide: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Bytes that a value of each buffer needs above its least, `wide` where that saves none; and the base.

    Parameters
    ----------
    least, most : signed integers, shape (n_buffers,)
        Of each buffer.
    """
    base, top = least.astype(np.int64), most.astype(np.int64)
    need = np.searchsorted(_LIMITS, top.view(np.uint64) - base.view(np.uint64), side="right")
    is_small = (base > 0) & (np.searchsorted(_LIMITS, top.view(np.uint64), side="right") <= need)
    base[is_small] = 0  # then nothing needs to be added
    return np.minimum(_WIDTHS[need], wide), base
