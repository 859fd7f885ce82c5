"""Delete what no retained version needs; executors search for orphans.

SPARK_CONF_DIR=conf spark-submit jobs/vacuum.py URL
[--retention 7d] [--orphans] [--apply]
"""

import sys

from spark_pages.spark.jobs.vacuum import main

if __name__ == "__main__":
    sys.exit(main())
