"""Pages without rows that stand at one row: only the chain knows their order."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from spark_pages.spark import reconstruct_snapshot
from spark_pages.spark.reconstruct import Output
from tests.spark.chains import Chains, Change, chain_orders, random_history, written_orders


@pytest.fixture
def chains(tmp_path: Path) -> Chains:
    """In each column an empty page stands at a row with others, and its age does not tell where."""
    chains = Chains(str(tmp_path / "store"), ["first", "behind", "together"])
    chains.commit(
        Change("first", (0, 0, 5)),
        Change("behind", (5, 0)),
        Change("together", (3,)),
    )
    chains.commit(
        Change("first", (0,), 0, 1),
        Change("behind", (5, 0), 0, 1),
        Change("together", (0,)),
        Change("together", (0, 0)),
    )
    return chains


def test_empty_pages_at_one_row_stand_as_in_the_chain(spark: SparkSession, chains: Chains) -> None:
    result = reconstruct_snapshot(spark, chains.url)

    assert result["equal_to_local"], result["differences"]


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("check", [True, False])
def test_the_output_has_empty_pages_in_chain_order(
    spark: SparkSession, chains: Chains, tmp_path: Path, check: bool
) -> None:
    output = tmp_path / "descriptors"

    reconstruct_snapshot(spark, chains.url, output=Output(path=str(output)), check=check)

    assert written_orders(pq.read_table(output)) == chain_orders(chains.store)


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("checkpoints", [set(), {12, 25}])
def test_chains_full_of_empty_pages_are_reconstructed(
    spark: SparkSession, tmp_path: Path, small_trees: object, checkpoints: set[int]
) -> None:
    chains = random_history(str(tmp_path / "store"), seed=7, commits=30, checkpoints=checkpoints)

    result = reconstruct_snapshot(spark, chains.url, output=Output(path=str(tmp_path / "descriptors")))

    assert result["equal_to_local"], result["differences"]
    assert written_orders(pq.read_table(tmp_path / "descriptors")) == chain_orders(chains.store)
