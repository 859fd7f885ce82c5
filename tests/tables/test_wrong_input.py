"""What a caller gets wrong is told by an error of our own that names it; nothing is guessed or cut."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from spark_pages.errors import ColumnNotFoundError, InvalidInputError, RowOutOfRangeError
from spark_pages.tables.store import Store
from tests.tables.stores import store_with

WRONG: dict[str, Callable[[Any], object]] = {
    "3.5 is not a version": lambda store: store.snapshot(version=3.5),
    "'a' is not a version": lambda store: store.restore(version="a"),
    "2.9 is not a retention": lambda store: store.vacuum_plan(retention=2.9),
    "'x' is not a retention": lambda store: store.vacuum_plan(retention="x"),
    "7 is not a table name": lambda store: store.snapshot().table(7),
    "7 is not the name of a column": lambda store: store.snapshot().table("t").read(columns=[7]),
    "0.5 is not the name of a column": lambda store: store.snapshot().table("t").blocks(by=0.5),
    "after the year 9999": lambda store: store.snapshot().lease(timedelta.max, required=True),
    "rows have type float64": lambda store: store.snapshot().table("t").directory.locate_rows("a", [1.5]),
    "rows have type int64": lambda store: store.snapshot().table("t").directory.locate_rows("a", 1),
}


@pytest.fixture(scope="module")
def store() -> Store:
    return store_with(pa.table({"a": [1, 2, 3]}))


@pytest.mark.parametrize("told", WRONG)
def test_wrong_input_is_told_by_name(store: Store, told: str) -> None:
    with pytest.raises(InvalidInputError, match=told):
        WRONG[told](store)


def test_a_negative_row_is_told_as_it_was_given(store: Store) -> None:
    with pytest.raises(RowOutOfRangeError, match="Row -1 is not in table 't'"):
        store.snapshot().table("t").directory.locate_rows("a", [-1])


def test_values_of_pages_of_no_column_are_refused_by_name(store: Store) -> None:
    with pytest.raises(ColumnNotFoundError, match="has no column 'nope'"):
        store.snapshot().table("t").page_values("nope", [])
