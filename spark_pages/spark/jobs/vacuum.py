"""Delete what no retained version needs; executors search for orphans.

spark-submit $(python -m spark_pages.spark.where) vacuum URL [--retention 7d] [--orphans] [--apply]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spark_pages.spark.job import arguments, run_job


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, run, print one JSON line; 0 done or planned, 1 error, 3 conflict (retry), 4 not found."""
    parser = arguments("vacuum", "Vacuum a store with Spark.")
    parser.add_argument(
        "--retention", help="30 (so many versions) or 7d, 12h, 30m (readable until so long ago)"
    )
    parser.add_argument(
        "--orphans", action="store_true", help="list the store for objects that no commit ever named"
    )
    parser.add_argument("--apply", action="store_true", help="delete; without it the plan is told")
    given = parser.parse_args(argv)

    def work() -> dict[str, Any]:
        from spark_pages.log.retention import parse_retention
        from spark_pages.spark.session import session
        from spark_pages.spark.vacuum import vacuum

        spark = session("vacuum", master=None, source=False) if given.orphans else None
        keep = None if given.retention is None else parse_retention(given.retention)
        return vacuum(spark, given.url, keep, apply=given.apply, profile=given.profile)

    return run_job("vacuum", given, work)
