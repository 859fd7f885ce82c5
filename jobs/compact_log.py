"""Bundle commits, so that readers fetch long stretches of the log by few requests.

spark-submit --properties-file conf/spark-defaults.conf jobs/compact_log.py URL [--dry-run]
"""

import sys

from spark_pages.spark.jobs.compact_log import main

if __name__ == "__main__":
    sys.exit(main())
