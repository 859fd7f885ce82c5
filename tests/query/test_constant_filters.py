"""A condition that reads no column holds for all rows or for none, whatever is asked of the rows."""

from __future__ import annotations

from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import spark_pages as sp

HOLD = ["TRUE", "1 = 1", "NULL IS NULL", "NOT FALSE", pc.scalar(True)]
FAIL = [
    "FALSE", "NULL", "NOT NULL", "1 = 2", "'a' = 'b'", "1 > NULL", pc.scalar(False),
    "n LIKE 'a%'", "NOT n",  # of a column of nulls, which needs no look
]  # fmt: skip

QUESTIONS = {
    "row numbers": lambda t, f: len(t.row_numbers(f)),
    "a count": lambda t, f: t.count_rows(filter=f),
    "all columns": lambda t, f: t.read(filter=f).num_rows,
    "no columns": lambda t, f: t.read([], filter=f).num_rows,
    "no columns of a range": lambda t, f: t.read([], start=0, stop=3, filter=f, row_numbers=True).num_rows,
    "a scan": lambda t, f: t.scan([], filter=f).read_all().num_rows,
    "batches": lambda t, f: sum(each.num_rows for each in t.scan([], filter=f, batch_rows=1)),
}


@pytest.fixture
def store() -> sp.Store:
    store = sp.create(f"memory://{uuid4().hex}")
    schema = pa.schema([("i", pa.int64()), ("n", pa.null())])
    with store.transaction() as txn:
        txn.create_table("t", schema)
        txn.append("t", pa.table({"i": [1, 2, 3], "n": [None] * 3}, schema=schema))
    return store


@pytest.fixture
def table(store: sp.Store) -> sp.Table:
    return store.snapshot().table("t")


@pytest.mark.parametrize("asked", QUESTIONS)
@pytest.mark.parametrize("condition", HOLD, ids=str)
def test_all_rows_are_found_where_it_holds(table, condition, asked):
    assert QUESTIONS[asked](table, condition) == 3


@pytest.mark.parametrize("asked", QUESTIONS)
@pytest.mark.parametrize("condition", FAIL, ids=str)
def test_no_row_is_found_where_it_does_not_hold(table, condition, asked):
    assert QUESTIONS[asked](table, condition) == 0


@pytest.mark.parametrize("condition", FAIL, ids=str)
def test_a_delete_where_it_does_not_hold_deletes_nothing(store, condition):
    with store.transaction() as txn:
        txn.delete("t", where=condition)

    assert store.snapshot().table("t").read(["i"]).column(0).to_pylist() == [1, 2, 3]


@pytest.mark.parametrize("condition", HOLD, ids=str)
def test_a_delete_where_it_holds_deletes_all(store, condition):
    with store.transaction() as txn:
        txn.delete("t", where=condition)

    assert store.snapshot().table("t").count_rows() == 0
