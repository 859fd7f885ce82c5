"""Another transaction commits when a compaction by Spark has written its pages, but not yet committed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from jobs.compact_pages import main
from spark_pages.job_result import CONFLICT, exit_code_of
from spark_pages.log.log import Log
from spark_pages.spark import compact_pages
from spark_pages.spark.compact import each_table
from tests.invariants import check_store
from tests.spark.conftest import ROWS, History, flights

IN_A_SMALL_PAGE = 2 * ROWS + 3
IN_A_FULL_PAGE = 5
EVERYWHERE = -1


@pytest.fixture
def overtake(own_history: History, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Lets an update of a row, or of all, and an append come in before the commit that follows on a claim."""

    def prepare(row: int) -> None:
        commit = Log.commit_member

        def claimed(log: Log, *given: object) -> object:
            monkeypatch.setattr(Log, "commit_member", overtaken)
            return commit(log, *given)

        def overtaken(log: Log, *given: object) -> object:
            monkeypatch.setattr(Log, "commit_member", commit)
            with own_history.store.transaction("meanwhile") as txn:
                if row == EVERYWHERE:
                    txn.truncate_table("flights")
                else:
                    txn.update_rows("flights", [row], {"delay": [99.0]})
                txn.append("flights", flights(90_000, 3))
            return commit(log, *given)

        monkeypatch.setattr(Log, "commit_member", claimed)

    return prepare


def rows_afterwards(history: History, row: int) -> pa.Table:
    """What the table holds after the other transaction, whatever became of the compaction."""
    before = history.store.snapshot(history.latest).table("flights").read()
    delays = before.column("delay").to_pylist()
    delays[row] = 99.0
    updated = before.set_column(before.schema.get_field_index("delay"), "delay", pa.array(delays))
    return pa.concat_tables([updated, flights(90_000, 3)])


def test_a_compaction_leaves_out_a_run_whose_pages_were_replaced_and_may_be_run_again(
    spark: SparkSession, own_history: History, overtake: Callable[[int], None]
) -> None:
    overtake(IN_A_SMALL_PAGE)

    result = compact_pages(spark, own_history.url, "flights")

    expected = rows_afterwards(own_history, IN_A_SMALL_PAGE)
    left = own_history.store.snapshot()
    claim, other, own = 1, 1, 1
    assert result["conflicts"] == 1
    assert result["version"] == left.version == own_history.latest + claim + other + own
    assert left.log.state.claims == ()
    assert left.table("flights").read().equals(expected)
    again = compact_pages(spark, own_history.url, "flights")
    assert again["runs"] >= 1
    assert again["version"] == left.version + 2
    assert again["pages_after"] < again["pages_before"]
    assert own_history.store.snapshot().table("flights").read().equals(expected)
    check_store(own_history.store)


def test_a_compaction_is_put_behind_a_transaction_that_touched_other_pages(
    spark: SparkSession, own_history: History, overtake: Callable[[int], None]
) -> None:
    overtake(IN_A_FULL_PAGE)

    result = compact_pages(spark, own_history.url, "flights")

    after = own_history.store.snapshot()
    assert result["version"] == after.version == own_history.latest + 3
    assert after.table("flights").read().equals(rows_afterwards(own_history, IN_A_FULL_PAGE))
    check_store(own_history.store)


def test_the_job_tells_a_conflict_as_json_and_by_its_exit_code(
    spark: SparkSession,
    own_history: History,
    overtake: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["compact_pages.py", own_history.url, "--table", "flights"])
    overtake(EVERYWHERE)

    code = main()

    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert code == CONFLICT
    assert (told["ok"], told["error"]["type"]) == (False, "CommitConflictError")
    assert "Nothing was committed" in told["error"]["message"]
    assert told["error"]["hint"]
    assert own_history.store.snapshot().version == own_history.latest + 3


def test_of_several_tables_one_that_conflicts_keeps_no_other_from_being_compacted(
    spark: SparkSession, own_history: History, overtake: Callable[[int], None]
) -> None:
    store = own_history.store
    small = pa.table({"n": list(range(20_000))})
    with store.transaction() as txn:
        txn.create_table("zebra", small.schema, properties={"page_bytes": "4096"})
        txn.append("zebra", small)
    with store.transaction() as txn:
        txn.set_table_properties("zebra", {"page_bytes": "65536"})
    overtake(EVERYWHERE)

    told = each_table(own_history.url, None, None, partial(compact_pages, spark))

    assert exit_code_of(told) == CONFLICT
    found = {each["table"]: each for each in told["tables"]}
    assert (told["ok"], found["flights"]["ok"], found["zebra"]["ok"]) == (False, False, True)
    assert found["flights"]["error"]["type"] == "CommitConflictError"
    assert found["zebra"]["pages_after"] < found["zebra"]["pages_before"]
    assert told["version"] == found["zebra"]["version"] == store.snapshot().version
    assert store.snapshot().table("zebra").read().equals(small)
