"""Rewrite runs of small pages as full ones, in one commit for each table.

SPARK_CONF_DIR=conf spark-submit jobs/compact_pages.py URL
[--table flights] [--dry-run]
"""

import sys

from spark_pages.spark.jobs.compact_pages import main

if __name__ == "__main__":
    sys.exit(main())
