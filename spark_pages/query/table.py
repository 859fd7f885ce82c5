"""A table as of one version: exact rows, and the pages that hold them.

Follow a read from `Table.read` to `RowReader.slices` (query/row_reader.py), from there through
`ColumnChain.select` (which pages) and `PageHandler.get_values` (their values) back to slices of pages. Scans
and reads with a filter go by windows (query/scan.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from spark_pages.arguments import MOST_NUMBER, as_choice, as_flag, as_int, as_list, check_kind, shortened
from spark_pages.arrow.join import empty_table
from spark_pages.arrow.nested import null_column
from spark_pages.boundary import guarded
from spark_pages.catalog.namespaces import location_of
from spark_pages.catalog.page_options import PageOptions
from spark_pages.catalog.resolve import find_column, find_columns, show_name, visible_table
from spark_pages.display.cards import table_card
from spark_pages.display.text import count
from spark_pages.errors import (
    ColumnNotFoundError,
    InvalidInputError,
    ObjectNotFoundError,
    RowDeletedError,
    RowOutOfRangeError,
)
from spark_pages.io import PageHandler, ReadTrace
from spark_pages.log.reopen import reopening
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.model.chain import RunSlice
from spark_pages.model.chain_drawing import lane_of
from spark_pages.model.ids import page_version
from spark_pages.model.page import PageDescriptor
from spark_pages.model.row_ranges import RowRanges
from spark_pages.model.table import BUILT_IN, NAMESPACE_NAMES, TableDefinition
from spark_pages.query.aggregate import Aggregate, aggregate_rows
from spark_pages.query.directory import PageDirectory, row_numbers
from spark_pages.query.explain import ScanPlan, explain_scan
from spark_pages.query.live_rows import MARK, FindDeletion, row_deleted, with_nulls
from spark_pages.query.page_metadata import metadata_of, rows_with_meta
from spark_pages.query.page_table import blocks_of, page_table
from spark_pages.query.predicates.evaluate import passing
from spark_pages.query.predicates.filters import Filter, ParsedFilter, parse_filter
from spark_pages.query.pruning import CandidateSearch, rows_to_read
from spark_pages.query.row_reader import Reading, RowReader, rows_without_columns
from spark_pages.query.scan import ROW, ScanRequest, first_rows, scan_batches, scan_tables
from spark_pages.query.table_views import TableViews

MOST_COLUMNS_ON_A_CARD = 30
MOST_LANES_ON_A_CARD = 8


@guarded()
class Table(TableViews):
    """A table as of one version.

    Obtained from `Snapshot.table`. Immutable: reading it gives the same rows whatever is committed.

    Parameters
    ----------
    definition, directory, pages
        Its schema and properties, its page descriptors, and the reader of its pages.
    log
        Metadata of the version; None for rows that belong to no version.
    open_table, find_deletion
        Opens a table of the same version by name (picklable: a pickled table is this and a name); finds who
        deleted a row.
    """

    def __init__(
        self,
        definition: TableDefinition,
        directory: PageDirectory,
        pages: PageHandler,
        log: LogSnapshot | None = None,
        open_table: Callable[[str], Table] | None = None,
        find_deletion: FindDeletion | None = None,
    ) -> None:
        self.definition = definition
        self.directory = directory
        self._source = RowReader(definition, directory, pages)
        self._log = log
        self._open_table = open_table
        self._find_deletion = find_deletion

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as its store, version and name; opened again where it is unpickled."""
        if self._open_table is None:
            raise InvalidInputError(
                f"Cannot pickle table {self.name!r}: it is not one of a snapshot.",
                hint="Pickle `store.snapshot().table(name)` after the commit.",
            )
        return (self._open_table, (self.name,))

    def __repr__(self) -> str:
        rows, columns = count(self.num_rows, "row"), count(len(self.columns), "column")
        return f"Table({self.name!r}, {rows}, {columns})"

    def _repr_html_(self) -> str:
        schema = self.schema
        chains = {name: self.directory.chain(name) for name in schema.names[:MOST_COLUMNS_ON_A_CARD]}
        rows = [
            (name, str(schema.field(name).type), schema.field(name).nullable, chain.num_pages)
            for name, chain in chains.items()
        ]
        lanes = [lane_of(name, chain.pieces) for name, chain in list(chains.items())[:MOST_LANES_ON_A_CARD]]
        return table_card(self.name, self.version, self.num_rows, rows, lanes, len(schema))

    @property
    def name(self) -> str:
        """The name, with its namespace where that is not the default one."""
        return show_name(self.definition)

    @property
    def version(self) -> int | None:
        """The version that it is of, or that a transaction stands on."""
        return None if self._log is None else self._log.state.version

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
        """Number of live rows; of an unaligned table, rows of its shortest column."""
        return self.end_row - self.directory.dead_rows

    def __len__(self) -> int:
        return self.num_rows

    def __bool__(self) -> bool:
        """Whether there is such a table, with or without rows."""
        return True

    @cached_property
    @reopening
    def end_row(self) -> int:
        """One past the last row number; deleted rows keep their numbers."""
        names = self.columns[:1] if self.definition.aligned else self.columns
        return min(self.directory.chain(name).num_rows for name in names)

    def read(
        self,
        columns: Iterable[str] | None = None,
        start: int = 0,
        stop: int | None = None,
        filter: Filter | None = None,
        *,
        limit: int | None = None,
        row_numbers: bool = False,
        trace: ReadTrace | None = None,
        entry_meta: bool = False,
    ) -> pa.Table:
        """Read the live rows of [start, stop), exactly.

        Parameters
        ----------
        columns
            Which columns, in which order; all by default.
        start, stop
            First row number and one past the last; to the end by default.
        filter
            See `spark_pages.query.predicates.filters`; pages that statistics rule out are not read.
        limit
            Most rows to read: the first ones that pass the filter.
        row_numbers
            Whether the last column, ``_row`` (uint64), holds the numbers of the rows.
        trace
            Receives the pages touched, requests and bytes.
        entry_meta
            Whether what belongs in front of and behind each entry, and to its page, comes too. Not together
            with a filter.

        Returns
        -------
        pyarrow.Table
            With `entry_meta`, each column is followed by binary columns ``<column>.prefix_meta`` and
            ``<column>.suffix_meta`` and by ``<column>.page_metadata``, a map of bytes; null where there is
            none.

        Raises
        ------
        ColumnNotFoundError, RowOutOfRangeError, InvalidInputError

        Notes
        -----
        One request per run of adjacent pages that no cache holds.
        """
        names = find_columns(self.definition, columns)
        start, stop = self._row_range(start, stop)
        parsed = self._parse(filter)
        check_kind(trace, _TRACE, "trace", "a ReadTrace")
        entry_meta = as_flag(entry_meta, "entry_meta")
        numbered = self._is_numbered(row_numbers, names)
        if limit is not None:
            limit = as_int(limit, "limit", "a number of rows", 0)
            stop = stop if parsed is not None or self.marks is not None else min(stop, start + limit)
        if entry_meta:
            if parsed is not None or numbered:
                raise InvalidInputError(
                    "Cannot read entry metadata through a filter: it is read by rows.",
                    hint="Pass `start` and `stop`, and neither `filter` nor `row_numbers`.",
                )
            return rows_with_meta(self._source, names, start, stop, trace)
        if parsed is None and not numbered and (limit is None or self.marks is None):
            return self._source.slices(names, RowRanges.of(start, stop), Reading(trace=trace))
        few = limit is not None
        request = ScanRequest(names, start, stop, parsed, admit=True, few=few, numbered=numbered)
        found = list(first_rows(limit, scan_tables(self._source, request, trace)))
        if not names and not numbered:
            rows = sum(part.num_rows for part in found)
            return rows_without_columns(rows if limit is None else min(rows, limit))
        schema = self._source.schema_of(names)
        schema = schema.append(pa.field(ROW, pa.uint64())) if numbered else schema
        return pa.concat_tables(found) if found else empty_table(schema)

    def row_numbers(self, filter: Filter | None = None) -> NDArray[np.uint64]:
        """Find the numbers of the live rows that meet a condition, in order; all live rows by default.

        Notes
        -----
        Reads the columns of the condition alone, and of these the pages that statistics and bloom filters do
        not rule out.
        """
        numbers: NDArray[np.uint64] = self.read([], filter=filter, row_numbers=True).column(ROW).to_numpy()
        return numbers

    def scan(
        self,
        columns: Iterable[str] | None = None,
        start: int = 0,
        stop: int | None = None,
        filter: Filter | None = None,
        batch_rows: int | None = None,
        *,
        row_numbers: bool = False,
        trace: ReadTrace | None = None,
        prefetch: bool = True,
    ) -> pa.RecordBatchReader:
        """Rows [start, stop) as a stream of batches.

        Parameters
        ----------
        columns, start, stop, filter, row_numbers, trace
            As in `read`; the trace grows with what has been handed out.
        batch_rows
            Most rows of a batch; 65,536 by default, fewer where rows are large.
        prefetch
            Whether threads fetch and decode what comes next while the caller works. Without them a window is
            read when it is asked for, which takes a quarter less processor time: for processes of which there
            are as many as processors, such as workers of Spark or PyTorch.

        Returns
        -------
        pyarrow.RecordBatchReader
            DuckDB, Polars and pandas take it as it is, without a copy.

        Notes
        -----
        Nothing is read before the first batch is asked for. From the second on, threads read ahead, two
        windows of 32 MiB at most. Dropping the reader stops them once these are done. The caches are left to
        random reads. See `docs/reading.md`.
        """
        prefetch = as_flag(prefetch, "prefetch")
        request = self._scan_request(columns, start, stop, filter, batch_rows, prefetch)
        request = replace(request, numbered=self._is_numbered(row_numbers, request.names))
        check_kind(trace, _TRACE, "trace", "a ReadTrace")
        schema = self._source.schema_of(request.names)
        schema = schema.append(pa.field(ROW, pa.uint64())) if request.numbered else schema
        return pa.RecordBatchReader.from_batches(schema, scan_batches(self._source, request, trace))

    def _is_numbered(self, row_numbers: bool, names: Sequence[str]) -> bool:
        """Whether row numbers are wanted, which must not share their name with a column."""
        numbered = as_flag(row_numbers, "row_numbers")
        if numbered and ROW in names:
            raise InvalidInputError(
                f"Cannot read the row numbers of table {self.name!r} with its column {ROW!r}: both would "
                f"have one name.",
                hint="Leave the column out of `columns`.",
            )
        return numbered

    def _scan_few(
        self,
        columns: Sequence[str],
        filter: Filter | None,
        batch_rows: int | None,
        trace: ReadTrace | None = None,
        numbered: bool = False,
    ) -> pa.RecordBatchReader:
        """Scan for a caller who may stop after a few rows; see `ScanRequest.few`."""
        request = self._scan_request(columns, 0, None, filter, batch_rows)
        request = replace(request, few=True, numbered=numbered)
        schema = self._source.schema_of(request.names)
        schema = schema.append(pa.field(ROW, pa.uint64())) if numbered else schema
        return pa.RecordBatchReader.from_batches(schema, scan_batches(self._source, request, trace))

    def explain(
        self,
        columns: Iterable[str] | None = None,
        start: int = 0,
        stop: int | None = None,
        filter: Filter | None = None,
        batch_rows: int | None = None,
    ) -> ScanPlan:
        """Explain what `scan` with these arguments would read: pages, runs, requests, bytes, cache hits.

        A method of its own, because `scan` gives a plain `pyarrow.RecordBatchReader`, to which nothing can be
        added and which DuckDB, Polars and pandas know. What a scan has read in the end is in its ``trace``.

        Notes
        -----
        Reads no page, but for the marks of deleted rows. Loads the segments of the rows asked for; with a
        filter their statistics, and the bloom filters that it would use.
        """
        request = self._scan_request(columns, start, stop, filter, batch_rows)
        return explain_scan(self._source, self.name, request, "" if filter is None else str(filter))

    def rows_at(self, positions: ArrayLike) -> NDArray[np.int64]:
        """Find the row numbers of live rows by their positions, which count live rows from 0.

        Raises
        ------
        RowOutOfRangeError
            If the table has fewer live rows.

        Notes
        -----
        Where rows were deleted, reads the pages of the liveness chain that hold the rows, one after another;
        the statistics of the others say how many live rows they have.
        """
        return self._source.rows_at(row_numbers(positions, self.num_rows, self.name))

    def take(
        self,
        rows: ArrayLike,
        columns: Iterable[str] | None = None,
        *,
        missing: Literal["error", "null", "skip"] = "error",
        trace: ReadTrace | None = None,
    ) -> pa.Table:
        """Read rows by number, in the order given; a row may be named twice.

        Parameters
        ----------
        missing
            What to do about deleted rows: raise RowDeletedError, give nulls in their place, or skip them.

        Raises
        ------
        RowOutOfRangeError
            If the table has no such row.
        RowDeletedError
            If a row was deleted; names the first one, and the version and operation that deleted it.

        Notes
        -----
        Each page that holds one of the rows is read once, neighbours in one request, and of each only the
        rows wanted are copied.
        """
        names = find_columns(self.definition, columns)
        check_kind(trace, _TRACE, "trace", "a ReadTrace")
        as_choice(missing, "missing", _MISSING)
        numbers = row_numbers(rows, self.end_row, self.name)
        live = self._source.are_live(numbers, trace)
        if live is None:
            return self._source.take(names, numbers, Reading(trace=trace))
        if missing == "error":
            raise self._deleted(int(numbers[~live][0]))
        found = self._source.take(names, numbers[live], Reading(trace=trace))
        return found if missing == "skip" else with_nulls(found, live)

    def _deleted(self, row: int) -> RowDeletedError:
        marks = self._source.marks
        assert marks is not None
        page = marks.directory.locate_row(MARK, row).page
        find = self._find_deletion and partial(self._find_deletion, self.definition.table_id, row)
        return row_deleted(self.name, row, page_version(page.page_id), find)

    @reopening
    def pages(self, column: str | None = None, *, metadata: bool = False) -> pa.Table:
        """Descriptors of the table's pages, or of one column's, in row order.

        Parameters
        ----------
        metadata
            Whether to read what belongs to each page as a whole: reads every page listed.

        Returns
        -------
        pyarrow.Table
            ``column``, ``position``, ``first_row`` and the fields of a descriptor; with `metadata` also
            ``page_metadata``, a map of bytes that is null where a page has none.
        """
        metadata = as_flag(metadata, "metadata")
        parts = []
        for name in find_columns(self.definition, None if column is None else [column]):
            run = self.directory.chain(name).all_pages()
            part = page_table(name, RunSlice(run, 0), 0)
            if metadata:
                part = part.append_column("page_metadata", metadata_of(self._source, run))
            parts.append(part)
        return pa.concat_tables(parts)

    @reopening
    def aggregate(self, column: str, start: int = 0, stop: int | None = None) -> Aggregate:
        """Least and greatest value, counts of values and nulls, of rows [start, stop), exactly.

        Notes
        -----
        Reads the two pages at the ends at most, and these only where statistics do not tell. Of text and
        binary of more than 32 bytes also the pages of the outermost cut bounds, mostly one for each side. See
        docs/statistics.md.
        """
        column = find_column(self.definition, column)
        start, stop = self._row_range(start, stop)
        kind, chain = self.schema.field(column).type, self.directory.chain(column)
        read = partial(self.page_values, column)
        rows = RowRanges.of(start, stop)
        live = self._source.live(rows)
        dead = np.zeros(0, np.int64) if live is None else rows.rows()[~live]
        told = self._source.stored_as_read(column)
        return aggregate_rows(chain, kind, (start, stop), read, dead=dead, told=told)

    @reopening
    def blocks(self, by: str | int | None = None) -> pa.Table:
        """Which pages of each column hold the rows of each block: the pages of a column, or so many rows."""
        if by is not None and not isinstance(by, str):
            by = as_int(by, "by", "a column, or a number of rows", 1, MOST_NUMBER)
        by = find_column(self.definition, by) if isinstance(by, str) else by
        chains = {name: self.directory.chain(name) for name in self.columns}
        return blocks_of(chains, self.definition.field_ids, by, self.end_row)

    def reopen(self, missing: ObjectNotFoundError) -> None:
        """Reopen the same version on the retained objects; see `spark_pages.log.reopen`."""
        self.directory.reopen(missing)

    @property
    def marks(self) -> RowReader | None:
        """The liveness chain as the one column of a table; None where no row was ever deleted."""
        return self._source.marks

    def are_live(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether each of some rows of the table is live."""
        rows = row_numbers(rows, self.end_row, self.name)
        live = self._source.are_live(rows)
        return np.ones(len(rows), bool) if live is None else live

    @property
    def page_handler(self) -> PageHandler:
        """What fetches and caches the pages."""
        return self._source.pages

    @property
    def page_options(self) -> PageOptions:
        """How pages of the table are written, by its properties and those of its namespace."""
        namespace = self._namespace()
        return PageOptions.of(self.definition, inherited=namespace.properties if namespace else None)

    @property
    def page_folder(self) -> str:
        """Where page files of the table are written, by the location of its namespace."""
        return location_of(self._namespace())

    def page_values(self, column: str, pages: Sequence[PageDescriptor]) -> list[pa.Array]:
        """Read the values of pages of a column, page by page."""
        column = find_column(self.definition, column)
        return self._source.page_values(column, as_list(pages, PageDescriptor, "pages", "page descriptors"))

    def candidate_rows(self, filter: Filter, start: int = 0, stop: int | None = None) -> RowRanges:
        """Return the rows that statistics do not prune."""
        start, stop = self._row_range(start, stop)
        return CandidateSearch(self._source, self._parse_one(filter).tree).rows(start, stop)

    def rows_in(self, columns: Iterable[str], ranges: RowRanges) -> pa.Table:
        """Read the rows of ranges, in order, without filling caches."""
        check_kind(ranges, RowRanges, "ranges", "RowRanges")
        return self._source.slices(find_columns(self.definition, columns), ranges, Reading(admit=False))

    def filter_columns(self, filter: Filter | None) -> Sequence[str]:
        """Return the columns of a filter that fits the table."""
        parsed = self._parse(filter)
        return find_columns(self.definition, parsed.columns) if parsed is not None else ()

    def rows_to_read(self, filter: Filter, start: int = 0, stop: int | None = None) -> RowRanges:
        """Return the rows that statistics and bloom filters do not prune."""
        start, stop = self._row_range(start, stop)
        return rows_to_read(self._source, self._parse_one(filter).tree, start, stop)

    def _namespace(self) -> TableDefinition | None:
        """Return the definition of the table's namespace, if users created it."""
        if self._log is None or self.definition.namespace_id in BUILT_IN.values():
            return None
        return self._log.table((NAMESPACE_NAMES, self.definition.namespace))

    def _parse_one(self, given: Filter) -> ParsedFilter:
        """As `_parse`, where there must be a condition."""
        parsed = self._parse(given)
        if parsed is None:
            raise InvalidInputError(
                f"Cannot use {shortened(given)} as filter: expected a condition on rows.",
                hint="Write a condition such as \"n > 1\" or [('n', '>', 1)].",
            )
        return parsed

    def _parse(self, given: Filter | None) -> ParsedFilter | None:
        """Parse a filter, and try it on no rows and on a row of nulls, to refuse an unfit one at once."""
        if given is None:
            return None
        parsed = parse_filter(given, self.schema, visible_table(self.definition))
        if parsed is not None:
            kinds = self._source.schema_of(self._exact(parsed.columns))
            try:
                for rows in (empty_table, _row_of_nulls):  # of some types Arrow makes no sound nulls
                    passing(rows(kinds or _NO_COLUMN), parsed.predicate)
            except (pa.ArrowException, TypeError) as error:
                types = ", ".join(f"{field.name}: {field.type}" for field in kinds)
                raise InvalidInputError(
                    f"Cannot use the filter {parsed.shown} on table {self.name!r}, which has {types}: "
                    f"{error}.",
                    hint="Compare each column with values of its type, such as `n > 1 AND s = 'a'`.",
                ) from error
        return parsed

    def _exact(self, columns: Sequence[str] | None) -> Sequence[str]:
        """Return columns that a filter names; SQL text and conditions spell them as the table does by now.

        Raises
        ------
        ColumnNotFoundError
            If a pyarrow expression spells one otherwise: Arrow would not find it.
        """
        names = find_columns(self.definition, columns)
        for given, name in zip(columns or (), names, strict=False):
            if given != name:
                raise ColumnNotFoundError(
                    f"Cannot find column {given!r} of table {self.name!r}: an expression of pyarrow names "
                    "columns exactly.",
                    hint=f"Write {name!r}, or give the filter as SQL text.",
                    table=self.name,
                    column=given,
                )
        return names

    def _scan_request(
        self,
        columns: Iterable[str] | None,
        start: int,
        stop: int | None,
        filter: Filter | None,
        batch_rows: int | None,
        prefetch: bool = True,
    ) -> ScanRequest:
        names = find_columns(self.definition, columns)
        start, stop = self._row_range(start, stop)
        batch_rows = None if batch_rows is None else as_int(batch_rows, "batch_rows")
        if batch_rows is not None and batch_rows <= 0:
            raise InvalidInputError(
                f"Cannot scan batches of {batch_rows} rows: expected at least 1.",
                hint="Pass `batch_rows` of 1 or more, or leave it out.",
            )
        most = None if batch_rows is None else min(batch_rows, max(1, stop - start))
        return ScanRequest(names, start, stop, self._parse(filter), most, prefetch=prefetch)

    def _row_range(self, start: int, stop: int | None) -> tuple[int, int]:
        start = as_int(start, "start")
        stop = self.end_row if stop is None else as_int(stop, "stop")
        if not 0 <= start <= stop <= self.end_row:
            raise RowOutOfRangeError(
                f"Cannot read rows [{start}, {stop}) of table {self.name!r}: it has {self.end_row} "
                "rows, numbered from 0.",
                hint=f"Pass `start` and `stop` from 0 to {self.end_row}.",
                num_rows=self.end_row,
            )
        return start, stop


def _row_of_nulls(schema: pa.Schema) -> pa.Table:
    """Create a row of nulls: on no rows Arrow misses, for example, a time without its zone."""
    return pa.table([null_column(field.type, 1) for field in schema], schema=schema)


_MISSING = ("error", "null", "skip")
_TRACE = ReadTrace | None
_NO_COLUMN = pa.schema([("", pa.null())])
