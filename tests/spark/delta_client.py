"""A session with delta-spark that tries to harm a published table; a script, with the folder of a store.

Prints one JSON object: what each attempt came to, what was read at every version, and how many rows went from
the store into Delta tables of our own and back.
"""

# ruff: noqa: S608 - the names in these statements are ours
from __future__ import annotations

import json
import os
import sys
from typing import Any

from spark_pages.spark.external import External
from spark_pages.spark.options import WriteOptions
from spark_pages.spark.output_folder import OutputFolder
from spark_pages.spark.publish import HISTORY, PARTS, ROOTS, SEGMENTS
from spark_pages.spark.reconstruct import Output, reconstruct_snapshot
from spark_pages.spark.session import session
from spark_pages.spark.transfer import export, ingest

store = sys.argv[1]
table = f"delta.`{store}/{SEGMENTS.root}`"
ATTEMPTS = {
    f"{what} of {each.name}": statement.format(f"delta.`{store}/{each.root}`")
    for each in (SEGMENTS, PARTS, ROOTS)
    for what, statement in {
        "vacuum": "VACUUM {} RETAIN 0 HOURS",
        "lite vacuum": "VACUUM {} LITE RETAIN 0 HOURS",
        "delete": "DELETE FROM {}",
        "optimize": "OPTIMIZE {}",
    }.items()
} | {
    "delete some": f"DELETE FROM {table} WHERE entry_count > 0",
    "update": f"UPDATE {table} SET entry_count = 5",
    "z-order": f"OPTIMIZE {table} ZORDER BY (page_id)",
    "merge": f"MERGE INTO {table} USING (SELECT 1 AS id) ON page_id = id WHEN MATCHED THEN DELETE",
    "generate": f"GENERATE symlink_format_manifest FOR TABLE {table}",
    "restore": f"RESTORE TABLE {table} TO VERSION AS OF 1",
    "insert": f"INSERT INTO {table} (page_id) VALUES (1)",
    "unguard": f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.appendOnly' = 'false')",
    "drop feature": f"ALTER TABLE {table} DROP FEATURE `spark_pages-published` TRUNCATE HISTORY",
}

spark = session("delta client", "local[1]", delta=True)
spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
spark.conf.set("spark.databricks.delta.snapshotPartitions", "1")  # 50 tasks by default, for each version
folder = f"{store}/{SEGMENTS.root}"
reading = spark.read.format("delta")
versions = sorted(row["version"] for row in spark.sql(f"DESCRIBE HISTORY {table}").collect())
rows = {version: reading.option("versionAsOf", version).load(folder).count() for version in versions}
ended = {}
for name, statement in ATTEMPTS.items():
    try:
        spark.sql(statement).collect()
    except Exception as error:  # noqa: BLE001 - whatever Delta raises
        ended[name] = str(error).strip().splitlines()[0][:200]
    else:
        ended[name] = "done"
ids = [row[0] for row in spark.read.format("delta").load(folder).select("page_id").collect()]
history = spark.read.format("delta").load(f"{store}/{HISTORY.root}").select("version").collect()
output = f"{store}-descriptors"
rebuilt = reconstruct_snapshot(spark, store, output=Output("delta", output), check=False)
rebuilt_ids = [row[0] for row in spark.read.format("delta").load(output).select("page_id").collect()]
into = WriteOptions("descriptors", create=True, operation="ingest")
source = External("delta", output, {"versionAsOf": "0"})
taken = ingest(spark, store, source, into)
target = External("delta", f"{store}-exported", {})
there: list[bool] = []
move = OutputFolder._move


def look_and_move(self: OutputFolder, *arguments: Any) -> None:
    """Whether something is there before all is written: a job that is killed would leave it."""
    there.append(os.path.lexists(self.path))
    move(self, *arguments)


OutputFolder._move = look_and_move  # type: ignore[method-assign]
exported = export(spark, store, "descriptors", target)
again = export(spark, store, "descriptors", target, overwrite=True)
print(
    json.dumps(
        {
            "ended": ended,
            "rows": rows,
            "ids": sorted(ids),
            "history": sorted(row[0] for row in history),
            "rebuilt": rebuilt["num_pages"],
            "rebuilt_ids": rebuilt_ids,
            "taken": taken["num_rows"],
            "exported": spark.read.format("delta").load(f"{store}-exported").count(),
            "exported versions": spark.sql(f"DESCRIBE HISTORY delta.`{store}-exported`").count(),
            "exported bytes": [exported["bytes_written"], again["bytes_written"]],
            "there before": there,
        }
    )
)
