"""Inline pages get a place in a page file that only checkpoints name, byte for byte."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_pages.arrow.columns import number_column, numbers_of, optional_text, valid_of
from spark_pages.log.checkpoint.object_writer import ObjectWriter
from spark_pages.model.page import PAGE_ALIGNMENT, PageKind
from spark_pages.model.page_schema import PAGE_SCHEMA
from spark_pages.model.run import PageRun


class InlineHomes:
    """Collects the inline pages of one checkpoint.

    Parameters
    ----------
    key
        Of the page file.
    """

    def __init__(self, key: str) -> None:
        self._key = key
        self._data = bytearray()

    def give_home(self, run: PageRun) -> PageRun:
        """The run, its inline pages placed in the file; everything but their place stays."""
        inline = run.numbers("kind") == PageKind.INLINE
        if not inline.any():
            return run
        where = np.flatnonzero(inline)
        data = run.pages.column("data")
        lengths, offsets = self._place(data.take(number_column(where, pa.int64())))
        path = run.pages.column("path")
        indices = np.where(valid_of(path), numbers_of(path.indices), 0).astype(np.int32)
        paths = path.dictionary.to_pylist()
        indices[where] = len(paths)
        replaced = {
            "kind": _with(run, "kind", where, int(PageKind.FILE)),
            "path": pa.DictionaryArray.from_arrays(
                number_column(indices, pa.int32(), valid_of(path) | inline),
                optional_text([*paths, self._key]),
            ),
            "offset": _with(run, "offset", where, offsets),
            "alloc_len": _with(run, "alloc_len", where, _aligned(lengths)),
            "actual_len": _with(run, "actual_len", where, lengths),
            "data": pc.if_else(_flags(inline), pa.scalar(None, data.type), data),
        }
        columns = [replaced.get(name, run.pages.column(name)) for name in PAGE_SCHEMA.names]
        return PageRun(pa.RecordBatch.from_arrays(columns, schema=PAGE_SCHEMA), lambda: run.stats)

    def _place(self, pages: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Put the pages behind those that are there; gives their lengths, and the offset of each."""
        lengths = numbers_of(pc.binary_length(pages)).astype(np.int64)
        allocated = _aligned(lengths)
        ends = np.cumsum(allocated)
        starts = ends - allocated
        content = np.frombuffer(b"".join(pages.to_pylist()), np.uint8)
        placed = np.zeros(int(ends[-1]), dtype=np.uint8)
        before = np.cumsum(lengths) - lengths
        placed[np.repeat(starts - before, lengths) + np.arange(len(content))] = content
        offsets = starts + len(self._data)
        self._data += placed.data
        return lengths, offsets

    def write(self, objects: ObjectWriter) -> None:
        """Write the file, if any page needs it."""
        if self._data:
            objects.put_at(self._key, self._data)


def _aligned(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return -(-lengths // PAGE_ALIGNMENT) * PAGE_ALIGNMENT


def _with(run: PageRun, name: str, where: NDArray[np.int64], values: NDArray[np.int64] | int) -> pa.Array:
    """A numeric column of the run with other values at some places."""
    numbers = run.numbers(name).copy()
    numbers[where] = values
    return number_column(numbers, PAGE_SCHEMA.field(name).type)


def _flags(values: NDArray[np.bool_]) -> pa.Array:
    bits = pa.py_buffer(np.packbits(values, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, bits])
