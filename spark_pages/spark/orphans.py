"""Page files that nothing names, found by Spark: an anti-join of what is listed with what is named.

A file that a version can still name is named by the tree of a kept checkpoint, or by a commit that is not
cleaned away. Its writer read some version, which its key tells; below ``min_epoch``, which a vacuum has
committed before, writers are refused. So what is older than that, and named nowhere, stays without a name for
ever: see docs/retention.md. No pyspark is imported before it runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from spark_pages.errors import ObjectNotFoundError
from spark_pages.log.checkpoint.reader import TreeReader
from spark_pages.log.checkpoint.tree import Node
from spark_pages.log.log import Log
from spark_pages.log.page_folders import PageFolders
from spark_pages.log.slots import SlotReader
from spark_pages.log.vacuum.garbage import TreeWalker, first_commit
from spark_pages.model.actions import Commit
from spark_pages.progress import phase
from spark_pages.runtime import Runtime, map_in_threads
from spark_pages.spark.feed import cut_versions
from spark_pages.spark.shipping import objects_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SEGMENTS_OF_A_TASK = 16
_VERSIONS_OF_A_TASK = 64
_Work: TypeAlias = tuple[Node, ...] | tuple[int, int]
"""Segments, or versions (start, end]."""

_LISTED = pa.schema([("key", pa.string()), ("bytes", pa.int64())])


def find_orphan_files(spark: SparkSession, url: str) -> pa.Table:
    """The page files that no version which can be read names, nor will.

    Parameters
    ----------
    spark, url
        A session, and the address of the store.

    Returns
    -------
    pyarrow.Table
        ``key`` and ``bytes`` of each, by key.

    Notes
    -----
    The driver lists the page files, and reads roots and manifest parts; executors read segments, commits and
    page manifests. Without a vacuum before, no writer is refused yet, and nothing is found.
    """
    phase("looking for orphans")
    log = Log(objects_of(url), Runtime())
    head = log.refresh().state
    epoch = head.retention.min_epoch if head.retention else 0
    folders = PageFolders.of(head.properties)
    infos = [
        info
        for info in folders.files(log.store)
        if (read := folders.epoch_of(info.key)) is not None and read < epoch
    ]
    listed = pa.table(
        [pa.array([i.key for i in infos], pa.string()), pa.array([i.size_bytes for i in infos], pa.int64())],
        schema=_LISTED,
    )
    if not infos:
        return listed
    work: list[_Work] = [*_trees(log, head.version), *_commits(log, head.version)]
    named = _named(spark, url, work)
    left = spark.createDataFrame(listed).join(named, "key", "left_anti").orderBy("key").toArrow()
    return left.cast(_LISTED)


def delete_files(spark: SparkSession, url: str, files: pa.Table) -> int:
    """The files are gone; gives how many. May be killed anywhere and run again."""
    keys = files.column("key").to_pylist()
    if not keys:
        return 0
    tasks = min(len(keys), 4 * spark.sparkContext.defaultParallelism)
    return int(spark.sparkContext.parallelize(keys, tasks).mapPartitions(_Delete(url)).sum())


def _trees(log: Log, head: int) -> Iterator[tuple[Node, ...]]:
    """The segments of every checkpoint that a commit which is left names, or a retention, some at a time."""
    tree, slots = TreeReader(log.store), SlotReader(log.store)
    state = log.known().state
    refs = {state.base} if state.base is not None else set()
    if state.retention is not None and state.retention.checkpoint is not None:
        refs.add(state.retention.checkpoint)
    for start, end in cut_versions(_first(log, slots) - 1, head, _VERSIONS_OF_A_TASK):
        commits = [slot for slot in slots.present(range(start + 1, end + 1)) if isinstance(slot, Commit)]
        refs |= {commit.checkpoint for commit in commits if commit.checkpoint is not None}
        refs |= {
            record.retention.checkpoint
            for commit in commits
            for record in commit.records
            if record.retention is not None and record.retention.checkpoint is not None
        }
    nodes = [*TreeWalker(tree, map_in_threads).left(refs).segments.values()]
    for start in range(0, len(nodes), _SEGMENTS_OF_A_TASK):
        yield tuple(nodes[start : start + _SEGMENTS_OF_A_TASK])


def _commits(log: Log, head: int) -> list[tuple[int, int]]:
    return list(cut_versions(_first(log, SlotReader(log.store)) - 1, head, _VERSIONS_OF_A_TASK))


def _first(log: Log, slots: SlotReader) -> int:
    retention = log.known().state.retention
    return first_commit(slots, retention.min_readable) if retention else 0


def _named(spark: SparkSession, url: str, work: list[_Work]) -> DataFrame:
    keys = spark.sparkContext.parallelize(work, max(1, len(work))).mapPartitions(_Names(url))
    return spark.createDataFrame(keys.map(lambda key: (key,)), "key string")


@dataclass(frozen=True, slots=True)
class _Names:
    """Reads segments and commits on an executor, and gives the page files that they name."""

    url: str

    def __call__(self, work: Iterable[_Work]) -> Iterator[str]:
        objects = objects_of(self.url)
        tree, slots = TreeReader(objects), SlotReader(objects)
        for each in work:
            if isinstance(each[0], Node):
                nodes = [node for node in each if isinstance(node, Node)]
                yield from TreeWalker(tree, map_in_threads).page_files_left(nodes)
                continue
            start, end = (number for number in each if isinstance(number, int))
            for slot in slots.present(range(start + 1, end + 1)):
                if isinstance(slot, Commit):
                    yield from _files_of(slot, tree)


def _files_of(commit: Commit, tree: TreeReader) -> set[str]:
    files: set[str] = set()
    for record in commit.records:
        files.update(record.own.paths())
        batches = []
        for manifest in record.manifests:
            try:
                batches.append(tree.manifest(manifest.location)[0])
            except ObjectNotFoundError:  # of a version that a vacuum is just cleaning away
                continue
        for batch in batches:
            files.update(path for path in batch.column("path").dictionary.to_pylist() if path)
    return files


@dataclass(frozen=True, slots=True)
class _Delete:
    """Deletes files on an executor."""

    url: str

    def __call__(self, keys: Iterable[str]) -> Iterator[int]:
        objects = objects_of(self.url)
        for key in keys:
            objects.delete(key)
            yield 1
