"""A table as of one version: exact rows, and the pages that hold them.

Follow a read from `Table.read` through `ColumnChain.locate_range` (which pages) and
`PageHandler.get_pages` (their bytes) back to the slices that are joined here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike

from spark_pages.catalog.resolve import check_columns, show_name
from spark_pages.catalog.table_zero import THIS_COMMIT
from spark_pages.errors import InvalidInputError, ObjectNotFoundError, RowOutOfRangeError
from spark_pages.io import PageHandler, ReadTrace
from spark_pages.model.ids import CATALOG_TABLE, page_version
from spark_pages.model.page import PageDescriptor, PageSlice
from spark_pages.model.table import TableDefinition
from spark_pages.tables.directory import PageDirectory
from spark_pages.tables.expiry import reopening
from spark_pages.tables.filters import Condition, Filter, ParsedFilter, may_match, parse_filter
from spark_pages.tables.row_ranges import RowRanges, intersection, union

DEFAULT_BATCH_ROWS = 1 << 16

_RESOLVED = ("created_by", "deleted_by")
"""Columns of table 0 in which 0 stands for the commit that wrote it."""


class Table:
    """A table as of one version.

    Obtained from `Snapshot.table`. Immutable: reading it gives the same rows whatever is committed.
    """

    def __init__(self, definition: TableDefinition, directory: PageDirectory, pages: PageHandler) -> None:
        self.definition = definition
        self.directory = directory
        self._pages = pages

    def __repr__(self) -> str:
        return f"Table({self.name!r}, {self.num_rows:,} rows, {len(self.columns)} columns)"

    def _repr_html_(self) -> str:
        cells = "".join(
            f"<tr><td>{column.name}</td><td>{column.type}</td>"
            f"<td>{self.directory.chain(column.name).num_pages:,}</td></tr>"
            for column in self.schema
        )
        return (
            f"<b>{self.name}</b> · {self.num_rows:,} rows"
            f"<table><tr><th>column</th><th>type</th><th>pages</th></tr>{cells}</table>"
        )

    @property
    def name(self) -> str:
        """The name, with its namespace where that is not the default one."""
        return show_name(self.definition)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        return self.definition.bare_schema

    @property
    def columns(self) -> list[str]:
        """Column names, in order."""
        return list(self.schema.names)

    @cached_property
    @reopening
    def num_rows(self) -> int:
        """Rows of the table; of an unaligned one, rows of its shortest column."""
        names = self.columns[:1] if self.definition.aligned else self.columns
        return min(self.directory.chain(name).num_rows for name in names)

    def read(
        self,
        columns: Iterable[str] | None = None,
        start: int = 0,
        stop: int | None = None,
        filter: Filter | None = None,
        *,
        trace: ReadTrace | None = None,
    ) -> pa.Table:
        """Rows [start, stop), exactly.

        Parameters
        ----------
        columns
            Which columns, in which order; all by default.
        start, stop
            First row and one past the last; to the end by default.
        filter
            See `spark_pages.tables.filters`; pages that statistics rule out are not read.
        trace
            Receives the pages touched, requests and bytes.

        Returns
        -------
        pyarrow.Table

        Raises
        ------
        ColumnNotFoundError, RowOutOfRangeError, InvalidInputError

        Notes
        -----
        One request per run of adjacent pages that no cache holds.
        """
        names = check_columns(self.definition, columns)
        start, stop = self._row_range(start, stop)
        parsed = self._parse(filter)
        if parsed is None:
            return self._rows(names, RowRanges.of(start, stop), trace)
        found = list(self._filtered(names, start, stop, parsed, DEFAULT_BATCH_ROWS, trace, admit=True))
        return pa.concat_tables(found) if found else self._empty(names)

    def scan(
        self,
        columns: Iterable[str] | None = None,
        start: int = 0,
        stop: int | None = None,
        filter: Filter | None = None,
        batch_rows: int | None = None,
        *,
        trace: ReadTrace | None = None,
    ) -> pa.RecordBatchReader:
        """Rows [start, stop) as a stream of batches of at most `batch_rows` rows.

        Notes
        -----
        Holds one batch at a time and leaves the caches to random reads. Parameters as in `read`.
        """
        names = check_columns(self.definition, columns)
        start, stop = self._row_range(start, stop)
        size = DEFAULT_BATCH_ROWS if batch_rows is None else batch_rows
        if size <= 0:
            raise InvalidInputError(f"batch_rows is {size}: expected at least 1.")
        parsed = self._parse(filter)
        tables = (
            self._filtered(names, start, stop, parsed, size, trace, admit=False)
            if parsed
            else self._chunks(names, RowRanges.of(start, stop), size, trace)
        )
        schema = self._schema_of(names)
        return pa.RecordBatchReader.from_batches(
            schema, (batch for table in tables for batch in _one_batch(table, schema))
        )

    @reopening
    def take(
        self, rows: ArrayLike, columns: Iterable[str] | None = None, *, trace: ReadTrace | None = None
    ) -> pa.Table:
        """The rows asked for, in the order asked; a row may be asked for twice.

        Raises
        ------
        RowOutOfRangeError
            If the table has no such row.

        Notes
        -----
        Each page that holds one of the rows is read once.
        """
        names = check_columns(self.definition, columns)
        wanted = np.asarray(rows)
        if wanted.size and (wanted.dtype.kind not in "iu" or wanted.ndim != 1):
            raise InvalidInputError(f"rows have type {wanted.dtype}: expected a list of integers from 0.")
        if len(wanted) and int(wanted.min()) < 0:
            raise RowOutOfRangeError(f"Row {int(wanted.min())} does not exist: rows are numbered from 0.")
        wanted = wanted.astype(np.uint64)
        plans = []
        for name in names:
            chain = self.directory.chain(name)
            found = chain.locate_rows(wanted)
            positions, which = np.unique(found.positions, return_inverse=True)
            plans.append((chain.pages_at(positions), which, found.rows_in_page))
        fetched = iter(self._fetch(names, [pages for pages, _, _ in plans], True, trace))
        columns_out = []
        for name, (pages, which, rows_in_page) in zip(names, plans, strict=True):
            arrays = next(fetched)
            firsts = np.cumsum([0, *(page.entry_count for page in pages)][:-1] or [0])
            values = pa.concat_arrays(arrays) if arrays else self._empty([name]).column(0).combine_chunks()
            columns_out.append(values.take(pa.array(firsts[which] + rows_in_page if pages else rows_in_page)))
        return pa.table(columns_out, schema=self._schema_of(names))

    @reopening
    def pages(self, column: str | None = None) -> pa.Table:
        """Descriptors of the table's pages, or of one column's, in row order.

        Returns
        -------
        pyarrow.Table
            ``column``, ``position``, ``first_row`` and the fields of a descriptor.
        """
        parts = []
        for name in check_columns(self.definition, [column] if column else None):
            run = self.directory.chain(name).all_pages()
            n = run.num_pages
            prefix = run.prefix_entries.astype(np.int64)
            part = pa.table(
                {
                    "column": pa.repeat(pa.scalar(name), n),
                    "position": np.arange(n, dtype=np.int64),
                    "first_row": prefix - run.numbers("entry_count"),
                }
            )
            for field in run.pages.schema:
                value = run.pages.column(field.name)
                if pa.types.is_dictionary(field.type):
                    value = value.cast(pa.string())
                if field.name != "data":
                    part = part.append_column(field.name, value)
            parts.append(part.append_column("null_count", run.stats.column("null_count")))
        return pa.concat_tables(parts)

    def reopen(self, missing: ObjectNotFoundError) -> None:
        """Reads the same version from what is kept now; see `tables.expiry`."""
        self.directory.reopen(missing)

    @property
    def page_handler(self) -> PageHandler:
        """What fetches and caches the pages."""
        return self._pages

    @reopening
    def page_values(self, column: str, pages: Sequence[PageDescriptor]) -> list[pa.Array]:
        """The values of some pages of a column, page by page."""
        return self._fetch([column], [pages], True, None)[0]

    def candidate_rows(self, filter: Filter, start: int = 0, stop: int | None = None) -> RowRanges:
        """The rows that statistics cannot rule out."""
        start, stop = self._row_range(start, stop)
        parsed = self._parse(filter)
        assert parsed is not None
        return self._candidates(parsed, start, stop)

    def _parse(self, given: Filter | None) -> ParsedFilter | None:
        """The filter, tried on no rows, so that one that does not fit the columns is refused at once."""
        parsed = parse_filter(given)
        if parsed is not None:
            check_columns(self.definition, parsed.columns)
            try:
                self.schema.empty_table().filter(parsed.expression)
            except (pa.ArrowException, TypeError) as error:
                types = _show_types(self._schema_of(parsed.columns or self.columns))
                raise InvalidInputError(
                    f"The filter {given!r} does not fit table {self.name!r}, which has {types}: {error}"
                ) from error
        return parsed

    # how rows are put together

    def _row_range(self, start: int, stop: int | None) -> tuple[int, int]:
        stop = self.num_rows if stop is None else stop
        if not 0 <= start <= stop <= self.num_rows:
            raise RowOutOfRangeError(
                f"Rows [{start}, {stop}) are not in table {self.name!r}: it has {self.num_rows} rows, "
                f"numbered from 0.",
                num_rows=self.num_rows,
            )
        return start, stop

    def _schema_of(self, names: Sequence[str]) -> pa.Schema:
        return pa.schema([self.schema.field(name) for name in names])

    def _empty(self, names: Sequence[str]) -> pa.Table:
        return self._schema_of(names).empty_table()

    @reopening
    def _rows(
        self, names: Sequence[str], ranges: RowRanges, trace: ReadTrace | None, admit: bool = True
    ) -> pa.Table:
        """The rows of all ranges, in one fetch for all columns."""
        slices: list[list[PageSlice]] = []
        for name in names:
            chain = self.directory.chain(name)
            bounds = zip(ranges.starts.tolist(), ranges.ends.tolist(), strict=True)
            slices.append([piece for low, high in bounds for piece in chain.locate_range(low, high)])
        fetched = self._fetch(names, [[piece.page for piece in each] for each in slices], admit, trace)
        columns = []
        for name, pieces, arrays in zip(names, slices, fetched, strict=True):
            kind = self.schema.field(name).type
            chunks = [
                array.slice(piece.start, piece.stop - piece.start)
                for piece, array in zip(pieces, arrays, strict=True)
            ]
            columns.append(pa.chunked_array(chunks, kind))
        return pa.table(columns, schema=self._schema_of(names))

    def _fetch(
        self,
        names: Sequence[str],
        pages: Sequence[Sequence[PageDescriptor]],
        admit: bool,
        trace: ReadTrace | None,
    ) -> list[list[pa.Array]]:
        """Values of the pages of several columns, fetched together, column by column."""
        flat = [page for each in pages for page in each]
        batches = iter(self._pages.get_pages(flat, admit=admit, trace=trace)) if flat else iter(())
        fetched = [[next(batches).column("data") for _ in each] for each in pages]
        if self.definition.table_id == CATALOG_TABLE:
            for name, of_column, arrays in zip(names, pages, fetched, strict=True):
                if name in _RESOLVED:
                    arrays[:] = [
                        _resolve_version(array, page) for array, page in zip(arrays, of_column, strict=True)
                    ]
        return fetched

    def _chunks(
        self,
        names: Sequence[str],
        ranges: RowRanges,
        size: int,
        trace: ReadTrace | None,
        admit: bool = False,
    ) -> Iterator[pa.Table]:
        for low, high in zip(ranges.starts.tolist(), ranges.ends.tolist(), strict=True):
            for start in range(low, high, size):
                yield self._rows(names, RowRanges.of(start, min(start + size, high)), trace, admit)

    def _filtered(
        self,
        names: Sequence[str],
        start: int,
        stop: int,
        parsed: ParsedFilter,
        size: int,
        trace: ReadTrace | None,
        admit: bool,
    ) -> Iterator[pa.Table]:
        """Rows that pass the filter; other columns are read only for batches where some row does."""
        tested = check_columns(self.definition, parsed.columns)
        rest = [name for name in names if name not in tested]
        for low, high in _cut(self._candidates(parsed, start, stop), size):
            ranges = RowRanges.of(low, high)
            table = self._rows(tested, ranges, trace, admit)
            rows = table.append_column("", pa.array(np.arange(high - low))).filter(parsed.expression)
            if not rows.num_rows:
                continue
            found = rows.column(rows.num_columns - 1)
            rows = rows.drop_columns([""])
            if rest:
                others = self._rows(rest, ranges, trace, admit).take(found)
                for name in rest:
                    rows = rows.append_column(others.schema.field(name), others.column(name))
            yield rows.select(names)

    @reopening
    def _candidates(self, parsed: ParsedFilter, start: int, stop: int) -> RowRanges:
        whole = RowRanges.of(start, stop)
        if not parsed.alternatives or start == stop:
            return whole
        return union(
            [
                intersection([whole, *(self._may_match(condition, start, stop) for condition in conditions)])
                for conditions in parsed.alternatives
            ]
        )

    def _may_match(self, condition: Condition, start: int, stop: int) -> RowRanges:
        if self.definition.table_id == CATALOG_TABLE and condition.column in _RESOLVED:
            return RowRanges.of(start, stop)  # statistics speak of what is stored, not of what is read
        kind = self.schema.field(condition.column).type
        bounds, keep = [np.array([], dtype=np.int64)], []
        last = start
        for part in self.directory.chain(condition.column).runs(start, stop):
            entries = part.run.numbers("entry_count")
            keep.append(may_match(condition, kind, part.run.stats, entries))
            ends = part.run.prefix_entries.astype(np.int64) + part.first_row
            bounds.append(ends - entries)
            last = int(ends[-1])
        return RowRanges.chosen(np.append(np.concatenate(bounds), last), np.concatenate(keep))


def _show_types(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)


def _cut(ranges: RowRanges, size: int) -> Iterator[tuple[int, int]]:
    for low, high in zip(ranges.starts.tolist(), ranges.ends.tolist(), strict=True):
        for start in range(low, high, size):
            yield start, min(start + size, high)


def _one_batch(table: pa.Table, schema: pa.Schema) -> list[pa.RecordBatch]:
    return table.cast(schema).combine_chunks().to_batches() if table.num_rows else []


def _resolve_version(values: pa.Array, page: PageDescriptor) -> pa.Array:
    """Versions in table 0, where 0 stands for the commit that added the page."""
    version = pa.scalar(page_version(page.page_id), pa.int64())
    return pc.if_else(pc.equal(values, THIS_COMMIT), version, values)
