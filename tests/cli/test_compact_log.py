import json
from pathlib import Path

import pyarrow as pa
from typer.testing import CliRunner

import spark_pages
from spark_pages.cli.app import app


def test_compact_log_tells_what_it_wrote(tmp_path: Path) -> None:
    store = spark_pages.create(str(tmp_path / "s"), properties={"log_compaction_commits": "0"})
    for number in range(17):
        with store.transaction() as txn:
            txn.create_table(f"t{number}", pa.schema([("n", pa.int64())]))

    planned = CliRunner().invoke(app, ["compact-log", str(tmp_path / "s"), "--dry-run", "--json"])
    first = CliRunner().invoke(app, ["compact-log", str(tmp_path / "s"), "--json"])
    second = CliRunner().invoke(app, ["compact-log", str(tmp_path / "s")])

    due = json.loads(planned.stdout)
    facts = json.loads(first.stdout)
    sizes = [(tmp_path / "s" / key).stat().st_size for key in facts["keys"]]
    assert (facts["compacted"], facts["written"], facts["bytes_written"]) == (18, 2, sum(sizes))
    assert (due["version"], due["compacted"], due["to_write"]) == (17, 0, facts["written"])
    assert second.exit_code == 0
    assert "18" in second.stdout
