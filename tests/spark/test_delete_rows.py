"""The job ``delete_rows``: rows whose keys are in a source, in one commit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import spark_pages as sp
from spark_pages.errors import ColumnNotFoundError, InvalidInputError
from spark_pages.spark import delete_rows
from spark_pages.spark.external import External
from spark_pages.spark.source import SparkPagesDataSource

ROWS = pa.table(
    {"k": [1, 2, 3, None, 5, 3], "day, of": ["a", "b", "c", "d", "a", "x"], "v": [float(n) for n in range(6)]}
)


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = str(tmp_path / "store")
    sp.create(url).append("t", ROWS, create=True)
    return url


def test_a_frame_of_rows_with_numbers_skips_deleted_rows(url: str) -> None:
    with sp.open(url).transaction() as txn:
        txn.delete("t", [1])
    given = SparkPagesDataSource(
        {"path": url, "table": "t", "columns": "k", "rowNumbers": "true", "filter": "v >= 1"}
    )
    reader = given.reader(given.schema())

    batches = [batch for part in reader.partitions() for batch in reader.read(part)]

    assert pa.Table.from_batches(batches).to_pydict() == {"k": [3, None, 5, 3], "_row": [2, 3, 4, 5]}


@pytest.mark.slow
def test_rows_go_whose_keys_are_in_a_frame_or_a_file(spark: SparkSession, url: str, tmp_path: Path) -> None:
    pq.write_table(pa.table({"K": [3, 3, None, 9]}), tmp_path / "keys.parquet")
    frame = spark.createDataFrame([(1, "a"), (5, "b")], "k long, `day, of` string")
    source = External.source(None, str(tmp_path / "keys.parquet"), {})

    planned = delete_rows(spark, url, "t", source, dry_run=True)
    done = delete_rows(spark, url, "t", source)
    again = delete_rows(spark, url, "t", source)
    both = delete_rows(spark, url, "T", frame)

    store = sp.open(url)
    assert (planned["num_rows"], planned["version"], planned["dry_run"]) == (2, 1, True)
    assert (done["num_rows"], done["version"], done["job"]) == (2, 2, "delete_rows")
    assert (again["num_rows"], again["version"]) == (0, 2)
    assert (both["num_rows"], both["version"]) == (1, 3)
    assert store["t"].row_numbers().tolist() == [1, 3, 4]
    assert store.history(1)["operation"].to_pylist() == ["delete rows"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("columns", "error", "match"),
    [("k long, w long", ColumnNotFoundError, "w"), ("k long, K long", InvalidInputError, "each once")],
)
def test_a_source_of_other_columns_is_refused(
    spark: SparkSession, url: str, columns: str, error: Any, match: str
) -> None:
    frame = spark.createDataFrame([(1, 2)], columns)

    with pytest.raises(error, match=match):
        delete_rows(spark, url, "t", frame)


def test_a_session_is_needed(url: str) -> None:
    with pytest.raises(InvalidInputError, match="takes a session of Spark"):
        delete_rows(None, url, "t", External("parquet", "keys", {}))  # type: ignore[arg-type]
