"""spark-submit job: checkpoints, history and change feed as Delta tables, without copying a page descriptor.

spark-submit --properties-file conf/spark-defaults.conf jobs/publish_delta.py URL [--no-history] [--dry-run]
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import Any

from spark_pages.spark.job import arguments, run_job


def main() -> int:
    """Parse, run, print one JSON line; 0 done, 1 error, 3 conflict (retry), 4 not found."""
    parser = arguments("Publish a store as Delta tables.")
    parser.add_argument(
        "--history",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="commit history and change feed, too",
    )
    parser.add_argument("--dry-run", action="store_true", help="only tell what would be done")
    given = parser.parse_args()

    def work() -> dict[str, Any]:
        from spark_pages.spark.session import session
        from spark_pages.spark.upkeep import publish

        start = partial(session, "publish_delta", master=None, source=False)
        return publish(given.url, start, history=given.history, dry_run=given.dry_run, profile=given.profile)

    return run_job(work)


if __name__ == "__main__":
    sys.exit(main())
