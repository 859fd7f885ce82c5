"""delta-spark reads what is published, and can harm none of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import spark_pages as sp
from spark_pages.spark import delta_log
from spark_pages.spark.publish import PARTS, ROOTS, SEGMENTS, publish_delta
from spark_pages.spark.session import find_java
from tests import PROJECT
from tests.spark.published import folder
from tests.spark.test_publish import SCHEMA, change, clean_up, local_ids, rows

CLIENT = PROJECT / "tests" / "spark" / "delta_client.py"


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(find_java() is None, reason="delta-spark needs Java, and there is none")
def test_delta_spark_reads_every_version_and_can_neither_write_nor_delete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_log, "CHECKPOINT_COMMITS", 3)
    monkeypatch.delitem(delta_log._KEPT, "delta.logRetentionDuration")
    store = sp.create(str(tmp_path / "store"), properties={"checkpoint_commits": "0"})
    with store.transaction() as txn:
        txn.create_table("t", SCHEMA, properties={"page_bytes": "1024"})
        txn.append("t", rows(0, 5_000))
    counts = {}
    for number in range(4):
        change(store, number)
        publish_delta(store.url)
        counts[str(number)] = len(local_ids(store, store.snapshot().version))
        if number == 1:  # what was published first is gone, and the checkpoint after it is ours
            clean_up(store, SEGMENTS.root)
            del counts["0"]
    for each in (SEGMENTS, PARTS, ROOTS):
        (folder(store) / each.root / "unpublished.parquet").write_bytes(b"not named by any Delta commit")
    before = {info.key for info in store.object_store.list("")}
    published = store.snapshot()

    ended = subprocess.run(
        [sys.executable, str(CLIENT), str(folder(store))],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )

    if "unresolved dependency" in ended.stderr or "UNRESOLVED DEPENDENCIES" in ended.stderr:
        pytest.skip("the JARs of delta-spark cannot be fetched here")
    assert ended.returncode == 0, ended.stderr[-3000:]
    told = json.loads(ended.stdout.strip().splitlines()[-1])
    assert told["rows"] == counts
    assert told["ids"] == local_ids(store, published.version)
    assert sorted(set(told["history"])) == list(range(published.version + 1))
    harmless = {"optimize of roots", "generate"}  # one file; a list of files, beside them
    assert {name for name, how in told["ended"].items() if how == "done"} <= harmless
    assert sorted(told["rebuilt_ids"]) == told["ids"]
    assert told["rebuilt"] == told["taken"] == told["exported"] == len(told["ids"])
    assert (told["there before"], told["exported versions"]) == ([False], 2)
    assert told["exported bytes"][0] == told["exported bytes"][1] > 0
    assert sp.open(store.url).snapshot().table("descriptors").num_rows == len(told["ids"])
    assert before <= {info.key for info in store.object_store.list("")}
