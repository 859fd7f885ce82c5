"""The data source ``spark_pages``: tables of a store as Spark sees them, read by Arrow batches.

Follow a read from `SparkPagesDataSource.reader`, which pins a version, over `RowsReader.partitions`, which
cuts the rows and gives every task the descriptors of its own pages, to `RowsReader.read` in a worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from spark_pages.errors import InvalidInputError
from spark_pages.model.chain import ColumnChain, LazyRun, Piece
from spark_pages.model.run import PAGE_SCHEMA, PageRun
from spark_pages.model.table import TableDefinition
from spark_pages.spark.shipping import even_groups, pack_run, pages_of, store_url, unpack_run
from spark_pages.tables.directory import PageDirectory
from spark_pages.tables.history import history_table
from spark_pages.tables.row_ranges import RowRanges, intersection
from spark_pages.tables.snapshot import Snapshot
from spark_pages.tables.store import Store
from spark_pages.tables.store import open as open_store
from spark_pages.tables.table import Table

PARTITION_BYTES = 64 << 20
"""Stored bytes that one task reads, about."""

MIN_PARTITIONS = 4
"""A table of more pages than this is cut at least into so many tasks."""

_PAGES_SCHEMA = pa.schema(
    [
        ("table", pa.string()),
        ("column", pa.string()),
        ("position", pa.int64()),
        ("first_row", pa.int64()),
        *((f.name, pa.string() if f.name == "path" else f.type) for f in PAGE_SCHEMA if f.name != "data"),
        ("null_count", pa.int64()),
    ]
)
_TABLES_SCHEMA = pa.schema(
    [
        ("table", pa.string()),
        ("table_id", pa.int64()),
        ("num_rows", pa.int64()),
        ("num_columns", pa.int32()),
        ("num_pages", pa.int64()),
    ]
)


class SparkPagesDataSource(DataSource):
    """``spark.read.format("spark_pages")``.

    Notes
    -----
    The path is the address of the store. Options: ``view`` (``rows``, the default; ``pages``, ``history``,
    ``tables``), ``table``, ``versionAsOf``, ``timestampAsOf`` (ISO 8601), ``tag``, ``columns`` (names
    parted by commas: Spark does not tell a Python source which columns it needs), ``partitions``.
    Credentials come from the environment of driver and executors, never from options.
    """

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "spark_pages"

    def schema(self) -> StructType:
        """Columns of the view, in Spark's types."""
        if self._view != "rows":
            return from_arrow_schema(spark_schema(_VIEWS[self._view][0]))
        table = self._snapshot().table(self._table())
        return from_arrow_schema(
            spark_schema(pa.schema([table.schema.field(c) for c in self._columns(table)]))
        )

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the version that is current now, or of the one asked for."""
        snapshot = self._snapshot()
        if self._view == "rows":
            table = snapshot.table(self._table())
            return RowsReader(self._url, table, schema, int(self.options.get("partitions", 0)))
        return ViewReader(self._url, self._view, snapshot.version, self.options.get("table"), schema)

    @property
    def _url(self) -> str:
        url = self.options.get("path")
        if not url:
            raise InvalidInputError("No store was named.", hint="Pass its address to load(...).")
        return store_url(url)

    @property
    def _view(self) -> str:
        view = str(self.options.get("view", "rows")).lower()
        if view != "rows" and view not in _VIEWS:
            raise InvalidInputError(f"{view!r} is not a view: expected rows, {', '.join(_VIEWS)}.")
        return view

    def _snapshot(self) -> Snapshot:
        version = self.options.get("versionasof")
        if version is not None and not version.strip().isdigit():
            raise InvalidInputError(f"versionAsOf is {version!r}: expected a version, such as 7.")
        return open_store(self._url).snapshot(
            version=None if version is None else int(version),
            timestamp=self.options.get("timestampasof"),
            tag=self.options.get("tag"),
        )

    def _table(self) -> str:
        table = self.options.get("table")
        if not table:
            raise InvalidInputError(
                "The view 'rows' needs a table.", hint='Name it with .option("table", "…").'
            )
        return str(table)

    def _columns(self, table: Table) -> list[str]:
        given = self.options.get("columns")
        if not given:
            return table.columns
        names = [name.strip() for name in given.split(",") if name.strip()]
        return list(table.read(columns=names, start=0, stop=0).column_names)


# types


def spark_schema(schema: pa.Schema) -> pa.Schema:
    """The schema with types that Spark knows, none of which holds fewer values but for nanoseconds."""
    return pa.schema([pa.field(f.name, _spark_type(f.type), f.nullable) for f in schema])


_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.time32("s"): pa.time64("us"),
    pa.time32("ms"): pa.time64("us"),
    pa.null(): pa.string(),
}


def _spark_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _spark_type(kind.value_type)
    return _WIDER.get(kind, kind)


def _to_spark(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch in exactly the types that Spark expects."""
    columns = [
        column
        if column.type == field.type
        else column.cast(_spark_type(column.type)).cast(field.type, safe=False)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


# rows


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


class RowsReader(DataSourceReader):
    """Reads rows of a table at a pinned version.

    Parameters
    ----------
    url, table, schema
        The store, the table at the version to read, and the columns in Spark's types.
    partitions
        Tasks wanted; 0 leaves it to the size.
    """

    def __init__(self, url: str, table: Table, schema: StructType, partitions: int = 0) -> None:
        self._url = url
        self._definition: TableDefinition = table.definition
        self._names: list[str] = list(schema.names)
        self._schema = schema
        self._wanted = partitions
        self._filter: list[tuple[str, str, Any]] = []
        self._table: Table | None = table

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_table": None}  # tasks get descriptors, never the snapshot

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Remembers what statistics can use; Spark still tests every row itself."""
        for each in filters:
            condition = condition_of(each, self._definition.bare_schema)
            if condition is not None:
                self._filter.append(condition)
            yield each

    def partitions(self) -> Sequence[InputPartition]:
        """The rows that statistics cannot rule out, cut at pages of the column that has most of them."""
        table = self._table
        assert table is not None, "Spark plans where it has made the reader"
        rows = table.candidate_rows([*self._filter]) if self._filter else RowRanges.of(0, table.num_rows)
        runs = {name: table.directory.chain(name).all_pages() for name in self._names}
        cells = _cells(rows, list(runs.values()))
        groups = self._wanted or self._group_count(rows, list(runs.values()), table.num_rows)
        sizes = cells.ends - cells.starts
        parts: list[InputPartition] = []
        for start, stop in even_groups(sizes, groups):
            bounds = np.append(cells.starts[start:stop], cells.ends[stop - 1])
            chosen = intersection([RowRanges.of(int(bounds[0]), int(bounds[-1])), rows])
            parts.append(_rows_partition(chosen, list(runs.values())))
        return parts or [RowsPartition((), ())]

    @staticmethod
    def _group_count(rows: RowRanges, runs: list[PageRun], num_rows: int) -> int:
        stored = sum(int(run.numbers("actual_len").astype(np.int64).sum()) for run in runs)
        share = rows.num_rows / max(num_rows, 1)
        return max(MIN_PARTITIONS, int(stored * share / PARTITION_BYTES) + 1)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task as Arrow batches."""
        if not isinstance(partition, RowsPartition) or not partition.ranges:
            return
        chains = {name: _chain(runs) for name, runs in zip(self._names, partition.columns, strict=True)}
        table = Table(self._definition, _GivenChains(self._definition, chains), pages_of(self._url))
        target = to_arrow_schema(self._schema, timezone="UTC")
        for start, stop in partition.ranges:
            for batch in table.scan(self._names, start, stop):
                yield _to_spark(batch, target)


def _cells(rows: RowRanges, runs: list[PageRun]) -> RowRanges:
    """The rows cut where pages of the widest column end; neighbouring cells are kept apart."""
    widest = max(runs, key=lambda run: run.num_pages)
    bounds = np.unique(np.concatenate([widest.prefix_entries.astype(np.int64), rows.starts, rows.ends]))
    keep = rows.covers(bounds[:-1])
    return RowRanges(bounds[:-1][keep], bounds[1:][keep])


def _rows_partition(rows: RowRanges, runs: list[PageRun]) -> RowsPartition:
    ranges = tuple(zip(rows.starts.tolist(), rows.ends.tolist(), strict=True))
    return RowsPartition(ranges, tuple(tuple(_covering(run, rows)) for run in runs))


def _covering(run: PageRun, rows: RowRanges) -> Iterator[tuple[int, bytes]]:
    """The pages that hold some of the rows, as runs without gaps, each with its first row."""
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
    """A chain in which rows keep their numbers: gaps are promises that no one asks for."""
    pieces: list[Piece] = []
    row = 0
    for first_row, packed in runs:
        if first_row > row:
            pieces.append(LazyRun(0, first_row - row, _not_shipped))
        run = unpack_run(packed)
        pieces.append(run)
        row = first_row + run.num_rows
    return ColumnChain(pieces)


def _not_shipped() -> NoReturn:
    raise AssertionError("a task asked for pages that it was not given")


class _GivenChains(PageDirectory):
    """The directory of a task: the chains that came with its partition."""

    def __init__(self, definition: TableDefinition, chains: dict[str, ColumnChain]) -> None:
        self._definition = definition
        self._chains = chains


# filters


_OPERATORS: dict[type[Filter], str] = {
    EqualTo: "==",
    EqualNullSafe: "==",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
    In: "in",
}


def condition_of(given: Filter, schema: pa.Schema) -> tuple[str, str, Any] | None:
    """The filter as a condition that statistics understand, or None where it may not skip pages.

    Notes
    -----
    Only for columns that Spark sees in their own type: a nanosecond cut off would change the answer.
    """
    negated = isinstance(given, Not)
    inner: Any = given.child if isinstance(given, Not) else given
    path: tuple[str, ...] = getattr(inner, "attribute", ())
    if len(path) != 1 or path[0] not in schema.names:
        return None
    column, kind = path[0], schema.field(path[0]).type
    if isinstance(inner, IsNull | IsNotNull):
        absent = isinstance(inner, IsNull) != negated
        return (column, "is null" if absent else "is not null", None)
    operator = _OPERATORS.get(type(inner))
    if negated or operator is None or not _comparable(kind):
        return None
    values = list(inner.value) if operator == "in" else [inner.value]
    if not all(_fits(value, kind) for value in values):
        return None
    return (column, operator, values if operator == "in" else inner.value)


def _comparable(kind: pa.DataType) -> bool:
    if pa.types.is_timestamp(kind):
        return bool(kind.unit in ("s", "ms", "us"))
    return bool(_spark_type(kind) == kind and not pa.types.is_nested(kind))


def _fits(value: Any, kind: pa.DataType) -> bool:
    if value is None:
        return False
    if pa.types.is_timestamp(kind):
        return isinstance(value, datetime) and (value.tzinfo is None) == (kind.tz is None)
    return True


# the other views


@dataclass(frozen=True)
class ViewPartition(InputPartition):
    """A view of metadata is one task; `table` is None where the view shows several."""

    table: str | None


class ViewReader(DataSourceReader):
    """Reads a view of metadata at a pinned version: one task for each table."""

    def __init__(self, url: str, view: str, version: int, table: str | None, schema: StructType) -> None:
        self._url = url
        self._view = view
        self._version = version
        self._table = table
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """One task, or for pages one for each table."""
        if self._view != "pages" or self._table:
            return [ViewPartition(self._table)]
        names = open_store(self._url).snapshot(self._version).tables()
        return [ViewPartition(name) for name in names]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of the view."""
        if not isinstance(partition, ViewPartition):
            return
        store = open_store(self._url)
        schema, show = _VIEWS[self._view]
        target = to_arrow_schema(self._schema, timezone="UTC")
        shown = show(store, store.snapshot(self._version), partition.table)
        for batch in shown.select(schema.names).cast(schema).to_batches():
            yield _to_spark(batch.select(target.names), target)


def _show_pages(_: Store, snapshot: Snapshot, table: str | None) -> pa.Table:
    names = [table] if table else snapshot.tables()
    shown = []
    for name in names:
        pages = snapshot.table(name).pages()
        shown.append(pages.add_column(0, "table", pa.repeat(pa.scalar(name), pages.num_rows)))
    return pa.concat_tables(shown)


def _show_history(store: Store, snapshot: Snapshot, _: str | None) -> pa.Table:
    history = store.history()
    return history.filter(pc.less_equal(history.column("version"), snapshot.version))


def _show_tables(_: Store, snapshot: Snapshot, table: str | None) -> pa.Table:
    tables = [snapshot.table(name) for name in ([table] if table else snapshot.tables())]
    rows = [
        {
            "table": each.name,
            "table_id": each.definition.table_id,
            "num_rows": each.num_rows,
            "num_columns": len(each.columns),
            "num_pages": sum(each.directory.chain(column).num_pages for column in each.columns),
        }
        for each in tables
    ]
    return pa.Table.from_pylist(rows, schema=_TABLES_SCHEMA)


_VIEWS: dict[str, tuple[pa.Schema, Callable[[Store, Snapshot, str | None], pa.Table]]] = {
    "pages": (_PAGES_SCHEMA, _show_pages),
    "history": (history_table(()).schema, _show_history),
    "tables": (_TABLES_SCHEMA, _show_tables),
}
