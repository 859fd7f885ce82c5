"""Snapshot reconstruction by Spark: the descriptors of every page of a version, from checkpoint and commits.

Start at `reconstruct_snapshot`. Two passes, both over names made by the driver, never over a listing.
First executors count, where the tree does not tell, and the driver turns the counts into first rows (`fold`);
then executors read segments and commits (`tasks`), give each page its first row, and leave out those that
commits removed. Nothing is shuffled: no window, no join, no global prefix sum.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.errors import InvalidInputError
from spark_pages.log.checkpoint import Checkpoint, TreeReader
from spark_pages.log.head import base_state
from spark_pages.log.log import Log
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.log.tree import Node
from spark_pages.model.actions import CheckpointRef
from spark_pages.model.chain import ChainKey
from spark_pages.model.run import LOCATION_COLUMNS, STATS_SCHEMA, PageRun
from spark_pages.runtime import Runtime
from spark_pages.spark.checkpoints import Spread, checkpoint_of
from spark_pages.spark.fold import (
    CommitCount,
    Layout,
    SegmentCount,
    chains_with_ties,
    count_of_node,
    fold_counts,
)
from spark_pages.spark.shipping import objects_of, store_of, store_url
from spark_pages.spark.tasks import (
    DESCRIPTOR,
    ROWS_SCHEMA,
    CommitRows,
    CountCommits,
    CountSegments,
    SegmentRows,
)

if TYPE_CHECKING:
    from pyspark import Broadcast
    from pyspark.sql import DataFrame, SparkSession

_ORDER = ["table_id", "field_id", "first_row", "has_rows", "place"]
"""Pages without rows stand before the page that begins at the same row; among themselves, by place."""

_COMPARED = ["page_id", *(f.name for f in DESCRIPTOR if f.name not in ("page_id", *LOCATION_COLUMNS))]
_COMMITS_PER_TASK = 64
_SEGMENTS_PER_TASK = 16

Form = Literal["parquet", "delta", "checkpoint"]
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Output:
    """Where the descriptors go.

    Attributes
    ----------
    form
        Parquet or a Delta table in a folder, in chain order; or a checkpoint of the store itself.
    path
        The folder; none of a checkpoint.
    overwrite
        Whether what is in the folder goes: after a job that was killed. Else the folder must not exist.

    Raises
    ------
    InvalidInputError
        If a folder is missing, or named where none is needed.
    """

    form: Form = "parquet"
    path: str | None = None
    overwrite: bool = False

    def __post_init__(self) -> None:
        if self.form not in ("parquet", "delta", "checkpoint"):
            raise InvalidInputError(f"Unknown form {self.form!r}: expected parquet, delta or checkpoint.")
        if (self.path is None) != (self.form == "checkpoint"):
            raise InvalidInputError(
                f"A reconstruction as {self.form} {'takes no' if self.path else 'needs an'} output folder."
            )


def reconstruct_snapshot(
    spark: SparkSession,
    url: str,
    version: int | None = None,
    output: Output | None = None,
    check: bool = True,
    profile: str | None = None,
    timestamp: str | None = None,
) -> dict[str, Any]:
    """The page descriptors of every live chain at a version, with their statistics, computed by Spark.

    Parameters
    ----------
    spark, url
        A session, and the store.
    version
        The newest by default.
    output
        Where the descriptors go; None computes them all, and counts.
    check
        Compare with the local snapshot, descriptor by descriptor, without where a page is; where a checkpoint
        is written, with that one.
    profile
        Storage options by name.
    timestamp
        In place of a version: the last one not later than this, ISO 8601.

    Returns
    -------
    dict
        ``ok``, ``version``, ``checkpoint`` (version it stands on, or None), ``segments``, ``commits``,
        ``chains``, ``pages``, ``equal_to_local`` (None without `check`),
        ``differences`` (the first few chains that differ), ``output`` (a folder, or the key of a checkpoint),
        ``form``, ``seconds``.

    Raises
    ------
    VersionNotFoundError, SnapshotExpiredError

    Notes
    -----
    Below some ten million pages a single process is as fast; `check` loads all of them into it. The
    driver holds the ids of pages that commits after the checkpoint removed.

    The order of pages without rows that stand at one row is that of the local snapshot, and so not
    checked: first rows do not tell it.
    """
    started = time.monotonic()
    url = store_url(url, profile)
    if timestamp is not None:
        version = store_of(url).snapshot(timestamp=timestamp).version
    source = _source(url, version)
    made = None
    if output is not None and output.form == "checkpoint":
        made = checkpoint_of(source.log, source.local, Spread(url, lambda: spark))
    ordered = check or (output is not None and made is None)
    counts = _counts(spark, url, source, ordered)
    tasks = _tasks(url, source, counts)
    pages = _pages(spark, tasks, counts.removed)
    if ordered:
        pages = _with_places(spark, pages, source.local, counts.ties)
    if output is not None and output.path is not None:
        writing = pages.orderBy(*_ORDER).drop("has_rows", "place").write.format(output.form)
        writing.mode("overwrite" if output.overwrite else "errorifexists").save(output.path)
    found = pages.select(*_ORDER, *_COMPARED).toArrow() if check else None
    if found is not None:
        num_pages = found.num_rows
    elif output is not None and output.path is not None:
        num_pages = spark.read.format(output.form).load(output.path).count()
    else:
        num_pages = _count(spark, tasks, counts.removed)
    expected = source.local if made is None else _standing_on(source.log, made)
    differences = [] if found is None else _differences(found, expected, counts.layout.chains)
    return {
        "ok": not differences,
        "version": source.local.state.version,
        "checkpoint": source.checkpoint.ref.version if source.checkpoint else None,
        "segments": len(source.segments),
        "commits": len(source.commits),
        "chains": len(counts.layout.chains),
        "pages": num_pages,
        "equal_to_local": not differences if check else None,
        "differences": differences[:5],
        "output": made.location.key if made else output.path if output else None,
        "form": output.form if output else None,
        "seconds": round(time.monotonic() - started, 3),
    }


@dataclass(frozen=True, eq=False, slots=True)
class _Source:
    """What a version is made of: the segments of a checkpoint, and the commits after it."""

    log: Log
    local: LogSnapshot
    segments: list[Node]
    commits: range

    @property
    def checkpoint(self) -> Checkpoint | None:
        return self.local.checkpoint


def _source(url: str, version: int | None) -> _Source:
    log = Log(objects_of(url), Runtime())
    local = log.snapshot(version)
    checkpoint = local.checkpoint
    if checkpoint is None:
        return _Source(log, local, [], range(local.state.version + 1))
    segments = [
        node
        for parts in checkpoint.levels().values()
        for part in parts
        for node in checkpoint.tree.part(part)
    ]
    return _Source(log, local, segments, range(checkpoint.ref.version + 1, local.state.version + 1))


def _standing_on(log: Log, ref: CheckpointRef) -> LogSnapshot:
    """The version of a checkpoint, from that checkpoint alone."""
    tree = TreeReader(log.store)
    return LogSnapshot(base_state(tree, ref), Checkpoint(ref, tree))


# first pass: counts


@dataclass(frozen=True, eq=False, slots=True)
class _Counts:
    """What the first pass gives.

    Attributes
    ----------
    removed : int64
        Ids of the pages that commits remove, sorted.
    ties
        Chains that can have two pages without rows; empty where nobody asked.
    """

    layout: Layout
    removed: NDArray[np.int64]
    ties: frozenset[ChainKey]


def _counts(spark: SparkSession, url: str, source: _Source, ordered: bool) -> _Counts:
    known: list[SegmentCount] = []
    unknown: list[tuple[int, Node]] = []
    for number, node in enumerate(source.segments):
        told = None if ordered else count_of_node(number, node)
        if told is None:
            unknown.append((number, node))
        else:
            known += told
    tasks: list[CountSegments | CountCommits] = [
        *(CountSegments(url, tuple(each)) for each in _groups(unknown, _SEGMENTS_PER_TASK)),
        *(CountCommits(url, tuple(each)) for each in _groups(source.commits, _COMMITS_PER_TASK)),
    ]
    counted: list[SegmentCount | CommitCount] = []
    if tasks:
        counted = spark.sparkContext.parallelize(tasks, len(tasks)).flatMap(_run_count).collect()
    segments = known + [each for each in counted if isinstance(each, SegmentCount)]
    commits = [each for each in counted if isinstance(each, CommitCount)]
    return _Counts(
        fold_counts(segments, commits, source.checkpoint.tables() if source.checkpoint else ()),
        np.sort(np.frombuffer(b"".join(each.removed for each in commits), np.int64)),
        chains_with_ties(segments, commits) if ordered else frozenset(),
    )


def _run_count(task: CountSegments | CountCommits) -> Iterator[SegmentCount | CommitCount]:
    return task.counts()


def _groups(items: Sequence[Item], size: int) -> list[Sequence[Item]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


# second pass: pages with their first rows


def _tasks(url: str, source: _Source, counts: _Counts) -> list[SegmentRows | CommitRows]:
    starts: dict[int, dict[ChainKey, int]] = {}
    for (segment, key), row in counts.layout.segments.items():
        starts.setdefault(segment, {})[key] = row
    splices: dict[int, dict[tuple[int, int], int]] = {}
    for (version, record, number), row in counts.layout.splices.items():
        splices.setdefault(version, {})[record, number] = row
    segments = [(node, starts.get(index, {})) for index, node in enumerate(source.segments)]
    commits = [(version, splices.get(version, {})) for version in source.commits]
    return [
        *(SegmentRows(url, tuple(each)) for each in _groups(segments, _SEGMENTS_PER_TASK)),
        *(CommitRows(url, tuple(each)) for each in _groups(commits, _COMMITS_PER_TASK)),
    ]


def _pages(
    spark: SparkSession, tasks: Sequence[SegmentRows | CommitRows], removed: NDArray[np.int64]
) -> DataFrame:
    """A row for each page that a segment or commit holds and that is still there."""
    from pyspark.sql.pandas.types import from_arrow_schema

    packed = [(pickle.dumps(task),) for task in tasks]
    names = spark.createDataFrame(spark.sparkContext.parallelize(packed, max(len(packed), 1)), "task binary")
    run = _RunRows(spark.sparkContext.broadcast(removed))
    return names.mapInArrow(run, from_arrow_schema(ROWS_SCHEMA))


def _count(spark: SparkSession, tasks: Sequence[SegmentRows | CommitRows], removed: NDArray[np.int64]) -> int:
    """How many pages there are, all of them computed; nothing goes through the JVM, which is most of the time
    of what does.
    """
    if not tasks:
        return 0
    count = _CountRows(spark.sparkContext.broadcast(removed))
    return int(spark.sparkContext.parallelize(tasks, len(tasks)).map(count).sum())


@dataclass(frozen=True, slots=True)
class _CountRows:
    """What an executor does with a task whose rows nobody wants to have."""

    removed: Broadcast[NDArray[np.int64]]

    def __call__(self, task: SegmentRows | CommitRows) -> int:
        return sum(batch.num_rows for batch in task.rows(self.removed.value))


@dataclass(frozen=True, slots=True)
class _RunRows:
    """What an executor does with a task."""

    removed: Broadcast[NDArray[np.int64]]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for packed in batch.column(0).to_pylist():
                yield from pickle.loads(packed).rows(self.removed.value)  # noqa: S301 - of our own driver


def _with_places(
    spark: SparkSession, pages: DataFrame, local: LogSnapshot, ties: frozenset[ChainKey]
) -> DataFrame:
    """The pages, with a number that orders those without rows that stand at one row.

    A page that replaces another takes its place, so neither age nor row tells which of them comes first:
    only the chain does. Chains that may have two of them are looked up locally; there is hardly ever one.
    """
    from pyspark.sql import functions as f

    pages = pages.withColumn("has_rows", f.expr("entry_count > 0"))
    tied = sorted(ties & set(local.chain_keys()))
    if not tied:
        return pages.withColumn("place", f.lit(0))
    known = spark.createDataFrame(pa.concat_tables([_places(local.chain(key).all_pages()) for key in tied]))
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
