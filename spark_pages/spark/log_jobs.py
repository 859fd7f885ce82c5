"""Jobs whose work grows with changes, not with the state: log compaction and publication to Delta.

Log compaction reads each commit once; publishing writes names. Only the files of history and change feed are
written by executors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from spark_pages.log.compaction.compacted_range import plan_ranges
from spark_pages.log.compaction.writer import missing_bundles
from spark_pages.log.log import Log
from spark_pages.log.retention import oldest_readable
from spark_pages.progress import phase
from spark_pages.runtime import Runtime, map_in_threads
from spark_pages.spark.delta_log import DeltaFile
from spark_pages.spark.job import Start, report_as, starting
from spark_pages.spark.publish import Publisher, WriteFile, publish_delta
from spark_pages.spark.serialization import objects_of, store_of, store_url
from spark_pages.storage.store import size_if_there

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@report_as("compact_log")
def compact_log(url: str, *, dry_run: bool = False, profile: str | None = None) -> dict[str, Any]:
    """Long stretches of the log are read in few requests.

    Returns
    -------
    dict
        ``ok``, ``version``, ``compacted`` (slots below are in ranges), ``written`` (ranges),
        ``bytes_written``, ``keys``, ``seconds``; of a dry run ``to_write`` (ranges, at most) in place of the
        three before it.
    """
    store = store_of(store_url(url, profile))
    state = store.snapshot().log.state
    if dry_run:
        due = list(plan_ranges(state.compacted, state.version + 1))
        there = map_in_threads(lambda each: size_if_there(store.object_store, each.key), due)
        bundles = missing_bundles(store.object_store, map_in_threads, oldest_readable(state), state.compacted)
        return {
            "dry_run": True,
            "version": state.version,
            "compacted": state.compacted,
            "to_write": there.count(None) + len(bundles),
        }
    ranges = sum(1 for _ in plan_ranges(state.compacted, state.version + 1))
    phase(f"bundling commits up to version {state.version}", ranges, "ranges")
    done = store.compact_log()
    return {
        "version": state.version,
        "compacted": done.compacted,
        "written": len(done.keys),
        "bytes_written": done.size_bytes,
        "keys": list(done.keys),
    }


@report_as("publish_delta")
def publish(
    url: str,
    spark: SparkSession | Start | None = None,
    *,
    history: bool = True,
    dry_run: bool = False,
    profile: str | None = None,
) -> dict[str, Any]:
    """Checkpoints, history and change feed are Delta tables; see `publish.publish_delta`.

    Parameters
    ----------
    spark
        A session whose executors write the files of history and change feed; or what gives one, and is asked
        only where there are several. None writes them here.

    Returns
    -------
    dict
        ``ok``, ``seconds``, and what `Published` says; of a dry run the same of what would be done, without
        ``bytes_written``; besides ``published_checkpoint`` (the newest checkpoint that the tables show, -1
        for none) and ``commits`` (how many would be added to history and change feed).
    """
    address = store_url(url, profile)
    if dry_run:
        return _planned_publication(Log(objects_of(address), Runtime()), history)

    start = starting(spark)

    def run(work: Sequence[WriteFile]) -> list[DeltaFile]:
        if start is None or len(work) < 2:
            return [each() for each in work]
        return list(start().sparkContext.parallelize(work, len(work)).map(lambda each: each()).collect())

    return asdict(publish_delta(address, history=history, run=run))


def _planned_publication(log: Log, history: bool) -> dict[str, Any]:
    publisher = Publisher(log)
    published = publisher.published()
    checkpoints = publisher.plan_checkpoints()
    told = {
        "dry_run": True,
        "version": log.known().state.version,
        "published_checkpoint": published,
        "checkpoint": publisher.newest,
        "checkpoints": checkpoints,
        "files_added": publisher.files_added,
        "files_removed": publisher.files_removed,
    }
    return {**told, "commits": publisher.unpublished_commits()} if history else told
