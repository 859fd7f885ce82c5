"""Whole runs of pages of numbers, each as one array, read straight: for who reads every page once.

What `PageHandler.get_values` gives, and who joins that, but past the caches and what they keep of each page.
While the caller works on one run the next is being read; its pages are opened many at a time where they
were read, and each value is copied once, to its place among those of the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.io.files.local_spans import Read
from spark_pages.io.files.read_plan import PageSpan, plan_spans
from spark_pages.io.pages.block_codec import open_alike
from spark_pages.io.pages.page_codec import open_page
from spark_pages.io.pages.page_key import PageKey, keys_of_run
from spark_pages.io.pages.plain_page import PlainPage
from spark_pages.io.pages.stream_shape import FlatColumn
from spark_pages.io.reading.page_reader import LOCAL_SPAN_BYTES, Load, PageReader, packed_pages
from spark_pages.model.columns import valid_of
from spark_pages.model.run import PageRun

_TOGETHER_BYTES = 1 << 20
"""Stored pages that are opened together: they stay in the cache of the processor."""

_MOST_BYTES = 1 << 31
"""Longer runs are read page by page: what their descriptors say is not believed before the pages are seen."""


def read_numbers(
    runs: Sequence[tuple[PageRun, pa.DataType]], reader: PageReader, load: Load
) -> Iterator[pa.Array | None]:
    """The values of each run, in order; None for a run that is to be read in the general way.

    Parameters
    ----------
    runs
        Each with the type that its pages should have.
    reader
        Of a store on a local disk.
    load
        Is told what was read.

    Raises
    ------
    ObjectNotFoundError, DamageError, StorageError
        As `PageReader.load`.

    Notes
    -----
    Values of a fixed width in pages of files, which hold nothing beside them and show what they hold; nulls
    are allowed. Memory: a run, and what is read ahead. Some 10 µs a page beside its checksum and its copy.
    """
    gathered = [_NumberRun.of(run, kind) for run, kind in runs]
    planned = [(each, span) for each in gathered if each is not None for span in each.spans()]
    owners = (each for each, _ in planned)
    arriving = reader.read_ahead([span for _, span in planned], load)
    pieces = (
        [read for _, read in of_run]
        for together in arriving
        for _, of_run in groupby([(next(owners), read) for read in together], key=itemgetter(0))
    )
    for each in gathered:
        while each is not None and not each.is_complete:
            each.take(next(pieces))
        yield each and each.array()


class _NumberRun:
    """The values of one run, as they arrive."""

    def __init__(self, keys: list[PageKey], run: PageRun, column: FlatColumn) -> None:
        self._keys = keys
        self._column = column
        self._width = column.bits // 8
        self._ends: list[int] = run.prefix_entries.tolist()
        self._places = {key: place for place, key in enumerate(keys)}
        self._lacking = len(keys)
        self._is_odd = False
        self._values: pa.Buffer | None = None
        self._valid: NDArray[np.bool_] | None = None

    @classmethod
    def of(cls, run: PageRun, kind: pa.DataType) -> _NumberRun | None:
        """None for runs that are not for this module."""
        column = FlatColumn.of(kind)
        if column is None or not column.bits or column.bits % 8 or run.num_pages < 2:
            return None
        if run.numbers("kind").any() or run.num_rows * column.bits > 8 * _MOST_BYTES:
            return None
        if (run.numbers("entry_count") != run.numbers("payload_entries")).any():
            return None
        keys, _ = keys_of_run(run)
        found = cls(keys, run, column)
        return found if len(found._places) == len(keys) else None

    @property
    def is_complete(self) -> bool:
        """Whether all pages were there."""
        return not self._lacking

    def spans(self) -> list[PageSpan]:
        """What is to be read."""
        return plan_spans(self._keys, LOCAL_SPAN_BYTES)

    def take(self, read: Read) -> None:
        """Some of the pages are in their place. They are not looked at any more after that."""
        keys, packed = packed_pages(read)
        self._lacking -= len(keys)
        if self._is_odd:
            return
        first = size = 0
        for stop, page in enumerate(packed, 1):
            size += len(page)
            if size >= _TOGETHER_BYTES or stop == len(packed):
                self._place(keys[first:stop], packed[first:stop])
                first, size = stop, 0

    def array(self) -> pa.Array | None:
        """The values of all pages, once they were there; None if one of them was of another kind."""
        if self._is_odd:
            return None
        rows = self._ends[-1]
        validity, nulls = None, 0
        if self._valid is not None:
            validity = pa.py_buffer(np.packbits(self._valid, bitorder="little"))
            nulls = rows - int(np.count_nonzero(self._valid))
        buffers, self._values, self._valid = [validity, self._values], None, None
        return pa.Array.from_buffers(self._column.kind, rows, buffers, nulls)

    def _place(self, keys: Sequence[PageKey], packed: Sequence[memoryview]) -> None:
        alike = open_alike(packed, keys, borrowed=True)
        pages: list[PlainPage | pa.RecordBatch] = []
        for key, each, found in zip(keys, packed, alike, strict=True):
            page = found or open_page(
                each, where=f"{key[0]}@{key[1]}", expected_checksum=key[4], expected_entries=key[5]
            )
            pages.append(page)
        if self._values is None:
            self._values = pa.allocate_buffer(self._ends[-1] * self._width)
        out = np.frombuffer(self._values, np.uint8)
        first = 0
        places = [self._places[key] for key in keys]
        while first < len(pages) and not self._is_odd:
            first = self._place_stretch(pages, places, first, out)

    def _place_stretch(
        self,
        pages: Sequence[PlainPage | pa.RecordBatch],
        places: Sequence[int],
        first: int,
        out: NDArray[np.uint8],
    ) -> int:
        """Pages from `first` on that lie side by side, here and there; gives where they end."""
        page, place, stop = pages[first], places[first], first + 1
        if page.schema.metadata or page.schema.types != [self._column.kind]:
            self._is_odd = True
            return stop
        begin = self._ends[place - 1] if place else 0
        if isinstance(page, PlainPage):
            block, index = page.block, page.index
            while stop < len(pages) and places[stop] == place + stop - first:
                other = pages[stop]
                if not isinstance(other, PlainPage) or other.block is not block:
                    break
                if other.index != index + stop - first:
                    break
                stop += 1
            end = self._ends[place + stop - first - 1]
            block.numbers_into(index, index + stop - first, out[begin * self._width : end * self._width])
        else:
            end = self._ends[place]
            values, size = page.column(0).buffers()[1], (end - begin) * self._width
            out[begin * self._width : end * self._width] = np.frombuffer(values, np.uint8, size)
        if not isinstance(page, PlainPage) or any(page.block.nulls):
            for each, at in zip(pages[first:stop], places[first:stop], strict=True):
                self._place_nulls(each, at)
        return stop

    def _place_nulls(self, page: PlainPage | pa.RecordBatch, place: int) -> None:
        if not (page.nulls if isinstance(page, PlainPage) else page.column(0).null_count):
            return
        if self._valid is None:
            self._valid = np.ones(self._ends[-1], np.bool_)
        share = self._valid[self._ends[place - 1] if place else 0 : self._ends[place]]
        if isinstance(page, PlainPage):
            page.valid_into(share)
        else:
            share[:] = valid_of(page.column(0))
