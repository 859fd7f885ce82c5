"""The catalog as tables: what `system.*` shows, at any version, read like any other table."""

from __future__ import annotations

import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.errors import InvalidInputError, TableNotFoundError
from spark_pages.log.checkpoint import root
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.query.predicates.filters import parse_filter
from spark_pages.storage import MeteredStore
from spark_pages.store import Store
from tests.transaction.stores import metered

SCHEMA = pa.schema([pa.field("n", pa.int64(), nullable=False), ("s", pa.string())])


@pytest.fixture
def flights(store: Store) -> Store:
    """A store with two tables, one of them in a namespace and with a rule."""
    with store.transaction() as txn:
        txn.create_namespace("sales", {"codec": "zstd"})
        txn.create_table("flights", SCHEMA, properties={"owner": "etl"})
        txn.create_table("sales.orders", SCHEMA, aligned=False)
        txn.append("flights", {"n": [1, 2, 3], "s": ["a", "b", None]})
        txn.append("sales.orders", {"n": [1, 2]})
        txn.add_constraint("flights", "positive", check="n > 0")
        txn.set_comment("flights", "one row a flight")
        txn.set_comment("flights", "miles", column="n")
        txn.set_column_properties("flights", "n", {"unit": "mile"})
    return store


def shown(store: Store, table: str, *columns: str, **version: int) -> list[dict]:
    return store.snapshot(**version).table(f"system.{table}").read(columns or None).to_pylist()


def test_every_table_is_shown_with_its_name_and_rows_the_catalogs_own_among_them(flights):
    columns = [
        "namespace",
        "name",
        "num_columns",
        "num_rows",
        "aligned",
        "comment",
        "properties",
        "created_by",
    ]
    own, *made = shown(flights, "tables", *columns)

    assert (own["namespace"], own["name"], own["num_columns"]) == ("system", "catalog", 13)
    assert own["num_rows"] == flights.snapshot().table("system.catalog").num_rows
    assert made == [
        {
            "namespace": "default",
            "name": "flights",
            "num_columns": 2,
            "num_rows": 3,
            "aligned": True,
            "comment": "one row a flight",
            "properties": [("owner", "etl")],
            "created_by": 1,
        },
        {
            "namespace": "sales",
            "name": "orders",
            "num_columns": 2,
            "num_rows": 0,
            "aligned": False,
            "comment": None,
            "properties": [],
            "created_by": 1,
        },
    ]


def test_every_column_is_shown_in_the_order_of_its_table(flights):
    with flights.transaction() as txn:
        txn.add_column("flights", pa.field("z", pa.float32()))
        txn.reorder_columns("flights", ["z"])

    columns = ["name", "field_id", "position", "type", "nullable", "comment", "properties"]
    table = flights.snapshot().table("system.columns")
    assert table.read(columns, filter=[("table", "==", "flights")]).to_pylist() == [
        {"name": "z", "field_id": 3, "position": 0, "type": "float", "nullable": True, "comment": None}
        | {"properties": []},
        {"name": "n", "field_id": 1, "position": 1, "type": "int64", "nullable": False, "comment": "miles"}
        | {"properties": [("unit", "mile")]},
        {"name": "s", "field_id": 2, "position": 2, "type": "string", "nullable": True, "comment": None}
        | {"properties": []},
    ]


def test_namespaces_are_shown_with_those_that_every_store_has(flights):
    assert shown(flights, "namespaces", "namespace_id", "name", "properties") == [
        {"namespace_id": 0, "name": "default", "properties": []},
        {"namespace_id": 1, "name": "temp", "properties": []},
        {"namespace_id": -1, "name": "system", "properties": []},
        {"namespace_id": 2, "name": "sales", "properties": [("codec", "zstd")]},
    ]


def test_constraints_and_types_are_shown(flights):
    with flights.transaction() as txn:
        txn.create_type("code", pa.string(), not_null=True, check="length(VALUE) = 3")

    assert shown(flights, "constraints", "table", "name", "kind", "columns", "check") == [
        {"table": "flights", "name": "positive", "kind": "check", "columns": ["n"], "check": "n > 0"}
    ]
    assert shown(flights, "types", "name", "base", "type", "not_null", "checks") == [
        {"name": "code", "base": "string", "type": "string", "not_null": True}
        | {"checks": ["length(VALUE) = 3"]}
    ]


def test_each_version_shows_the_catalog_that_it_had(flights):
    before = flights.snapshot().version
    with flights.transaction() as txn:
        txn.drop_table("flights")
        txn.rename_table("sales.orders", "orders")
    flights.checkpoint()

    names = {(row["namespace"], row["name"]) for row in shown(flights, "tables")}
    earlier = {(row["namespace"], row["name"]) for row in shown(flights, "tables", version=before)}
    assert names == {("system", "catalog"), ("default", "orders")}
    assert earlier == {("system", "catalog"), ("default", "flights"), ("sales", "orders")}
    assert shown(flights, "constraints") == []
    assert len(shown(flights, "constraints", version=before)) == 1


def test_the_raw_table_keeps_the_rows_that_have_ended(flights):
    with flights.transaction() as txn:
        txn.drop_table("flights")

    rows = flights.snapshot().table("system.catalog").read(filter="\"table_id\" = 3 and name = 'flights'")

    assert rows.select(["created_by", "deleted_by"]).to_pylist() == [{"created_by": 1, "deleted_by": 2}]


def test_a_system_table_answers_as_any_other_table_does(flights):
    table = flights.snapshot().table("system.columns")
    whole = table.read()

    assert table.num_rows == whole.num_rows == 13 + 4
    assert table.read(start=3, stop=5) == whole.slice(3, 2)
    assert table.take([5, 2], ["name"])["name"].to_pylist() == ["table_id", "deleted_by"]
    assert table.scan(["name"], filter=[("type", "==", "bool")]).read_all()["name"].to_pylist() == [
        "nullable"
    ]
    assert table.aggregate("position").max.as_py() == 12
    assert table.pages("name")["entry_count"].to_pylist() == [17]
    assert table.schema.field("properties").type == pa.map_(pa.string(), pa.string())


def test_a_transaction_sees_the_catalog_with_what_it_has_staged(flights):
    with flights.transaction() as txn:
        txn.create_table("planes", SCHEMA)
        txn.append("planes", {"n": [1], "s": ["x"]})
        txn.drop_table("flights")

        staged = txn.table("system.tables").read(["name", "num_rows"]).to_pylist()

    assert [row for row in staged if row["name"] != "catalog"] == [
        {"name": "orders", "num_rows": 0},
        {"name": "planes", "num_rows": 1},
    ]


def test_nobody_writes_to_the_system_namespace(flights):
    txn = flights.transaction()
    for name in ("system.tables", "system.mine"):
        with pytest.raises(InvalidInputError, match="the store's own"):
            txn.create_table(name, SCHEMA)
    with pytest.raises(TableNotFoundError):
        txn.append("system.tables", {"name": ["x"]})
    with pytest.raises(TableNotFoundError, match="Did you mean 'flights'"):
        flights.snapshot().table("flight")


def test_only_what_is_asked_for_is_read_of_table_zero(flights):
    flights.checkpoint()
    other, meter = metered(flights)
    table = other.snapshot().table("system.tables")
    table.read(["name"])
    table.read(["name"], filter=[("name", "==", "flights")])
    names = meter.counts.requests

    table.read(["name"])
    table.read(["name"], filter=[("name", "==", "flights")])
    assert meter.counts.requests == names
    table.read(["comment"])
    assert meter.counts.requests > names


CONDITIONS = {
    "tables": [
        "name = 'flights'", "name in ('orders', 'nothing', null)", "name = 'orders' or name = 'flights'",
        "namespace = 'sales' and name = 'orders'", "created_by = 1 and name < 'g'", "name = 'none'",
        "name = 'flights' or num_rows = 2", "not name = 'flights'", "table_id > 2", "name = 'catalog'",
    ],
    "columns": [
        "\"table\" = 'flights'", "\"table\" in ('flights', 'orders') and name = 's'", "name = 's'",
        "\"table\" = 'orders' and position = 1", "nullable", "field_id = 2", "\"table\" = 'Flights'",
        "\"table\" = 'flights' and \"table\" = 'orders'", "\"table\" is null",
    ],
    "constraints": ["\"table\" = 'flights'", "\"table\" = 'orders'", "name = 'positive' and kind = 'check'"],
}  # fmt: skip


@pytest.mark.parametrize(("name", "text"), [(name, text) for name in CONDITIONS for text in CONDITIONS[name]])
def test_a_filter_that_is_tested_on_table_zero_first_passes_the_same_rows(flights, name, text):
    with flights.transaction() as txn:
        txn.create_table("sales.flights", SCHEMA)
        txn.rename_table("sales.orders", "orders")
        txn.reorder_columns("orders", ["s"])
    table = flights.snapshot().table(f"system.{name}")
    whole = table.read()

    expected = whole.filter(parse_filter(text, whole.schema).expression)

    assert table.read(filter=text) == expected
    assert table.scan(filter=text).read_all() == expected
    assert table.read(["name"], filter=text) == expected.select(["name"])
    assert table.read(filter=text, start=1) == whole.slice(1).filter(
        parse_filter(text, whole.schema).expression
    )


def test_a_table_is_described_by_a_few_pages_of_table_zero_whatever_else_there_is(store):
    schema = pa.schema([(f"c{number}", pa.int64()) for number in range(50)])
    for first in range(0, 40, 4):
        with store.transaction() as txn:
            for number in range(first, first + 4):
                txn.create_table(f"t{number:02}", schema)
    store.checkpoint()
    other, _ = metered(store)

    def bytes_read(text: str | None) -> int:
        held = Store(MeteredStore(other.object_store))
        table = held.snapshot().table("system.columns")
        before = held.cache_stats.bytes_read
        assert table.read(["name", "type"], filter=text).num_rows == (50 if text else 13 + 40 * 50)
        return held.cache_stats.bytes_read - before

    assert bytes_read("\"table\" = 't20'") * 5 < bytes_read(None)


def test_names_of_all_tables_are_listed_without_their_definitions(store, monkeypatch):
    with store.transaction() as txn:
        txn.create_namespace("sales")
        txn.create_table("sales.t", SCHEMA)
        txn.create_table("t", SCHEMA)
    store.checkpoint()
    other = Store(store.object_store)
    snapshot = other.snapshot()
    made = []
    monkeypatch.setattr(root, "definition_from_plain", lambda *told: made.append(told))
    with pytest.raises(AttributeError):
        snapshot.log.tables()
    assert made
    made.clear()

    with monkeypatch.context() as patched:
        patched.setattr(LogSnapshot, "namespace_names", lambda _: {2: "sales"})
        assert Store(store.object_store).snapshot().tables() == ["t", "sales.t"]
    assert not made


def test_a_store_of_ten_thousand_columns_is_shown_in_pages(store):
    with store.transaction() as txn:
        for number in range(50):
            txn.create_table(f"t{number:02}", pa.schema([(f"c{i}", pa.int64()) for i in range(200)]))

    table = store.snapshot().table("system.columns")

    assert table.num_rows == 13 + 10_000
    assert len(table.pages("name")) == 3
    found = table.read(["table", "name"], filter="\"table\" = 't31' and name = 'c7'").to_pylist()
    assert found == [{"table": "t31", "name": "c7"}]
    assert isinstance(table, sp.Table)
