"""Rebuild the page descriptors of a version from its checkpoint and commits.

SPARK_CONF_DIR=conf spark-submit jobs/reconstruct_snapshot.py URL
[--version 7] [--output FOLDER [--format delta]] [--format checkpoint] [--dry-run]
"""

import sys

from spark_pages.spark.jobs.reconstruct_snapshot import main

if __name__ == "__main__":
    sys.exit(main())
