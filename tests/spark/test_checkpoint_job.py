"""The job ``checkpoint`` on executors: killed at any point and run again, and run twice at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from benchmarks.log.records import replace_page
from benchmarks.log.synthetic import Shape, make_store
from spark_pages.format.checkpoint_tree import Node
from spark_pages.log.checkpoint.write_plan import PlannedSegment
from spark_pages.spark import submit
from spark_pages.spark.checkpoints import FEW_SEGMENTS, Spread, checkpoint
from spark_pages.spark.session import find_java
from tests.effort import LONG
from tests.invariants import check_checkpoint, check_same, check_snapshot
from tests.spark.chains import random_history
from tests.spark.test_checkpoints import SmallTree, log_of
from tests.spark.test_killed import killed


def test_two_checkpoints_at_once_write_the_same_one(
    spark: SparkSession, tmp_path: Path, small_trees: SmallTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_trees(8, 3)
    url = str(tmp_path / "store")
    chains = random_history(url, 7, commits=16, checkpoints=(4, 11))
    before = log_of(url).snapshot()
    write, first = Spread.__call__, list[dict[str, Any]]()

    def late(self: Spread, planned: Sequence[PlannedSegment]) -> Sequence[Node] | None:
        nodes = write(self, planned)
        monkeypatch.setattr(Spread, "__call__", write)
        if not first:  # the other job does all of its work before this one lands
            first.append(checkpoint(url, lambda: spark, few=2))
        return nodes

    monkeypatch.setattr(Spread, "__call__", late)
    second = checkpoint(url, lambda: spark, few=2)

    after = log_of(url).snapshot()
    assert first[0]["tasks"] > 1 < second["tasks"]
    assert first[0]["version"] == second["version"] == after.checkpoint.ref.version
    assert after.state.version == chains.store.snapshot().version
    check_checkpoint(after.checkpoint)
    check_same(after, before)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(find_java() is None, reason="spark-submit needs Java, and there is none")
@pytest.mark.skipif(not LONG, reason="a million descriptors, and three jobs")
def test_a_large_checkpoint_that_is_killed_may_be_run_again(tmp_path: Path) -> None:
    url = str(tmp_path / "store")
    shape = Shape(1_230_000, tables=150, columns=1)
    make_store(url, shape)
    log = log_of(url)
    replace_page(log, [shape.key(table, 0) for table in range(shape.tables)])
    before = log_of(url).snapshot()

    for _ in range(2):
        killed("checkpoint", [url], tmp_path, 1)
        check_snapshot(log_of(url).snapshot())
    done = submit("checkpoint", [url])

    after = log_of(url).snapshot()
    assert done["segments"] > FEW_SEGMENTS or after.checkpoint.ref.version == before.state.version
    assert done["version"] == after.checkpoint.ref.version == before.state.version
    check_checkpoint(after.checkpoint)
    check_same(after, before)
