"""Inline pages get a place in a page file that only checkpoints name, byte for byte."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from spark_pages.log.object_writer import ObjectWriter
from spark_pages.model.columns import optional_bytes, optional_numbers, optional_text
from spark_pages.model.page import PAGE_ALIGNMENT, PageKind
from spark_pages.model.run import PAGE_SCHEMA, PageRun


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
        inline = np.flatnonzero(run.numbers("kind") == PageKind.INLINE)
        if not len(inline):
            return run
        pages = run.pages.to_pydict()
        for index in inline.tolist():
            data: bytes = pages["data"][index]
            pages["kind"][index] = int(PageKind.FILE)
            pages["path"][index] = self._key
            pages["offset"][index] = len(self._data)
            pages["actual_len"][index] = len(data)
            pages["data"][index] = None
            self._data += data + bytes(-len(data) % PAGE_ALIGNMENT)
            pages["alloc_len"][index] = len(self._data) - pages["offset"][index]
        columns = []
        for field in PAGE_SCHEMA:
            values = pages[field.name]
            if field.name == "path":
                columns.append(optional_text(values).dictionary_encode())
            elif field.name == "data":
                columns.append(optional_bytes(values))
            else:
                columns.append(optional_numbers(values, field.type))
        return PageRun(pa.RecordBatch.from_arrays(columns, schema=PAGE_SCHEMA), lambda: run.stats)

    def write(self, objects: ObjectWriter) -> None:
        """Write the file, if any page needs it."""
        if self._data:
            objects.put_at(self._key, self._data)
