"""Datasets and lazy frames: which pages a query reads, and which operations are refused."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

import spark_pages as sp
from spark_pages.errors import InvalidInputError
from spark_pages.query.table import Table

ROWS = 100_000
POINT = 77_777


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = str(tmp_path_factory.mktemp("dataset") / "store")
    rows = {
        "id": np.arange(ROWS),
        "delay": np.random.default_rng(0).random(ROWS),
        "name": [f"flight {i % 1000:04}" for i in range(ROWS)],
    }
    with sp.create(url) as store:
        store.write("flights", rows)
    return url


def duckdb_sql(text: str) -> Callable[[Table], Any]:
    def run(table: Table) -> Any:
        connection = duckdb.connect()
        connection.register("flights", table.dataset())
        return connection.sql(text).fetchall()

    return run


READERS: dict[str, tuple[Callable[[Table], Any], Any, int]] = {
    "pyarrow count": (lambda t: t.dataset().count_rows(), ROWS, 0),
    "Polars count": (lambda t: t.scan_polars().select(pl.len()).collect().item(), ROWS, 0),
    "pyarrow head": (lambda t: t.dataset().head(5)["id"].to_pylist(), [0, 1, 2, 3, 4], 3),
    "Polars head": (lambda t: t.scan_polars().head(5).collect()["id"].to_list(), [0, 1, 2, 3, 4], 3),
    "DuckDB head": (duckdb_sql("SELECT * FROM flights LIMIT 5"), None, 3),
    "pyarrow point": (
        lambda t: t.dataset().to_table(["id", "name"], filter=pc.field("id") == POINT).num_rows,
        1,
        3,
    ),
    "Polars point": (
        lambda t: t.scan_polars().filter(pl.col("id") == POINT).select("id", "name").collect().height,
        1,
        3,
    ),
    "Polars dataset point": (
        lambda t: pl.scan_pyarrow_dataset(t.dataset()).filter(pl.col("id") == POINT).collect().height,
        1,
        3,
    ),
    "DuckDB point": (
        duckdb_sql("SELECT id, name FROM flights WHERE id = 77777"),
        [(POINT, "flight 0777")],
        3,
    ),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_reader_touches_few_pages(reader: str, folder: str):
    read, expected, most_pages = READERS[reader]
    with sp.open(folder) as store:
        found = read(store.snapshot().table("flights"))

        assert expected is None or found == expected
        assert store.cache_stats.misses <= most_pages


def test_a_dataset_gives_what_the_table_has(folder: str):
    table = sp.open(folder).snapshot().table("flights")
    dataset = sp.open(folder).snapshot().dataset("flights")

    assert dataset.schema == table.schema
    assert dataset.to_table() == table.read()
    assert dataset.to_table(["name"]) == table.read(["name"])
    assert dataset.take([7, 3]) == table.take([7, 3])
    assert sum(batch.num_rows for batch in dataset.to_batches(batch_size=1000)) == ROWS
    assert pickle.loads(pickle.dumps(dataset)).count_rows() == ROWS  # noqa: S301 - our own bytes


def test_a_dataset_computes_columns_and_filters_twice(folder: str):
    dataset = sp.open(folder).snapshot().dataset("flights").filter(pc.field("id") < 10)

    found = dataset.to_table({"twice": pc.field("id") * 2}, filter=pc.field("id") > 7)

    assert found.to_pydict() == {"twice": [16, 18]}
    assert dataset.count_rows() == 10
    assert dataset.take([0])["id"].to_pylist() == [0]


def test_a_dataset_is_sorted_and_joined_in_memory(folder: str):
    dataset = sp.open(folder).snapshot().dataset("flights").filter(pc.field("id") < 3)
    names = ds.InMemoryDataset(pa.table({"id": [2, 1], "code": ["b", "a"]}))

    assert dataset.sort_by([("id", "descending")]).to_table()["id"].to_pylist() == [2, 1, 0]
    assert dataset.join(names, "id", join_type="inner").sort_by("id").to_table()["code"].to_pylist() == [
        "a",
        "b",
    ]
    assert dataset.join(dataset.filter(pc.field("id") < 2), "id", join_type="left semi").count_rows() == 2


@pytest.mark.parametrize(
    "misuse",
    [
        lambda dataset, _: list(dataset.get_fragments()),
        lambda dataset, _: ds.dataset([dataset]),
        lambda dataset, _: dataset.replace_schema(pa.schema([])),
        lambda dataset, _: dataset.to_table(filter="id > 3"),
    ],
)
def test_misuse_of_a_dataset_is_refused(misuse: Callable[[Any, Path], Any], folder: str, tmp_path: Path):
    with pytest.raises(InvalidInputError, match="Cannot"):
        misuse(sp.open(folder).snapshot().dataset("flights"), tmp_path)


@pytest.mark.parametrize(
    "bypass",
    [
        lambda dataset, _: ds.Scanner.from_dataset(dataset).to_table(),
        lambda dataset, _: ds.UnionDataset(dataset.schema, [dataset]).to_table(),
    ],
)
def test_functions_that_bypass_the_dataset_fail_and_do_not_crash(
    bypass: Callable[[Any, Path], Any], folder: str, tmp_path: Path
):
    with pytest.raises(FileNotFoundError, match=r"use Table\.scan"):
        bypass(sp.open(folder).snapshot().dataset("flights"), tmp_path)


def test_duckdb_counts_nan_as_the_greatest_number_in_a_dataset():
    store = sp.create("memory://nan-in-datasets")
    store.write("t", {"x": [1.0, float("nan"), None, 5.0]})
    connection = duckdb.connect()
    connection.register("numbers", store.snapshot().dataset("t"))

    assert connection.sql("SELECT count(*) FROM numbers WHERE x > 2").fetchall() == [(2,)]


POLARS_CONDITIONS = {
    "equal": pl.col("n") == 2,
    "value first": pl.lit(3) > pl.col("n"),
    "not equal": pl.col("n") != 2,
    "float above": pl.col("x") > 2,
    "float not above": ~(pl.col("x") > 2),
    "float at most": pl.col("x") <= 2,
    "is in": pl.col("n").is_in([1, 3]),
    "is not in": ~pl.col("n").is_in([1, 3]),
    "text is in": pl.col("s").is_in(["a", "zz"]),
    "between": pl.col("n").is_between(2, 3),
    "between, open": pl.col("n").is_between(1, 3, closed="none"),
    "null": pl.col("n").is_null(),
    "not null": pl.col("x").is_not_null(),
    "nan": pl.col("x").is_nan(),
    "and": (pl.col("n") > 1) & (pl.col("s") == "c"),
    "or": (pl.col("n") > 2) | (pl.col("s") == "a"),
    "boolean": pl.col("b"),
    "not boolean": ~pl.col("b"),
}
SAMPLE = pl.DataFrame(
    {
        "n": [1, 2, 3, None],
        "x": [1.0, float("nan"), None, 5.0],
        "s": ["a", None, "c", "d"],
        "b": [True, False, None, True],
    }
)


@pytest.mark.parametrize("name", POLARS_CONDITIONS)
def test_a_condition_of_polars_means_what_it_means_to_polars(name: str):
    condition = POLARS_CONDITIONS[name]
    store = sp.create(f"memory://polars-conditions-{name}")
    store.write("t", SAMPLE)
    table = store.snapshot().table("t")

    expected = SAMPLE.filter(condition)["n"].to_list()
    assert table.read(filter=condition)["n"].to_pylist() == expected
    assert table.scan_polars().filter(condition).collect()["n"].to_list() == expected


@pytest.mark.parametrize(
    "condition",
    [
        pl.col("n").sqrt() > 1,
        pl.col("n") > pl.col("x"),
        pl.col("x") == pl.lit(math.nan),
        pl.col("n").eq_missing(1),
        pl.col("n").is_in([1, None]),
        pl.col("s").str.starts_with("a"),
        pl.col("n"),
        pl.col("n").sum() > 3,
    ],
)
def test_other_conditions_are_refused_as_filters(condition: pl.Expr):
    store = sp.create(f"memory://{uuid4()}")
    store.write("t", SAMPLE)
    table = store.snapshot().table("t")

    with pytest.raises(InvalidInputError, match="Cannot use the filter"):
        table.read(filter=condition)


def test_a_query_of_polars_tests_what_cannot_be_pushed():
    store = sp.create("memory://unpushed-polars-conditions")
    store.write("t", SAMPLE)
    query = store.snapshot().table("t").scan_polars()
    condition = pl.col("s").str.starts_with("a") & (pl.col("n") < 3)

    assert query.filter(condition).collect()["n"].to_list() == [1]


def test_a_table_is_read_by_names_batches_and_frames(folder: str):
    table = sp.open(folder).snapshot()["flights"]

    assert table["id"] == table.read(["id"])["id"]
    assert table[["id", "name"]] == table.read(["id", "name"])
    assert sum(batch.num_rows for batch in table) == ROWS
    assert table.to_pandas().shape == (ROWS, 3)
    assert table.to_polars()["id"].sum() == ROWS * (ROWS - 1) // 2
    assert table.read(filter=("id", "=", 7)).num_rows == 1


def test_a_snapshot_knows_its_tables_by_name(folder: str):
    snapshot = sp.open(folder).snapshot()

    assert "flights" in snapshot
    assert "trains" not in snapshot
    assert 5 not in snapshot  # type: ignore[operator]


def test_a_limit_stops_reading_once_it_is_reached(folder: str):
    table = sp.open(folder).snapshot().table("flights")
    trace = sp.ReadTrace()

    found = table.read(["id", "name"], filter="id > 10", limit=3, trace=trace)

    assert found["id"].to_pylist() == [11, 12, 13]
    assert len(trace.page_ids) <= 4
    assert table.read(limit=2) == table.read(stop=2)
    assert table.read(start=5, limit=2)["id"].to_pylist() == [5, 6]
    assert table.read(limit=0).num_rows == 0
    assert table.read([], filter="id > 10", limit=7).num_rows == 7
    assert table.read(filter="id < 3", limit=10).num_rows == 3


@pytest.mark.parametrize("limit", [-1, True, 1.5, "3"])
def test_a_limit_is_a_number_of_rows(limit: Any, folder: str):
    with pytest.raises(InvalidInputError, match="limit"):
        sp.open(folder).snapshot().table("flights").read(limit=limit)


def test_a_store_gives_tables_of_its_latest_version(folder: str):
    with sp.open(folder) as store:
        assert store.tables() == ["flights"]
        assert store.version == 1
        assert "flights" in store
        assert "trains" not in store
        assert store["flights"].num_rows == store.table("flights").num_rows == ROWS


def test_stores_and_snapshots_are_iterated_by_the_names_of_tables(folder: str):
    store = sp.open(folder)

    assert list(store) == list(store.snapshot()) == ["flights"]
