"""A scan: windows of rows, read ahead and put together as batches while the caller works on earlier ones."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.arrow.columns import flags_of, number_column, numbers_of
from spark_pages.arrow.join import DoesNotFitError, empty_table, join
from spark_pages.catalog.resolve import find_columns, show_name
from spark_pages.errors import InvalidInputError
from spark_pages.format.pages.paginate import TARGET_PAGE_BYTES
from spark_pages.io import ReadTrace
from spark_pages.model.chain import RunSlice
from spark_pages.model.row_ranges import RowRanges, sorted_rows
from spark_pages.model.run import PageRun
from spark_pages.query.live_rows import only_live, row_column
from spark_pages.query.predicates.filters import ParsedFilter
from spark_pages.query.pruning import candidates
from spark_pages.query.row_reader import Held, Reading, RowReader, rows_without_columns

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
    prefetch
        Whether threads read windows before the caller asks for them.
    few
        Whether the caller may stop after a few rows: the first window is a page of each column or less, and
        threads wait until the caller has taken it.
    numbered
        Whether the last column, `ROW`, holds the numbers of the rows.
    """

    names: Sequence[str]
    start: int
    stop: int
    parsed: ParsedFilter | None = None
    batch_rows: int | None = None
    admit: bool = False
    prefetch: bool = True
    few: bool = False
    numbered: bool = False


ROW = "_row"
"""Name of the column of row numbers."""


def scan_tables(source: RowReader, request: ScanRequest, trace: ReadTrace | None) -> Iterator[pa.Table]:
    """Scan rows window by window, without empty windows."""
    yield from _scan(source, request, _whole, trace)


def first_rows(limit: int | None, parts: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield parts until they hold so many rows."""
    left = limit
    for part in parts if limit != 0 else ():
        yield part if left is None or not part.num_columns else part.slice(0, left)
        left = None if left is None else left - part.num_rows
        if left is not None and left <= 0:
            return


def scan_batches(
    source: RowReader, request: ScanRequest, trace: ReadTrace | None
) -> Iterator[pa.RecordBatch]:
    """Scan rows as batches of one chunk for each column."""
    yield from _scan(source, request, _batches, trace)


Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)
Shape = Callable[[pa.Table, ScanRequest], list[Rows]]
Window = tuple[list[Rows], ReadTrace | None]


def _scan(
    source: RowReader, request: ScanRequest, shape: Shape[Rows], trace: ReadTrace | None
) -> Iterator[Rows]:
    jobs = _jobs(source, request, shape, trace)
    windows = prefetch(jobs, WINDOWS_AHEAD) if request.prefetch else (job() for job in jobs)
    for found, counts in windows:
        if trace is not None and counts is not None:
            trace.merge(counts)
        yield from found


def _jobs(
    source: RowReader, request: ScanRequest, shape: Shape[Rows], trace: ReadTrace | None
) -> Iterator[Callable[[], Window[Rows]]]:
    """One job for each window; each hands the pages that reach over its end to the next."""
    if not needed_columns(source, request):
        stop = request.stop if _holds_for_all(source, request) else request.start
        rows = RowRanges.of(request.start, stop)
        yield lambda: (shape(_rows_of(source, request, rows, Reading(trace=trace)), request), None)
        return
    before: Callable[[], Held] | None = None
    for ranges in windows_of(source, request, trace):  # asked for by the thread that owns the trace
        after: Future[Held] = Future()
        reading = Reading(request.admit, None if trace is None else ReadTrace(), before)
        yield partial(_read_window, source, request, shape, ranges, reading, after)
        before = after.result


def _holds_for_all(source: RowReader, request: ScanRequest) -> bool:
    """Whether a filter without columns, such as ``1 = 2``, holds; True without a filter."""
    if request.parsed is None:
        return True
    one = pa.table({"row": number_column(np.zeros(1, np.int64), pa.int64())})
    return bool(request.parsed.passing(one, show_name(source.definition)).num_rows)


def tested_columns(source: RowReader, request: ScanRequest) -> Sequence[str]:
    """The columns that the filter reads."""
    return find_columns(source.definition, request.parsed.columns) if request.parsed else []


def needed_columns(source: RowReader, request: ScanRequest) -> Sequence[str]:
    """Return the columns to read, each once."""
    return list(dict.fromkeys([*tested_columns(source, request), *request.names]))


def windows_of(
    source: RowReader, request: ScanRequest, trace: ReadTrace | None = None
) -> Iterator[RowRanges]:
    """Plan the windows of a scan. The trace records the bytes of bloom filters."""
    names = needed_columns(source, request)
    kinds = [source.schema.field(name).type for name in names]
    rows = request.start, request.stop
    wanted = (
        candidates(source, request.parsed.tree, *rows, trace) if request.parsed else [RowRanges.of(*rows)]
    )
    pieces = partial(source.pieces_at, names)
    sizes = (
        FEW_WINDOW_BYTES
        if request.few
        else LONE_WINDOW_BYTES
        if not request.prefetch
        else SHARED_WINDOW_BYTES
    )
    batch_rows = None if request.few else request.batch_rows
    return plan_windows(pieces, kinds, wanted, batch_rows, sizes)


def _read_window(
    source: RowReader,
    request: ScanRequest,
    shape: Shape[Rows],
    ranges: RowRanges,
    reading: Reading,
    after: Future[Held],
) -> Window[Rows]:
    try:
        if request.parsed is None:
            table = _rows_of(source, request, ranges, reading)
        else:
            table = _filtered(source, request, request.parsed, ranges, reading)
        after.set_result(reading.after(int(ranges.ends[-1])))
    except BaseException as error:
        after.set_exception(error)  # the window behind waits for it
        raise
    return shape(table, request), reading.trace


def _rows_of(source: RowReader, request: ScanRequest, ranges: RowRanges, reading: Reading) -> pa.Table:
    """Read the live rows of ranges, with their numbers if requested."""
    mask = source.live_mask(ranges, reading.trace)
    table = only_live(source.all_slices(request.names, ranges, reading, joined=True), mask)
    return _with_numbers(table, _numbers_of(ranges, mask)) if request.numbered else table


def _numbers_of(ranges: RowRanges, mask: pa.BooleanArray | None) -> NDArray[np.int64]:
    """Return the numbers of the rows for which a bitmap is true; all without one."""
    rows = ranges.rows()
    return rows if mask is None else rows[flags_of(mask)]


def _with_numbers(table: pa.Table, rows: NDArray[np.int64]) -> pa.Table:
    column = row_column(rows)
    return table.append_column(ROW, column) if table.num_columns else pa.table({ROW: column})


def _filtered(
    source: RowReader, request: ScanRequest, parsed: ParsedFilter, ranges: RowRanges, reading: Reading
) -> pa.Table:
    """Read the rows that pass the filter; other columns are read only for pages with such rows."""
    names = request.names
    tested = tested_columns(source, request)
    number = "row" + "_" * max(map(len, tested), default=0)  # no column has so long a name
    mask = source.live_mask(ranges, reading.trace)
    numbers = number_column(_numbers_of(ranges, mask), pa.int64())
    table = only_live(source.all_slices(tested, ranges, reading, joined=True), mask)
    numbered = table.append_column(number, numbers) if tested else pa.table({number: numbers})
    passed = parsed.passing(numbered, show_name(source.definition))
    rows = passed.column(number)
    rest = [name for name in names if name not in tested]
    if not passed.num_rows:
        found = empty_table(source.schema_of(names))
    elif not rest:
        found = passed.select(names)
    else:
        others = source.take(rest, numbers_of(rows.combine_chunks()), reading)
        columns = [(passed if name in tested else others).column(name) for name in names]
        found = pa.table(columns, schema=source.schema_of(names))
    return _with_numbers(found, numbers_of(rows.combine_chunks())) if request.numbered else found


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
    """Convert a table to one batch, or to several if one cannot hold it."""
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


Numbers = NDArray[Any]

BATCH_ROWS = 1 << 16
"""Rows of a batch, unless the caller says."""

# Uncompressed bytes, about, of the first window, the second and the largest. Each is twice as large as the
# one before: the first is small, for callers who want a few rows.
SHARED_WINDOW_BYTES = (2 << 20, 4 << 20, 32 << 20)

# Without threads there is no other window beside one: larger ones take a sixth less processor time.
LONE_WINDOW_BYTES = (8 << 20, 16 << 20, 64 << 20)

# Half a page of one column: a caller who stops after some rows has read one page of each column.
FEW_WINDOW_BYTES = (32 << 10, 2 << 20, 32 << 20)

MOST_BATCH_BYTES = 1 << 30
"""A batch of as many rows as were asked for may be larger than a window, up to about this."""

_PAGE_COST = 1024
"""What a page costs beside its values."""


def plan_windows(
    pieces_at: Callable[[int, int], Sequence[RunSlice]],
    kinds: Sequence[pa.DataType],
    candidates: Iterable[RowRanges],
    batch_rows: int | None = None,
    sizes: tuple[int, int, int] = SHARED_WINDOW_BYTES,
) -> Iterator[RowRanges]:
    """Plan the windows of the rows to read.

    Parameters
    ----------
    pieces_at
        Gives loaded pages of each column that is read, those that hold a row and some behind it, up to an
        end.
    kinds
        Types of these columns.
    candidates
        The rows that are to be read at all, part by part, in order. A window holds rows of one part.
    batch_rows
        Rows of a batch where the caller has said; windows hold whole batches as far as memory allows.
    sizes
        Bytes of the first window, the second, and the largest.

    Notes
    -----
    Loads the chains as it goes: no more segments than the windows asked for need.
    """
    size, second, most = sizes
    for part in candidates:
        left = part
        while left.num_rows:
            row, stop = int(left.starts[0]), int(left.ends[-1])
            slices = pieces_at(row, stop)
            end = min([stop, *(piece.first_row + piece.run.num_rows for piece in slices)])
            ranges, left = left.between(row, end), left.between(end, stop)
            rows, taken = _running_bytes(slices, kinds, ranges)
            done = 0
            while done < ranges.num_rows:
                count = _next_window_rows(rows, taken, done, size, batch_rows)
                yield ranges.part(done, done + count)
                done, size = done + count, min(max(2 * size, second), most)


def _next_window_rows(rows: Numbers, taken: Numbers, done: int, size: int, batch_rows: int | None) -> int:
    """How many rows the next window has."""

    def within(most_bytes: int) -> int:
        return int(np.interp(np.interp(done, rows, taken) + most_bytes, taken, rows)) - done

    unit = batch_rows or BATCH_ROWS
    fits = within(size)
    if fits > unit:
        fits -= fits % unit
    elif batch_rows:
        fits = max(fits, min(unit, within(MOST_BATCH_BYTES)))
    return max(1, fits)


def _running_bytes(
    slices: Sequence[RunSlice], kinds: Sequence[pa.DataType], ranges: RowRanges
) -> tuple[Numbers, Numbers]:
    """Numbers of rows of the ranges, increasing from 0 to all, and about how many bytes these take."""
    columns = []
    for piece, kind in zip(slices, kinds, strict=True):
        ends = piece.run.prefix_entries.astype(np.int64) + piece.first_row
        columns.append((ends, np.cumsum(_page_bytes(piece.run, kind)), piece.first_row))
    points = sorted_rows(np.concatenate([ranges.starts, ranges.ends, *(ends for ends, _, _ in columns)]))
    taken = np.arange(len(points), dtype=np.float64)  # never flat, so that it can be read both ways
    for ends, running, first in columns:
        taken += np.interp(points, np.concatenate([[first], ends]), np.concatenate([[0.0], running]))
    cells = ranges.covers(points[:-1])
    numbers, sizes = (np.concatenate([[0], np.cumsum(np.diff(each)[cells])]) for each in (points, taken))
    return numbers, sizes


def _page_bytes(run: PageRun, kind: pa.DataType) -> Numbers:
    """About how many bytes the values of each page take."""
    entries = run.numbers("entry_count")
    try:
        fixed: Numbers = entries * max(kind.bit_width / 8, 1 / 8) + _PAGE_COST
        return fixed
    except ValueError:  # not of one width: compressed to a quarter perhaps, but cut to the size of a page
        packed = run.numbers("actual_len").astype(np.float64)
        likely: Numbers = np.minimum(packed * 4, np.maximum(packed, TARGET_PAGE_BYTES)) + entries + _PAGE_COST
        return likely


Result = TypeVar("Result")

Job = Callable[[], Result]
"""One piece of work."""


def prefetch(jobs: Iterator[Job[Result]], most: int) -> Iterator[Result]:
    """Iterate over the results of jobs, in order.

    Parameters
    ----------
    jobs
        Asked for as they are begun, in order, always by the caller's thread.
    most
        Jobs that are begun and whose results are not taken yet, at most.

    Notes
    -----
    The first job runs in the caller's thread, and the others not before a second result is asked for: who
    takes one result starts no thread. Each of the others runs in a thread that ends with it. So whoever
    stops, by leaving the loop, by an error or by dropping the iterator, has no thread left once those that
    are begun are done; their results are dropped. Waiting can be interrupted from the keyboard.
    """
    first = next(jobs, None)
    if first is None:
        return
    yield first()
    process = os.getpid()
    begun: deque[Future[Result]] = deque()
    limit = min(2, most)
    while True:
        if os.getpid() != process:
            raise InvalidInputError(
                "Cannot go on with a scan in a forked process: the threads that read for it are in "
                "the other one.",
                hint="Begin the scan, `table.scan()`, in the process that reads it.",
            )
        begun.extend(map(_begin, islice(jobs, limit - len(begun))))
        if not begun:
            return
        result = begun.popleft().result()
        limit = min(limit + 1, most)
        begun.extend(map(_begin, islice(jobs, limit - len(begun))))  # they go on while the caller is away
        yield result


def _begin(job: Job[Result]) -> Future[Result]:
    answer: Future[Result] = Future()

    def work() -> None:
        try:
            answer.set_result(job())
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is taken
            answer.set_exception(error)

    try:
        threading.Thread(target=work, name="spark-pages scan").start()
    except RuntimeError:  # the interpreter is ending and starts no more threads
        work()
    return answer
