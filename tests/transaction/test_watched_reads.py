"""Serializable isolation: what a transaction can learn of rows and definitions must hold at its commit."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spark_pages as sp
from spark_pages.errors import CommitConflictError
from spark_pages.query.system_layouts import LAYOUTS
from spark_pages.store import Store
from spark_pages.transaction.transaction import Transaction
from tests.effort import examples
from tests.transaction.stores import store_with

ROWS = pa.table({"n": [1, 2, 3]})
Look = Callable[[Transaction], object]


@pytest.fixture
def two() -> Store:
    """Tables ``t`` and ``u``."""
    store = store_with(ROWS)
    with store.transaction() as txn:
        txn.create_table("u", ROWS.schema)
    return store


@pytest.mark.parametrize(
    "look",
    [
        lambda txn: txn.snapshot.table("system.tables").read(["num_rows"]),
        lambda txn: txn.snapshot.table("system.tables").read(["name"], filter="num_rows > 2"),
        lambda txn: txn.snapshot.table("system.tables").read(["num_rows"], filter="name = 't'"),
        lambda txn: txn.snapshot.table("system.tables").aggregate("num_rows"),
        lambda txn: txn.snapshot.table("system.tables").scan(["num_rows"]).read_all(),
        lambda txn: txn.snapshot.table("system.tables").take([0], ["num_rows"]),
        lambda txn: txn.snapshot._repr_html_(),
        lambda txn: txn.table("system.tables").read(["num_rows"]),
        lambda txn: txn.table("system.tables").read(filter="num_rows = 3"),
    ],
)
def test_to_count_rows_through_the_catalog_is_to_read_them(two, look):
    reader = two.transaction(isolation="serializable")
    look(reader)
    reader.append("u", ROWS)
    with two.transaction() as txn:
        txn.append("t", ROWS)

    with pytest.raises(CommitConflictError, match="it changed rows of table"):
        reader.commit()


@pytest.mark.parametrize(
    "look",
    [
        lambda txn: txn.snapshot.table("system.tables").read(["name", "num_columns"]),
        lambda txn: txn.snapshot.table("system.tables").read(["num_rows"], filter="name = 'u'"),
        lambda txn: txn.snapshot.tables(),
        lambda txn: txn.table("system.columns").read(),
    ],
)
def test_rows_that_were_not_counted_may_change(two, look):
    reader = two.transaction(isolation="serializable")
    look(reader)
    reader.append("u", ROWS)
    with two.transaction() as txn:
        txn.append("t", ROWS)

    assert reader.commit() == 5


def test_a_table_that_is_new_in_the_transaction_is_nobody_elses(two):
    reader = two.transaction(isolation="serializable")
    reader.create_table("mine", ROWS.schema)
    reader.append("mine", ROWS)
    reader.table("mine").read()
    reader.table("system.tables").read(["num_rows"])
    with two.transaction() as txn:
        txn.set_properties({"a": "b"})

    assert reader.commit() == 5


@st.composite
def looks(draw: st.DrawFn) -> tuple[str, str, bool]:
    """A column of one of the tables of ``system``, and whether it is asked for with what is staged."""
    name = draw(st.sampled_from(sorted(LAYOUTS)))
    return name, draw(st.sampled_from(sorted(LAYOUTS[name].columns))), draw(st.booleans())


CHANGES: list[Look] = [
    lambda txn: txn.append("t", ROWS),
    lambda txn: txn.update_rows("t", [0], {"n": [9]}),
    lambda txn: txn.truncate_table("t"),
    lambda txn: txn.create_table("new", ROWS.schema),
    lambda txn: txn.drop_table("t"),
    lambda txn: txn.rename_table("t", "other"),
    lambda txn: txn.add_column("t", pa.field("m", pa.int8())),
    lambda txn: txn.set_comment("t", "text"),
    lambda txn: txn.add_constraint("t", "positive", check="n > 0"),
    lambda txn: txn.create_namespace("sales"),
    lambda txn: txn.create_type("money", pa.int64()),
]


def seen(view: sp.Snapshot | Transaction, name: str, column: str) -> list[object]:
    return view.table(f"system.{name}").read([column])[column].to_pylist()


@settings(max_examples=examples(40))
@given(look=looks(), change=st.sampled_from(CHANGES))
def test_whatever_column_of_the_catalog_would_read_otherwise_is_a_conflict(look, change):
    name, column, staged = look
    store = store_with(ROWS)
    with store.transaction() as txn:
        txn.create_table("u", ROWS.schema)
    reader = store.transaction(isolation="serializable")
    before = seen(reader if staged else reader.snapshot, name, column)
    reader.set_properties({"somebody": "looked"})
    with store.transaction() as txn:
        change(txn)

    try:
        reader.commit()
    except CommitConflictError:
        return

    assert seen(store.snapshot(), name, column) == before
