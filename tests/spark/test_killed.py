"""Jobs killed at some point and run again, by real ``spark-submit``."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import spark_pages as sp
from spark_pages.spark import reconstruct_snapshot, submit
from spark_pages.spark.reconstruct import Output
from spark_pages.spark.session import find_java
from tests import PROJECT
from tests.spark.published import folder

needs_java = pytest.mark.skipif(find_java() is None, reason="spark-submit needs Java, and there is none")
pytestmark = [needs_java, pytest.mark.slow, pytest.mark.timeout(1200)]

ROWS = 200_000
SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])


def killed(job: str, arguments: list[str], folder: Path, within_s: float) -> None:
    """Begin the job, and kill it and all its processes so long after its first change below the folder, or
    sooner."""
    code = f"from spark_pages.spark import submit; submit({job!r}, {arguments!r})"
    before, wait_s = [*os.walk(folder)], random.uniform(0, within_s)
    print(f"{job} is killed {wait_s:.3f} s after its first change")
    running = subprocess.Popen(
        [sys.executable, "-c", code],
        start_new_session=True,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
    )
    has_ended = False
    while [*os.walk(folder)] == before:
        assert not has_ended, f"{job} ended before it changed anything"
        has_ended = running.poll() is not None  # what it has changed by then is seen by one more look
        time.sleep(0.005)
    try:
        running.wait(wait_s)
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()


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

    killed("ingest", job, tmp_path, 1)
    done = submit("ingest", job)

    table = sp.open(store.url).snapshot().table("t")
    assert done["ok"]
    assert done["already_landed"] or done["num_rows"] == ROWS
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
            txn.update_rows("t", [number], {"n": [-1]})
    with store.transaction() as txn:
        txn.set_table_properties("t", {"page_bytes": "65536"})
    store.checkpoint()
    assert store.snapshot().table("t").pages("text").num_rows > 100
    orphan = f"pages/{1:020d}-{'cd' * 16}-0.pages"
    store.object_store.put(orphan, b"x" * 100)
    expected = store.snapshot().table("t").read()
    vacuum = [str(folder(store)), "--retention", "1", "--orphans", "--apply"]

    killed("compact_pages", [str(folder(store)), "--table", "t"], tmp_path, 12)
    compacted = submit("compact_pages", [str(folder(store)), "--table", "t"])
    killed("publish_delta", [str(folder(store))], tmp_path, 1)
    published = submit("publish_delta", [str(folder(store))])
    killed("vacuum", vacuum, tmp_path, 3)
    done = submit("vacuum", vacuum)

    assert compacted["ok"]
    assert store.snapshot().table("t").pages("text").num_rows < 8
    assert published["ok"]
    assert published["checkpoint"] is not None
    assert done["applied"]
    assert orphan not in {info.key for info in store.object_store.list("pages/")}
    assert store.verify("all").ok
    assert sp.open(store.url).snapshot().table("t").read().equals(expected)


def test_jobs_that_write_a_folder_or_a_checkpoint_may_be_killed_and_run_again(
    store: sp.Store, tmp_path: Path
) -> None:
    with store.transaction() as txn:
        txn.create_table("t", SCHEMA)
        txn.append("t", pa.table({"n": range(ROWS), "text": [f"number {n}" for n in range(ROWS)]}, SCHEMA))
    expected = store.snapshot().table("t").read()
    undisturbed = tmp_path / "undisturbed"
    reconstruct_snapshot(None, store.url, output=Output(path=str(undisturbed)))
    rows, pages = tmp_path / "rows", tmp_path / "pages"
    export = [str(folder(store)), "--table", "t", "--output", str(rows)]
    rebuild = [str(folder(store)), "--output", str(pages)]
    as_checkpoint = [str(folder(store)), "--format", "checkpoint"]

    killed("export", export, tmp_path, 1)
    assert not rows.exists() or pq.read_table(rows).equals(expected)
    exported = submit("export", [*export, "--overwrite"])
    killed("reconstruct_snapshot", rebuild, tmp_path, 1)
    assert not pages.exists() or pq.read_table(pages).equals(pq.read_table(undisturbed))
    rebuilt = submit("reconstruct_snapshot", [*rebuild, "--overwrite"])
    killed("reconstruct_snapshot", as_checkpoint, tmp_path, 0.05)
    made = submit("reconstruct_snapshot", as_checkpoint)

    assert exported["num_rows"] == ROWS
    assert pq.read_table(rows).equals(expected)
    assert rebuilt["equal_to_local"]
    assert pq.read_table(pages).equals(pq.read_table(undisturbed))
    assert made["equal_to_local"]
    assert sp.open(store.url).snapshot().log.checkpoint.ref.location.key == made["output"]
    assert store.verify("all").ok


def test_a_compaction_of_the_log_that_is_killed_and_run_again_leaves_the_ranges_of_one_that_was_not(
    tmp_path: Path,
) -> None:
    store = sp.create(str(tmp_path / "store"), properties={"log_compaction_commits": "0"})
    with store.transaction() as txn:
        txn.create_table("t", SCHEMA)
    for number in range(1024):
        with store.transaction() as txn:
            txn.append("t", pa.table({"n": [number], "text": ["x"]}, SCHEMA))
    shutil.copytree(folder(store), tmp_path / "undisturbed")
    sp.open(str(tmp_path / "undisturbed")).compact_log()

    killed("compact_log", [str(folder(store))], folder(store), 0.05)
    half = ranges(folder(store))
    done = submit("compact_log", [str(folder(store))])

    assert ranges(folder(store)) == ranges(tmp_path / "undisturbed")
    assert half.items() <= ranges(folder(store)).items()
    assert done["ok"]
    assert sp.open(store.url).verify("all").ok
    assert sp.open(store.url).snapshot().table("t").read(["n"])["n"].to_pylist() == list(range(1024))


def ranges(store: Path) -> dict[str, bytes]:
    """Compacted ranges of the log: bytes by name."""
    return {each.name: each.read_bytes() for each in (store / "_log").glob("*.compacted.avro")}
