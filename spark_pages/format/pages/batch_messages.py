"""What stands in front of the values in the Arrow streams of many pages of one type. Pure.

These messages differ in a few numbers alone: how many entries and nulls there are, and where each buffer
lies. So they are made once for each type, and the numbers are put in.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.format.pages.ipc_layout import FlatColumn, number_offsets
from spark_pages.format.pages.page_stream import stream_of

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
    """What stands between so many bytes and the next buffer."""
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
        """The second message of several streams, and how long each stream is without its end.

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
