"""What a scan gives is taken by other libraries as it is."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tests.transaction.stores import store_with

ROWS = 30_000
NUMBERS = np.random.default_rng(5).integers(0, 2**60, ROWS)
PLACES = [f"place {i % 700}" for i in range(ROWS)]


@pytest.fixture(scope="module")
def table():
    rows = pa.table({"n": NUMBERS, "place": PLACES})
    return store_with(rows.slice(0, 20_000), rows.slice(20_000)).snapshot().table("t")


def test_duckdb_reads_a_scan(table):
    duckdb = pytest.importorskip("duckdb")
    relation = duckdb.connect().from_arrow(table.scan(["place", "n"]))

    found = relation.filter("place = 'place 33'").aggregate("max(n)").fetchall()

    assert found == [(max(NUMBERS[33::700].tolist()),)]


def test_polars_takes_the_memory_of_a_batch(table):
    polars = pytest.importorskip("polars")
    rows = 0

    for batch in table.scan(["n"], batch_rows=10_000):
        taken = polars.from_arrow(batch, rechunk=False)["n"]
        column = batch.column(0)
        memory = taken.to_numpy(allow_copy=False).ctypes.data
        assert memory == column.buffers()[1].address + 8 * column.offset
        assert taken.to_list() == NUMBERS[rows : rows + 10_000].tolist()
        rows += batch.num_rows

    assert rows == ROWS
    assert polars.from_arrow(table.scan(["place"]))["place"].to_list() == PLACES


def test_pandas_takes_the_memory_of_a_batch(table):
    pytest.importorskip("pandas")
    batch = next(table.scan(["n"]))

    taken = batch.column(0).to_pandas(zero_copy_only=True).to_numpy()

    assert taken.ctypes.data == batch.column(0).buffers()[1].address + 8 * batch.column(0).offset
    assert table.scan().read_pandas()["place"].tolist() == PLACES
