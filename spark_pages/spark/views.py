"""Define the metadata views: the rows of each, and its split into tasks; begin at `ViewReader.partitions`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from spark_pages.changes.feed import find_table_id
from spark_pages.changes.history import HISTORY_SCHEMA, history_of
from spark_pages.format.names import segment_key
from spark_pages.log.log import Log
from spark_pages.log.retention import oldest_readable
from spark_pages.model.page_schema import PAGE_SCHEMA
from spark_pages.query.page_table import page_table
from spark_pages.query.snapshot import Snapshot
from spark_pages.query.table import Table
from spark_pages.runtime import Runtime
from spark_pages.spark.arrow_types import spark_type, to_spark
from spark_pages.spark.feed import (
    FEED_SCHEMAS,
    VERSIONS_OF_A_TASK,
    Feed,
    check_granularity,
    split_versions,
    version_range,
)
from spark_pages.spark.options import ViewQuery
from spark_pages.spark.serialization import even_groups, objects_of, store_of
from spark_pages.spark.value_feed import ChangedRows
from spark_pages.spark.worker_boundary import worker_boundary

PAGES_OF_A_TASK = 100_000


@dataclass(frozen=True)
class ViewPartition(InputPartition):
    """What one task shows.

    Attributes
    ----------
    stretches
        Pages of columns.
    versions
        First and last version, both included.
    feed
        What reads them, for ``changes``.
    """

    stretches: tuple[PageSplit, ...] = ()
    versions: tuple[int, int] = (0, 0)
    feed: Feed | ChangedRows | None = None


@dataclass(frozen=True, eq=False, slots=True)
class View:
    """A view of metadata.

    Attributes
    ----------
    schema
        Its columns, in Arrow's types, for a query.
    cut
        Its tasks.
    show
        The rows of one task.
    """

    schema: Callable[[ViewQuery], pa.Schema]
    cut: Callable[[str, ViewQuery], Sequence[ViewPartition]]
    show: Callable[[str, ViewQuery, ViewPartition], pa.Table]


@worker_boundary
class ViewReader(DataSourceReader):
    """Reads a view of metadata at a pinned version.

    Parameters
    ----------
    url, query, schema
        The store, what is asked for, and the columns in Spark's types.
    """

    def __init__(self, url: str, query: ViewQuery, schema: StructType) -> None:
        self._url = url
        self._query = query
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """One task for so many chains or versions."""
        return list(VIEWS[self._query.view].cut(self._url, self._query))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of one task."""
        if not isinstance(partition, ViewPartition):
            return
        view = VIEWS[self._query.view]
        schema = view.schema(self._query)
        target = to_arrow_schema(self._schema, timezone="UTC")
        shown = view.show(self._url, self._query, partition)
        for batch in shown.select(schema.names).cast(schema).to_batches():
            yield to_spark(batch.select(target.names), target)


# cutting


def _one_task(_: str, __: ViewQuery) -> Sequence[ViewPartition]:
    return [ViewPartition()]


def _by_chain(url: str, query: ViewQuery) -> Sequence[ViewPartition]:
    snapshot = store_of(url).snapshot(query.version)
    return _even_tasks(
        [
            PageSplit(table.name, column, 0, table.directory.chain(column).num_pages)
            for table in map(snapshot.table, _tables(snapshot, query))
            for column in table.columns
        ]
    )


def _by_page(url: str, query: ViewQuery) -> Sequence[ViewPartition]:
    snapshot = store_of(url).snapshot(query.version)
    return _even_tasks(list(split_pages(snapshot, _tables(snapshot, query), PAGES_OF_A_TASK)))


def _even_tasks(stretches: Sequence[PageSplit]) -> Sequence[ViewPartition]:
    weights = np.array([each.stop - each.start for each in stretches], dtype=np.int64)
    groups = even_groups(weights, int(weights.sum()) // PAGES_OF_A_TASK + 1)
    return [ViewPartition(tuple(stretches[start:stop])) for start, stop in groups]


def _by_version(url: str, query: ViewQuery) -> Sequence[ViewPartition]:
    oldest = oldest_readable(store_of(url).snapshot().log.state)
    stretches = split_versions(oldest, query.version, 4 * VERSIONS_OF_A_TASK)
    return [ViewPartition(versions=stretch) for stretch in stretches]


def _by_change(url: str, query: ViewQuery) -> Sequence[ViewPartition]:
    store = store_of(url)
    start, end = version_range(store.snapshot(query.version).log, query.starting, query.ending)
    table_id: int | None = None
    if query.table is not None:
        then = store.snapshot(start - 1).log if start else None
        table_id = find_table_id(store.snapshot(end).log, then, query.table)
    feed = Feed(url, check_granularity(query.granularity), table_id)
    return [ViewPartition(versions=each, feed=feed) for each in split_versions(start, end)]


def _tables(snapshot: Snapshot, query: ViewQuery) -> list[str]:
    return [query.table] if query.table else snapshot.tables()


# showing


def _shown_type(field: pa.Field) -> pa.DataType:
    """Return the type of a column of page descriptors in the views, where kinds are text."""
    return pa.string() if field.name == "kind" else spark_type(field.type)


_TABLES_SCHEMA = pa.schema(
    [
        ("table", pa.string()),
        ("table_id", pa.int64()),
        ("num_rows", pa.int64()),
        ("num_columns", pa.int32()),
        ("num_pages", pa.int64()),
    ]
)
_COLUMNS_SCHEMA = pa.schema(
    [
        ("table", pa.string()),
        ("column", pa.string()),
        ("table_id", pa.int64()),
        ("field_id", pa.int32()),
        ("position", pa.int32()),
        ("type", pa.string()),
        ("nullable", pa.bool_()),
    ]
)
_CHAINS_SCHEMA = pa.schema(
    [
        ("table", pa.string()),
        ("column", pa.string()),
        ("table_id", pa.int64()),
        ("field_id", pa.int32()),
        ("num_pages", pa.int64()),
        ("num_rows", pa.int64()),
        ("size_bytes", pa.int64()),
        ("num_files", pa.int64()),
        ("smallest_page_rows", pa.int64()),
        ("largest_page_rows", pa.int64()),
    ]
)
_SEGMENTS_SCHEMA = pa.schema(
    [
        ("checkpoint", pa.int64()),
        ("level", pa.int32()),
        ("part", pa.string()),
        ("key", pa.string()),
        ("first_table_id", pa.int64()),
        ("first_field_id", pa.int32()),
        ("last_table_id", pa.int64()),
        ("last_field_id", pa.int32()),
        ("num_pages", pa.int64()),
        ("size_bytes", pa.int64()),
        ("stats_bytes", pa.int64()),
    ]
)
_PAGES_SCHEMA = pa.schema(
    [
        ("table", pa.string()),
        ("column", pa.string()),
        ("page_position", pa.int64()),
        ("first_row", pa.int64()),
        *((f.name, _shown_type(f)) for f in PAGE_SCHEMA if f.name != "data"),
        ("null_count", pa.int64()),
    ]
)


def _show_pages(url: str, query: ViewQuery, part: ViewPartition) -> pa.Table:
    snapshot = store_of(url).snapshot(query.version)
    parts = [_PAGES_SCHEMA.empty_table()]
    for each in part.stretches:
        found = snapshot.table(each.table).directory.pages_from(each.column, each.start, each.stop)
        pages = page_table(each.column, found, each.start)
        pages = pages.add_column(0, "table", pa.repeat(pa.scalar(each.table), pages.num_rows))
        parts.append(pages.select(_PAGES_SCHEMA.names).cast(_PAGES_SCHEMA))
    return pa.concat_tables(parts)


def _show_history(url: str, _: ViewQuery, part: ViewPartition) -> pa.Table:
    start, end = part.versions
    return history_of(Log(objects_of(url), Runtime()), start, end)


def _show_tables(url: str, query: ViewQuery, _: ViewPartition) -> pa.Table:
    snapshot = store_of(url).snapshot(query.version)
    rows = [
        {
            "table": each.name,
            "table_id": each.definition.table_id,
            "num_rows": each.num_rows,
            "num_columns": len(each.columns),
            "num_pages": sum(each.directory.chain(column).num_pages for column in each.columns),
        }
        for each in map(snapshot.table, _tables(snapshot, query))
    ]
    return pa.Table.from_pylist(rows, schema=_TABLES_SCHEMA)


def _show_columns(url: str, query: ViewQuery, _: ViewPartition) -> pa.Table:
    snapshot = store_of(url).snapshot(query.version)
    rows = [
        {
            "table": table.name,
            "column": column.name,
            "table_id": table.definition.table_id,
            "field_id": table.definition.field_ids[column.name],
            "position": position,
            "type": str(column.type),
            "nullable": column.nullable,
        }
        for table in map(snapshot.table, _tables(snapshot, query))
        for position, column in enumerate(table.schema)
    ]
    return pa.Table.from_pylist(rows, schema=_COLUMNS_SCHEMA)


def _show_chains(url: str, query: ViewQuery, part: ViewPartition) -> pa.Table:
    snapshot = store_of(url).snapshot(query.version)
    rows = [_chain_row(snapshot.table(each.table), each.column) for each in part.stretches]
    return pa.Table.from_pylist(rows, schema=_CHAINS_SCHEMA)


def _chain_row(table: Table, column: str) -> dict[str, object]:
    """Return the view's row of one column; its pages are read piece by piece."""
    chain = table.directory.chain(column)
    stored_bytes = 0
    paths: set[str] = set()
    sizes: list[int] = []
    for start in range(0, chain.num_pages, PAGES_OF_A_TASK):
        stop = min(start + PAGES_OF_A_TASK, chain.num_pages)
        run = table.directory.pages_from(column, start, stop).run
        entries = run.numbers("entry_count")
        stored_bytes += int(run.numbers("actual_len").astype(np.int64).sum())
        paths.update(run.pages.column("path").drop_null().unique().to_pylist())
        sizes += [int(entries.min()), int(entries.max())]
    return {
        "table": table.name,
        "column": column,
        "table_id": table.definition.table_id,
        "field_id": table.definition.field_ids[column],
        "num_pages": chain.num_pages,
        "num_rows": chain.num_rows,
        "size_bytes": stored_bytes,
        "num_files": len(paths),
        "smallest_page_rows": min(sizes, default=None),
        "largest_page_rows": max(sizes, default=None),
    }


def _show_segments(url: str, query: ViewQuery, _: ViewPartition) -> pa.Table:
    checkpoint = store_of(url).snapshot(query.version).log.checkpoint
    if checkpoint is None:
        return _SEGMENTS_SCHEMA.empty_table()
    rows = [
        {
            "checkpoint": checkpoint.ref.version,
            "level": level,
            "part": part.digest,
            "key": segment_key(node.digest),
            "first_table_id": node.first[0],
            "first_field_id": node.first[1],
            "last_table_id": node.last[0],
            "last_field_id": node.last[1],
            "num_pages": node.pages,
            "size_bytes": node.length,
            "stats_bytes": node.stats_length,
        }
        for level, parts in checkpoint.levels().items()
        for part in parts
        for node in checkpoint.tree.part(part)
    ]
    return pa.Table.from_pylist(rows, schema=_SEGMENTS_SCHEMA)


def _show_changes(_: str, __: ViewQuery, part: ViewPartition) -> pa.Table:
    assert isinstance(part.feed, Feed)
    return part.feed.read(*part.versions)


VIEWS = {
    "pages": View(lambda _: _PAGES_SCHEMA, _by_page, _show_pages),
    "history": View(lambda _: HISTORY_SCHEMA, _by_version, _show_history),
    "tables": View(lambda _: _TABLES_SCHEMA, _one_task, _show_tables),
    "columns": View(lambda _: _COLUMNS_SCHEMA, _one_task, _show_columns),
    "chains": View(lambda _: _CHAINS_SCHEMA, _by_chain, _show_chains),
    "segments": View(lambda _: _SEGMENTS_SCHEMA, _one_task, _show_segments),
    "changes": View(lambda query: FEED_SCHEMAS[query.granularity], _by_change, _show_changes),
}
"""By name."""


@dataclass(frozen=True, slots=True)
class PageSplit:
    """The pages of one column at positions [start, stop)."""

    table: str
    column: str
    start: int
    stop: int


def split_pages(snapshot: Snapshot, tables: Iterable[str], most: int) -> Iterator[PageSplit]:
    """All pages of these tables, in stretches of about even length and of so many pages at most.

    Notes
    -----
    Reads no descriptors: how many pages a chain has is known without them.
    """
    for table in map(snapshot.table, tables):
        for column in table.columns:
            pages = table.directory.chain(column).num_pages
            parts = -(-pages // most)
            bounds = (pages * part // parts for part in range(parts + 1)) if parts else ()
            for start, stop in pairwise(bounds):
                yield PageSplit(table.name, column, start, stop)
