"""Rows of a table: from ranges and numbers of rows to pages, and from pages to values.

`Table` is the face of it. Everything here works on whole columns of pages: which pages, in which order, which
rows of each are arrays; values stay Arrow. `RowReader.slices` reads ranges, `RowReader.take` rows in any
order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_pages.arrow.columns import flags_of, number_column, numbers_of, valid_of
from spark_pages.arrow.join import as_type, page_of_another_column, take_entries
from spark_pages.arrow.types import storage_of
from spark_pages.catalog.evolution import stored_types
from spark_pages.catalog.resolve import check_available, show_name
from spark_pages.catalog.table_zero import THIS_COMMIT
from spark_pages.errors import ObjectNotFoundError
from spark_pages.format.pages.paginate import TARGET_PAGE_BYTES
from spark_pages.io import PageHandler, ReadTrace
from spark_pages.log.reopen import reopening
from spark_pages.model.chain import RunSlice
from spark_pages.model.ids import CATALOG_TABLE, page_version
from spark_pages.model.page import PageDescriptor, PageSlice
from spark_pages.model.row_ranges import RowRanges, union
from spark_pages.model.run import PageRun
from spark_pages.model.table import TableDefinition
from spark_pages.query.concat import Values, as_array, assembled, entries_of, gather_in_parts, type_of
from spark_pages.query.directory import PageDirectory
from spark_pages.query.live_rows import MARK, Flags, only_live

RESOLVED = ("created_by", "deleted_by")
"""Columns of table 0 in which 0 stands for the commit that wrote it."""

_FEW_PAGES = 4
"""A read of no more pages of each column is a small one."""

_PART_PAGES = 512
"""Pages of a take that is too large for the decoded cache are held so many at a time."""

_FIRST = number_column(np.zeros(1, np.int64), pa.int64())  # `pa.array` would import pandas

Held = Mapping[int, tuple[Values, int]]
"""Values and end row of pages, by page id, that need not be read again."""


@dataclass(slots=True)
class Reading:
    """How one part of a question is read, and what the next part can use of it.

    Attributes
    ----------
    admit
        Whether the caches keep what is read.
    trace
        Receives what is touched.
    before
        Gives the pages that the part before has read and that reach into this one; may wait for them. None
        where there is no such part.
    last
        The last page of each column that was read.
    """

    admit: bool = True
    trace: ReadTrace | None = None
    before: Callable[[], Held] | None = None
    last: dict[int, tuple[Values, int]] = field(default_factory=dict)

    def after(self, row: int) -> Held:
        """Return the pages of this part and earlier ones that extend past a row."""
        earlier = self.before() if self.before else {}
        return {page: held for page, held in {**earlier, **self.last}.items() if held[1] > row}


class RowReader:
    """The rows of a table as of one version.

    Parameters
    ----------
    definition
        The table.
    directory
        Its chains.
    pages
        What fetches and caches pages.
    """

    def __init__(self, definition: TableDefinition, directory: PageDirectory, pages: PageHandler) -> None:
        self.definition = definition
        self.directory = directory
        self.pages = pages
        self.schema: pa.Schema = definition.bare_schema

    def schema_of(self, names: Sequence[str]) -> pa.Schema:
        """Return the schema of columns, in the given order.

        Raises
        ------
        ColumnUnavailableError
            If the type of one of them cannot be constructed.
        """
        check_available(self.definition, names)
        return pa.schema([self.schema.field(name) for name in names])

    def stored_as_read(self, column: str) -> bool:
        """Whether the values of a column are read as they are stored, so that statistics speak of them."""
        return self.definition.table_id != CATALOG_TABLE or column not in RESOLVED

    def reopen(self, missing: ObjectNotFoundError) -> None:
        """Reopen the same version on the retained objects; see `spark_pages.log.reopen`."""
        self.directory.reopen(missing)

    @reopening
    def pieces_at(self, names: Sequence[str], row: int, stop: int) -> list[RunSlice]:
        """Return pages of each column from the one that holds a row up to the end of its segment.

        None begins at or after `stop`.
        """
        return [next(self.directory.chain(name).runs(row, stop)) for name in names]

    @cached_property
    def marks(self) -> RowReader | None:
        """The liveness chain as the one column of a table; None where no row is dead."""
        directory = self.directory.marks()
        return None if directory is None else RowReader(directory.definition, directory, self.pages)

    @reopening
    def rows_with_values(self, name: str, stop: int) -> RowRanges:
        """Find the rows below `stop` whose pages of a column are not known to hold nothing but nulls."""
        found = []
        for piece in self.directory.chain(name).runs(0, stop):
            nulls = numbers_of(piece.run.stats.column("null_count").fill_null(0))
            ends = piece.first_row + piece.run.prefix_entries.astype(np.int64)
            bounds = np.append(piece.first_row, ends)
            found.append(RowRanges.chosen(bounds, nulls < piece.run.numbers("entry_count")))
        return union(found) if found else RowRanges.of(0, 0)

    @reopening
    def live_mask(self, ranges: RowRanges, trace: ReadTrace | None = None) -> pa.BooleanArray | None:
        """Find which rows of the ranges, end to end, are live, as one bitmap; None where all are.

        Notes
        -----
        Reads the pages of the liveness chain that hold them. The caches keep these.
        """
        marks = self.marks
        if marks is None:
            return None
        inside = ranges.between(0, marks.directory.chain(MARK).num_rows)
        if not inside.num_rows:
            return None
        found = marks.all_slices([MARK], inside, Reading(trace=trace)).column(0)
        if not found.null_count:
            return None
        mask = found.is_valid().combine_chunks()
        beyond = ranges.num_rows - inside.num_rows
        return pa.concat_arrays([mask, pa.array(np.ones(beyond, bool))]) if beyond else mask

    def live(self, ranges: RowRanges, trace: ReadTrace | None = None) -> Flags | None:
        """Find which rows of the ranges, end to end, are live; None where all are."""
        mask = self.live_mask(ranges, trace)
        return None if mask is None else flags_of(mask)

    @reopening
    def are_live(self, rows: NDArray[np.int64], trace: ReadTrace | None = None) -> Flags | None:
        """Which of some rows, in any order, are live; None where all are."""
        marks = self.marks
        if marks is None:
            return None
        inside = rows < marks.directory.chain(MARK).num_rows
        if not inside.any():
            return None
        found = marks.take([MARK], rows[inside], Reading(trace=trace)).column(0)
        if not found.null_count:
            return None
        live = np.ones(len(rows), bool)
        live[inside] = found.is_valid().to_numpy()
        return live

    @reopening
    def rows_at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Find the numbers of live rows by position, which counts live rows from 0.

        Parameters
        ----------
        positions : int64, shape (n_positions,)
            Below the number of live rows, in any order.

        Notes
        -----
        Statistics tell which pages of the liveness chain hold the rows; of these, the pages with live and
        dead rows are read, one after another. Memory follows the positions and the pages of the chain.
        """
        if self.marks is None:
            return positions
        run = self.marks.directory.chain(MARK).all_pages()
        ends = np.append(0, run.prefix_entries.astype(np.int64))
        dead = numbers_of(run.stats.column("null_count")).astype(np.int64)
        live = np.append(0, np.cumsum(np.diff(ends) - dead))
        page = np.searchsorted(live, positions, side="right") - 1  # one past the last: rows beyond the chain
        rows: NDArray[np.int64] = ends[page] + positions - live[page]
        mixed = np.flatnonzero(np.append(dead, 0)[page])
        if not len(mixed):
            return rows
        mixed = mixed[np.argsort(page[mixed], kind="stable")]
        pages, first = np.unique(page[mixed], return_index=True)
        for index, some in zip(pages.tolist(), np.split(mixed, first[1:]), strict=True):
            (values,) = self.marks.page_values(MARK, [run.descriptor(index)])
            places = np.flatnonzero(valid_of(values))
            rows[some] = ends[index] + places[positions[some] - live[index]]
        return rows

    def slices(
        self, names: Sequence[str], ranges: RowRanges, reading: Reading, joined: bool = False
    ) -> pa.Table:
        """Read the live rows of all ranges; see `all_slices`."""
        mask = self.live_mask(ranges, reading.trace)
        return only_live(self.all_slices(names, ranges, reading, joined), mask)

    @reopening
    def all_slices(
        self, names: Sequence[str], ranges: RowRanges, reading: Reading, joined: bool = False
    ) -> pa.Table:
        """Read the rows of all ranges, dead ones included, in one fetch for all columns.

        Returns
        -------
        pyarrow.Table
            Each chunk is a slice of a page; or if they are to be `joined`, each column is one chunk, but for
            text too long to be one array.
        """
        check_available(self.definition, names)
        if not names:
            return rows_without_columns(ranges.num_rows)
        if reading.before is None and len(ranges.starts) == 1:
            start, stop = int(ranges.starts[0]), int(ranges.ends[0])
            few = self._small_read(names, start, stop)
            if few is not None:
                return self._small_slices(names, few, stop, reading)
        starts, ends = ranges.starts.astype(np.uint64), ranges.ends.astype(np.uint64)
        cuts = [self.directory.chain(name).select(starts, ends) for name in names]
        self.directory.check_lengths(names)
        late = [len(cut.starts) > 0 and cut.starts[0] > 0 for cut in cuts]
        fetched = self._fetch(names, [cut.run for cut in cuts], reading, late)
        columns = []
        for name, cut, pages in zip(names, cuts, fetched, strict=True):
            kind = self.schema.field(name).type
            if pages:
                beyond = entries_of(pages[-1]) - int(cut.stops[-1])
                reading.last[int(cut.run.page_ids[-1])] = (pages[-1], int(ranges.ends[-1]) + beyond)
            parts = list(zip(pages, cut.starts.tolist(), cut.stops.tolist(), strict=True))
            if joined:
                chunks = assembled(parts, kind)
            else:
                chunks = [as_array(page).slice(start, stop - start) for page, start, stop in parts]
            columns.append(pa.chunked_array(chunks, kind))
        return pa.table(columns, schema=self.schema_of(names))

    @reopening
    def take(self, names: Sequence[str], rows: NDArray[np.int64], reading: Reading) -> pa.Table:
        """Read rows, dead ones included, in the order given.

        Parameters
        ----------
        rows : int64, shape (n_rows,)
            Numbers of rows that the table has.

        Notes
        -----
        Each page that holds one of the rows is read once; of each only the rows wanted are copied. More pages
        than the decoded cache has room for are read part by part and leave it as it is, as a scan does.
        """
        check_available(self.definition, names)
        if not names:
            return rows_without_columns(len(rows))
        one = len(rows) == 1 and reading.before is None
        if one and (few := self._small_read(names, int(rows[0]), int(rows[0]) + 1)) is not None:
            table = self._small_slices(names, few, int(rows[0]) + 1, reading)
            # A copy, so that the row does not hold on to its page.
            chunks = [take_entries(column.chunk(0), _FIRST) for column in table.columns]
            return pa.table(chunks, schema=table.schema)
        order: NDArray[np.int64] | None = None
        if len(rows) > 1 and not (rows[1:] >= rows[:-1]).all():
            by_row = np.argsort(rows, kind="stable")
            rows = rows[by_row]
            order = np.empty_like(by_row)
            order[by_row] = np.arange(len(rows))
        runs, plans = [], []
        for name in names:
            chain = self.directory.chain(name)
            found = chain.locate_rows(rows.astype(np.uint64))
            edges = np.flatnonzero(np.diff(found.positions)) + 1
            bounds = np.concatenate([[0], edges, [len(rows)]]) if len(rows) else np.zeros(1, np.int64)
            runs.append(chain.run_at(found.positions[bounds[:-1]]))
            plans.append((bounds, found.rows_in_page))
        kinds = [self.schema.field(name).type for name in names]
        pages = sum(run.num_pages for run in runs)
        if reading.before is None and pages * TARGET_PAGE_BYTES > self.pages.config.decoded_bytes:
            parts = zip(names, kinds, runs, plans, strict=True)
            columns = [self._take_in_parts(*each, rows, order, reading) for each in parts]
            return pa.table(columns, schema=self.schema_of(names))
        late = [True for _ in names]
        columns = []
        fetched = self._fetch(names, runs, reading, late)
        for name, run, pages_of, (bounds, offsets) in zip(names, runs, fetched, plans, strict=True):
            if pages_of:
                end = int(rows[-1]) + entries_of(pages_of[-1]) - int(offsets[-1])
                reading.last[int(run.page_ids[-1])] = (pages_of[-1], end)
            columns.append(gather_in_parts(pages_of, bounds, offsets, order, self.schema.field(name).type))
        return pa.table(columns, schema=self.schema_of(names))

    def _take_in_parts(
        self,
        name: str,
        kind: pa.DataType,
        run: PageRun,
        plan: tuple[NDArray[np.int64], NDArray[np.int64]],
        rows: NDArray[np.int64],
        order: NDArray[np.int64] | None,
        reading: Reading,
    ) -> pa.ChunkedArray:
        """Take rows of one column with a bounded number of pages in memory."""
        bounds, offsets = plan
        found: list[pa.Array] = []
        for first in range(0, run.num_pages, _PART_PAGES):
            part = run.slice(first, min(first + _PART_PAGES, run.num_pages))
            (found_pages,) = self._fetch([name], [part], Reading(False, reading.trace), [False])
            shares = bounds[first : first + part.num_pages + 1]
            wanted = offsets[shares[0] : shares[-1]]
            found += gather_in_parts(found_pages, shares - shares[0], wanted, None, kind).chunks
        if run.num_pages:
            end = int(rows[-1]) + entries_of(found_pages[-1]) - int(offsets[-1])
            reading.last[int(run.page_ids[-1])] = (found_pages[-1], end)
        lengths = np.array([len(array) for array in found], dtype=np.int64)
        ends = np.concatenate([[0], np.cumsum(lengths)])
        places = np.arange(ends[-1]) - np.repeat(ends[:-1], lengths)
        return gather_in_parts(found, ends, places, order, kind)

    @reopening
    def page_batches(self, pages: Sequence[PageDescriptor], admit: bool = True) -> list[pa.RecordBatch]:
        """Read pages with the metadata of their entries and pages."""
        return self.pages.get_pages(pages, admit=admit) if pages else []

    def _small_read(self, names: Sequence[str], start: int, stop: int) -> list[list[PageSlice]] | None:
        """Locate the pages of a small read without numpy; None for a larger read."""
        found = []
        for name in names:
            slices = self.directory.chain(name).small_range(start, stop, _FEW_PAGES)
            if slices is None:
                return None
            found.append(slices)
        return found

    def _small_slices(
        self, names: Sequence[str], slices: Sequence[Sequence[PageSlice]], stop: int, reading: Reading
    ) -> pa.Table:
        """Read the rows up to `stop` of a small read whose pages are located."""
        pages = [piece.page for column in slices for piece in column]
        batches = iter(self.pages.get_pages(pages, admit=reading.admit, trace=reading.trace))
        schema = self.schema_of(names)
        columns = []
        for name, kind, pieces in zip(names, schema.types, slices, strict=True):
            values = [next(batches).column(0) for _ in pieces]
            found = [piece.page for piece in pieces]
            arrays = list(map(as_array, self._resolved(name, values, found)))
            chunks = [
                array.slice(piece.start, piece.stop - piece.start)
                for array, piece in zip(arrays, pieces, strict=True)
            ]
            last = pieces[-1]
            reading.last[last.page.page_id] = (arrays[-1], stop + len(arrays[-1]) - last.stop)
            columns.append(pa.chunked_array(chunks, kind))
        return pa.table(columns, schema=schema)

    @reopening
    def page_values(self, column: str, pages: Sequence[PageDescriptor]) -> list[pa.Array]:
        """Read the values of pages of a column, page by page."""
        check_available(self.definition, [column])
        found = [batch.column(0) for batch in self.pages.get_pages(pages)] if pages else []
        return list(map(as_array, self._resolved(column, found, pages)))

    def _fetch(
        self, names: Sequence[str], runs: Sequence[PageRun], reading: Reading, late: Sequence[bool]
    ) -> list[list[Values]]:
        """Values of the pages of several columns, fetched together, column by column.

        Parameters
        ----------
        late
            For each column whether its first page may be one that the part before has read: it is asked for
            last.
        """
        before = reading.before
        if before is None:
            fetched = self._get(runs, reading)
        else:
            first = [_times_first(run) if wait else 0 for run, wait in zip(runs, late, strict=True)]
            rest = [run.slice(count, run.num_pages) for run, count in zip(runs, first, strict=True)]
            fetched = self._get(rest, reading)
            held = before()
            known = [
                count > 0 and int(run.page_ids[0]) in held for run, count in zip(runs, first, strict=True)
            ]
            lacking = [
                run.slice(0, 0 if has else min(n, 1)) for run, n, has in zip(runs, first, known, strict=True)
            ]
            for arrays, run, n, has, more in zip(
                fetched, runs, first, known, self._get(lacking, reading), strict=True
            ):
                arrays[:0] = ([held[int(run.page_ids[0])][0]] if has else more) * n
        return [
            self._resolved(name, arrays, run) for name, run, arrays in zip(names, runs, fetched, strict=True)
        ]

    def _resolved(
        self, column: str, pages: Sequence[Values], described: PageRun | Sequence[PageDescriptor]
    ) -> list[Values]:
        """Return the values; in table 0, replace version 0 by the commit that added the page.

        Of a column that has got another type, all under that.

        Raises
        ------
        DamageError
            If a page is of a type that the column never had: the log names one that is not of this column.
        """
        kind = self.schema.field(column).type
        widened = column in self.definition.widened_columns
        known = (kind, *stored_types(self.definition.schema.field(column))) if widened else (kind,)
        others = [at for at, page in enumerate(pages) if type_of(page) not in known]
        for at in others:  # they may have a name for the type that the process did not know, or knows by now
            if storage_of(type_of(pages[at])) not in map(storage_of, known):
                page = described.descriptor(at) if isinstance(described, PageRun) else described[at]
                what = f"column {column!r} of {show_name(self.definition)}"
                raise page_of_another_column(what, page.where, kind, type_of(pages[at]))
        if widened or others:
            what = f"column {column!r} of {show_name(self.definition)}"
            return [*as_type(map(as_array, pages), kind, what)]
        if self.definition.table_id != CATALOG_TABLE or column not in RESOLVED:
            return list(pages)
        ids = described.page_ids if isinstance(described, PageRun) else [page.page_id for page in described]
        versions = [pa.scalar(page_version(int(page)), pa.int64()) for page in ids]
        return [
            pc.if_else(pc.equal(array, THIS_COMMIT), version, array)
            for array, version in zip(map(as_array, pages), versions, strict=True)
        ]

    def _get(self, runs: Sequence[PageRun], reading: Reading) -> list[list[Values]]:
        return self.pages.get_values(runs, admit=reading.admit, trace=reading.trace)


def _times_first(run: PageRun) -> int:
    """How often the first page stands at the beginning of a run: once for each range that touches it."""
    ids = run.page_ids
    return len(ids) if not len(ids) or (ids == ids[0]).all() else int(np.argmax(ids != ids[0]))


def rows_without_columns(count: int) -> pa.Table:
    """Create a table of so many rows without columns."""
    return pa.table({"": pa.nulls(count)}).select([])
