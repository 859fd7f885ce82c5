"""What a scan would read, before it has read anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spark_pages.display.markup import card, joined, tag
from spark_pages.display.markup import table as html_table
from spark_pages.display.text import count, shorten, size
from spark_pages.io import CacheStats, ReadTrace
from spark_pages.model.row_ranges import RowRanges
from spark_pages.model.run import PageRun
from spark_pages.printable import escape_controls
from spark_pages.query.row_reader import RowReader
from spark_pages.query.scan import ScanRequest, needed_columns, tested_columns, windows_of


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """What a scan would read of one column.

    Attributes
    ----------
    name
        The column.
    tested
        Whether the filter reads it.
    pages, skipped
        Pages to be read, and pages that hold rows of the range but cannot hold one that passes the filter.
    stored_bytes
        Bytes of these pages as stored, without padding.
    """

    name: str
    tested: bool
    pages: int
    skipped: int
    stored_bytes: int


@dataclass(frozen=True, slots=True, repr=False)
class ScanPlan:
    """What a scan would read as things stand.

    Without a filter the scan reads exactly this. With one, pages of columns that the filter does not test are
    read only where some row passes, so that the counts are the most it can be: of requests also where every
    second page is left out, which takes more of them than all pages do.

    Attributes
    ----------
    table
        Its name.
    start, stop
        Rows asked for.
    rows
        Those of them that have to be looked at.
    filter
        The filter as it was given, or an empty text.
    columns
        Each column that is read.
    windows
        Parts that the scan reads one after another.
    runs
        Stretches of pages that lie one after another in one file.
    requests, bytes
        What is asked of storage, padding included.
    decoded_hits, compressed_hits
        Pages that the caches in memory hold decoded, and compressed.
    bloom_hits
        Bloom filters that were in memory.
    bloom_requests, bloom_bytes
        What was asked of storage for other bloom filters, which the plan needed. They are in memory now.
    dead_rows
        Deleted rows among those that have to be looked at: the scan leaves them out.
    """

    table: str
    start: int
    stop: int
    rows: int
    filter: str
    columns: tuple[ColumnPlan, ...]
    windows: int
    runs: int
    requests: int
    bytes: int
    decoded_hits: int
    compressed_hits: int
    bloom_hits: int = 0
    bloom_requests: int = 0
    bloom_bytes: int = 0
    dead_rows: int = 0

    @property
    def pages(self) -> int:
        """Pages to be read, of all columns."""
        return sum(column.pages for column in self.columns)

    @property
    def skipped(self) -> int:
        """Pages that need not be read, of all columns."""
        return sum(column.skipped for column in self.columns)

    def __repr__(self) -> str:
        lines = [f"scan of {self.table}, rows [{self.start:,} … {self.stop:,}), {self.rows:,} to look at"]
        if self.dead_rows:
            lines.append(f"  deleted  {count(self.dead_rows, 'row')} of them, left out")
        if self.filter:
            lines.append(f"  where    {self.filter}")
        width = max((len(column.name) for column in self.columns), default=0)
        lines += [
            f"  {'test' if column.tested else 'read'}     {column.name:<{width}}"
            f"  {count(column.pages, 'page'):>15}  {column.skipped:>9,} skipped"
            f"  {column.stored_bytes:>15,} bytes"
            for column in self.columns
        ]
        most = "at most " if any(not column.tested for column in self.columns) and self.filter else ""
        lines += [
            f"  pages    {self.pages:,} in {count(self.runs, 'run')}, {count(self.windows, 'window')}",
            f"  caches   {self.decoded_hits:,} decoded, {self.compressed_hits:,} compressed",
            f"  storage  {most}{count(self.requests, 'request')}, {self.bytes:,} bytes",
        ]
        if self.bloom_hits or self.bloom_requests:
            lines.append(f"  blooms   {self._blooms}")
        return escape_controls("\n".join(lines))

    @property
    def _deleted(self) -> str:
        return f", {self.dead_rows:,} of them deleted" if self.dead_rows else ""

    @property
    def _blooms(self) -> str:
        read = f"{count(self.bloom_requests, 'request')}, {self.bloom_bytes:,} bytes"
        return f"{self.bloom_hits:,} in memory, others in {read}"

    def _repr_html_(self) -> str:
        rows = [
            [each.name, "test" if each.tested else "read", each.pages, each.skipped, size(each.stored_bytes)]
            for each in self.columns
        ]
        most = "at most " if self.filter and any(not column.tested for column in self.columns) else ""
        heading = joined(
            "scan of ",
            tag("b", self.table),
            f", rows [{self.start:,} … {self.stop:,})",
            joined(" where ", tag("code", shorten(self.filter, 400))) if self.filter else "",
        )
        told = (
            f"{self.rows:,} rows to look at{self._deleted} · "
            f"{most}{count(self.requests, 'request')}, {size(self.bytes)} · "
            f"{self.decoded_hits + self.compressed_hits:,} of {count(self.pages, 'page')} in memory"
        )
        if self.bloom_hits or self.bloom_requests:
            told += f" · bloom filters: {self._blooms}"
        heads = ["column", "", "pages", "skipped", "bytes"]
        return card(heading, told, html_table(heads, rows, right=["bytes"]))


def explain_scan(source: RowReader, table: str, request: ScanRequest, filter_text: str) -> ScanPlan:
    """Explain what a scan would read, without reading pages.

    Notes
    -----
    Loads the segments of the rows asked for, and with a filter their statistics. Goes through the windows as
    the scan would: about 3 ms for each.
    """
    tested = tested_columns(source, request)
    names = needed_columns(source, request)
    rest = [name for name in names if name not in tested]
    pages = dict.fromkeys(names, 0)
    stored = dict.fromkeys(names, 0)
    last = dict.fromkeys(names, -1)
    told: list[CacheStats] = []
    windows = rows = runs = dead = 0
    blooms = ReadTrace()
    for ranges in windows_of(source, request, blooms):
        windows += 1
        rows += ranges.num_rows
        live = source.live(ranges)
        dead += 0 if live is None else int(np.count_nonzero(~live))
        for group in (tested, rest) if request.parsed else (names,):
            new = {name: _new_pages(source, name, ranges, last, windows > 1) for name in group}
            cut = {name: run for name, (run, _) in new.items() if run.num_pages}
            if not cut:
                continue
            for name, run in cut.items():
                pages[name] += run.num_pages
                stored[name] += int(run.numbers("actual_len").sum())
            runs += _runs(PageRun.concat(list(cut.values())))
            if request.parsed and group is rest:  # which of them hold a row that passes is not known yet
                told += [source.pages.estimate_reads(run, some=True) for run in cut.values()]
                continue
            shares = [(run.slice(0, apart), run.slice(apart, run.num_pages)) for run, apart in new.values()]
            for share in zip(*shares, strict=True):  # the scan asks twice, see `RowReader.slices`
                some = [run for run in share if run.num_pages]
                told += [source.pages.estimate_reads(PageRun.concat(some))] if some else []
    columns = tuple(
        ColumnPlan(
            name, name in tested, pages[name], _touched(source, name, request) - pages[name], stored[name]
        )
        for name in names
    )
    return ScanPlan(
        table=table,
        start=request.start,
        stop=request.stop,
        rows=rows,
        filter=filter_text,
        columns=columns,
        windows=windows,
        runs=runs,
        requests=sum(each.requests for each in told),
        bytes=sum(each.bytes_read for each in told),
        decoded_hits=sum(each.decoded_hits for each in told),
        compressed_hits=sum(each.compressed_hits for each in told),
        bloom_hits=blooms.bloom_hits,
        bloom_requests=blooms.bloom_requests,
        bloom_bytes=blooms.bloom_bytes,
        dead_rows=dead,
    )


def _new_pages(
    source: RowReader, name: str, ranges: RowRanges, last: dict[str, int], later: bool
) -> tuple[PageRun, int]:
    """Return the pages of a window, except one that the previous window has read.

    And how many at the beginning the scan asks for apart: one that a `later` window begins in the middle of
    could have been read by the window before, which is only known once that is done.
    """
    starts, ends = ranges.starts.astype(np.uint64), ranges.ends.astype(np.uint64)
    cut = source.directory.chain(name).select(starts, ends)
    ids = cut.run.page_ids
    before = np.concatenate([[last[name]], ids])[:-1]
    apart = later and len(ids) > 0 and int(cut.starts[0]) > 0 and last[name] != int(ids[0])
    if len(ids):
        last[name] = int(ids[-1])
    return cut.run.take(np.flatnonzero(before != ids)), int(apart)


def _touched(source: RowReader, name: str, request: ScanRequest) -> int:
    """Pages that hold some of the rows asked for."""
    bounds: Sequence[int] = (request.start, request.stop)
    if bounds[0] == bounds[1]:
        return 0
    parts = source.directory.chain(name).runs(*bounds)
    return sum(int(np.count_nonzero(part.run.numbers("entry_count"))) for part in parts)


def _runs(run: PageRun) -> int:
    """How many stretches of neighbours the pages make."""
    in_file = np.flatnonzero(run.numbers("kind") == 0)
    places = sorted(
        zip(
            np.array(run.paths())[in_file].tolist(),
            run.numbers("offset")[in_file].tolist(),
            run.numbers("alloc_len")[in_file].tolist(),
            strict=True,
        )
    )
    return sum(
        1
        for index, (path, offset, _) in enumerate(places)
        if not index or places[index - 1][0] != path or places[index - 1][1] + places[index - 1][2] != offset
    )
