"""Decompressed pages that were cut alike, side by side in memory: numpy works on many of them in one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.format.pages.integer_encoding import (
    ONE_ENTRY_BYTES,
    TableEntry,
    decode_column,
    decode_columns,
    decode_entries,
    encoded_bytes,
)
from spark_pages.format.pages.ipc_layout import BatchLayout, FlatColumn, Place

_NO_TEXT = np.zeros(0, np.uint8)
_UNSIGNED = {width: np.dtype(f"<u{width}") for width in (1, 2, 4, 8)}


class PageShape(NamedTuple):
    """What pages that were cut alike have in common: use `of`.

    Attributes
    ----------
    extent
        What the messages of each say, but for the number of nulls and the bytes of text.
    entry
        How the numbers of each are narrowed, but for what they are measured from; None where they are not.
    validity, values, text_at
        Where the buffers of each lie: two places, and where text begins.
    wide_bytes
        What its numbers take once they are widened; 0 where they need not be.
    """

    extent: BatchLayout
    entry: TableEntry | None
    validity: Place
    values: Place
    text_at: int
    wide_bytes: int

    @classmethod
    def of(cls, extent: BatchLayout, entry: TableEntry | None) -> PageShape:
        """Create the shape of pages of this extent."""
        if entry is None:
            return cls(extent, None, extent.validity, extent.values, extent.text[0], 0)
        wide_bytes = entry[1] * entry[3]
        text_at = extent.text[0] + ONE_ENTRY_BYTES - (wide_bytes - encoded_bytes(entry))
        validity, values = _moved(extent.validity), _moved(extent.values)
        return cls(extent, entry, validity, values, text_at, wide_bytes)


class PageNumbers(NamedTuple):
    """In what pages of one shape differ; a number for each page.

    Attributes
    ----------
    nulls
        Entries that are null.
    texts
        Bytes of text.
    bases, firsts
        Values from which narrowed numbers are measured.
    """

    nulls: Sequence[int]
    texts: Sequence[int]
    bases: Sequence[int]
    firsts: Sequence[int]


class PageBatch:
    """Pages of one schema and as many entries each, whose buffers begin at the same places; or a single page.

    *Numbers* are values of a fixed width, or the offsets of text and binary.

    Parameters
    ----------
    memory
        One page after another.
    stride
        From the first byte of a page to that of the next.
    shape
        What all of them have in common.
    numbers
        In what they differ.
    where
        What was read, for error messages.

    Attributes
    ----------
    schema, column, rows
        Of the stream, the memory of its column, and entries of a page.
    has_plain_text
        Whether `materialize` has found all text inside of its page, and to be ASCII.
    """

    __slots__ = (
        "_bases",
        "_firsts",
        "_memory",
        "_shape",
        "_texts",
        "_wide",
        "column",
        "has_plain_text",
        "nulls",
        "rows",
        "schema",
        "stride",
        "where",
    )

    def __init__(
        self,
        memory: pa.Buffer,
        stride: int,
        shape: PageShape,
        numbers: PageNumbers,
        where: Sequence[str],
    ) -> None:
        extent = shape.extent
        self.schema: pa.Schema = extent.schema
        self.column: FlatColumn = extent.column
        self.rows: int = extent.rows
        self.stride, self.where = stride, where
        self._memory, self._shape = memory, shape
        self.nulls, self._texts, self._bases, self._firsts = numbers
        self._wide: pa.Buffer | None = None
        self.has_plain_text = False

    @property
    def memory_bytes(self) -> int:
        """About the memory that a page takes, with its numbers widened."""
        return self.stride + self._shape.wide_bytes

    def alone(self, index: int) -> PageBatch:
        """Copy one page into a block and memory of its own."""
        if len(self.where) == 1:
            return self
        memory = pa.py_buffer(self._memory.slice(index * self.stride, self.stride).to_pybytes())
        share = slice(index, index + 1)
        each = (self.nulls, self._texts, self._bases, self._firsts)
        numbers = PageNumbers(*(of_pages[share] for of_pages in each))
        return PageBatch(memory, self.stride, self._shape, numbers, self.where[share])

    def materialize(self) -> None:
        """Narrowed numbers of all pages are widened, and their text is looked at, for `buffers` to come.

        Notes
        -----
        For who wants the entries of all of them: half of what it takes page by page.
        """
        pages, width = len(self.where), self.column.offset_bytes
        if pages < 2 or not self._shape.wide_bytes:
            return
        wide = pa.allocate_buffer(pages * self._shape.wide_bytes)
        self.numbers_into(0, pages, np.frombuffer(wide, np.uint8))
        if width:
            self.has_plain_text = self._is_plain_text(np.frombuffer(wide, f"<i{width}").reshape(pages, -1))
        self._wide = wide

    def _is_plain_text(self, offsets: NDArray[Any]) -> bool:
        """Whether the offsets of each page never fall and stay inside of its text, and that is ASCII."""
        texts = np.array(self._texts)
        if (offsets[:, 0] < 0).any() or (offsets[:, -1] > texts).any():
            return False
        if (offsets[:, 1:] < offsets[:, :-1]).any():
            return False
        least, most = int(texts.min()), int(texts.max())
        text = self._rows_of(self._shape.text_at, len(texts), most, _UNSIGNED[1])
        ends = np.where(np.arange(least, most) < texts[:, None], text[:, least:], 0)
        return max(int(part.max(initial=0)) for part in (text[:, :least], ends)) < 0x80

    def buffers(self, index: int) -> list[pa.Buffer | None]:
        """Return the buffers of the Arrow array of a page.

        Narrowed numbers are in new memory, which they share once `materialize` has run.
        """
        begin = index * self.stride
        _, entry, (valid_at, valid_bytes), (values_at, values_bytes), _, wide_bytes = self._shape
        validity = self._memory.slice(begin + valid_at, valid_bytes)
        if entry is None:
            numbers = self._memory.slice(begin + values_at, values_bytes)
        elif self._wide is not None:
            numbers = self._wide.slice(index * wide_bytes, wide_bytes)
        else:
            numbers = pa.allocate_buffer(wide_bytes)
            self.numbers_into(index, index + 1, np.frombuffer(numbers, np.uint8))
        found = [validity if self.nulls[index] else None, numbers]
        if self.column.offset_bytes:
            found.append(self._memory.slice(begin + self._shape.text_at, self._texts[index]))
        return found

    def numbers_into(self, first: int, stop: int, out: NDArray[np.uint8]) -> None:
        """Write the numbers of pages [first, stop) to `out`, page after page.

        Parameters
        ----------
        out : uint8, shape (bytes of all of them,)
        """
        begin, pages, entry = first * self.stride + self._shape.values[0], stop - first, self._shape.entry
        if entry is None:
            if pages == 1:
                out[:] = np.frombuffer(self._memory, np.uint8, len(out), begin)
            else:
                size = len(out) // pages
                out.reshape(pages, size)[:] = self._rows_of(begin, pages, size, _UNSIGNED[1])
            return
        _, count, kind, wide, narrow, _, _, _ = entry
        target: NDArray[Any] = out.view(_UNSIGNED[wide])
        if pages == 1:
            kept = np.frombuffer(self._memory, _UNSIGNED[narrow], count, begin)
            decode_column(kept, target, kind, self._bases[first], self._firsts[first])
        else:
            rows = self._rows_of(begin, pages, count, _UNSIGNED[narrow])
            bases, firsts = (np.array(each[first:stop]) for each in (self._bases, self._firsts))
            decode_columns(rows, target.reshape(pages, count), kind, bases, firsts)

    def take_into(self, index: int, entries: NDArray[np.int64], out: NDArray[Any]) -> bool:
        """Write some numbers of a page to `out`; False if all of them would have to be widened."""
        begin, entry = index * self.stride + self._shape.values[0], self._shape.entry
        if entry is None:
            out[:] = np.frombuffer(self._memory, out.dtype, self.rows, begin)[entries]
            return True
        kept = np.frombuffer(self._memory, _UNSIGNED[entry[4]], entry[1], begin)
        return decode_entries(kept, entries, out, entry[2], self._bases[index], self._firsts[index])

    def offsets(self, index: int) -> NDArray[Any]:
        """Where the text of each entry of a page begins, and where that of the last ends."""
        found = np.empty(self.rows + 1, f"<i{self.column.offset_bytes}")
        self.numbers_into(index, index + 1, found.view(np.uint8))
        return found

    def valid_into(self, index: int, out: NDArray[np.bool_]) -> None:
        """Which entries of a page are not null; shape (rows,)."""
        place, size = self._shape.validity
        bits = np.frombuffer(self._memory, np.uint8, size, index * self.stride + place)
        out[:] = np.unpackbits(bits, count=self.rows, bitorder="little").view(np.bool_)

    def text(self, index: int) -> NDArray[np.uint8]:
        """Return the bytes that the offsets of a page point into."""
        size, at = self._texts[index], index * self.stride + self._shape.text_at
        return np.frombuffer(self._memory, np.uint8, size, at) if size else _NO_TEXT

    def _rows_of(self, begin: int, pages: int, count: int, number: np.dtype[Any]) -> NDArray[Any]:
        return np.ndarray((pages, count), number, self._memory, begin, (self.stride, number.itemsize))


def _moved(place: Place) -> Place:
    """Where a buffer lies behind the table of narrowed ranges."""
    return place[0] + ONE_ENTRY_BYTES, place[1]
