"""The entry for ``spark-submit``: runs the job whose name comes first.

spark-submit $(python -m spark_pages.spark.where) verify URL
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

from spark_pages.spark.job import JOBS, JobParser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job that the first argument names, with the arguments after it."""
    parser = JobParser(
        prog="spark-submit ENTRY",
        description="Run a job of spark_pages.",
        epilog="JOB --help lists its arguments.",
    )
    parser.add_argument("job", metavar="JOB", choices=JOBS, help=f"one of {', '.join(JOBS)}")
    given = list(sys.argv[1:] if argv is None else argv)
    job = parser.parse_args(given[:1]).job
    code: int = import_module(f"spark_pages.spark.jobs.{job}").main(given[1:])
    return code


if __name__ == "__main__":
    sys.exit(main())
