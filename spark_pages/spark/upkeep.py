"""The jobs that one process does, because what they do grows with changes and not with the state.

Log compaction reads each commit once; publishing writes names. Only the files of history and change feed are
written by executors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from spark_pages.outcome import told_as
from spark_pages.progress import phase
from spark_pages.runtime import Runtime
from spark_pages.spark.delta_log import DeltaFile, DeltaLog
from spark_pages.spark.publish import SEGMENTS, WriteFile, publish_delta
from spark_pages.spark.shipping import objects_of, store_of, store_url

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@told_as("compact_log")
def compact_log(url: str, *, dry_run: bool = False, profile: str | None = None) -> dict[str, Any]:
    """Long stretches of the log are read in few requests.

    Returns
    -------
    dict
        ``ok``, ``version``, ``compacted`` (slots below are in ranges), ``written`` (ranges), ``bytes``,
        ``keys``, ``seconds``.
    """
    store = store_of(store_url(url, profile))
    state = store.snapshot().log.state
    if dry_run:
        return {"dry_run": True, "version": state.version, "compacted": state.compacted}
    phase(f"bundling commits up to version {state.version}")
    done = store.compact_log()
    return {
        "version": state.version,
        "compacted": done.compacted,
        "written": len(done.keys),
        "bytes": done.size_bytes,
        "keys": list(done.keys),
    }


@told_as("publish_delta")
def publish(
    url: str,
    spark: SparkSession | None = None,
    *,
    history: bool = True,
    dry_run: bool = False,
    profile: str | None = None,
) -> dict[str, Any]:
    """Checkpoints, history and change feed are Delta tables; see `publish.publish_delta`.

    Parameters
    ----------
    spark
        Writes the files of history and change feed on executors; None writes them here.

    Returns
    -------
    dict
        ``ok``, ``seconds``, and what `Published` says; of a dry run ``version``, ``published`` and
        ``checkpoint``.
    """
    address = store_url(url, profile)
    if dry_run:
        head = store_of(address).snapshot()
        newest = head.log.checkpoint
        state = DeltaLog(objects_of(address), Runtime(), SEGMENTS).state()
        told: dict[str, Any] = {
            "dry_run": True,
            "version": head.version,
            "published": state.published,
            "checkpoint": newest.ref.version if newest else None,
        }
    else:

        def run(work: Sequence[WriteFile]) -> list[DeltaFile]:
            if spark is None or len(work) < 2:
                return [each() for each in work]
            return list(spark.sparkContext.parallelize(work, len(work)).map(lambda each: each()).collect())

        told = asdict(publish_delta(address, history=history, run=run))
    return told
