"""Three ways to one state: the local snapshot, the reconstruction by Spark, and the Delta table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

import spark_pages as sp
from spark_pages.spark import reconstruct_snapshot
from spark_pages.spark.publish import Publisher, publish_delta
from tests.spark.chains import random_history
from tests.spark.conftest import History
from tests.spark.published import descriptors

_SAME = ("page_id", "entry_count", "actual_len", "checksum")


def local(store: sp.Store, version: int) -> dict[tuple[int, int], list[list[int]]]:
    """The same numbers of every chain, from the snapshot."""
    snapshot = store.snapshot(version).log
    runs = {key: snapshot.chain(key).all_pages() for key in snapshot.chain_keys()}
    return {
        key: [run.pages.column(name).to_pylist() for name in _SAME]
        for key, run in runs.items()
        if run.num_pages
    }


@pytest.mark.parametrize("seed", [1, 2])
def test_histories_of_all_sorts_of_splices_are_the_same_three_ways(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    url = str(tmp_path / "store")
    chains = random_history(url, seed, commits=24, checkpoints=(5, 11, 23))
    store = chains.store
    versions = [store.snapshot().log.checkpoint.ref.version]
    while store.snapshot(versions[-1]).log.checkpoint.root.predecessors:
        versions.append(store.snapshot(versions[-1]).log.checkpoint.root.predecessors[0][1].version)
    for delta_version, version in enumerate(reversed(versions)):
        _publish_only(store, version)
        found = {
            key: [of.column(name).to_pylist() for name in _SAME]
            for key, of in descriptors(store, delta_version).items()
        }
        rebuilt = reconstruct_snapshot(spark, url, version)
        assert found == local(store, version)
        assert rebuilt["equal_to_local"], rebuilt["differences"]


def _publish_only(store: sp.Store, version: int) -> None:
    """Publish the checkpoint of this version, as if it were the newest one."""
    checkpoint = store.snapshot(version).log.checkpoint
    assert checkpoint is not None
    assert Publisher(store._log).publish(checkpoint)


def test_first_rows_follow_from_what_is_published(spark: SparkSession, own_history: History) -> None:
    store = own_history.store
    store.compact_pages("flights")
    store.checkpoint()
    publish_delta(own_history.url)
    version = store.snapshot().version

    found = descriptors(store)
    rebuilt = reconstruct_snapshot(spark, own_history.url, version)

    assert rebuilt["equal_to_local"]
    snapshot = store.snapshot().log
    for key, chain in found.items():
        ends = np.cumsum(chain["entry_count"].to_numpy())
        assert ends.tolist() == snapshot.chain(key).all_pages().prefix_entries.tolist()
    assert {key: len(chain) for key, chain in found.items()} == {
        key: snapshot.chain(key).num_pages for key in snapshot.chain_keys() if snapshot.chain(key).num_pages
    }
