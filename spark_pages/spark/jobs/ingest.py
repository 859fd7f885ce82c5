"""Read rows of Parquet, CSV, JSON, ORC, Delta or JDBC sources into a table, in one commit.

spark-submit $(python -m spark_pages.spark.where) ingest URL
--table flights --path FOLDER --format csv [--create]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spark_pages.spark.job import arguments, named_options, run_job


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, run, print one JSON line; 0 done, 1 error, 3 conflict (retry), 4 not found."""
    parser = arguments("ingest", "Ingest rows with Spark.")
    parser.add_argument("--table", required=True)
    parser.add_argument("--path", help="what to read; none for jdbc")
    parser.add_argument(
        "--format", help="parquet, csv, json, ipc, orc, delta or jdbc; else what the path ends with"
    )
    parser.add_argument("--schema", help="of csv and json, as DDL: 'id long, name string'")
    parser.add_argument(
        "--option", action="append", default=[], help="NAME=VALUE for Spark; env:NAME as value"
    )
    parser.add_argument("--create", action="store_true", help="make the table if it is not there")
    parser.add_argument("--overwrite", action="store_true", help="the rows that are there go")
    parser.add_argument("--app-id", help="with --app-version: a repeated job adds nothing twice")
    parser.add_argument("--app-version", type=int)
    parser.add_argument("--dry-run", action="store_true", help="only tell what would be done")
    given = parser.parse_args(argv)

    def work() -> dict[str, Any]:
        from spark_pages.spark.external import External
        from spark_pages.spark.options import WriteOptions
        from spark_pages.spark.session import session
        from spark_pages.spark.transfer import ingest

        source = External.source(given.format, given.path, named_options(given.option), given.schema)
        options = WriteOptions(
            given.table,
            create=given.create,
            operation="ingest",
            app_id=given.app_id,
            app_version=given.app_version,
        )
        options.check_pair()
        spark = session("ingest", master=None, delta=source.format == "delta", source=False)
        return ingest(
            spark,
            given.url,
            source,
            options,
            overwrite=given.overwrite,
            dry_run=given.dry_run,
            profile=given.profile,
        )

    return run_job("ingest", given, work)
