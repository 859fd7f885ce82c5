"""spark-submit job: everything that the log names is read and compared; every page of a version by executors.

spark-submit --properties-file conf/spark-defaults.conf jobs/verify.py URL [--version 7] [--dry-run]
"""

from __future__ import annotations

import sys
from typing import Any

from spark_pages.spark.job import arguments, run_job


def main() -> int:
    """Parse, run, print one JSON line; 0 no damage, 1 damage or an error, 4 not found."""
    parser = arguments("Verify a store with Spark.")
    parser.add_argument("--pages", choices=("all", "sample", "none"), default="all", help="which are read")
    parser.add_argument("--version", type=int, help="whose pages are read; the newest by default")
    parser.add_argument("--dry-run", action="store_true", help="only tell how many pages would be read")
    given = parser.parse_args()

    def work() -> dict[str, Any]:
        from spark_pages.spark.session import session
        from spark_pages.spark.verify import verify

        return verify(
            None if given.dry_run else session("verify", master=None, source=False),
            given.url,
            given.version,
            given.pages,
            given.profile,
            dry_run=given.dry_run,
        )

    return run_job(work)


if __name__ == "__main__":
    sys.exit(main())
