"""spark-submit job: long stretches of the log are read in few requests.

spark-submit --properties-file conf/spark-defaults.conf jobs/compact_log.py URL [--dry-run]
"""

from __future__ import annotations

import sys
from typing import Any

from spark_pages.spark.job import arguments, run_job


def main() -> int:
    """Parse, run, print one JSON line; 0 done, 1 error, 4 not found."""
    parser = arguments("Compact the log.")
    parser.add_argument("--dry-run", action="store_true", help="only tell what would be done")
    given = parser.parse_args()

    def work() -> dict[str, Any]:
        from spark_pages.spark.upkeep import compact_log

        return compact_log(given.url, dry_run=given.dry_run, profile=given.profile)

    return run_job(work)


if __name__ == "__main__":
    sys.exit(main())
