"""The jobs that one process does, because what they do grows with changes and not with the state.

Log compaction reads each commit once; publishing writes names. Only the files of history and change feed are
written by executors.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from spark_pages.runtime import Runtime
from spark_pages.spark.delta_log import DeltaFile, DeltaLog
from spark_pages.spark.publish import SEGMENTS, WriteFile, publish_delta
from spark_pages.spark.shipping import objects_of, store_of, store_url

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def compact_log(url: str, *, dry_run: bool = False, profile: str | None = None) -> dict[str, Any]:
    """Long stretches of the log are read in few requests.

    Returns
    -------
    dict
        ``ok``, ``version``, ``compacted`` (slots below are in ranges), ``written`` (ranges), ``bytes``,
        ``seconds``.
    """
    started = time.monotonic()
    store = store_of(store_url(url, profile))
    state = store.snapshot().log.state
    if dry_run:
        return {"ok": True, "dry_run": True, "version": state.version, "compacted": state.compacted}
    done = store.compact_log()
    return {
        "ok": True,
        "version": state.version,
        "compacted": done.compacted,
        "written": len(done.keys),
        "bytes": done.size_bytes,
        "seconds": round(time.monotonic() - started, 3),
    }


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
        ``ok``, ``seconds``, and what `Published` says; of a dry run ``published`` and ``checkpoint``,
        versions.
    """
    started = time.monotonic()
    address = store_url(url, profile)
    if dry_run:
        newest = store_of(address).snapshot().log.checkpoint
        state = DeltaLog(objects_of(address), Runtime(), SEGMENTS).state()
        told: dict[str, Any] = {
            "dry_run": True,
            "published": state.published,
            "checkpoint": newest.ref.version if newest else None,
        }
    else:

        def run(work: Sequence[WriteFile]) -> list[DeltaFile]:
            if spark is None or len(work) < 2:
                return [each() for each in work]
            return list(spark.sparkContext.parallelize(work, len(work)).map(lambda each: each()).collect())

        told = asdict(publish_delta(address, history=history, run=run))
    return {"ok": True, **told, "seconds": round(time.monotonic() - started, 3)}
