"""The guided tour: flights of a year, month by month, every answer compared with its source.

Start with `tour`, then `steps`. Only the last step needs Spark.
"""

from spark_pages.cli.demo.tour import run_demo

__all__ = ["run_demo"]
