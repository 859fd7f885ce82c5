"""Snapshot reconstruction by Spark: the descriptors of every page of a version, from checkpoint and commits.

Start at `reconstruct_snapshot`. Two passes, both over names made by the driver, never over a listing.
First executors count, where the tree does not tell, and the driver turns the counts into first rows
(`positions`); then executors read segments and commits (`tasks`), give each page its first row, and leave
out those that commits removed. Nothing is shuffled: no window, no join, no global prefix sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_pages.arguments import as_flag, as_int, check_kind
from spark_pages.errors import InvalidInputError
from spark_pages.format.checkpoint_tree import Node
from spark_pages.log.checkpoint.reader import Checkpoint, TreeReader
from spark_pages.log.discovery import base_state
from spark_pages.log.log import Log
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.model.actions import CheckpointRef
from spark_pages.model.chain_tree import ChainKey
from spark_pages.progress import advance, is_reporting, phase
from spark_pages.runtime import Runtime
from spark_pages.spark.checkpoints import Spread, checkpoint_of
from spark_pages.spark.job import check_session, report_as
from spark_pages.spark.output_folder import OutputFolder
from spark_pages.spark.page_frame import COMPARED, ORDER, SparkPages, differences
from spark_pages.spark.positions import (
    CommitCount,
    Layout,
    SegmentCount,
    chains_with_ties,
    count_of_node,
    fold_counts,
)
from spark_pages.spark.serialization import objects_of, store_of, store_url
from spark_pages.spark.task_counts import TaskCounts
from spark_pages.spark.tasks import (
    ROWS_SCHEMA,
    CommitRows,
    CountCommits,
    CountSegments,
    SegmentRows,
)
from spark_pages.storage import MeteredStore
from spark_pages.storage.store import ObjectStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
        Whether what is in the folder goes; else the folder must not exist.

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
            raise InvalidInputError(
                f"Cannot write a reconstruction as {self.form!r}: there is no such format.",
                hint="Pass one of parquet, delta and checkpoint as --format.",
            )
        if (self.path is None) != (self.form == "checkpoint"):
            raise InvalidInputError(
                f"Cannot write a reconstruction as {self.form}: it "
                f"{'takes no' if self.path else 'needs an'} output folder.",
                hint="Leave --output out." if self.path else "Name a folder by --output.",
            )

    def folder(self, store: str) -> OutputFolder | None:
        """Return the output folder, if descriptors of this store may be written there; None for a checkpoint.

        Raises
        ------
        InvalidInputError
            As of `OutputFolder.check`.
        """
        if self.path is None:
            return None
        folder = OutputFolder(self.form, self.path, self.overwrite)
        folder.check(store)
        return folder


@report_as("reconstruct_snapshot")
def reconstruct_snapshot(
    spark: SparkSession | None,
    url: str,
    version: int | None = None,
    output: Output | None = None,
    check: bool = True,
    profile: str | None = None,
    timestamp: str | None = None,
    *,
    dry_run: bool = False,
) -> dict[str, Any]:
    """Compute the page descriptors and statistics of every live chain at a version with Spark.

    Parameters
    ----------
    spark, url
        A session, or None for this process alone; and the store.
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
    dry_run
        Only tell what would be read.

    Returns
    -------
    dict
        ``ok``, ``version``, ``checkpoint`` (version it stands on, or None), ``segments``, ``commits``,
        ``chains``, ``num_pages``, ``equal_to_local`` (None without `check`),
        ``differences`` (the first few chains that differ), ``output`` (a folder, or the key of a checkpoint),
        ``format``, ``bytes_written``, ``seconds``.

    Raises
    ------
    VersionNotFoundError, SnapshotExpiredError

    Notes
    -----
    Below some ten million pages a single process is as fast, and holds all of them; so does `check`. The
    driver holds the ids of pages that commits after the checkpoint removed.

    The order of pages without rows that stand at one row is that of the local snapshot, and so not
    checked: first rows do not tell it.
    """
    check_session(spark)
    check_kind(output, Output | None, "output", "an Output")
    check, dry_run = as_flag(check, "check"), as_flag(dry_run, "dry_run")
    version = None if version is None else as_int(version, "version")
    stored = store_url(url, profile)
    folder, url = output.folder(url) if output else None, stored
    if timestamp is not None:
        version = store_of(url).snapshot(timestamp=timestamp).version
    objects = MeteredStore(objects_of(url))
    source = _source(objects, version)
    if dry_run:
        return {**_source_json(source), "dry_run": True}
    made, size_bytes = None, 0
    if output is not None and output.form == "checkpoint":
        spread = Spread(url, None if spark is None else lambda: spark)
        made = checkpoint_of(source.log, source.local, spread)
        size_bytes = objects.counts.bytes_written + spread.bytes_written
    ordered = check or (output is not None and made is None)
    counts = _counts(spark, url, source, ordered)
    tasks, places = _tasks(url, source, counts), _positions_of_empty_pages(source.local, counts.ties)
    known = _num_pages(source.local) if is_reporting() else 0
    pages: LocalPages | SparkPages
    if spark is None:
        phase("reading descriptors", known, "pages")
        pages, known = LocalPages(tasks, counts.removed, places), 0  # what follows reads none
    else:
        pages = SparkPages(spark, tasks, counts.removed, places)
    if folder is not None:
        phase("writing descriptors", known, "pages")
        size_bytes = pages.write(folder)
    phase("comparing descriptors" if check else "counting descriptors", known, "pages")
    found = pages.compared() if check else None
    num_pages = pages.count() if found is None else found.num_rows
    expected = source.local if made is None else _snapshot_of_checkpoint(source.log, made)
    differing = [] if found is None else differences(found, expected, counts.layout.chains)
    return {
        **_source_json(source),
        "ok": not differing,
        "chains": len(counts.layout.chains),
        "num_pages": num_pages,
        "equal_to_local": not differing if check else None,
        "differences": differing[:5],
        "output": made.location.key if made else output.path if output else None,
        "format": output.form if output else None,
        "bytes_written": size_bytes,
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


def _source_json(source: _Source) -> dict[str, Any]:
    return {
        "ok": True,
        "version": source.local.state.version,
        "checkpoint": source.checkpoint.ref.version if source.checkpoint else None,
        "segments": len(source.segments),
        "commits": len(source.commits),
    }


def _source(objects: ObjectStore, version: int | None) -> _Source:
    log = Log(objects, Runtime())
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


def _num_pages(local: LogSnapshot) -> int:
    return sum(local.chain(key).num_pages for key in local.chain_keys())


def _snapshot_of_checkpoint(log: Log, ref: CheckpointRef) -> LogSnapshot:
    """Open the version of a checkpoint from that checkpoint only."""
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


def _counts(spark: SparkSession | None, url: str, source: _Source, ordered: bool) -> _Counts:
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
    counting = phase("counting pages", len(unknown) + len(source.commits), "segments and commits")
    counted: list[SegmentCount | CommitCount] = []
    if spark is None:
        counted = [each for task in tasks for each in _run_count(task, counting.advance)]
    elif tasks:
        context = spark.sparkContext
        run = partial(_run_count, add=TaskCounts.of(context, counting).add)
        counted = context.parallelize(tasks, len(tasks)).flatMap(run).collect()
    segments = known + [each for each in counted if isinstance(each, SegmentCount)]
    commits = [each for each in counted if isinstance(each, CommitCount)]
    return _Counts(
        fold_counts(segments, commits, source.checkpoint.tables() if source.checkpoint else ()),
        np.sort(np.frombuffer(b"".join(each.removed for each in commits), np.int64)),
        chains_with_ties(segments, commits) if ordered else frozenset(),
    )


def _run_count(
    task: CountSegments | CountCommits, add: Callable[[int, int], None]
) -> Iterator[SegmentCount | CommitCount]:
    yield from task.counts()
    if isinstance(task, CountSegments):
        add(len(task.segments), sum(node.length for _, node in task.segments))
    else:
        add(len(task.versions), 0)


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


def _positions_of_empty_pages(local: LogSnapshot, ties: frozenset[ChainKey]) -> pa.Table | None:
    """Positions of pages without rows, where several stand at one row; None where none do.

    A page that replaces another takes its place, so neither age nor row tells which of them comes first:
    only the chain does. Chains that may have two of them are looked up locally; there is hardly ever one.
    """
    runs = [local.chain(key).all_pages() for key in sorted(ties & set(local.chain_keys()))]
    positions = [np.flatnonzero(run.numbers("entry_count") == 0) for run in runs]
    if not runs:
        return None
    ids = np.concatenate([run.page_ids[where] for run, where in zip(runs, positions, strict=True)])
    return pa.table({"page_id": ids, "place": np.concatenate(positions)})


class LocalPages:
    """The same as `SparkPages`, held in memory: some 150 bytes a page."""

    def __init__(
        self,
        tasks: Sequence[SegmentRows | CommitRows],
        removed: NDArray[np.int64],
        places: pa.Table | None,
    ) -> None:
        batches = []
        for batch in (batch for task in tasks for batch in task.rows(removed)):
            batches.append(batch)
            advance(batch.num_rows, batch.nbytes)
        pages = pa.Table.from_batches(batches, ROWS_SCHEMA)
        pages = pages.append_column("has_rows", pc.greater(pages.column("entry_count"), 0))
        place = pa.chunked_array([np.zeros(pages.num_rows, np.int64)])
        if places is not None:
            found = pc.index_in(pages.column("page_id"), places.column("page_id"))
            place = pc.fill_null(places.column("place").take(found), 0)
        pages = pages.append_column("place", place)
        self._pages = pages.sort_by([(name, "ascending") for name in ORDER])

    def write(self, folder: OutputFolder) -> int:
        """Write the descriptors in the order of chains and rows, and return the bytes."""
        shown = self._pages.drop_columns(["has_rows", "place"])
        return folder.write_here(shown.schema, shown.to_batches())

    def compared(self) -> pa.Table:
        """Return the columns that `comparison.differences` compares."""
        return self._pages.select(list(dict.fromkeys([*ORDER, *COMPARED])))

    def count(self) -> int:
        """How many there are."""
        return int(self._pages.num_rows)
