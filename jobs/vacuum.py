"""Delete what no retained version needs; executors search for orphans.

spark-submit --properties-file conf/spark-defaults.conf jobs/vacuum.py URL
[--retention 7d] [--orphans] [--apply]
"""

import sys

from spark_pages.spark.jobs.vacuum import main

if __name__ == "__main__":
    sys.exit(main())
