"""A page that is checked and decompressed, but not put together as Arrow values yet."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.arrow.validate_array import validate_array
from spark_pages.errors import DamageError
from spark_pages.format.pages.integer_encoding import TableEntry, read_encoding_table
from spark_pages.format.pages.ipc_layout import BatchLayout, FlatColumn, extent_of
from spark_pages.format.pages.page_batch import PageBatch, PageNumbers, PageShape

_SHORT_BYTES = 4096
"""More text of each page than this is copied by Arrow more quickly than byte by byte."""


class LazyPage:
    """A page of one flat column, whose integers may still be narrowed.

    A scan writes its values straight to where they are wanted, beside those of other pages: so they are
    copied once, and only what is wanted is widened. Use `plain_page`.

    Attributes
    ----------
    block, index
        Its memory and that of the pages it was decompressed with, and which of them it is.
    rows, nulls
        Entries, and how many of them are null.
    """

    __slots__ = ("_array", "_taken_from", "block", "index", "nulls", "rows")

    def __init__(self, block: PageBatch, index: int) -> None:
        self.block, self.index = block, index
        self.rows, self.nulls = block.rows, block.nulls[index]
        self._array: pa.Array | None = None
        self._taken_from = False

    @property
    def schema(self) -> pa.Schema:
        """Of the page."""
        return self.block.schema

    @property
    def column(self) -> FlatColumn:
        """How its values lie in memory."""
        return self.block.column

    @property
    def where(self) -> str:
        """What was read, for error messages."""
        return self.block.where[self.index]

    def alone(self) -> LazyPage:
        """Copy the page out of the memory that it shares with other pages."""
        block = self.block.alone(self.index)
        return self if block is self.block else LazyPage(block, 0)

    def array(self) -> pa.Array:
        """Return the entries as an array.

        Raises
        ------
        DamageError
            If text or binary lies outside of the page or is no text, or other entries are null than so many.

        Notes
        -----
        Narrowed integers are widened into new memory; the rest shares the memory of the page. Made once.
        """
        if self._array is None:
            buffers = self.block.buffers(self.index)
            try:
                found = pa.Array.from_buffers(self.column.kind, self.rows, buffers, self.nulls)
                if self.nulls or (self.column.offset_bytes and not self.block.has_plain_text):
                    validate_array(found)
            except pa.ArrowInvalid as error:
                raise DamageError(
                    f"Cannot decode {self.where}: expected values inside of it, found {error}."
                ) from error
            self._array = found
        return self._array

    def batch(self) -> pa.RecordBatch:
        """Return the entries as the batch that was written."""
        return pa.RecordBatch.from_arrays([self.array()], schema=self.schema)

    def valid_into(self, out: NDArray[np.bool_]) -> None:
        """Which entries are not null; shape (rows,).

        Raises
        ------
        DamageError
            If others are than the page says.
        """
        self.block.valid_into(self.index, out)
        nulls = self.rows - int(np.count_nonzero(out))
        if nulls != self.nulls:
            raise DamageError(f"Cannot decode {self.where}: expected {self.nulls} nulls, found {nulls}.")

    def valid(self) -> NDArray[np.bool_]:
        """Which entries are not null; shape (rows,)."""
        found = np.empty(self.rows, np.bool_)
        self.valid_into(found)
        return found

    def take_into(self, entries: NDArray[np.int64], out: NDArray[Any]) -> bool:
        """Write some fixed-width values to `out`. Values at nulls are arbitrary.

        Parameters
        ----------
        entries : int64, shape (n_entries,)
            Which, inside of the page.
        out : shape (n_entries,)
            As wide as the values.

        Returns
        -------
        bool
            False, and nothing is written, where `array` is the better way: it is made already, every value
            has to be widened for it, or this is the second time, so that there may be a third.
        """
        if self._taken_from or self._array is not None:
            return False
        self._taken_from = True
        return self.block.take_into(self.index, entries, out)

    @property
    def offers_text(self) -> bool:
        """Whether a few entries of text or binary are better taken by `take_texts` than out of `array`.

        Not where that is made already, nor the second time, so that there may be a third.
        """
        return bool(self.column.offset_bytes) and not self._taken_from and self._array is None

    def text(self) -> NDArray[np.uint8]:
        """Return the bytes that the offsets point into."""
        return self.block.text(self.index)


def take_texts(
    pages: Sequence[LazyPage], bounds: Sequence[int], entries: NDArray[np.int64]
) -> tuple[pa.Buffer, pa.Buffer] | None:
    """Take entries of text or binary pages, page after page, without validating UTF-8.

    Parameters
    ----------
    pages
        Of one column; each `offers_text`, and does so no more once some is taken.
    bounds
        ``entries[bounds[i]:bounds[i + 1]]`` belong to page i; at least one.
    entries : int64, shape (n_entries,)
        Which, inside of their pages.

    Returns
    -------
    two of pyarrow.Buffer, or None
        Offsets and text, as Arrow has them. None where so much text is wanted that `array` is better.

    Raises
    ------
    DamageError
        If an entry lies outside of its page.

    Notes
    -----
    Five calls of numpy a page: what can be done for all of them is done once. Needs eight bytes for each byte
    of text that is wanted.
    """
    begins = np.empty(len(entries), f"<i{pages[0].column.offset_bytes}")
    stops = np.empty_like(begins)
    behind = entries + 1
    texts = []
    for page, (low, high) in zip(pages, pairwise(bounds), strict=True):
        offsets = page.block.offsets(page.index)
        begins[low:high], stops[low:high] = offsets[entries[low:high]], offsets[behind[low:high]]
        texts.append(page.text())
    sizes = np.repeat(list(map(len, texts)), np.diff(bounds))
    wrong = (begins < 0) | (begins > stops) | (stops > sizes)
    if wrong.any():
        index = int(np.searchsorted(bounds, np.argmax(wrong), "right")) - 1
        here = slice(*bounds[index : index + 2])
        raise text_outside(pages[index].where, begins[here].min(), stops[here].max(), len(texts[index]))
    lengths = stops - begins
    if lengths.sum() > _SHORT_BYTES * len(pages):
        return None
    ends = np.zeros(len(entries) + 1, begins.dtype)
    np.cumsum(lengths, out=ends[1:])
    bytes_of = np.repeat(begins - ends[:-1], lengths) + np.arange(ends[-1])
    data = np.empty(len(bytes_of), np.uint8)
    for text, (low, high) in zip(texts, pairwise(ends[bounds].tolist()), strict=True):
        text.take(bytes_of[low:high], out=data[low:high], mode="clip")  # in a buffer of its own otherwise
    for page in pages:
        page._taken_from = True
    return pa.py_buffer(ends), pa.py_buffer(data)


def text_outside(where: str, first: int, last: int, size: int) -> DamageError:
    """Create the error for text offsets outside of the bytes of a page."""
    return DamageError(
        f"Cannot decode {where}: expected text in {size} bytes, found it from {first} to {last}."
    )


def as_batch(content: pa.RecordBatch | LazyPage) -> pa.RecordBatch:
    """Return the entries of a page as a batch."""
    return content.batch() if isinstance(content, LazyPage) else content


def plain_page(plain: pa.Buffer, stream_bytes: int, *, where: str) -> LazyPage | None:
    """Read a page from its decompressed payload; None if Arrow must read the stream.

    Parameters
    ----------
    plain
        The payload: an Arrow stream, or a table of narrowed buffers and the rest of the stream.
    stream_bytes
        Bytes of the stream where integers are narrowed; else 0.
    where
        What is being read, for error messages.

    Raises
    ------
    DamageError
        If the table contradicts itself or the sizes.

    Notes
    -----
    6 µs, no copy. Arrow reads pages of nested types, dictionaries and views, pages with more than values, and
    whatever is not like a stream that it has read before.
    """
    found = layout_of(plain, stream_bytes, where=where)
    if found is None:
        return None
    extent, entry = found
    base, first = (0, 0) if entry is None else entry[6:]
    numbers = PageNumbers((extent.nulls,), (extent.text[1],), (base,), (first,))
    block = PageBatch(plain, plain.size, PageShape.of(extent, entry), numbers, (where,))
    return LazyPage(block, 0)


def layout_of(
    plain: pa.Buffer, stream_bytes: int, *, where: str
) -> tuple[BatchLayout, TableEntry | None] | None:
    """Where the buffers of its stream lie, and how its numbers are narrowed; see `plain_page`."""
    if not stream_bytes:
        extent = extent_of(memoryview(plain), 0, plain.size)
        return None if extent is None else (extent, None)
    entries, shift = read_encoding_table(plain, stream_bytes, where)
    extent = extent_of(memoryview(plain), shift, stream_bytes)
    if extent is None or len(entries) > 1 or not _is_of_values(entries[0], extent):
        return None
    return extent, entries[0]


def _is_of_values(entry: TableEntry, extent: BatchLayout) -> bool:
    """Whether the values, or the offsets, are what is narrowed, in front of text and behind all else."""
    column, (start, size), (v_start, v_size) = extent.column, extent.values, extent.validity
    if column.offset_bytes:
        shape = (start, extent.rows + 1, column.offset_bytes)
    else:
        shape = (start, extent.rows, column.bits // 8)
    behind = not column.offset_bytes or extent.text[0] >= start + size
    return (entry[0], entry[1], entry[3]) == shape and v_start + v_size <= start and behind
