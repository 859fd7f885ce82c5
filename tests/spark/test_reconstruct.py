from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import spark_pages as sp
from spark_pages.errors import InvalidInputError, VersionNotFoundError
from spark_pages.spark import compact_pages, reconstruct_snapshot
from spark_pages.spark.reconstruct import Output
from tests.spark.chains import chain_orders, written_orders
from tests.spark.conftest import History, flights


@pytest.mark.parametrize("version", [0, "before_checkpoint", "checkpoint", "latest"])
def test_the_reconstruction_equals_the_local_snapshot(
    spark: SparkSession, history: History, version: int | str
) -> None:
    wanted = version if isinstance(version, int) else getattr(history, version)

    result = reconstruct_snapshot(spark, history.url, wanted)

    assert result["equal_to_local"], result["differences"]
    assert result["version"] == wanted
    assert (result["checkpoint"] is not None) == (wanted >= history.checkpoint)


def test_the_reconstruction_follows_compactions_and_checkpoints(
    spark: SparkSession, own_history: History
) -> None:
    compact_pages(spark, own_history.url, "flights")
    with own_history.store.transaction() as txn:
        txn.append("flights", flights(90_000, 3))
    compacted = reconstruct_snapshot(spark, own_history.url)
    own_history.store.checkpoint()
    with own_history.store.transaction() as txn:
        txn.append("flights", flights(90_003, 3))
        txn.update_rows("flights", [40_000], {"delay": [1.5]})

    checkpointed = reconstruct_snapshot(spark, own_history.url)

    assert compacted["equal_to_local"], compacted["differences"]
    assert checkpointed["equal_to_local"], checkpointed["differences"]
    assert checkpointed["commits"] == 1
    assert checkpointed["segments"] > 0


def test_a_transaction_with_page_manifests_is_reconstructed(
    spark: SparkSession, own_history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_pages.transaction.placement.MANIFEST_PAGES", 2)
    with own_history.store.transaction() as txn:
        txn.append("flights", flights(90_000, 20_000))

    result = reconstruct_snapshot(spark, own_history.url)

    assert own_history.store._log.commits(result["version"], result["version"] + 1)[0].records[0].manifests
    assert result["equal_to_local"], result["differences"]


def test_the_output_holds_every_descriptor_in_chain_order(
    spark: SparkSession, history: History, tmp_path: Path
) -> None:
    output = tmp_path / "descriptors"

    result = reconstruct_snapshot(spark, history.url, output=Output(path=str(output)), check=False)

    written = pq.read_table(output)
    assert written_orders(written) == chain_orders(history.store)
    assert result["num_pages"] == written.num_rows
    assert result["equal_to_local"] is None


def test_a_version_that_is_not_there_is_named(spark: SparkSession, history: History) -> None:
    with pytest.raises(VersionNotFoundError, match="999"):
        reconstruct_snapshot(spark, history.url, 999)


def test_the_output_may_be_a_checkpoint_of_the_store_itself(
    spark: SparkSession, own_history: History
) -> None:
    older = own_history.checkpoint + 2
    then = own_history.store.snapshot(older)

    first = reconstruct_snapshot(
        spark, own_history.url, output=Output("checkpoint"), timestamp=then.timestamp.isoformat()
    )
    newest = reconstruct_snapshot(spark, own_history.url, output=Output("checkpoint"))

    assert (first["version"], newest["version"]) == (older, own_history.latest)
    for result in (first, newest):
        assert result["equal_to_local"], result["differences"]
        assert own_history.store.object_store.size(result["output"]) > 0
    head = sp.open(own_history.url).snapshot().log
    assert head.checkpoint.ref.location.key == newest["output"]


def test_an_output_folder_that_is_there_is_kept_unless_it_may_go(
    spark: SparkSession, history: History, tmp_path: Path
) -> None:
    output = tmp_path / "descriptors"
    output.mkdir()
    (output / "mine.txt").write_text("mine")

    with pytest.raises(InvalidInputError, match="is there already"):
        reconstruct_snapshot(spark, history.url, output=Output(path=str(output)), check=False)
    assert (output / "mine.txt").exists()

    reconstruct_snapshot(spark, history.url, output=Output("parquet", str(output), True), check=False)
    assert written_orders(pq.read_table(output)) == chain_orders(history.store)


def test_one_process_writes_what_spark_writes(spark: SparkSession, history: History, tmp_path: Path) -> None:
    of_spark, here = Output(path=str(tmp_path / "spark")), Output(path=str(tmp_path / "here"))

    first = reconstruct_snapshot(spark, history.url, output=of_spark)
    second = reconstruct_snapshot(None, history.url, output=here)

    seconds_and_places = ("seconds", "output", "bytes_written")
    assert {k: v for k, v in first.items() if k not in seconds_and_places} == {
        k: v for k, v in second.items() if k not in seconds_and_places
    }
    assert pq.read_table(tmp_path / "here").equals(pq.read_table(tmp_path / "spark"))


@pytest.mark.parametrize(("form", "path"), [("parquet", None), ("checkpoint", "folder"), ("csv", "folder")])
def test_an_output_that_makes_no_sense_is_refused(form: str, path: str | None) -> None:
    with pytest.raises(InvalidInputError):
        Output(form, path)


def test_without_a_check_or_an_output_all_pages_are_computed_and_counted(
    spark: SparkSession, history: History
) -> None:
    result = reconstruct_snapshot(spark, history.url, check=False)

    snapshot = history.store.snapshot().log
    assert result["num_pages"] == sum(snapshot.chain(key).num_pages for key in snapshot.chain_keys())
