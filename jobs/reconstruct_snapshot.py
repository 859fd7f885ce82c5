"""spark-submit job: rebuild the page descriptors of a version from its checkpoint and commits.

spark-submit --properties-file conf/spark-defaults.conf jobs/reconstruct_snapshot.py URL [--version 7]
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from spark_pages.spark.job import arguments, run_job


def main() -> int:
    """Parse, run, print one JSON line; 0 done, 1 error or not equal to the local snapshot, 4 not found."""
    parser = arguments("Reconstruct a snapshot with Spark.")
    parser.add_argument("--version", type=int, help="the newest by default")
    parser.add_argument("--output", help="a new folder for the descriptors as Parquet")
    parser.add_argument(
        "--check",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="compare with the local snapshot, descriptor by descriptor",
    )
    given = parser.parse_args()

    def work() -> dict[str, Any]:
        from spark_pages.spark.reconstruct import reconstruct_snapshot
        from spark_pages.spark.session import session

        spark = session("reconstruct_snapshot", master=None)
        return reconstruct_snapshot(spark, given.url, given.version, given.output, given.check, given.profile)

    return run_job(work)


if __name__ == "__main__":
    sys.exit(main())
