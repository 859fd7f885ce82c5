"""A scan: windows of rows, read ahead and put together as batches while the caller works on earlier ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
import pyarrow as pa

from spark_pages.arrow.columns import number_column, numbers_of
from spark_pages.arrow.join import DoesNotFitError, empty_table, join
from spark_pages.catalog.resolve import check_columns, show_name
from spark_pages.io import ReadTrace
from spark_pages.model.row_ranges import RowRanges
from spark_pages.query.bloom_pruning import candidates
from spark_pages.query.predicates.filters import ParsedFilter
from spark_pages.query.read_ahead import read_ahead
from spark_pages.query.row_reader import Held, Reading, RowSource, rows_without_columns
from spark_pages.query.scan_tasks import BATCH_ROWS, plan_windows

WINDOWS_AHEAD = 2
"""Windows that are begun and whose batches the caller has not taken yet, at most.

An object store is waited for. On a local disk, one is decoded while the other waits, for the disk or for what
goes without the GIL.
"""


@dataclass(frozen=True, eq=False, slots=True)
class ScanRequest:
    """What a scan is asked for, checked.

    Attributes
    ----------
    names
        Columns wanted, in order.
    start, stop
        Rows [start, stop).
    parsed
        The filter, if there is one.
    batch_rows
        Most rows of a batch, where the caller says.
    admit
        Whether the caches keep what is read.
    ahead
        Whether threads read windows before the caller asks for them.
    """

    names: Sequence[str]
    start: int
    stop: int
    parsed: ParsedFilter | None = None
    batch_rows: int | None = None
    admit: bool = False
    ahead: bool = True


def scan_tables(source: RowSource, request: ScanRequest, trace: ReadTrace | None) -> Iterator[pa.Table]:
    """The rows, window by window; windows without a row are left out."""
    yield from _scan(source, request, _whole, trace)


def scan_batches(
    source: RowSource, request: ScanRequest, trace: ReadTrace | None
) -> Iterator[pa.RecordBatch]:
    """The rows as batches of one chunk for each column."""
    yield from _scan(source, request, _batches, trace)


Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)
Shape = Callable[[pa.Table, ScanRequest], list[Rows]]
Window = tuple[list[Rows], ReadTrace | None]


def _scan(
    source: RowSource, request: ScanRequest, shape: Shape[Rows], trace: ReadTrace | None
) -> Iterator[Rows]:
    jobs = _jobs(source, request, shape, trace)
    windows = read_ahead(jobs, WINDOWS_AHEAD) if request.ahead else (job() for job in jobs)
    for found, counts in windows:
        if trace is not None and counts is not None:
            trace.merge(counts)
        yield from found


def _jobs(
    source: RowSource, request: ScanRequest, shape: Shape[Rows], trace: ReadTrace | None
) -> Iterator[Callable[[], Window[Rows]]]:
    """One job for each window; each hands the pages that reach over its end to the next."""
    if not needed_columns(source, request):
        nothing = rows_without_columns(request.stop - request.start)
        yield lambda: (shape(nothing, request), None)
        return
    before: Callable[[], Held] | None = None
    for ranges in windows_of(source, request, trace):  # asked for by the thread that owns the trace
        after: Future[Held] = Future()
        reading = Reading(request.admit, None if trace is None else ReadTrace(), before)
        yield partial(_read_window, source, request, shape, ranges, reading, after)
        before = after.result


def tested_columns(source: RowSource, request: ScanRequest) -> Sequence[str]:
    """The columns that the filter reads."""
    return check_columns(source.definition, request.parsed.columns) if request.parsed else []


def needed_columns(source: RowSource, request: ScanRequest) -> Sequence[str]:
    """The columns that are read, each once."""
    return list(dict.fromkeys([*tested_columns(source, request), *request.names]))


def windows_of(
    source: RowSource, request: ScanRequest, trace: ReadTrace | None = None
) -> Iterator[RowRanges]:
    """The rows that have to be looked at, window by window; the trace receives what bloom filters take."""
    names = needed_columns(source, request)
    kinds = [source.schema.field(name).type for name in names]
    rows = request.start, request.stop
    wanted = (
        candidates(source, request.parsed.tree, *rows, trace) if request.parsed else [RowRanges.of(*rows)]
    )
    pieces = partial(source.pieces_at, names)
    return plan_windows(pieces, kinds, wanted, request.batch_rows, alone=not request.ahead)


def _read_window(
    source: RowSource,
    request: ScanRequest,
    shape: Shape[Rows],
    ranges: RowRanges,
    reading: Reading,
    after: Future[Held],
) -> Window[Rows]:
    try:
        if request.parsed is None:
            table = source.slices(request.names, ranges, reading, joined=True)
        else:
            table = _filtered(source, request, request.parsed, ranges, reading)
        after.set_result(reading.after(int(ranges.ends[-1])))
    except BaseException as error:
        after.set_exception(error)  # the window behind waits for it
        raise
    return shape(table, request), reading.trace


def _filtered(
    source: RowSource, request: ScanRequest, parsed: ParsedFilter, ranges: RowRanges, reading: Reading
) -> pa.Table:
    """The rows that pass the filter; pages of other columns are read only where they hold such a row."""
    names = request.names
    tested = tested_columns(source, request)
    number = "row" + "_" * max(map(len, tested), default=0)  # no column has so long a name
    numbers = number_column(ranges.rows(), pa.int64())
    table = source.slices(tested, ranges, reading, joined=True)
    numbered = table.append_column(number, numbers) if tested else pa.table({number: numbers})
    passed = parsed.passing(numbered, show_name(source.definition))
    rows = passed.column(number)
    rest = [name for name in names if name not in tested]
    if not passed.num_rows:
        return empty_table(source.schema_of(names))
    if not rest:
        return passed.select(names)
    others = source.take(rest, numbers_of(rows.combine_chunks()), reading)
    columns = [(passed if name in tested else others).column(name) for name in names]
    return pa.table(columns, schema=source.schema_of(names))


def _whole(table: pa.Table, _: ScanRequest) -> list[pa.Table]:
    return [table] if table.num_rows else []


def _batches(table: pa.Table, request: ScanRequest) -> list[pa.RecordBatch]:
    size = request.batch_rows or BATCH_ROWS
    starts = range(0, table.num_rows, size)
    if not table.num_columns:  # of which Arrow cannot take a slice
        parts = [rows_without_columns(min(size, table.num_rows - start)) for start in starts]
        return [batch for part in parts for batch in part.to_batches()]
    return [batch for start in starts for batch in batches_of(table.slice(start, size))]


def batches_of(table: pa.Table) -> list[pa.RecordBatch]:
    """The table as one batch, or as several where one cannot hold it."""
    arrays = []
    for column in table.columns:
        try:
            arrays.append(join(column.chunks, column.type))
        except DoesNotFitError:
            # Where a page ends: inside of a page nothing is gained.
            ends = np.cumsum([len(chunk) for chunk in column.chunks])[:-1]
            middle = int(ends[np.argmin(np.abs(ends - table.num_rows // 2))])
            return [*batches_of(table.slice(0, middle)), *batches_of(table.slice(middle))]
    return [pa.RecordBatch.from_arrays(arrays, schema=table.schema)]
