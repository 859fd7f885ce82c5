"""Read rows of Parquet, CSV, JSON, ORC, Delta or JDBC sources into a table, in one commit.

SPARK_CONF_DIR=conf spark-submit jobs/ingest.py URL
--table flights --path FOLDER --format csv [--create]
"""

import sys

from spark_pages.spark.jobs.ingest import main

if __name__ == "__main__":
    sys.exit(main())
