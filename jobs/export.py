"""Write the rows of a table, as of a version, as Parquet or as a Delta table.

SPARK_CONF_DIR=conf spark-submit jobs/export.py URL
--table flights --output FOLDER [--version 7] [--overwrite] [--dry-run]
"""

import sys

from spark_pages.spark.jobs.export import main

if __name__ == "__main__":
    sys.exit(main())
