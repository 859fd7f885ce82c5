"""Write a checkpoint, so that readers open the newest version without the commits before it.

spark-submit --properties-file conf/spark-defaults.conf jobs/checkpoint.py URL
[--publish] [--local] [--dry-run]
"""

import sys

from spark_pages.spark.jobs.checkpoint import main

if __name__ == "__main__":
    sys.exit(main())
