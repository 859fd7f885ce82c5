"""Bundle commits, so that readers fetch long stretches of the log by few requests.

spark-submit $(python -m spark_pages.spark.where) compact_log URL [--dry-run]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spark_pages.spark.job import arguments, run_job


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, run, print one JSON line; 0 done, 1 error, 4 not found."""
    parser = arguments("compact_log", "Compact the log.")
    parser.add_argument("--dry-run", action="store_true", help="only tell what would be done")
    given = parser.parse_args(argv)

    def work() -> dict[str, Any]:
        from spark_pages.spark.log_jobs import compact_log

        return compact_log(given.url, dry_run=given.dry_run, profile=given.profile)

    return run_job("compact_log", given, work)
