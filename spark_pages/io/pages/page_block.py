"""Decompressed pages that were cut alike, side by side in memory: numpy works on many of them in one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.io.pages.narrow import ONE_ENTRY_BYTES, TableEntry, kept_bytes, widen, widen_rows, widen_some
from spark_pages.io.pages.stream_shape import Extent, FlatColumn, Place

_NO_TEXT = np.zeros(0, np.uint8)
_UNSIGNED = {width: np.dtype(f"<u{width}") for width in (1, 2, 4, 8)}


class PageBlock:
    """Pages of one schema and as many entries each, whose buffers begin at the same places; or a single page.

    *Numbers* are values of a fixed width, or the offsets of text and binary.

    Parameters
    ----------
    memory
        One page after another.
    stride
        From the first byte of a page to that of the next.
    extent
        What the messages of each say, but for the number of nulls and the bytes of text.
    entry
        How the numbers of each are narrowed, but for `bases` and `firsts`; None where they are not.
    nulls, texts, bases, firsts
        Of each page: how many entries are null, bytes of text, and what narrowed numbers are measured from.
    where
        What was read, for error messages.

    Attributes
    ----------
    schema, column, rows
        Of the stream, the memory of its column, and entries of a page.
    has_plain_text
        Whether `put_together` has found all text inside of its page, and to be ASCII.
    """

    __slots__ = (
        "_bases",
        "_entry",
        "_extent",
        "_firsts",
        "_memory",
        "_text_at",
        "_texts",
        "_validity",
        "_values",
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
        extent: Extent,
        entry: TableEntry | None,
        nulls: Sequence[int],
        texts: Sequence[int],
        bases: Sequence[int],
        firsts: Sequence[int],
        where: Sequence[str],
    ) -> None:
        self.schema: pa.Schema = extent.schema
        self.column: FlatColumn = extent.column
        self.rows: int = extent.rows
        self.stride, self.nulls, self.where = stride, nulls, where
        self._memory, self._extent = memory, extent
        self._entry, self._bases, self._firsts = entry, bases, firsts
        self._validity, self._values = extent.validity, extent.values
        self._text_at, self._texts = extent.text[0], texts
        self._wide: pa.Buffer | None = None
        self.has_plain_text = False
        if entry is not None:
            saved = entry[1] * entry[3] - kept_bytes(entry)
            self._validity = _moved(extent.validity, ONE_ENTRY_BYTES)
            self._values = _moved(extent.values, ONE_ENTRY_BYTES)
            self._text_at += ONE_ENTRY_BYTES - saved

    @property
    def held_bytes(self) -> int:
        """About the memory that a page takes, with its numbers widened."""
        return self.stride + (0 if self._entry is None else self._entry[1] * self._entry[3])

    def alone(self, index: int) -> PageBlock:
        """The same page in a block, and memory, of its own."""
        if len(self.where) == 1:
            return self
        memory = pa.py_buffer(self._memory.slice(index * self.stride, self.stride).to_pybytes())
        share = slice(index, index + 1)
        return PageBlock(
            memory, self.stride, self._extent, self._entry,
            self.nulls[share], self._texts[share], self._bases[share], self._firsts[share], self.where[share],
        )  # fmt: skip

    def put_together(self) -> None:
        """Narrowed numbers of all pages are widened, and their text is looked at, for `buffers` to come.

        Notes
        -----
        For who wants the entries of all of them: half of what it takes page by page.
        """
        pages, entry, width = len(self.where), self._entry, self.column.offset_bytes
        if pages < 2 or entry is None:
            return
        wide = pa.allocate_buffer(pages * entry[1] * entry[3])
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
        text = self._rows_of(self._text_at, len(texts), most, _UNSIGNED[1])
        ends = np.where(np.arange(least, most) < texts[:, None], text[:, least:], 0)
        return max(int(part.max(initial=0)) for part in (text[:, :least], ends)) < 0x80

    def buffers(self, index: int) -> list[pa.Buffer | None]:
        """What an Arrow array of a page is made of.

        Narrowed numbers are in new memory, which they share once all were `put_together`.
        """
        begin = index * self.stride
        validity = self._memory.slice(begin + self._validity[0], self._validity[1])
        if self._entry is None:
            numbers = self._memory.slice(begin + self._values[0], self._values[1])
        else:
            size = self._entry[1] * self._entry[3]
            if self._wide is not None:
                numbers = self._wide.slice(index * size, size)
            else:
                numbers = pa.allocate_buffer(size)
                self.numbers_into(index, index + 1, np.frombuffer(numbers, np.uint8))
        found = [validity if self.nulls[index] else None, numbers]
        if self.column.offset_bytes:
            found.append(self._memory.slice(begin + self._text_at, self._texts[index]))
        return found

    def numbers_into(self, first: int, stop: int, out: NDArray[np.uint8]) -> None:
        """The numbers of pages [first, stop) are written to `out`, page after page.

        Parameters
        ----------
        out : uint8, shape (bytes of all of them,)
        """
        begin, pages, entry = first * self.stride + self._values[0], stop - first, self._entry
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
            widen(kept, target, kind, self._bases[first], self._firsts[first])
        else:
            rows = self._rows_of(begin, pages, count, _UNSIGNED[narrow])
            bases, firsts = (np.array(each[first:stop]) for each in (self._bases, self._firsts))
            widen_rows(rows, target.reshape(pages, count), kind, bases, firsts)

    def take_into(self, index: int, entries: NDArray[np.int64], out: NDArray[Any]) -> bool:
        """Some numbers of a page are written to `out`, unless all have to be widened for that."""
        begin, entry = index * self.stride + self._values[0], self._entry
        if entry is None:
            out[:] = np.frombuffer(self._memory, out.dtype, self.rows, begin)[entries]
            return True
        kept = np.frombuffer(self._memory, _UNSIGNED[entry[4]], entry[1], begin)
        return widen_some(kept, entries, out, entry[2], self._bases[index], self._firsts[index])

    def offsets(self, index: int) -> NDArray[Any]:
        """Where the text of each entry of a page begins, and where that of the last ends."""
        found = np.empty(self.rows + 1, f"<i{self.column.offset_bytes}")
        self.numbers_into(index, index + 1, found.view(np.uint8))
        return found

    def valid_into(self, index: int, out: NDArray[np.bool_]) -> None:
        """Which entries of a page are not null; shape (rows,)."""
        place, size = self._validity
        bits = np.frombuffer(self._memory, np.uint8, size, index * self.stride + place)
        out[:] = np.unpackbits(bits, count=self.rows, bitorder="little").view(np.bool_)

    def text(self, index: int) -> NDArray[np.uint8]:
        """The bytes that the offsets of a page point into."""
        size, at = self._texts[index], index * self.stride + self._text_at
        return np.frombuffer(self._memory, np.uint8, size, at) if size else _NO_TEXT

    def _rows_of(self, begin: int, pages: int, count: int, number: np.dtype[Any]) -> NDArray[Any]:
        return np.ndarray((pages, count), number, self._memory, begin, (self.stride, number.itemsize))


def _moved(place: Place, by: int) -> Place:
    return place[0] + by, place[1]
