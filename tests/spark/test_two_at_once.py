"""Jobs that run twice at once; those that are not here are tested beside what else they do."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import spark_pages as sp
from spark_pages.errors import InvalidInputError
from spark_pages.spark import reconstruct_snapshot, transfer
from spark_pages.spark.external import External
from spark_pages.spark.log_jobs import compact_log
from spark_pages.spark.options import WriteOptions
from spark_pages.spark.output_folder import OutputFolder
from spark_pages.spark.reconstruct import Output
from spark_pages.spark.transfer import ingest
from spark_pages.spark.vacuum import vacuum
from spark_pages.spark.verify import verify
from spark_pages.spark.writing import TaskRows
from tests.invariants import check_snapshot, check_store
from tests.spark.chains import chain_orders, written_orders
from tests.spark.conftest import History, flights

Job = Callable[[], dict[str, Any]]


def twice(job: Job) -> list[dict[str, Any]]:
    """What two of the job tell that run at once."""
    with ThreadPoolExecutor(2) as pool:
        return [each.result() for each in [pool.submit(job), pool.submit(job)]]


def test_two_ingests_of_one_application_version_bring_every_row_once(
    spark: SparkSession, own_history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = flights(90_000, 20_000)
    pq.write_table(rows, tmp_path / "rows.parquet")
    source = External("parquet", str(tmp_path / "rows.parquet"), {})
    into = WriteOptions("flights", app_id="nightly", app_version=1)
    before = own_history.store.snapshot().table("flights").num_rows
    both = threading.Barrier(2, timeout=240)

    def meeting(tasks: list[TaskRows], plan: Any) -> int | None:
        both.wait()  # both have planned and written before one commits
        return commit_write(tasks, plan)

    commit_write = transfer.commit_write
    monkeypatch.setattr(transfer, "commit_write", meeting)
    done = twice(lambda: ingest(spark, own_history.url, source, into))

    table = own_history.store.snapshot().table("flights")
    assert [each["num_rows"] for each in done] == [20_000, 20_000]
    assert {each["version"] for each in done} == {own_history.latest + 1}
    assert table.read(start=before).equals(rows)
    check_store(own_history.store)


def test_of_two_reconstructions_into_one_folder_one_is_there_whole(
    spark: SparkSession, own_history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = Output(path=str(tmp_path / "out"))
    both = threading.Barrier(2, timeout=240)
    move = OutputFolder._move

    def meeting(self: OutputFolder, *arguments: Any) -> None:
        both.wait()  # both have written before one renames
        move(self, *arguments)

    def told() -> dict[str, Any]:
        try:
            return reconstruct_snapshot(spark, own_history.url, output=output)
        except InvalidInputError as refused:
            return {"refused": str(refused)}

    monkeypatch.setattr(OutputFolder, "_move", meeting)
    refused, done = sorted(twice(told), key=lambda told: "ok" in told)

    assert "is there already" in refused["refused"]
    assert done["equal_to_local"]
    assert written_orders(pq.read_table(tmp_path / "out")) == chain_orders(own_history.store)
    assert {each.name for each in tmp_path.iterdir()} == {"out", "store"}


def test_jobs_of_upkeep_that_run_twice_at_once_leave_a_store_that_is_sound(
    spark: SparkSession, own_history: History
) -> None:
    store, url = own_history.store, own_history.url
    for number in range(64):
        with store.transaction() as txn:
            txn.update_rows("flights", [number], {"delay": [-1.0]})
    orphans = {f"pages/{1:020d}-{'cd' * 16}-{n}.pages" for n in range(40)}
    for key in orphans:
        store.object_store.put(key, b"x" * 100)
    shown = store.snapshot()
    rows = shown.table("flights").read()

    rebuilt = twice(lambda: reconstruct_snapshot(spark, url, output=Output("checkpoint")))
    compacted = twice(lambda: compact_log(url))
    vacuumed = twice(lambda: vacuum(spark, url, 1, apply=True))
    verified = twice(lambda: verify(spark, url))

    assert [each["equal_to_local"] for each in rebuilt] == [True, True]
    assert {each["version"] for each in rebuilt} == {shown.version}
    assert len({each["compacted"] for each in compacted}) == 1
    assert sum(each["orphans"] for each in vacuumed) >= len(orphans)
    assert not orphans & {info.key for info in store.object_store.list("pages/")}
    assert [(each["ok"], each["faults"]) for each in verified] == [(True, []), (True, [])]
    assert verified[0]["pages_read"] == verified[1]["pages_read"] > 0
    assert sp.open(url).snapshot().table("flights").read().equals(rows)
    check_snapshot(store.snapshot().log)
