"""The job ``vacuum``: the plan and its order are the store's own, the search for orphans is Spark's."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from spark_pages.spark.job import told_as
from spark_pages.spark.orphans import delete_objects, find_orphans
from spark_pages.spark.serialization import store_of, store_url

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@told_as("vacuum")
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
    """What no version that is kept needs has gone, or is told.

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
            "oldest": done.oldest,
            "objects": done.objects,
            "bytes": done.size_bytes,
            "spared": done.spared,
        }
    else:
        plan = store.vacuum_plan(retention, orphans and spark is None)
        told = {
            "version": plan.version,
            "oldest": plan.retention.min_readable,
            "objects": plan.objects.num_rows,
            "bytes": plan.size_bytes,
            "reasons": plan.counts,
        }
        if listed:
            told["plan"] = plan.objects.to_pylist()
    told |= {"orphans": None, "orphan_bytes": None}
    if spark is not None:
        found = find_orphans(spark, address)
        told |= {
            "orphans": found.num_rows,
            "orphan_bytes": pc.sum(found.column("bytes")).as_py() or 0,
        }
        if apply:
            delete_objects(spark, address, found)
    return {"applied": apply, **told}
