"""Checkpoints whose segments other processes write are those that one process writes."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import spark_pages as sp
from spark_pages.format.checkpoint_tree import Node
from spark_pages.log.checkpoint.reader import Checkpoint, TreeReader
from spark_pages.log.checkpoint.write_plan import PlannedSegment
from spark_pages.log.log import Log
from spark_pages.runtime import Runtime
from spark_pages.spark.checkpoints import Spread, checkpoint, checkpoint_of, pack_planned, write_planned
from spark_pages.spark.serialization import objects_of
from tests.invariants import check_checkpoint, check_same, check_snapshot
from tests.spark.chains import Chains, random_history
from tests.spark.conftest import History, flights

SmallTree = Callable[..., None]


def apart(url: str) -> Callable[[Sequence[PlannedSegment]], Sequence[Node]]:
    """Writes segments as executors do: each from what was packed, and the last one first."""

    def carry_out(planned: Sequence[PlannedSegment]) -> Sequence[Node]:
        nodes: dict[int, Node] = {}
        for number in reversed(range(len(planned))):
            nodes.update(write_planned(url, pack_planned([(number, planned[number])])))
        return [nodes[number] for number in range(len(planned))]

    return carry_out


def log_of(url: str) -> Log:
    return Log(objects_of(url), Runtime())


def segments(url: str) -> list[list[Node]]:
    """The segments of the newest checkpoint, level by level; each node tells the digest of its bytes."""
    head = log_of(url).snapshot().checkpoint
    assert head is not None
    return [[n for part in parts for n in head.tree.part(part)] for parts in head.levels().values()]


def written(url: str) -> tuple[int, int]:
    """Objects and bytes of the newest checkpoint, as its note tells."""
    (*_, note) = log_of(url).snapshot().state.upkeep
    return note.objects, note.size_bytes


def test_segments_written_apart_are_byte_for_byte_those_of_one_process(
    tmp_path: Path, small_trees: SmallTree
) -> None:
    small_trees(8, 3)
    for seed in range(3):
        url, copy = str(tmp_path / f"{seed}"), str(tmp_path / f"{seed}-copy")
        random_history(url, seed, commits=24, checkpoints=(4, 11, 17))
        shutil.copytree(url, copy)

        log_of(url).checkpoint(apart(url))
        log_of(copy).checkpoint()

        assert segments(url) == segments(copy)
        assert written(url) == written(copy)
        check_snapshot(log_of(url).snapshot())
        check_checkpoint(log_of(url).snapshot().checkpoint)


def test_pages_of_commits_get_a_home_wherever_they_are_written(
    own_history: History, small_trees: SmallTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_pages.transaction.placement.MANIFEST_PAGES", 2)
    small_trees(5, 3)
    with own_history.store.transaction() as txn:
        txn.append("flights", flights(90_000, 20_000))
    replayed = own_history.store.snapshot().log
    rows = own_history.store.snapshot().table("flights").read()

    log = log_of(own_history.url)
    log.checkpoint(apart(own_history.url))

    again = sp.open(own_history.url)
    assert again.snapshot().log.checkpoint.ref.version == replayed.state.version
    check_same(again.snapshot().log, replayed)
    assert again.snapshot().table("flights").read().equals(rows)
    assert again.verify("all").ok


def test_executors_write_the_segments_of_a_large_checkpoint(
    spark: SparkSession, tmp_path: Path, small_trees: SmallTree
) -> None:
    small_trees(8, 3)
    url, copy = str(tmp_path / "store"), str(tmp_path / "copy")
    random_history(url, 7, commits=16, checkpoints=(4, 11))
    shutil.copytree(url, copy)

    done = checkpoint(url, lambda: spark, few=2)
    again = checkpoint(url, lambda: spark, few=2)
    here = checkpoint(copy)

    assert done["segments"] > 2
    assert done["tasks"] > 1
    assert (again["segments"], again["key"]) == (0, done["key"])
    assert here["segments"] == 0
    assert segments(url) == segments(copy)


def test_what_is_few_is_written_by_the_driver_and_starts_no_spark(own_history: History) -> None:
    def start() -> SparkSession:
        raise AssertionError("Spark is not needed")

    done = checkpoint(own_history.url, start)

    assert done["tasks"] == 0
    assert done["bytes_written"] > 0
    assert own_history.store.verify("none").ok


def test_a_checkpoint_of_an_older_version_opens_as_that_version(
    own_history: History, small_trees: SmallTree
) -> None:
    small_trees(5, 3)
    log = log_of(own_history.url)
    wanted = own_history.checkpoint + 3
    older = log.snapshot(wanted)

    ref = checkpoint_of(log, older, Spread(own_history.url, None))

    made = Checkpoint(ref, TreeReader(objects_of(own_history.url)))
    check_checkpoint(made)
    assert ref.version == wanted
    assert {key: sum(piece.num_pages for piece in made.chain(key)) for key in older.chain_keys()} == {
        key: older.chain(key).num_pages for key in older.chain_keys()
    }
    assert log_of(own_history.url).snapshot().checkpoint.ref.version == own_history.checkpoint


class KilledError(Exception):
    """The driver was killed."""


def test_a_job_that_dies_between_any_two_segments_leaves_only_orphans(
    tmp_path: Path, small_trees: SmallTree
) -> None:
    small_trees(8, 3)
    url = str(tmp_path / "store")
    chains: Chains = random_history(url, 3, commits=16, checkpoints=(4,))
    before = chains.store.snapshot().log.checkpoint.ref
    written = apart(url)

    for survivors in (0, 1, 5):

        def dies(planned: Sequence[PlannedSegment], survivors: int = survivors) -> Sequence[Node]:
            written(planned[:survivors])
            raise KilledError

        with pytest.raises(KilledError):
            log_of(url).checkpoint(dies)
        assert log_of(url).snapshot().checkpoint.ref == before
        check_snapshot(log_of(url).snapshot())

    log_of(url).checkpoint(written)

    assert log_of(url).snapshot().checkpoint.ref.version == chains.store.snapshot().version
    check_checkpoint(log_of(url).snapshot().checkpoint)
