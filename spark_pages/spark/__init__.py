"""Spark: the data source, and the maintenance jobs that need more than one machine.

The only folder that imports pyspark (``pip install "spark-pages[spark]"``, and Java 17), and only when it is
used. Start at `session` for a ready session, at `source` for the format ``spark_pages``, at `writing` for
what a write does, at `publish` for Delta tables, at the function of a job's name for the job, at `submit` for
running one by ``spark-submit``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

# Function and module share a name: bound here, at once, the name is the function's for good.
from spark_pages.spark.session import session as session
from spark_pages.spark.submit import submit as submit

if TYPE_CHECKING:
    from spark_pages.spark.compact import compact_pages as compact_pages
    from spark_pages.spark.delete import delete_rows as delete_rows
    from spark_pages.spark.publish import publish_delta as publish_delta
    from spark_pages.spark.reconstruct import reconstruct_snapshot as reconstruct_snapshot
    from spark_pages.spark.transfer import export as export
    from spark_pages.spark.transfer import ingest as ingest

_HOMES = {
    "compact_pages": "spark_pages.spark.compact",
    "delete_rows": "spark_pages.spark.delete",
    "export": "spark_pages.spark.transfer",
    "ingest": "spark_pages.spark.transfer",
    "publish_delta": "spark_pages.spark.publish",
    "reconstruct_snapshot": "spark_pages.spark.reconstruct",
}

__all__ = [
    "compact_pages",
    "delete_rows",
    "export",
    "ingest",
    "publish_delta",
    "reconstruct_snapshot",
    "session",
    "submit",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'spark_pages.spark' has no attribute {name!r}")
