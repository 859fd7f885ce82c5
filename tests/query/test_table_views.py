"""Rows by position, samples and counts of a table."""

from __future__ import annotations

from typing import Any

import pytest

import spark_pages as sp
from spark_pages.errors import InvalidInputError, RowOutOfRangeError
from spark_pages.query.table import Table


@pytest.fixture(scope="module", params=["whole", "with deleted rows"])
def table(request: pytest.FixtureRequest) -> Table:
    """Twenty live rows with values 0 to 19, in the second case with deleted ones between them."""
    store = sp.create(f"memory://table-views-{request.param.replace(' ', '-')}")
    if request.param == "whole":
        store.write("t", {"n": list(range(20))})
        return store["t"]
    store.write("t", {"n": [value // 2 if value % 2 else -1 for value in range(40)]})
    with store.transaction() as txn:
        txn.delete("t", where="n = -1")
    return store["t"]


def test_a_row_is_read_by_its_position_from_either_end(table: Table):
    assert [table[0], table[5], table[-1], table[-20]] == [{"n": 0}, {"n": 5}, {"n": 19}, {"n": 0}]


@pytest.mark.parametrize(
    "wanted",
    [
        slice(5, 10),
        slice(None, 3),
        slice(18, 100),
        slice(50, 60),
        slice(-3, None),
        slice(None, None, 7),
        slice(None, None, -6),
        slice(5, 5),
        slice(None),
    ],
    ids=str,
)
def test_a_slice_has_the_rows_that_it_has_of_a_list(wanted: slice, table: Table):
    assert table[wanted]["n"].to_pylist() == list(range(20))[wanted]


@pytest.mark.parametrize("position", [20, -21])
def test_a_position_outside_is_refused(position: int, table: Table):
    with pytest.raises(RowOutOfRangeError, match="20 live rows"):
        table[position]
    with pytest.raises(IndexError):
        table[position]


@pytest.mark.parametrize("wanted", [1.5, None, True, slice("a", None), slice(0, 5, 0), (1, 2)], ids=str)
def test_other_keys_are_refused(wanted: Any, table: Table):
    with pytest.raises(InvalidInputError, match="Cannot"):
        table[wanted]


def test_the_head_is_the_first_live_rows(table: Table):
    assert table.head(3)["n"].to_pylist() == [0, 1, 2]
    assert table.head().num_rows == 5
    assert table.head(0).num_rows == 0
    assert table.head(100).num_rows == len(table) == 20


def test_a_sample_has_different_live_rows_and_is_repeated_by_its_seed(table: Table):
    found = table.sample(7, seed=3)["n"].to_pylist()

    assert found == sorted(set(found))
    assert len(found) == 7
    assert set(found) <= set(range(20))
    assert table.sample(7, seed=3)["n"].to_pylist() == found
    assert table.sample(7, seed=4)["n"].to_pylist() != found
    assert table.sample(100)["n"].to_pylist() == list(range(20))


def test_rows_are_counted_with_a_condition_and_without(table: Table):
    assert table.count_rows() == 20
    assert table.count_rows("n < 5") == 5
    assert table.count_rows(("n", ">=", 15)) == 5
