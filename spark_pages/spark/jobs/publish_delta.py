"""Publish checkpoints, history and change feed as Delta tables, without copying a page descriptor.

spark-submit $(python -m spark_pages.spark.where) publish_delta URL [--no-history] [--dry-run]
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Any

from spark_pages.spark.job import arguments, run_job


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, run, print one JSON line; 0 done, 1 error, 3 conflict (retry), 4 not found."""
    parser = arguments("publish_delta", "Publish a store as Delta tables.")
    parser.add_argument(
        "--history",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="commit history and change feed, too",
    )
    parser.add_argument("--dry-run", action="store_true", help="only tell what would be done")
    given = parser.parse_args(argv)

    def work() -> dict[str, Any]:
        from spark_pages.spark.log_jobs import publish
        from spark_pages.spark.session import session

        start = partial(session, "publish_delta", master=None, source=False)
        return publish(given.url, start, history=given.history, dry_run=given.dry_run, profile=given.profile)

    return run_job("publish_delta", given, work)
