"""Write the rows of a table, as of a version, as Parquet or as a Delta table.

spark-submit $(python -m spark_pages.spark.where) export URL
--table flights --output FOLDER [--version 7 | --timestamp T | --tag NAME] [--overwrite] [--dry-run]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spark_pages.spark.job import add_version_choice, arguments, chosen_version, named_options, run_job


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, run, print one JSON line; 0 done, 1 error, 4 not found."""
    parser = arguments("export", "Export a table with Spark.")
    parser.add_argument("--table", required=True)
    parser.add_argument(
        "--output", required=True, help="a folder; or a file of this machine, such as rows.csv"
    )
    parser.add_argument(
        "--format", help="parquet, csv, json, ipc, orc or delta; else what the output ends with, or parquet"
    )
    add_version_choice(parser)
    parser.add_argument("--overwrite", action="store_true", help="what is there goes")
    parser.add_argument(
        "--option", action="append", default=[], help="NAME=VALUE for Spark; env:NAME as value"
    )
    parser.add_argument("--dry-run", action="store_true", help="only tell what would be done")
    given = parser.parse_args(argv)

    def work() -> dict[str, Any]:
        from spark_pages.query.output_files import format_of_name
        from spark_pages.spark.external import External
        from spark_pages.spark.session import session
        from spark_pages.spark.transfer import export

        form = given.format or format_of_name(given.output) or "parquet"
        target = External(form, given.output, named_options(given.option))
        target.check_target()
        return export(
            None if given.dry_run else session("export", master=None, delta=form == "delta"),
            given.url,
            given.table,
            target,
            version=chosen_version(given),
            overwrite=given.overwrite,
            dry_run=given.dry_run,
            profile=given.profile,
        )

    return run_job("export", given, work)
