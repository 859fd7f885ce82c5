"""The history names changes of definitions by itself: what was changed, from what to what."""

from __future__ import annotations

import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.store import Store


@pytest.fixture
def flights(store: Store) -> Store:
    """A table with a namespace and a type beside it."""
    with store.transaction() as txn:
        txn.create_namespace("sales")
        txn.create_type("money", pa.int64())
        txn.create_table("flights", pa.schema([("day", pa.int32()), ("carrier", pa.string())]))
        txn.append("flights", {"day": pa.array([1], pa.int32()), "carrier": ["UA"]})
        txn.create_table("other", pa.schema([("x", pa.int64())]))
    return store


def newest(store: Store) -> tuple[str, dict[str, str]]:
    (row,) = store.history(limit=1).to_pylist()
    return row["operation"], dict(row["parameters"])


F = {"table": "flights"}


@pytest.mark.parametrize(
    ("change", "operation", "parameters"),
    [
        (
            lambda t: t.rename_column("flights", "carrier", "airline"),
            "rename column",
            {**F, "column": "carrier", "from": "carrier", "to": "airline"},
        ),
        (
            lambda t: t.add_column("flights", pa.field("delay", pa.int8()), default=3),
            "add column",
            {**F, "column": "delay", "to": "int8"},
        ),
        (
            lambda t: t.add_column("flights", sp.typed("price", "money")),
            "add column",
            {**F, "column": "price", "to": "money"},
        ),
        (
            lambda t: t.drop_column("flights", "carrier"),
            "drop column",
            {**F, "column": "carrier", "from": "string"},
        ),
        (
            lambda t: t.widen_column("flights", "day", pa.int64()),
            "change type",
            {**F, "column": "day", "from": "int32", "to": "int64"},
        ),
        (
            lambda t: t.set_nullable("flights", "day", False),
            "set nullable",
            {**F, "column": "day", "from": "nullable", "to": "not null"},
        ),
        (
            lambda t: t.reorder_columns("flights", ["carrier"]),
            "reorder columns",
            {**F, "from": "day, carrier", "to": "carrier, day"},
        ),
        (lambda t: t.set_comment("flights", "of 2024"), "set comment", {**F, "to": "of 2024"}),
        (
            lambda t: t.set_table_properties("flights", {"owner": "etl"}),
            "set property",
            {**F, "property": "owner", "to": "etl"},
        ),
        (
            lambda t: t.add_constraint("flights", "positive", check="day > 0"),
            "add constraint",
            {**F, "constraint": "positive", "to": "check (day > 0)"},
        ),
        (
            lambda t: t.rename_table("flights", "sales.flights"),
            "rename table",
            {**F, "from": "flights", "to": "sales.flights"},
        ),
        (lambda t: t.drop_table("flights"), "drop table", F),
        (lambda t: t.truncate_table("flights"), "truncate table", F),
        (lambda t: t.create_table("new", pa.schema([("x", pa.int8())])), "create table", {"table": "new"}),
        (lambda t: t.drop_namespace("sales"), "drop namespace", {"namespace": "sales"}),
        (lambda t: t.drop_type("money"), "drop type", {"type": "money"}),
        (lambda t: t.create_type("cents", pa.int8()), "create type", {"type": "cents"}),
    ],
)
def test_a_change_is_named(flights, change, operation, parameters):
    with flights.transaction() as txn:
        change(txn)

    assert newest(flights) == (operation, parameters)


def test_an_undrop_is_named(flights):
    with flights.transaction() as txn:
        txn.drop_table("other")
    with flights.transaction() as txn:
        txn.undrop_table("other")

    assert newest(flights) == ("undrop table", {"table": "other"})


def listed(told: tuple[str, dict[str, str]]) -> tuple[str, str]:
    return told[0], told[1]["changes"]


RENAMED = "rename column (table=flights, column=day, from=day, to=date)"
DROPPED = "drop table (table=other)"


def test_several_changes_are_listed(flights):
    with flights.transaction() as txn:
        txn.rename_column("flights", "day", "date")
        txn.drop_table("other")

    assert listed(newest(flights)) == ("change definitions", f"{DROPPED}; {RENAMED}")


def test_what_the_caller_said_stays_and_the_changes_are_told_beside(flights):
    with flights.transaction(operation="migrate", parameters={"to": "7"}) as txn:
        txn.rename_column("flights", "day", "date")

    operation, told = newest(flights)
    assert (operation, told.pop("to")) == ("migrate", "7")
    assert told["changes"] == RENAMED


def test_rows_beside_a_change_are_a_write(flights):
    with flights.transaction() as txn:
        txn.rename_column("flights", "day", "date")
        txn.append("other", {"x": [1]})

    assert listed(newest(flights)) == ("write", RENAMED)


def test_sql_and_restore_tell_their_changes_too(flights):
    flights.sql("ALTER TABLE flights RENAME COLUMN day TO date")
    assert newest(flights)[1]["changes"] == RENAMED

    flights.restore(version=1)

    operation, told = newest(flights)
    assert (operation, told["version"]) == ("restore", "1")
    back = "rename column (table=flights, column=date, from=date, to=day)"
    assert told["changes"] == back
