"""Publish checkpoints, history and change feed as Delta tables, without copying a page descriptor.

SPARK_CONF_DIR=conf spark-submit jobs/publish_delta.py URL [--no-history] [--dry-run]
"""

import sys

from spark_pages.spark.jobs.publish_delta import main

if __name__ == "__main__":
    sys.exit(main())
