"""Registers the data source: Spark imports a ``pyspark_*`` module and takes its ``DefaultSource``."""

from spark_pages.spark.source import SparkPagesDataSource as DefaultSource

__all__ = ["DefaultSource"]
