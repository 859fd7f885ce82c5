"""The job ``vacuum``: the plan and its order are the store's own, the search for orphans is Spark's."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from spark_pages.spark.orphans import delete_files, find_orphan_files
from spark_pages.spark.shipping import store_of, store_url

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def vacuum(
    spark: SparkSession | None,
    url: str,
    retention: timedelta | int | None = None,
    *,
    apply: bool = False,
    profile: str | None = None,
) -> dict[str, Any]:
    """What no version that is kept needs has gone, or is told.

    Parameters
    ----------
    spark
        Searches for orphans; None leaves them.
    url, profile
        The store.
    retention
        As of `Store.vacuum_plan`.
    apply
        Whether to delete.

    Returns
    -------
    dict
        ``ok``, ``applied``, ``version``, ``oldest``, ``objects``, ``bytes``, ``orphans``, ``orphan_bytes``,
        ``seconds``.

    Notes
    -----
    Orphans are page files of writers that a vacuum has refused: those that this one refuses are found once it
    has committed, so a plan does not count them yet. May be killed at any point and run again, and two may
    run at once.
    """
    started = time.monotonic()
    address = store_url(url, profile)
    store = store_of(address)
    told: dict[str, Any]
    if apply:
        done = store.vacuum(retention)
        told = {
            "version": done.version,
            "oldest": done.oldest,
            "objects": done.objects,
            "bytes": done.size_bytes,
        }
    else:
        plan = store.vacuum_plan(retention)
        told = {
            "version": plan.version,
            "oldest": plan.retention.min_readable,
            "objects": plan.objects.num_rows,
            "bytes": plan.size_bytes,
        }
    told |= {"orphans": None, "orphan_bytes": None}
    if spark is not None:
        orphans = find_orphan_files(spark, address)
        told |= {
            "orphans": orphans.files.num_rows,
            "orphan_bytes": pc.sum(orphans.files.column("bytes")).as_py() or 0,
        }
        if apply:
            delete_files(spark, address, orphans.files)
    return {"ok": True, "applied": apply, **told, "seconds": round(time.monotonic() - started, 3)}
