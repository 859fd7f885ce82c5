"""Delete the rows of a table whose keys are in a source, in one commit.

SPARK_CONF_DIR=conf spark-submit jobs/delete_rows.py URL
--table flights --path KEYS --format parquet [--dry-run]
"""

import sys

from spark_pages.spark.jobs.delete_rows import main

if __name__ == "__main__":
    sys.exit(main())
