"""A page that is checked and decompressed, but not put together as Arrow values yet."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.errors import DamageError
from spark_pages.io.narrow import TableEntry, kept_bytes, narrow_table, widen
from spark_pages.io.stream_shape import Extent, extent_of

_NO_TEXT = np.zeros(0, np.uint8)
_UNSIGNED = {width: np.dtype(f"<u{width}") for width in (1, 2, 4, 8)}


class PlainPage:
    """A page of one flat column, whose integers may still be narrowed.

    A scan writes its values straight to where they are wanted, beside those of other pages: so they are
    copied once, and only what is wanted is widened. Use `plain_page`.

    Attributes
    ----------
    schema
        Of the page.
    column
        How its values lie in memory.
    rows, nulls
        Entries, and how many of them are null.
    where
        What was read, for error messages.
    """

    __slots__ = (
        "_entry",
        "_plain",
        "_text",
        "_validity",
        "_values",
        "column",
        "nulls",
        "rows",
        "schema",
        "where",
    )

    def __init__(
        self, extent: Extent, plain: pa.Buffer, where: str, shift: int = 0, entry: TableEntry | None = None
    ) -> None:
        self.schema, self.column, self.rows, self.nulls, _, validity, values, text = extent
        self.where = where
        self._plain = plain
        self._entry = entry
        self._validity, self._values, self._text = validity, values, text
        if entry is not None:
            saved = entry[1] * entry[3] - kept_bytes(entry)
            self._validity = (validity[0] + shift, validity[1])
            self._values = (values[0] + shift, values[1])
            self._text = (text[0] + shift - saved, text[1])

    @property
    def held_bytes(self) -> int:
        """About the memory that `array` takes."""
        if self._entry is None:
            return int(self._plain.size)
        wide = self._values[1]
        return wide + int(self._plain.size) if self.nulls or self.column.offset_bytes else wide

    def array(self) -> pa.Array:
        """The entries.

        Raises
        ------
        DamageError
            If text or binary lies outside of the page.

        Notes
        -----
        Narrowed integers are widened into new memory; the rest shares the memory of the page.
        """
        plain = self._plain
        buffers = [plain.slice(*self._validity) if self.nulls else None, self._wide()]
        if self.column.offset_bytes:
            buffers.append(plain.slice(*self._text))
        try:
            return pa.Array.from_buffers(self.column.kind, self.rows, buffers, self.nulls)
        except pa.ArrowInvalid as error:
            raise DamageError(
                f"Cannot decode {self.where}: expected values inside of it, found {error}."
            ) from error

    def batch(self) -> pa.RecordBatch:
        """The entries as the batch that was written."""
        return pa.RecordBatch.from_arrays([self.array()], schema=self.schema)

    def numbers_into(self, out: NDArray[np.uint8]) -> None:
        """Values of a fixed width, or offsets, are written to `out`, which is as long as they are."""
        if self._entry is None:
            out[:] = np.frombuffer(self._plain, np.uint8, len(out), self._values[0])
        else:
            self._widen(self._entry, out)

    def valid_into(self, out: NDArray[np.bool_]) -> None:
        """Which entries are not null; shape (rows,)."""
        place, size = self._validity
        bits = np.frombuffer(self._plain, np.uint8, size, place)
        out[:] = np.unpackbits(bits, count=self.rows, bitorder="little").view(np.bool_)

    def text(self) -> NDArray[np.uint8]:
        """The bytes that offsets point into."""
        place, size = self._text
        return np.frombuffer(self._plain, np.uint8, size, place) if size else _NO_TEXT

    def _wide(self) -> pa.Buffer:
        if self._entry is None:
            return self._plain.slice(*self._values)
        target = pa.allocate_buffer(self._entry[1] * self._entry[3])
        self._widen(self._entry, np.frombuffer(target, np.uint8))
        return target

    def _widen(self, entry: TableEntry, out: NDArray[Any]) -> None:
        _, count, kind, wide, narrow, _, base, first = entry
        kept = np.frombuffer(self._plain, _UNSIGNED[narrow], count, self._values[0])
        widen(kept, out.view(_UNSIGNED[wide]), kind, base, first)


def as_batch(content: pa.RecordBatch | PlainPage) -> pa.RecordBatch:
    """The entries of a page, put together if they are not yet."""
    return content.batch() if isinstance(content, PlainPage) else content


def plain_page(plain: pa.Buffer, stream_bytes: int, *, where: str) -> PlainPage | None:
    """A page of its decompressed payload; None where Arrow has to read the stream.

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
    5 µs, no copy. Arrow reads pages of nested types, dictionaries and views, pages with more than values, and
    whatever is not like a stream that it has read before.
    """
    if not stream_bytes:
        extent = extent_of(memoryview(plain), 0, plain.size)
        return None if extent is None else PlainPage(extent, plain, where)
    entries, shift = narrow_table(plain, stream_bytes, where)
    extent = extent_of(memoryview(plain), shift, stream_bytes)
    if extent is None or len(entries) > 1 or not _is_of_values(entries[0], extent):
        return None
    return PlainPage(extent, plain, where, shift, entries[0])


def _is_of_values(entry: TableEntry, extent: Extent) -> bool:
    """Whether the values, or the offsets, are what is narrowed, in front of text and behind all else."""
    column, (start, size), (v_start, v_size) = extent.column, extent.values, extent.validity
    if column.offset_bytes:
        shape = (start, extent.rows + 1, column.offset_bytes)
    else:
        shape = (start, extent.rows, column.bits // 8)
    behind = not column.offset_bytes or extent.text[0] >= start + size
    return (entry[0], entry[1], entry[3]) == shape and v_start + v_size <= start and behind
