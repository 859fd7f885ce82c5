"""What the jobs of Spark have done so far, of how much, and in how many bytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import spark_pages as sp
from spark_pages import progress
from spark_pages.progress import Phase, reporting
from spark_pages.spark import reconstruct, transfer
from spark_pages.spark.external import External
from spark_pages.spark.options import WriteOptions
from spark_pages.spark.reconstruct import Output, reconstruct_snapshot
from tests.spark.conftest import History

Phases = list[Phase]


@pytest.fixture
def phases(monkeypatch: pytest.MonkeyPatch) -> Phases:
    """The phases that begin, while progress is reported."""
    begun: Phases = []

    def phase(*args: str | int) -> Phase:
        begun.append(progress.phase(*args))  # type: ignore[arg-type]
        return begun[-1]

    monkeypatch.setattr(transfer, "phase", phase)
    monkeypatch.setattr(reconstruct, "phase", phase)
    return begun


def reported(work: Callable[[], object]) -> None:
    with reporting("log", "job", every_s=1_000):
        work()


def test_ingest_by_spark_counts_rows_and_the_bytes_of_its_files(
    spark: SparkSession, tmp_path: Path, phases: Phases
) -> None:
    # given
    store = sp.create(str(tmp_path / "store"))
    file = tmp_path / "rows.csv"
    file.write_text("n,word\n" + "".join(f"{n},word {n}\n" for n in range(40_000)))
    source = External("csv", str(file), {"header": "true"}, "n long, word string")
    # when
    reported(lambda: transfer.ingest(spark, store.url, source, WriteOptions("t", create=True)))
    # then
    writing, committing = phases
    num_rows, size_bytes = writing.done
    assert (committing.what, num_rows) == ("committing", 40_000)
    assert writing.total_bytes == file.stat().st_size
    assert size_bytes >= writing.total_bytes
    assert writing.figures().startswith("40,000 rows, ")
    assert "100%" in writing.figures()


def test_a_source_that_tells_no_size_has_rows_alone(
    spark: SparkSession, tmp_path: Path, phases: Phases, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = sp.create(str(tmp_path / "store"))
    pq.write_table(pa.table({"n": range(1_000)}), tmp_path / "rows.parquet")
    source = External("parquet", str(tmp_path / "rows.parquet"), {})
    monkeypatch.setattr("spark_pages.spark.external._UNKNOWN_BYTES", 1)

    reported(lambda: transfer.ingest(spark, store.url, source, WriteOptions("t", create=True)))

    assert (phases[0].total, phases[0].total_bytes, phases[0].done[0]) == (0, 0, 1_000)


@pytest.mark.slow
def test_export_by_spark_counts_rows_of_the_table_and_bytes_that_it_writes(
    spark: SparkSession, history: History, tmp_path: Path, phases: Phases
) -> None:
    # given
    target = External("parquet", str(tmp_path / "out"), {})
    told = {}
    # when
    reported(lambda: told.update(transfer.export(spark, history.url, "flights", target)))
    # then
    (writing,) = phases
    num_rows = history.store.snapshot().table("flights").num_rows
    assert (writing.total, writing.unit, writing.done[0]) == (num_rows, "rows", num_rows)
    assert writing.done[1] == sum(each.stat().st_size for each in (tmp_path / "out").glob("*.parquet"))


@pytest.mark.slow
def test_a_reconstruction_by_spark_counts_pages(
    spark: SparkSession, history: History, tmp_path: Path, phases: Phases
) -> None:
    # given
    output = Output("parquet", str(tmp_path / "pages"))
    told = {}
    # when
    reported(lambda: told.update(reconstruct_snapshot(spark, history.url, output=output)))
    # then
    counting, writing, comparing = phases
    assert counting.done[0] == counting.total == told["segments"] + told["commits"]
    assert writing.done[0] == writing.total == told["num_pages"]
    assert comparing.done[0] == comparing.total == told["num_pages"]
    assert min(counting.done[1], writing.done[1], comparing.done[1]) > 0


def test_a_reconstruction_without_spark_counts_pages_too(history: History, phases: Phases) -> None:
    told = {}

    reported(lambda: told.update(reconstruct_snapshot(None, history.url)))

    counting, reading, comparing = phases
    assert counting.done[0] == counting.total == told["segments"] + told["commits"]
    assert reading.done[0] == reading.total == told["num_pages"]
    assert (comparing.what, comparing.total) == ("comparing descriptors", 0)
