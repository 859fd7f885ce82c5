"""The job ``vacuum``: the plan and its order are the store's own, the search for orphans is Spark's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_pages.errors import (
    ObjectNotFoundError,
    SnapshotExpiredError,
    StorageError,
    UnsupportedFormatError,
)
from spark_pages.format.checkpoint_tree import Node
from spark_pages.format.features import check_writable
from spark_pages.format.names import PageFolders
from spark_pages.log.checkpoint.reader import TreeReader
from spark_pages.log.log import Log
from spark_pages.log.slots import SlotReader
from spark_pages.log.state import LogState
from spark_pages.log.vacuum.orphans import page_files_below, unnamed_in_log
from spark_pages.log.vacuum.reachability import CommitWalker, Trees, TreeWalker, first_commit
from spark_pages.model.actions import DELETION, Commit
from spark_pages.progress import phase
from spark_pages.runtime import Runtime, map_in_threads
from spark_pages.spark.failures import our_error
from spark_pages.spark.job import report_as
from spark_pages.spark.serialization import objects_of, store_of, store_url
from spark_pages.storage.store import size_if_there

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@report_as("vacuum")
def vacuum(
    spark: SparkSession | None,
    url: str,
    retention: timedelta | int | None = None,
    *,
    orphans: bool = False,
    listed: bool = False,
    apply: bool = False,
    profile: str | None = None,
) -> dict[str, Any]:
    """Remove what no retained version needs, or report it.

    Parameters
    ----------
    spark
        Searches for orphans; None leaves them, or has this process search.
    url, profile
        The store.
    retention
        As of `Store.vacuum_plan`.
    orphans
        Whether this process searches for orphans, where there is no session; they are among the objects then.
    listed
        Whether a plan tells every object.
    apply
        Whether to delete.

    Returns
    -------
    dict
        ``ok``, ``applied``, ``version``, ``oldest``, ``objects``, ``bytes``, ``orphans``, ``orphan_bytes``
        (of a session), ``seconds``; ``spared`` where it deleted, else ``reasons``, and ``plan`` if `listed`.

    Notes
    -----
    Orphans are of writers that a vacuum has refused: those that this one refuses are found once it has
    committed, so a plan does not count them yet. May be killed at any point and run again, and two may
    run at once.
    """
    address = store_url(url, profile)
    store = store_of(address)
    told: dict[str, Any]
    if apply:
        done = store.vacuum(retention, orphans and spark is None)
        told = {
            "version": store.snapshot().version if done.version is None else done.version,
            "min_readable": done.oldest,
            "objects": done.objects,
            "size_bytes": done.size_bytes,
            "spared": done.spared,
        }
    else:
        plan = store.vacuum_plan(retention, orphans and spark is None)
        told = {
            "version": plan.version,
            "min_readable": plan.retention.min_readable,
            "objects": plan.objects.num_rows,
            "size_bytes": plan.size_bytes,
            "reasons": plan.counts,
        }
        if listed:
            told["plan"] = plan.objects.to_pylist()
    told |= {"orphans": None, "orphan_bytes": None}
    if spark is not None:
        found = find_orphans(spark, address)
        told |= {
            "orphans": found.num_rows,
            "orphan_bytes": pc.sum(found.column("size_bytes")).as_py() or 0,
        }
        if apply:
            delete_objects(spark, address, found)
    return {"applied": apply, **told}


_SEGMENTS_OF_A_TASK = 16
_VERSIONS_OF_A_TASK = 64

_LISTED = pa.schema([("key", pa.string()), ("size_bytes", pa.int64())])


def find_orphans(spark: SparkSession, url: str) -> pa.Table:
    """Find objects that no readable version names or will name, as a local plan does.

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
    The driver lists the log and the page files, and reads roots and manifest parts; executors read segments,
    commits and page manifests. Without a vacuum before, no writer is refused yet, and nothing is found. Looks
    once more where another vacuum took away what it was reading.
    """
    phase("looking for orphans")
    log = Log(objects_of(url), Runtime())
    state = log.refresh().state
    check_writable(state.features)  # else it cannot tell what nothing names
    try:
        return _search(spark, url, log, state)
    except Exception as error:
        is_gone = isinstance(our_error(error), ObjectNotFoundError | SnapshotExpiredError)
        newer = log.refresh().state
        if not is_gone or newer.retention == state.retention:
            raise
    return _search(spark, url, log, newer)


def _search(spark: SparkSession, url: str, log: Log, state: LogState) -> pa.Table:
    retention = state.retention
    if retention is None or retention.checkpoint is None:
        return _LISTED.empty_table()
    slots = SlotReader(log.store)
    first = first_commit(slots, retention.min_readable)
    kept = min(retention.min_readable, retention.checkpoint.version)
    trees = _trees(log, slots, state, first)
    listed = [
        *page_files_below(log.store, PageFolders.of(state.properties), retention.min_epoch),
        *unnamed_in_log(log.store, retention.min_epoch, first, trees.living.keys() | trees.dead.keys()),
    ]
    if not listed:
        return _LISTED.empty_table()
    columns = [each.key for each in listed], [each.size_bytes for each in listed]
    candidates = pa.table(
        [pa.array(c, f.type) for c, f in zip(columns, _LISTED, strict=True)], schema=_LISTED
    )
    named = _named(spark, url, [*trees.segments(), *_split_commits(first, kept, state.version)])
    left = spark.createDataFrame(candidates).join(named, "key", "left_anti").orderBy("key").toArrow()
    return left.cast(_LISTED)


def delete_objects(spark: SparkSession, url: str, objects: pa.Table) -> None:
    """Delete objects, and record their number in the history. May be killed and run again."""
    keys = objects.column("key").to_pylist()
    if not keys:
        return
    log = Log(objects_of(url), Runtime())
    state = log.refresh().state
    check_writable(state.features)
    tasks = min(len(keys), 4 * spark.sparkContext.defaultParallelism)
    sizes = spark.sparkContext.parallelize(keys, tasks).mapPartitions(_Delete(url)).collect()
    if sizes and state.retention is not None:
        with suppress(StorageError, UnsupportedFormatError):  # that it cannot be told yet is no failure
            log.report_maintenance(DELETION, state.retention.min_readable, len(sizes), sum(sizes))


@dataclass(frozen=True, slots=True)
class _Segments:
    """Segments to read, and whether all must be there."""

    nodes: tuple[Node, ...]
    kept: bool


@dataclass(frozen=True, slots=True)
class _Commits:
    """Versions to read, and whether all that they name must be there."""

    versions: range
    kept: bool


@dataclass(frozen=True, slots=True)
class _Trees:
    """The checkpoints that are kept, and what is left of those that a vacuum takes away."""

    living: Trees
    dead: Trees

    def segments(self) -> Iterator[_Segments]:
        """Their segments, each once."""
        living = list(self.living.segments.values())
        dead = [node for key, node in self.dead.segments.items() if key not in self.living.segments]
        for nodes, kept in ((living, True), (dead, False)):
            for start in range(0, len(nodes), _SEGMENTS_OF_A_TASK):
                yield _Segments(tuple(nodes[start : start + _SEGMENTS_OF_A_TASK]), kept)


def _trees(log: Log, slots: SlotReader, state: LogState, first: int) -> _Trees:
    """Every checkpoint that a commit which is left names, or a retention.

    Those that are kept must be whole: what lies below a lost part is named, though nobody can read it now.
    """
    assert state.retention is not None
    refs = {ref for ref in (state.base, state.retention.checkpoint) if ref is not None}
    for versions in _split(range(first, state.version + 1)):
        for commit in slots.present(versions):
            if isinstance(commit, Commit):
                retentions = (record.retention for record in commit.records if record.retention is not None)
                refs |= {ref for ref in (commit.checkpoint, *(each.checkpoint for each in retentions)) if ref}
    oldest = int(state.retention.min_readable)
    floor = slots.commits(oldest, oldest + 1)[0].checkpoint
    least = floor.version if floor is not None else 0
    kept = {ref for ref in refs if ref.version >= least or ref == state.retention.checkpoint}
    walker = TreeWalker(TreeReader(log.store), map_in_threads)
    return _Trees(walker.reachable(kept), walker.remaining(refs - kept))


def _split(versions: range) -> Iterator[range]:
    for start in range(versions.start, versions.stop, _VERSIONS_OF_A_TASK):
        yield versions[start - versions.start :][:_VERSIONS_OF_A_TASK]


def _split_commits(first: int, kept: int, head: int) -> Iterator[_Commits]:
    yield from (_Commits(versions, False) for versions in _split(range(first, kept)))
    yield from (_Commits(versions, True) for versions in _split(range(max(first, kept), head + 1)))


def _named(spark: SparkSession, url: str, work: list[_Segments | _Commits]) -> DataFrame:
    keys = spark.sparkContext.parallelize(work, max(1, len(work))).mapPartitions(_Names(url))
    return spark.createDataFrame(keys.map(lambda key: (key,)), "key string")


@dataclass(frozen=True, slots=True)
class _Names:
    """Reads segments and commits on an executor, and gives the page files and page manifests they name."""

    url: str

    def __call__(self, work: Iterable[_Segments | _Commits]) -> Iterator[str]:
        objects = objects_of(self.url)
        tree, slots = TreeReader(objects), SlotReader(objects)
        walker = TreeWalker(tree, map_in_threads)
        for each in work:
            if isinstance(each, _Segments):
                read = walker.page_files if each.kept else walker.remaining_page_files
                yield from read(each.nodes)
                continue
            walked = CommitWalker(slots, tree, map_in_threads).walk(
                each.versions.start, each.versions.stop, partial=not each.kept
            )
            yield from walked.page_files
            yield from walked.manifests


@dataclass(frozen=True, slots=True)
class _Delete:
    """Deletes objects on an executor; gives the bytes of those that were still there."""

    url: str

    def __call__(self, keys: Iterable[str]) -> Iterator[int]:
        objects = objects_of(self.url)
        for key in keys:
            size = size_if_there(objects, key)
            if size is not None:
                objects.delete(key)
                yield size
