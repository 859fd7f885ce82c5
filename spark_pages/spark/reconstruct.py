"""Snapshot reconstruction by Spark: the descriptors of every page of a version, from checkpoint and commits.

Start at `reconstruct_snapshot`. Two passes, both over names made by the driver, never over a listing.
First executors count and the driver turns the counts into first rows (`fold`); then executors read the
same segments and commits again (`tasks`) and give each page its first row, and removed pages leave by
an anti-join on their ids. No window, no global prefix sum.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from spark_pages.log.checkpoint import Checkpoint
from spark_pages.log.log import Log
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.log.tree import Node
from spark_pages.model.chain import ChainKey
from spark_pages.model.run import LOCATION_COLUMNS, STATS_SCHEMA, PageRun
from spark_pages.runtime import Runtime
from spark_pages.spark.fold import CommitCount, Layout, SegmentCount, fold_counts
from spark_pages.spark.shipping import objects_of, store_url
from spark_pages.spark.tasks import (
    DESCRIPTOR,
    ROWS_SCHEMA,
    CommitRows,
    CountCommits,
    CountSegments,
    SegmentRows,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ORDER = ["table_id", "field_id", "first_row", "has_rows", "place"]
"""Pages without rows stand before the page that begins at the same row; among themselves, by place."""

_COMPARED = ["page_id", *(f.name for f in DESCRIPTOR if f.name not in ("page_id", *LOCATION_COLUMNS))]
_COMMITS_PER_TASK = 64
_SEGMENTS_PER_TASK = 16

Item = TypeVar("Item")


def reconstruct_snapshot(
    spark: SparkSession,
    url: str,
    version: int | None = None,
    output: str | None = None,
    check: bool = True,
    profile: str | None = None,
) -> dict[str, Any]:
    """The page descriptors of every live chain at a version, with their statistics, computed by Spark.

    Parameters
    ----------
    spark, url
        A session, and the store.
    version
        The newest by default.
    output
        A folder that does not exist yet; receives the descriptors as Parquet, in chain order.
    check
        Compare with the local snapshot, descriptor by descriptor, without where a page is.
    profile
        Storage options by name.

    Returns
    -------
    dict
        ``ok``, ``version``, ``checkpoint`` (version it stands on, or None), ``segments``, ``commits``,
        ``chains``, ``pages``, ``equal_to_local`` (None without `check`),
        ``differences`` (the first few chains that differ), ``output``, ``seconds``.

    Raises
    ------
    VersionNotFoundError, SnapshotExpiredError

    Notes
    -----
    Below some ten million pages a single process is as fast; `check` loads all of them into it.

    The order of pages without rows that stand at one row is that of the local snapshot, and so not
    checked: first rows do not tell it. This release writes no such pages.
    """
    started = time.monotonic()
    url = store_url(url, profile)
    source = _source(url, version)
    layout = _layout(spark, url, source)
    rows = _rows(spark, url, source, layout).persist()  # read by both sides of the anti-join
    try:
        pages = _with_places(spark, _remaining(rows), source.local)
        if output is not None:
            pages.orderBy(*_ORDER).drop("has_rows", "place").write.parquet(output)
        found = pages.select(*_ORDER, *_COMPARED).toArrow() if check else None
        num_pages = pages.count() if found is None else found.num_rows
    finally:
        rows.unpersist()
    differences = [] if found is None else _differences(found, source.local, layout.chains)
    return {
        "ok": not differences,
        "version": source.local.state.version,
        "checkpoint": source.checkpoint.ref.version if source.checkpoint else None,
        "segments": len(source.segments),
        "commits": len(source.commits),
        "chains": len(layout.chains),
        "pages": num_pages,
        "equal_to_local": not differences if check else None,
        "differences": differences[:5],
        "output": output,
        "seconds": round(time.monotonic() - started, 3),
    }


@dataclass(frozen=True, eq=False, slots=True)
class _Source:
    """What a version is made of: the segments of a checkpoint, and the commits after it."""

    local: LogSnapshot
    segments: list[Node]
    commits: range

    @property
    def checkpoint(self) -> Checkpoint | None:
        return self.local.checkpoint


def _source(url: str, version: int | None) -> _Source:
    local = Log(objects_of(url), Runtime()).snapshot(version)
    checkpoint = local.checkpoint
    if checkpoint is None:
        return _Source(local, [], range(local.state.version + 1))
    segments = [
        node
        for parts in checkpoint.levels().values()
        for part in parts
        for node in checkpoint.tree.part(part)
    ]
    return _Source(local, segments, range(checkpoint.ref.version + 1, local.state.version + 1))


# first pass: counts


def _layout(spark: SparkSession, url: str, source: _Source) -> Layout:
    tasks: list[CountSegments | CountCommits] = [
        *(
            CountSegments(url, tuple(each))
            for each in _groups([*enumerate(source.segments)], _SEGMENTS_PER_TASK)
        ),
        *(CountCommits(url, tuple(each)) for each in _groups(source.commits, _COMMITS_PER_TASK)),
    ]
    counts: list[SegmentCount | CommitCount] = (
        spark.sparkContext.parallelize(tasks, max(len(tasks), 1)).flatMap(_run_count).collect()
    )
    return fold_counts(
        [each for each in counts if isinstance(each, SegmentCount)],
        [each for each in counts if isinstance(each, CommitCount)],
        source.checkpoint.tables() if source.checkpoint else (),
    )


def _run_count(task: CountSegments | CountCommits) -> Iterator[SegmentCount | CommitCount]:
    return task.counts()


def _groups(items: Sequence[Item], size: int) -> list[Sequence[Item]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


# second pass: pages with their first rows


def _rows(spark: SparkSession, url: str, source: _Source, layout: Layout) -> DataFrame:
    """A row for each page that a segment or commit holds, and one for each page that a commit removes."""
    from pyspark.sql.pandas.types import from_arrow_schema

    starts: dict[int, dict[ChainKey, int]] = {}
    for (segment, key), row in layout.segments.items():
        starts.setdefault(segment, {})[key] = row
    splices: dict[int, dict[tuple[int, int], int]] = {}
    for (version, record, number), row in layout.splices.items():
        splices.setdefault(version, {})[record, number] = row
    segments = [(node, starts.get(index, {})) for index, node in enumerate(source.segments)]
    commits = [(version, splices.get(version, {})) for version in source.commits]
    tasks: list[SegmentRows | CommitRows] = [
        *(SegmentRows(url, tuple(each)) for each in _groups(segments, _SEGMENTS_PER_TASK)),
        *(CommitRows(url, tuple(each)) for each in _groups(commits, _COMMITS_PER_TASK)),
    ]
    packed = [(pickle.dumps(task),) for task in tasks]
    names = spark.createDataFrame(spark.sparkContext.parallelize(packed, max(len(packed), 1)), "task binary")
    return names.mapInArrow(_run_rows, from_arrow_schema(ROWS_SCHEMA))


def _run_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for packed in batch.column(0).to_pylist():
            yield from pickle.loads(packed).rows()  # noqa: S301 - made by our own driver


def _remaining(rows: DataFrame) -> DataFrame:
    """The pages that were added and not removed."""
    from pyspark.sql import functions as f

    removed = rows.filter("removed").select("page_id")
    added = rows.filter("not removed").drop("removed")
    return added.join(removed, "page_id", "left_anti").withColumn("has_rows", f.expr("entry_count > 0"))


def _with_places(spark: SparkSession, pages: DataFrame, local: LogSnapshot) -> DataFrame:
    """The pages, with a number that orders those without rows that stand at one row.

    A page that replaces another takes its place, so neither age nor row tells which of them comes first:
    only the chain does. Chains with two of them at one row are looked up locally; there is hardly ever one.
    """
    from pyspark.sql import functions as f

    tied = (
        pages.filter("not has_rows")
        .groupBy("table_id", "field_id", "first_row")
        .count()
        .filter("count > 1")
        .select("table_id", "field_id")
        .distinct()
        .collect()
    )
    if not tied:
        return pages.withColumn("place", f.lit(0))
    places = pa.concat_tables(
        [_places(local.chain((key["table_id"], key["field_id"])).all_pages()) for key in tied]
    )
    known = spark.createDataFrame(places)
    return pages.join(f.broadcast(known), "page_id", "left").fillna(0, ["place"])


def _places(run: PageRun) -> pa.Table:
    """Positions of the pages without rows."""
    positions = np.flatnonzero(run.numbers("entry_count") == 0)
    return pa.table({"page_id": run.page_ids[positions], "place": positions})


# the comparison


def _differences(found: pa.Table, local: LogSnapshot, chains: Iterable[ChainKey]) -> list[str]:
    """Chains whose descriptors, or whose order or first rows, are not those of the local snapshot."""
    found = found.combine_chunks().sort_by([(name, "ascending") for name in _ORDER])
    keys = (found.column("table_id").to_numpy() << 32) | found.column("field_id").to_numpy()
    differing = []
    expected_keys = sorted({*local.chain_keys(), *chains})
    for table_id, field_id in expected_keys:
        key = (table_id << 32) | field_id
        start, stop = np.searchsorted(keys, key, "left"), np.searchsorted(keys, key, "right")
        mine = found.slice(start, stop - start)
        run = local.chain((table_id, field_id)).all_pages()
        theirs = {
            name: (run.stats if name in STATS_SCHEMA.names else run.pages).column(name) for name in _COMPARED
        }
        theirs["first_row"] = pa.array(run.prefix_entries.astype(np.int64) - run.numbers("entry_count"))
        if not all(mine.column(name).combine_chunks().equals(theirs[name]) for name in theirs):
            differing.append(f"table {table_id} field {field_id}: {mine.num_rows} and {run.num_pages} pages")
    if found.num_rows != sum(local.chain(key).num_pages for key in expected_keys):
        differing.append("pages of chains that are not live")
    return differing
