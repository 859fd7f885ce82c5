"""Write a checkpoint, so that readers open the newest version without the commits before it.

SPARK_CONF_DIR=conf spark-submit jobs/checkpoint.py URL
[--publish] [--local] [--dry-run]
"""

import sys

from spark_pages.spark.jobs.checkpoint import main

if __name__ == "__main__":
    sys.exit(main())
