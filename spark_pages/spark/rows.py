"""The view ``rows``: rows of a table, each task with the descriptors of its own pages.

Follow a read from `RowsReader.partitions`, which cuts the rows and packs descriptors, to `RowsReader.read`,
which a worker runs: it makes chains of the descriptors that it was given, and reads like any other reader.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from spark_pages.arrow.columns import numbers_of
from spark_pages.catalog.identifiers import PhysicalKey
from spark_pages.model.chain import ColumnChain
from spark_pages.model.chain_tree import Piece, UnloadedRun
from spark_pages.model.row_ranges import RowRanges, intersection
from spark_pages.model.run import PageRun
from spark_pages.model.table import TableDefinition
from spark_pages.query.directory import PageDirectory
from spark_pages.query.live_rows import MARK, marks_of
from spark_pages.query.table import Table
from spark_pages.spark.arrow_types import to_spark
from spark_pages.spark.serialization import even_groups, pack_run, pages_of, unpack_run
from spark_pages.spark.worker_boundary import worker_boundary

PARTITION_BYTES = 128 << 20
"""Stored bytes that one task reads, about: as many as Spark gives a task of Parquet."""

MIN_PARTITIONS = 4
"""A table of more pages than this is cut at least into so many tasks."""


@dataclass(frozen=True)
class RowsPartition(InputPartition):
    """The rows of one task, and the descriptors of the pages that hold them.

    Attributes
    ----------
    ranges
        Rows [start, stop).
    columns
        For each column the first row of each run of pages, and the run as Arrow bytes.
    """

    ranges: tuple[tuple[int, int], ...]
    columns: tuple[tuple[tuple[int, bytes], ...], ...]


@worker_boundary
class RowsReader(DataSourceReader):
    """Reads rows of a table at a pinned version.

    Spark 4.2 asks for the filters of one plan, and keeps the tasks that come of them for all plans of a
    ``load``, also for those with another filter or none, and the source is not told. So there is no
    `pushFilters`: which rows are wanted is said to the ``load``.

    Parameters
    ----------
    url, table, schema
        The store, the table at the version to read, and the columns in Spark's types.
    partitions
        Tasks wanted; 0 leaves it to the size.
    rows
        A condition on the rows as SQL text, by the names of the table; None for all rows.
    numbered
        Whether the last column of the schema holds row numbers.
    """

    def __init__(
        self,
        url: str,
        table: Table,
        schema: StructType,
        partitions: int = 0,
        rows: str | None = None,
        numbered: bool = False,
    ) -> None:
        self._numbered = numbered
        self._url = url
        self._definition: TableDefinition = table.definition
        self._names: list[str] = list(schema.names[:-1] if numbered else schema.names)
        self._schema = schema
        self._wanted = partitions
        self._rows = rows
        self._read = list(dict.fromkeys([*self._names, *table.filter_columns(rows)]))
        self._keys = [table.directory.key(name) for name in self._read]
        if table.marks is not None:  # last: the liveness chain, which tells tasks which rows are dead
            self._keys.append(table.marks.directory.key(MARK))
        self._table: Table | None = table

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_table": None}  # tasks get descriptors, never the snapshot

    def partitions(self) -> Sequence[InputPartition]:
        """Split the rows that statistics and bloom filters do not prune.

        Splits follow the pages of the column with the most of them.
        """
        table = self._table
        assert table is not None, "Spark plans where it has made the reader"
        rows = RowRanges.of(0, table.end_row)
        if self._rows is not None:
            rows = intersection([rows, table.rows_to_read(self._rows)])
        runs = [table.directory.chain_of(key).all_pages() for key in self._keys]
        cells = _cells(rows, runs[: len(self._read)])
        weights = _stored_bytes(cells, runs)
        groups = self._wanted or max(MIN_PARTITIONS, int(weights.sum()) // PARTITION_BYTES + 1)
        parts: list[InputPartition] = []
        for start, stop in even_groups(weights, groups):
            bounds = np.append(cells.starts[start:stop], cells.ends[stop - 1])
            chosen = intersection([RowRanges.of(int(bounds[0]), int(bounds[-1])), rows])
            parts.append(_rows_partition(chosen, runs))
        return parts or [RowsPartition((), ())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of one task as Arrow batches."""
        if not isinstance(partition, RowsPartition) or not partition.ranges:
            return
        if not gc.get_freeze_count():  # once: what was imported stays, and looking through it took a tenth
            gc.freeze()
        chains = {key: _chain(runs) for key, runs in zip(self._keys, partition.columns, strict=True)}
        fields = [self._definition.schema.field(name) for name in self._read]
        # A table tells its rows by its first column, which the task may not have been given.
        definition = replace(self._definition, schema=pa.schema(fields))
        pages = pages_of(self._url)
        table = Table(definition, _ShippedChains(definition, chains), pages)
        target = to_arrow_schema(self._schema, timezone="UTC")
        # Spark runs a task for each processor, and its JVM makes rows of what is sent while this goes on. So
        # only a remote store, which is waited for, is read by threads.
        prefetch = not pages.is_local
        for start, stop in partition.ranges:
            for batch in table.scan(
                self._names, start, stop, self._rows, row_numbers=self._numbered, prefetch=prefetch
            ):
                yield to_spark(batch, target)


def may_be_null(table: Table, column: str) -> bool:
    """Whether the version has a null in a column, as far as statistics of its pages tell.

    Notes
    -----
    Loads the segments of the column with their statistics, up to a page that may hold a null. Less than a
    second for a million pages.
    """
    for part in table.directory.chain(column).runs(0, table.end_row):
        nulls = part.run.stats.column("null_count")
        if nulls.null_count or numbers_of(nulls).any():
            return True
    return False


def _cells(rows: RowRanges, runs: list[PageRun]) -> RowRanges:
    """Split rows at the pages of the widest column, without joining neighbours."""
    widest = max(runs, key=lambda run: run.num_pages)
    bounds = np.unique(np.concatenate([widest.prefix_entries.astype(np.int64), rows.starts, rows.ends]))
    keep = rows.covers(bounds[:-1])
    return RowRanges(bounds[:-1][keep], bounds[1:][keep])


def _stored_bytes(cells: RowRanges, runs: Sequence[PageRun]) -> NDArray[np.int64]:
    """Estimate the stored bytes of each cell over all columns.

    Rows of a page count alike, and a row for at least one byte.
    """
    stored = (cells.ends - cells.starts).astype(np.float64)
    for run in runs:
        rows = np.append(0, run.prefix_entries.astype(np.int64))
        so_far = np.append(0, np.cumsum(run.numbers("actual_len").astype(np.int64)))
        stored += np.interp(cells.ends, rows, so_far) - np.interp(cells.starts, rows, so_far)
    return stored.astype(np.int64)


def _rows_partition(rows: RowRanges, runs: list[PageRun]) -> RowsPartition:
    ranges = tuple(zip(rows.starts.tolist(), rows.ends.tolist(), strict=True))
    return RowsPartition(ranges, tuple(tuple(_covering(run, rows)) for run in runs))


def _covering(run: PageRun, rows: RowRanges) -> Iterator[tuple[int, bytes]]:
    """Iterate over the pages that hold some of the rows, as runs without gaps, with their first rows."""
    ends = run.prefix_entries.astype(np.int64)
    starts = ends - run.numbers("entry_count")
    first = np.searchsorted(ends, rows.starts, side="right")
    last = np.searchsorted(starts, rows.ends, side="left")
    needed = np.zeros(run.num_pages + 2, dtype=np.int64)
    np.add.at(needed, first + 1, 1)
    np.add.at(needed, last + 1, -1)
    edges = np.flatnonzero(np.diff((np.cumsum(needed) > 0).astype(np.int8)))
    for low, high in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        yield int(starts[low]), pack_run(run.slice(low, high))


def _chain(runs: Sequence[tuple[int, bytes]]) -> ColumnChain:
    """Create a chain that keeps row numbers: gaps are unloaded runs that are never read."""
    pieces: list[Piece] = []
    row = 0
    for first_row, packed in runs:
        if first_row > row:
            pieces.append(UnloadedRun(0, first_row - row, _not_shipped))
        run = unpack_run(packed)
        pieces.append(run)
        row = first_row + run.num_rows
    return ColumnChain(pieces)


def _not_shipped() -> NoReturn:
    raise AssertionError("a task asked for pages that it was not given")


class _ShippedChains(PageDirectory):
    """The directory of a task: the chains that came with its partition."""

    def __init__(self, definition: TableDefinition, chains: dict[PhysicalKey, ColumnChain]) -> None:
        self.definition = definition
        self._given = chains
        self._chains = {}
        self._may_have_dead_rows = False

    def marks(self) -> PageDirectory | None:
        """See `PageDirectory.marks`."""
        marks = marks_of(self.definition)
        directory = _ShippedChains(marks, self._given)
        return directory if directory.key(MARK) in self._given else None

    def chain_of(self, key: PhysicalKey) -> ColumnChain:
        """Return the chain of a key."""
        return self._given[key]

    def check_lengths(self, columns: Iterable[str]) -> None:
        """Nothing: a task has a part of each column, which ends where its own pages do."""
