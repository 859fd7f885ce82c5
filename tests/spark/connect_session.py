"""What a session of Spark Connect makes of a store; run by `test_connect` in a process of its own.

Prints one line of JSON. Arguments are the store, a folder, and where Spark is: `local[2]`, for which Spark
starts a server itself, or the address of one.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import spark_pages as sp
from spark_pages.errors import SparkFailedError
from spark_pages.spark import compact_pages, export, ingest, reconstruct_snapshot, session
from spark_pages.spark.external import External
from spark_pages.spark.options import WriteOptions
from spark_pages.spark.verify import verify


def main(url: str, folder: Path, remote: str) -> dict[str, Any]:
    """The answers by name."""
    spark = SparkSession.builder.remote(remote).getOrCreate()

    def pages(**options: Any) -> DataFrame:
        return spark.read.format("spark_pages").options(**options).load(url)

    told: dict[str, Any] = {"kind": type(spark).__module__}
    told["known_by_itself"] = pages(view="tables").count()
    told["rows_by_itself"] = pages(table="flights").count()
    told["session_takes_it"] = session() is spark
    told["rows"] = pages(table="flights").count()
    told["of_a_version"] = pages(table="flights", versionAsOf=1).count()
    some = pages(table="flights").where("id between 7 and 9").select("id")
    told["filtered"] = sorted(row.id for row in some.collect())
    whole = pages(table="flights")
    few, others = whole.where("id < 10"), whole.where("id >= 10")
    told["of_one_load"] = few.count(), whole.count(), few.union(whole).count(), few.union(others).count()
    told["pages"] = pages(view="pages", table="flights").count()
    history = spark.sql("select operation from spark_pages_history(:url, limit => 1)", {"url": url})
    told["by_function"] = [row.operation for row in history.collect()]
    function = "select * from spark_pages_changes(:url, starting_version => 0, table => 'flights')"
    changed = spark.sql(function, {"url": url})
    told["changes_by_function"] = changed.count()
    rows = pages(table="flights").where("id < 5")
    rows.write.format("spark_pages").mode("append").option("table", "flights").save(url)
    told["rows_written"] = sp.open(url).snapshot().table("flights").num_rows
    rows.write.parquet(str(folder / "rows"))
    brought = ingest(spark, url, External("parquet", str(folder / "rows"), {}), WriteOptions("flights"))
    told["rows_ingested"] = brought["num_rows"]
    until = sp.open(url).snapshot().version
    feed = spark.readStream.format("spark_pages").option("view", "changes").load(url)
    sink = feed.writeStream.format("spark_pages").option("checkpointLocation", str(folder / "checkpoint"))
    sink = sink.option("table", "feed").option("createTable", "true")
    sink.trigger(availableNow=True).start(url).awaitTermination()
    told["streamed"] = until, sp.open(url).snapshot().table("feed").num_rows
    out = External("parquet", str(folder / "out"), {})
    told["refused"] = [
        _refused(lambda: compact_pages(spark, url, "flights")),
        _refused(lambda: reconstruct_snapshot(spark, url)),
        _refused(lambda: verify(spark, url)),
        _refused(lambda: export(spark, url, "flights", out)),
    ]
    spark.stop()
    return told


def _refused(work: Callable[[], object]) -> Any:
    """The condition by which Spark refuses."""
    try:
        work()
    except SparkFailedError as refused:
        return re.findall(r"\[([A-Z_]+)\]", str(refused))[-1]
    return None


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])), flush=True)
