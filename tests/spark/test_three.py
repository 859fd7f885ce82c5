"""Three ways to one state: the local snapshot, the reconstruction by Spark, and the Delta table."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest
from chispa import assert_df_equality
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import spark_pages as sp
from spark_pages.spark import reconstruct_snapshot
from spark_pages.spark.publish import Publisher, publish_delta
from spark_pages.spark.reconstruct import Output
from tests.io.strategies import steady
from tests.spark.chains import Change, changes, write_history
from tests.spark.conftest import History
from tests.spark.published import descriptors, local_rows
from tests.spark.test_views import as_frame

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


@settings(steady, max_examples=3, phases=[Phase.explicit, Phase.generate])
@given(changes(["a", "b", "c"], commits=10), st.sets(st.integers(0, 9), min_size=2, max_size=2))
def test_histories_of_all_sorts_of_splices_are_the_same_three_ways(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    commits: list[list[Change]],
    checkpoints: set[int],
) -> None:
    folder = tmp_path_factory.mktemp("three")
    store = write_history(str(folder / "store"), commits, checkpoints).store
    first = store.snapshot().version - len(commits) + 1

    for delta_version, number in enumerate(sorted(checkpoints)):
        _publish_only(store, first + number)
        published = descriptors(store, delta_version)
        assert {
            key: [of.column(name).to_pylist() for name in _SAME] for key, of in published.items()
        } == local(store, first + number)
    for number in {*checkpoints, len(commits) - 1}:
        output = Output(path=str(folder / f"{number}"))
        reconstruct_snapshot(spark, store.url, first + number, output, check=False)
        found, expected = pq.read_table(output.path), local_rows(store, first + number)
        rebuilt = found.select(expected.column_names)
        assert_df_equality(as_frame(spark, rebuilt), as_frame(spark, expected.cast(rebuilt.schema)))


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
