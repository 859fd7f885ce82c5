"""Loses the JVM of its session, and prints what a call of Spark ends with."""

from __future__ import annotations

import os
import signal

from spark_pages.errors import SparkFailedError
from spark_pages.spark.failures import spark_failing
from spark_pages.spark.session import session


def main() -> None:
    """The line is all that is on stdout."""
    spark = session("lost")
    jvm = int(spark._jvm.java.lang.ProcessHandle.current().pid())
    os.kill(jvm, signal.SIGKILL)
    os.waitpid(jvm, 0)
    try:
        with spark_failing():
            spark.sparkContext.parallelize([1], 1).collect()
    except SparkFailedError as error:
        print(f"SparkFailedError: {error.message}", flush=True)


if __name__ == "__main__":
    main()
