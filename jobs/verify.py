"""Read and compare everything that the log names; executors read the pages.

SPARK_CONF_DIR=conf spark-submit jobs/verify.py URL [--pages sample]
"""

import sys

from spark_pages.spark.jobs.verify import main

if __name__ == "__main__":
    sys.exit(main())
