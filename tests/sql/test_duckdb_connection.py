"""`Snapshot.duckdb`: the tables of a snapshot as views in a database of the caller's own."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.store import Store

ROWS = 100_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = str(tmp_path_factory.mktemp("duckdb") / "store")
    with sp.create(url) as store:
        store.write("flights", {"id": np.arange(ROWS), "delay": np.random.default_rng(0).random(ROWS)})
    return url


@pytest.mark.parametrize(
    ("text", "expected", "most_pages"),
    [
        ("SELECT count(*) FROM flights", [(ROWS,)], 0),
        ("SELECT id FROM flights LIMIT 5", [(0,), (1,), (2,), (3,), (4,)], 1),
        ("SELECT id, delay < 1 FROM flights WHERE id = 77777", [(77_777, True)], 3),
        ("SELECT count(*) FROM flights WHERE id < 3", [(3,)], 1),
    ],
)
def test_a_query_touches_few_pages(text: str, expected: Any, most_pages: int, folder: str):
    with sp.open(folder) as store:
        connection = store.snapshot().duckdb()

        assert connection.sql(text).fetchall() == expected
        assert store.cache_stats.misses <= most_pages


def test_a_view_has_the_columns_of_its_table(store: Store):
    store.write("flights", {"id": [1, 2], "code": ["a", None]})
    connection = store.snapshot().duckdb()

    assert connection.sql("FROM flights ORDER BY id").fetchall() == [(1, "a"), (2, None)]
    assert [row[0] for row in connection.sql("DESCRIBE flights").fetchall()] == ["id", "code"]
    assert [row[0] for row in connection.sql("SUMMARIZE flights").fetchall()] == ["id", "code"]
    assert connection.sql("SHOW TABLES").fetchall() == [("flights",)]
    assert connection.sql("PIVOT flights ON code USING sum(id)").fetchall() == [(1,)]


def test_views_are_joined_with_files_and_frames(store: Store, tmp_path: Path):
    store.write("flights", {"id": [1, 2]})
    (tmp_path / "names.csv").write_text("id,name\n2,two\n")
    frame = pl.DataFrame({"id": [2], "weight": [0.5]})
    connection = store.snapshot().duckdb()
    connection.register("frame", frame)

    found = connection.execute(
        "SELECT name, weight FROM flights JOIN read_csv(?) USING (id) JOIN frame USING (id)",
        [str(tmp_path / "names.csv")],
    )

    assert found.fetchall() == [("two", 0.5)]


def test_tables_of_namespaces_are_in_schemas(store: Store):
    with store.transaction() as txn:
        txn.create_namespace("air")
        txn.create_table("air.flights", {"id": int})
        txn.append("air.flights", {"id": [7]})

    assert store.snapshot().duckdb().sql("FROM air.flights").fetchall() == [(7,)]


def test_a_connection_shows_the_version_of_its_snapshot(store: Store):
    store.write("flights", {"id": [1]})
    connection = store.snapshot().duckdb()
    store.append("flights", {"id": [2]})

    assert connection.sql("FROM flights").fetchall() == [(1,)]


def test_a_table_that_duckdb_cannot_hold_says_so_when_it_is_read(store: Store):
    store.write("good", {"id": [1]})
    wide = pa.array([Decimal("1E+10")], pa.decimal128(38, -10))
    store.write("wide", pa.table({"n": wide}))
    connection = store.snapshot().duckdb()

    assert connection.sql("FROM good").fetchall() == [(1,)]
    with pytest.raises(duckdb.Error, match="Cannot query column 'n'"):
        connection.sql("FROM wide").fetchall()
