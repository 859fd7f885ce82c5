"""Jobs killed at some point and run again, by real ``spark-submit``."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import spark_pages as sp
from spark_pages.spark import submit
from spark_pages.spark.session import PROJECT, find_java
from tests.spark.published import folder

needs_java = pytest.mark.skipif(find_java() is None, reason="spark-submit needs Java, and there is none")
pytestmark = [needs_java, pytest.mark.slow, pytest.mark.timeout(1200)]

ROWS = 200_000
SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])


def killed(job: str, arguments: list[str], seconds: float, folder: Path) -> None:
    """Begin the job, and kill it and all its processes after so long, unless it has ended."""
    code = f"from spark_pages.spark import submit; submit({job!r}, {arguments!r})"
    running = subprocess.Popen(
        [sys.executable, "-c", code],
        start_new_session=True,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
    )
    try:
        running.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()


def at_leisure(store: sp.Store) -> None:
    """Claims of a job that was killed expire by the clock: let the hour pass."""
    with store.transaction() as txn:
        for claim in store.snapshot().log.state.claims:
            txn.claim(replace(claim, expires_at_us=0))


@pytest.fixture
def store(tmp_path: Path) -> sp.Store:
    return sp.create(str(tmp_path / "store"))


def test_an_ingest_that_is_killed_and_run_again_brings_every_row_once(
    store: sp.Store, tmp_path: Path
) -> None:
    rows = pa.table({"n": range(ROWS), "text": [f"text number {n}" for n in range(ROWS)]}, SCHEMA)
    pq.write_table(rows, tmp_path / "rows.parquet")
    job = [
        str(folder(store)),
        "--table",
        "t",
        "--format",
        "parquet",
        "--path",
        str(tmp_path / "rows.parquet"),
    ]
    job += ["--create", "--app-id", "nightly", "--app-version", "1"]

    killed("ingest", job, random.Random(time.time_ns()).uniform(6, 20), tmp_path)
    done = submit("ingest", job)

    table = sp.open(store.url).snapshot().table("t")
    assert done["ok"]
    assert done["already_landed"] or done["rows"] == ROWS
    assert sorted(table.read(["n"]).column("n").to_pylist()) == list(range(ROWS))
    assert store.verify("all").ok


def test_jobs_that_rewrite_delete_and_publish_may_be_killed_and_run_again(
    store: sp.Store, tmp_path: Path
) -> None:
    with store.transaction() as txn:
        txn.create_table("t", SCHEMA, properties={"page_bytes": "1024"})
        txn.append("t", pa.table({"n": range(10_000), "text": ["x" * 10] * 10_000}, SCHEMA))
    for number in range(10):
        with store.transaction() as txn:
            txn.update("t", "n", rows=[number], values=[-1])
    with store.transaction() as txn:
        txn.set_table_properties("t", {"page_bytes": "65536"})
    store.checkpoint()
    assert store.snapshot().table("t").pages("text").num_rows > 100
    orphan = f"pages/{1:020d}-{'cd' * 16}-0.pages"
    store.objects.put(orphan, b"x" * 100)
    expected = store.snapshot().table("t").read()
    vacuum = [str(folder(store)), "--retention", "1", "--orphans", "--apply"]
    wait = random.Random(time.time_ns())

    killed("compact_pages", [str(folder(store)), "--table", "t"], wait.uniform(6, 14), tmp_path)
    at_leisure(store)
    compacted = submit("compact_pages", [str(folder(store)), "--table", "t"])
    killed("publish_delta", [str(folder(store))], wait.uniform(4, 14), tmp_path)
    published = submit("publish_delta", [str(folder(store))])
    killed("vacuum", vacuum, wait.uniform(4, 14), tmp_path)
    done = submit("vacuum", vacuum)

    assert compacted["ok"]
    assert store.snapshot().table("t").pages("text").num_rows < 8
    assert published["ok"]
    assert published["checkpoint"] is not None
    assert done["applied"]
    assert orphan not in {info.key for info in store.objects.list("pages/")}
    assert store.verify("all").ok
    assert sp.open(store.url).snapshot().table("t").read().equals(expected)
