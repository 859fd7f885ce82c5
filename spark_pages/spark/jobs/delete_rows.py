"""Delete the rows of a table whose keys are in a source, in one commit.

spark-submit $(python -m spark_pages.spark.where) delete_rows URL
--table flights --path KEYS --format parquet [--dry-run]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spark_pages.spark.job import arguments, named_options, run_job


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, run, print one JSON line; 0 done, 1 error, 3 conflict (retry), 4 not found."""
    parser = arguments("delete_rows", "Delete rows by their keys with Spark.")
    parser.add_argument("--table", required=True)
    parser.add_argument("--path", help="what holds the keys, under the names of columns; none for jdbc")
    parser.add_argument(
        "--format", help="parquet, csv, json, orc, delta or jdbc; else what the path ends with"
    )
    parser.add_argument("--schema", help="of csv and json, as DDL: 'id long, name string'")
    parser.add_argument(
        "--option", action="append", default=[], help="NAME=VALUE for Spark; env:NAME as value"
    )
    parser.add_argument("--dry-run", action="store_true", help="only count the rows")
    given = parser.parse_args(argv)

    def work() -> dict[str, Any]:
        from spark_pages.spark.delete import delete_rows
        from spark_pages.spark.external import External
        from spark_pages.spark.session import session

        keys = External.source(given.format, given.path, named_options(given.option), given.schema)
        spark = session("delete_rows", master=None, delta=keys.format == "delta", source=True)
        return delete_rows(spark, given.url, given.table, keys, dry_run=given.dry_run, profile=given.profile)

    return run_job("delete_rows", given, work)
