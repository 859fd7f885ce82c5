"""Read and compare everything that the log names; executors read the pages.

spark-submit $(python -m spark_pages.spark.where) verify URL [--pages sample]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spark_pages.spark.job import arguments, run_job


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, run, print one JSON line; 0 no damage, 1 damage or an error, 4 not found."""
    parser = arguments("verify", "Verify a store with Spark.")
    parser.add_argument(
        "--pages",
        choices=("all", "sample", "none"),
        default="all",
        help="which are read, of all versions that are kept",
    )
    given = parser.parse_args(argv)

    def work() -> dict[str, Any]:
        from spark_pages.spark.session import session
        from spark_pages.spark.verify import verify

        spark = None if given.pages == "none" else session("verify", master=None, source=False)
        return verify(spark, given.url, given.pages, given.profile)

    return run_job("verify", given, work)
