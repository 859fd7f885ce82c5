"""Bundle commits, so that readers fetch long stretches of the log by few requests.

SPARK_CONF_DIR=conf spark-submit jobs/compact_log.py URL [--dry-run]
"""

import sys

from spark_pages.spark.jobs.compact_log import main

if __name__ == "__main__":
    sys.exit(main())
