"""Rebuild the page descriptors of a version from its checkpoint and commits.

spark-submit $(python -m spark_pages.spark.where) reconstruct_snapshot URL
[--version 7 | --timestamp T | --tag NAME] [--output FOLDER [--format delta]] [--format checkpoint]
[--dry-run]
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from spark_pages.spark.job import add_version_choice, arguments, chosen_version, run_job


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, run, print one JSON line; 0 done, 1 error or not equal to the local snapshot, 4 not found."""
    parser = arguments("reconstruct_snapshot", "Reconstruct a snapshot with Spark.")
    add_version_choice(parser)
    parser.add_argument("--output", help="a folder for the descriptors")
    parser.add_argument(
        "--format", choices=("parquet", "delta", "checkpoint"), help="of the output; parquet by default"
    )
    parser.add_argument("--overwrite", action="store_true", help="what is there goes")
    parser.add_argument(
        "--check",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="compare with the local snapshot, descriptor by descriptor",
    )
    parser.add_argument("--dry-run", action="store_true", help="only tell what would be read")
    given = parser.parse_args(argv)

    def work() -> dict[str, Any]:
        from spark_pages.spark.reconstruct import Output, reconstruct_snapshot
        from spark_pages.spark.session import session

        output = None
        if given.output or given.format:
            output = Output(given.format or "parquet", given.output, given.overwrite)
        delta = given.format == "delta"
        return reconstruct_snapshot(
            None
            if given.dry_run
            else session("reconstruct_snapshot", master=None, delta=delta, source=False),
            given.url,
            chosen_version(given),
            output,
            given.check,
            given.profile,
            dry_run=given.dry_run,
        )

    return run_job("reconstruct_snapshot", given, work)
