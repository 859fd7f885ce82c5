"""Rewrite runs of small pages as full ones, in one commit for each table.

spark-submit $(python -m spark_pages.spark.where) compact_pages URL [--table flights] [--purge] [--dry-run]
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from spark_pages.spark.job import arguments, run_job


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, run, print one JSON line; 0 done, 1 error, 3 conflict (retry), 4 not found."""
    parser = arguments("compact_pages", "Compact the pages of a table with Spark.")
    parser.add_argument("--table", help="this table only; all by default")
    parser.add_argument("--purge", action="store_true", help="blank the values of deleted rows")
    parser.add_argument("--dry-run", action="store_true", help="only tell what would be done")
    given = parser.parse_args(argv)

    def work() -> dict[str, Any]:
        from spark_pages.spark.compact import compact_pages, each_table, plan_compact_pages
        from spark_pages.spark.session import session

        if given.dry_run:
            return each_table(given.url, given.table, given.profile, plan_compact_pages)
        start = partial(session, "compact_pages", master=None, source=False)
        compact = partial(compact_pages, start, purge=given.purge)
        return each_table(given.url, given.table, given.profile, compact)

    return run_job("compact_pages", given, work)
