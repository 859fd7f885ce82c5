"""Write a checkpoint, so that readers open the newest version without the commits before it.

spark-submit $(python -m spark_pages.spark.where) checkpoint URL [--publish] [--local] [--dry-run]
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from spark_pages.spark.job import arguments, run_job


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, run, print one JSON line; 0 done, 1 error, 4 not found."""
    parser = arguments("checkpoint", "Write a checkpoint.")
    parser.add_argument("--publish", action="store_true", help="as a commit of the Delta tables, too")
    parser.add_argument(
        "--local", action="store_true", help="in one process; so are small checkpoints in any case"
    )
    parser.add_argument("--dry-run", action="store_true", help="only tell what would be done")
    given = parser.parse_args(argv)

    def work() -> dict[str, Any]:
        from spark_pages.spark.checkpoints import checkpoint
        from spark_pages.spark.session import session

        return checkpoint(
            given.url,
            None if given.local else partial(session, "checkpoint", master=None),
            publish=given.publish,
            dry_run=given.dry_run,
            profile=given.profile,
        )

    return run_job("checkpoint", given, work)
