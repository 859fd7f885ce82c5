"""The forms in which rows and values are given to `update_rows` and `delete`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages import InvalidInputError, RowOutOfRangeError, Store

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string()), ("l", pa.list_(pa.int64()))])


@pytest.fixture
def store() -> Iterator[Store]:
    """Ten rows, of which row 3 is deleted."""
    with sp.create(f"memory://{uuid4().hex}") as store:
        with store.transaction() as txn:
            txn.create_table("t", SCHEMA)
            txn.append("t", {"n": range(10), "s": list("abcdefghij"), "l": [[n] for n in range(10)]})
        with store.transaction() as txn:
            txn.delete("t", [3])
        yield store


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (5, [5]),
        (np.int32(5), [5]),
        (slice(2, 6), [2, 4, 5]),
        (slice(None, None, 4), [0, 4, 8]),
        (slice(8, 100), [8, 9]),
        ([True, *[False] * 8, True], [0, 9]),
        (np.arange(10) > 7, [8, 9]),
        (pa.array([1, 2]), [1, 2]),
        ([], []),
    ],
)
def test_rows_are_numbers_one_number_a_mask_or_a_slice(store: Store, rows: Any, expected: list[int]) -> None:
    with store.transaction() as txn:
        updated = txn.update_rows("t", rows, {"n": -1, "s": None})
    changed = store.snapshot().table("t").row_numbers("n = -1 and s is null").tolist()
    with store.transaction() as txn:
        deleted = txn.delete("t", rows)

    assert (updated, changed, deleted) == (len(expected), expected, len(expected))


@pytest.mark.parametrize(
    ("rows", "kind", "message"),
    [
        ([True, False], InvalidInputError, "mask of 2 flags as rows of 't'.*below 10"),
        (slice(-3, None), InvalidInputError, "0 or more"),
        (slice(5, 0, -1), InvalidInputError, "step of 1 or more"),
        (slice("a", None), InvalidInputError, "slice of row numbers"),
        (-1, RowOutOfRangeError, "numbered from 0"),
        ([True, 1], InvalidInputError, "booleans"),
    ],
)
def test_other_rows_are_refused(store: Store, rows: Any, kind: type[Exception], message: str) -> None:
    with store.transaction() as txn:
        with pytest.raises(kind, match=message):
            txn.update_rows("t", rows, {"n": 0})
        with pytest.raises(kind, match=message):
            txn.delete("t", rows)


def test_one_value_stands_for_all_rows_and_a_list_for_one_each(store: Store) -> None:
    with store.transaction() as txn:
        txn.update_rows("t", [0, 1], {"n": pa.scalar(7, pa.int8()), "s": "x", "l": [[1, 2], None]})
    assert store.snapshot().table("t").take([0, 1]).to_pylist() == [
        {"n": 7, "s": "x", "l": [1, 2]},
        {"n": 7, "s": "x", "l": None},
    ]


def test_another_number_of_values_is_refused(store: Store) -> None:
    with store.transaction() as txn, pytest.raises(InvalidInputError, match="3 rows but 2 values"):
        txn.update_rows("t", [0, 1, 2], {"n": [1, 2]})
