from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import spark_pages as sp
from spark_pages.errors import TableNotFoundError
from spark_pages.format.pages.page_header import PAGE_MAGIC
from spark_pages.job_result import FAILED
from spark_pages.maintenance import compaction_plan as compaction_plan
from spark_pages.maintenance.compaction_plan import plan_compaction
from spark_pages.model.page import PAGE_ALIGNMENT
from spark_pages.spark import compact, compact_pages
from spark_pages.spark.compact import plan_compact_pages
from spark_pages.spark.job import run_job
from tests.spark.conftest import History

CLAIM_AND_COMMIT = CLAIM_AND_RELEASE = 2
"""Versions that a compaction adds, whether or not it comes to an end."""


def test_compaction_keeps_the_rows_and_leaves_fewer_pages(spark: SparkSession, own_history: History) -> None:
    before = own_history.store.snapshot().table("flights")
    rows, pages = before.read(), before.pages().num_rows

    result = compact_pages(spark, own_history.url, "flights")

    after = sp.open(own_history.url).snapshot()
    assert result["ok"]
    assert result["version"] == after.version == own_history.latest + CLAIM_AND_COMMIT
    assert result["pages_after"] < result["pages_before"]
    assert after.table("flights").pages().num_rows == pages - result["pages_before"] + result["pages_after"]
    assert after.table("flights").read().equals(rows)
    assert before.read().equals(rows)


def test_every_processor_gets_as_many_tasks(
    spark: SparkSession, own_history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_compact_pages(own_history.url, "flights")
    monkeypatch.setattr(compact, "TASK_BYTES", plan["bytes_before"] * 2 // 5)  # so that three would do

    result = compact_pages(spark, own_history.url, "flights")

    assert spark.sparkContext.defaultParallelism == 2
    assert result["tasks"] == 4


def test_every_task_gets_the_same_rows_of_every_column_and_begins_with_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction_plan, "_PAGES_OF_A_RUN", 1)
    store = sp.create(str(tmp_path / "store"))
    rows = pa.table({"n": pa.array(range(80_000)), "x": np.random.default_rng(1).random(80_000)})
    with store.transaction() as txn:
        txn.create_table("t", rows.schema, properties={"page_bytes": "4096"})
        txn.append("t", rows)
    with store.transaction() as txn:
        txn.set_table_properties("t", {"page_bytes": "65536"})
    tasks = plan_compaction(store.snapshot().table("t"))

    shares = compact._even_shares(tasks, 2)

    assert sorted(shares[0] + shares[1]) == list(range(len(tasks)))
    quarter = len(tasks) // 4
    columns = [[tasks[index].column for index in share] for share in shares]
    assert columns == [["n"] * quarter + ["x"] * quarter, ["x"] * quarter + ["n"] * quarter]
    last = max(tasks[index].first_row for index in shares[0])
    assert last < min(tasks[index].first_row for index in shares[1])


def test_a_table_of_full_pages_is_left_alone(spark: SparkSession, own_history: History) -> None:
    compact_pages(spark, own_history.url, "flights")

    again = compact_pages(spark, own_history.url, "flights")

    assert again["runs"] == 0
    assert again["version"] == own_history.latest + CLAIM_AND_COMMIT
    assert sp.open(own_history.url).snapshot().version == own_history.latest + CLAIM_AND_COMMIT


def test_a_plan_changes_nothing(own_history: History) -> None:
    plan = plan_compact_pages(own_history.url, "flights")

    assert plan["runs"] > 0
    assert sp.open(own_history.url).snapshot().version == own_history.latest


def test_a_table_that_is_not_there_is_not_found(spark: SparkSession, own_history: History) -> None:
    with pytest.raises(TableNotFoundError):
        compact_pages(spark, own_history.url, "absent")


def damage_pages(url: str) -> None:
    for path in Path(url, "pages").iterdir():
        data = bytearray(path.read_bytes())
        for start in range(0, len(data), PAGE_ALIGNMENT):
            if data.startswith(PAGE_MAGIC, start):
                data[start + 100] ^= 1
        path.chmod(0o644)
        path.write_bytes(data)


def test_damage_that_an_executor_meets_is_told_as_damage(
    spark: SparkSession,
    own_history: History,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    damage_pages(own_history.url)
    everything = lambda candidates, _: [(0, each.run.num_pages) for each in candidates]  # noqa: E731
    monkeypatch.setattr("spark_pages.maintenance.compaction_plan.gaining_parts", everything)

    ended = run_job(
        "compact_pages", Namespace(progress="none"), lambda: compact_pages(spark, own_history.url, "flights")
    )

    told = json.loads(capsys.readouterr().out)
    assert ended == FAILED
    assert told["error"]["type"] == "DamageError"
    assert "payload checksum" in told["error"]["message"]
    left = own_history.store.snapshot().log.state
    assert left.version == own_history.latest + CLAIM_AND_RELEASE
    assert left.claims == ()


def test_damage_that_the_plan_meets_is_told_as_damage_before_anything_is_claimed(
    own_history: History, capsys: pytest.CaptureFixture[str]
) -> None:
    damage_pages(own_history.url)

    ended = run_job(
        "compact_pages", Namespace(progress="none"), lambda: compact_pages(None, own_history.url, "flights")
    )

    told = json.loads(capsys.readouterr().out)
    assert ended == FAILED
    assert told["error"]["type"] == "DamageError"
    assert own_history.store.snapshot().version == own_history.latest
