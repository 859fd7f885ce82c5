"""DuckDB reads published tables; a script, with its extension, the folder of a store, an output and versions.

For each Delta version it writes ``rows-<version>.parquet``, put together as docs/delta-tables.md says, and
``history.parquet`` and ``changes.parquet`` as they are now. It prints one JSON object: what came of each try
to change a table. It runs in an interpreter of its own, beside the DuckDB of an older release that the
extension is for, so it imports nothing of ours.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import duckdb

extension, store, output, *versions = sys.argv[1:]
ROWS = """
WITH pages AS (
    SELECT *, parse_filename(filename, true) AS file, file_row_number AS c
    FROM delta_scan('{store}/_log/segments', version={version})
), parts AS (
    SELECT digest AS file, parse_filename(filename, true) AS part, file_row_number AS b
    FROM delta_scan('{store}/_log/parts', version={version})
), roots AS (
    SELECT digest AS part, file_row_number AS a
    FROM delta_scan('{store}/_log/checkpoints', version={version})
)
SELECT table_id, field_id, page_id, entry_count, actual_len, checksum,
    coalesce(sum(entry_count) OVER before, 0)::BIGINT AS first_row
FROM pages JOIN parts USING (file) JOIN roots USING (part)
WINDOW before AS (
    PARTITION BY table_id, field_id ORDER BY a, b, c ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
)
ORDER BY table_id, field_id, a, b, c
"""

connection = duckdb.connect(config={"extension_directory": str(Path(output, "extensions"))})
connection.sql(f"INSTALL '{extension}'")
connection.sql("LOAD delta")
for version in versions:
    query = ROWS.format(store=store, version=version)
    connection.sql(query).write_parquet(str(Path(output, f"rows-{version}.parquet")))
for name in ("history", "changes"):
    whole = connection.sql(f"FROM delta_scan('{store}/_delta/{name}')")
    whole.write_parquet(str(Path(output, f"{name}.parquet")))
ended = {}
connection.sql(f"ATTACH '{store}/_log/segments' AS segments (TYPE delta)")
for statement in (
    "INSERT INTO segments FROM segments",
    "DELETE FROM segments",
    "UPDATE segments SET page_id = 1",
):
    try:
        connection.sql(statement)
    except duckdb.Error as error:
        ended[statement] = str(error)
    else:
        ended[statement] = "done"
json.dump(ended, sys.stdout)
