"""spark-submit job: everything that the log names is read and compared; the pages by executors.

spark-submit --properties-file conf/spark-defaults.conf jobs/verify.py URL [--pages sample]
"""

from __future__ import annotations

import sys
from typing import Any

from spark_pages.spark.job import arguments, run_job


def main() -> int:
    """Parse, run, print one JSON line; 0 no damage, 1 damage or an error, 4 not found."""
    parser = arguments("Verify a store with Spark.")
    parser.add_argument(
        "--pages",
        choices=("all", "sample", "none"),
        default="all",
        help="which are read, of all versions that are kept",
    )
    given = parser.parse_args()

    def work() -> dict[str, Any]:
        from spark_pages.spark.session import session
        from spark_pages.spark.verify import verify

        spark = None if given.pages == "none" else session("verify", master=None, source=False)
        return verify(spark, given.url, given.pages, given.profile)

    return run_job(work)


if __name__ == "__main__":
    sys.exit(main())
