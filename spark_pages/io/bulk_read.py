"""Whole runs of pages of numbers, each as one array, read straight: for who reads every page once.

What `PageHandler.get_values` gives, and who joins that, but past the caches and what they keep of each page.
While the caller works on one run the next is being read; its pages are opened many at a time where they
were read, and each value is copied once, to its place among those of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby, pairwise
from operator import itemgetter

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.arrow.columns import valid_of
from spark_pages.errors import DamageError
from spark_pages.format.pages.batch_codec import open_batches
from spark_pages.format.pages.ipc_layout import FlatColumn
from spark_pages.format.pages.lazy_page import LazyPage
from spark_pages.format.pages.page_batch import PageBatch
from spark_pages.format.pages.page_codec import open_page
from spark_pages.io.local_reads import Read
from spark_pages.io.page_reader import LOCAL_SPAN_BYTES, Load, PageReader, packed_pages
from spark_pages.io.read_plan import ReadRange, plan_spans
from spark_pages.model.run import PageKey, PageRun, keys_of_run

_TOGETHER_BYTES = 1 << 20
"""Stored pages that are opened together: they stay in the cache of the processor."""

_MOST_BYTES = 1 << 31
"""Longer runs are read page by page: what their descriptors say is not believed before the pages are seen."""


def read_numbers(
    runs: Sequence[tuple[PageRun, pa.DataType]], reader: PageReader, load: Load
) -> Iterator[pa.Array | None]:
    """Iterate over the values of each run, in order; None for a run that needs the general path.

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
    gathered = [_NumberRun.of(run, kind, partial(reader.reread, load=load)) for run, kind in runs]
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
            each.place_pages(next(pieces))
        yield each and each.array()


class _NumberRun:
    """The values of one run, as they arrive."""

    def __init__(
        self,
        keys: list[PageKey],
        run: PageRun,
        column: FlatColumn,
        reread: Callable[[PageKey], memoryview],
    ) -> None:
        self._keys = keys
        self._reread = reread
        self._column = column
        self._width = column.bits // 8
        self._ends: list[int] = run.prefix_entries.tolist()
        self._places = {key: place for place, key in enumerate(keys)}
        self._lacking = len(keys)
        self._is_odd = False
        self._values: pa.Buffer | None = None
        self._valid: NDArray[np.bool_] | None = None

    @classmethod
    def of(
        cls, run: PageRun, kind: pa.DataType, reread: Callable[[PageKey], memoryview]
    ) -> _NumberRun | None:
        """None for runs that are not for this module."""
        column = FlatColumn.of(kind)
        if column is None or not column.bits or column.bits % 8 or run.num_pages < 2:
            return None
        if run.numbers("kind").any() or run.num_rows * column.bits > 8 * _MOST_BYTES:
            return None
        if (run.numbers("entry_count") != run.numbers("payload_entries")).any():
            return None
        keys, _ = keys_of_run(run)
        found = cls(keys, run, column, reread)
        return found if len(found._places) == len(keys) else None

    @property
    def is_complete(self) -> bool:
        """Whether all pages were there."""
        return not self._lacking

    def spans(self) -> list[ReadRange]:
        """Return the ranges to read."""
        return plan_spans(self._keys, LOCAL_SPAN_BYTES)

    def place_pages(self, read: Read) -> None:
        """Put pages that were read into their place, validated."""
        keys, packed = packed_pages(read)
        self._lacking -= len(keys)
        if self._is_odd:
            return
        parts = -(-sum(map(len, packed)) // _TOGETHER_BYTES)
        for first, stop in pairwise(len(packed) * part // parts for part in range(parts + 1)):
            self._place(keys[first:stop], packed[first:stop])

    def array(self) -> pa.Array | None:
        """Return the values of all pages once they are placed; None if one was of another kind."""
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
        places = np.array([self._places[key] for key in keys])
        left = np.ones(len(keys), np.bool_)
        for indices, block in open_batches(packed, keys, borrowed=True):
            self._place_pages_of_batch(block, places[indices])
            left[indices] = False
        for index in np.flatnonzero(left).tolist():
            key = keys[index]
            where = f"{key[0]}@{key[1]}"
            try:
                page = open_page(
                    packed[index], where=where, expected_checksum=key[4], expected_entries=key[5]
                )
            except DamageError:
                again = self._reread(key)
                page = open_page(again, where=where, expected_checksum=key[4], expected_entries=key[5])
            if isinstance(page, LazyPage):
                self._place_pages_of_batch(page.block, places[index : index + 1])
            else:
                self._place_batch(page, int(places[index]))

    def _place_pages_of_batch(self, block: PageBatch, places: NDArray[np.int64]) -> None:
        """Pages that were opened together go where they belong, neighbours there at once."""
        if not self._accepts(block.schema):
            return
        edges = (np.flatnonzero(np.diff(places) != 1) + 1).tolist()
        for first, stop in pairwise([0, *edges, len(places)]):
            block.numbers_into(first, stop, self._room(int(places[first]), int(places[stop - 1])))
        if any(block.nulls):
            for index, place in enumerate(places.tolist()):
                if block.nulls[index]:
                    LazyPage(block, index).valid_into(self._validity(place))

    def _place_batch(self, page: pa.RecordBatch, place: int) -> None:
        if self._accepts(page.schema):
            values, out = page.column(0), self._room(place, place)
            out[:] = np.frombuffer(values.buffers()[1], np.uint8, len(out))
            if values.null_count:
                self._validity(place)[:] = valid_of(values)

    def _accepts(self, schema: pa.Schema) -> bool:
        """Whether such pages belong into the array; one that does not makes the run odd."""
        self._is_odd |= bool(schema.metadata) or schema.types != [self._column.kind]
        return not self._is_odd

    def _rows(self, first: int, last: int) -> slice:
        return slice(self._ends[first - 1] if first else 0, self._ends[last])

    def _room(self, first: int, last: int) -> NDArray[np.uint8]:
        """Where the values of pages `first` to `last` belong."""
        if self._values is None:
            self._values = pa.allocate_buffer(self._ends[-1] * self._width)
        rows = self._rows(first, last)
        return np.frombuffer(self._values, np.uint8)[rows.start * self._width : rows.stop * self._width]

    def _validity(self, place: int) -> NDArray[np.bool_]:
        """Where it belongs which values of a page are not null."""
        if self._valid is None:
            self._valid = np.ones(self._ends[-1], np.bool_)
        return self._valid[self._rows(place, place)]
