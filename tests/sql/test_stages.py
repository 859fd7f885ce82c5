"""The five stages of a name: text, expression, field ids, logical ids, physical keys (seed 002)."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import spark_pages as sp
from spark_pages.catalog.identifiers import (
    IdentifierContext,
    LogicalFieldId,
    PhysicalKey,
    VisibleColumn,
    VisibleTable,
)
from spark_pages.catalog.resolve import find_table, visible_table
from spark_pages.errors import ColumnNotFoundError, InvalidInputError, TableNotFoundError
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.model.names import match_name
from spark_pages.query.predicates.filters import parse_filter
from spark_pages.query.predicates.parsing import parse
from spark_pages.sql.resolver import resolve
from spark_pages.sql.table_relations import StoreRelations
from spark_pages.store import Store


def visible(alias: str, *columns: str, namespace: str | None = None, table_id: int = 5) -> VisibleTable:
    """A table with columns of consecutive ids."""
    made = (
        VisibleColumn(name, name, LogicalFieldId(0, table_id, field_id))
        for field_id, name in enumerate(columns, 1)
    )
    return VisibleTable(alias, alias, tuple(made), namespace)


@pytest.fixture
def shop(store):
    """A store with two tables, one of which has been altered."""
    with store.transaction() as txn:
        txn.create_namespace("shop")
        txn.create_table("shop.orders", pa.schema([("id", pa.int64()), ("old", pa.string())]))
        txn.create_table("people", pa.schema([("id", pa.int64()), ("name", pa.string())]))
    with store.transaction() as txn:
        txn.drop_column("shop.orders", "old")
        txn.add_column("shop.orders", pa.field("customer", pa.int64()))
        txn.rename_column("shop.orders", "id", "number")
    return store


def resolved(store, text):
    return resolve(parse(text), text, StoreRelations(store.snapshot(), store.snapshot))


def test_text_becomes_field_ids_and_these_become_keys_of_chains(shop):
    snapshot = shop.snapshot()
    orders = snapshot.table("shop.orders").definition

    query = resolved(shop, "SELECT o.Customer FROM Shop.Orders o WHERE NUMBER > 3")

    assert query.fields == (
        LogicalFieldId(orders.namespace_id, orders.table_id, 1),
        LogicalFieldId(orders.namespace_id, orders.table_id, 3),
    )
    keys = [field.physical for field in query.fields]
    assert keys == [(orders.table_id, 1), (orders.table_id, 3)]
    assert [snapshot.log.chain(key).num_rows for key in keys] == [0, 0]


def test_a_table_that_moves_to_another_namespace_keeps_its_keys(shop):
    before = resolved(shop, "SELECT number FROM shop.orders").fields
    with shop.transaction() as txn:
        txn.rename_table("shop.orders", "moved")

    after = resolved(shop, "SELECT number FROM moved").fields

    assert before != after
    assert [field.physical for field in before] == [field.physical for field in after]


def test_a_column_of_the_same_name_as_an_earlier_one_has_another_key(shop):
    before = resolved(shop, "SELECT customer FROM shop.orders").fields
    with shop.transaction() as txn:
        txn.drop_column("shop.orders", "customer")
        txn.add_column("shop.orders", pa.field("customer", pa.int64()))

    after = resolved(shop, "SELECT customer FROM shop.orders").fields

    assert before[0].physical != after[0].physical


def test_each_mention_of_a_table_asks_for_its_own_columns(shop):
    query = resolved(shop, "SELECT a.id FROM people a JOIN people b ON a.id = b.id WHERE b.name = 'x'")

    assert [use.names for use in query.uses] == [["id"], ["id", "name"]]


def test_the_depth_of_a_reference_tells_whether_it_is_correlated():
    outer = IdentifierContext((visible("people", "id", "name"),))
    inner = IdentifierContext((visible("orders", "id", "customer", table_id=6),), outer)

    found = [inner.column([name]) for name in ("customer", "name", "id")]

    assert [each.depth for each in found] == [0, 1, 0]
    assert [each.places[0][0].alias for each in found] == ["orders", "people", "orders"]


@pytest.mark.parametrize(
    ("parts", "table", "column", "path"),
    [
        (["a"], "t", "a", ()),
        (["T", "A"], "t", "a", ()),
        (["ns", "t", "a"], "t", "a", ()),
        (["s", "x", "y"], "t", "s", ("x", "y")),
        (["t", "s", "x"], "t", "s", ("x",)),
        (["NS", "t", "s", "x"], "t", "s", ("x",)),
    ],
)
def test_a_name_with_dots_is_read_from_the_left(parts, table, column, path):
    context = IdentifierContext((visible("t", "a", "s", namespace="ns"),))

    found = context.column(parts)

    ((place, named),) = found.places
    assert (place.alias, named.name, found.path) == (table, column, path)


def test_an_unknown_name_tells_what_there_is():
    context = IdentifierContext((visible("flights", "distance", "day"),))

    with pytest.raises(ColumnNotFoundError) as told:
        context.column(["Distanse"])

    assert (
        str(told.value)
        == "Cannot find column 'Distanse': flights has none of that name. Did you mean 'distance'?"
    )
    assert told.value.context == {"column": "Distanse"}
    assert str(pickle.loads(pickle.dumps(told.value))) == str(told.value)  # noqa: S301 - our own


@pytest.mark.parametrize(
    ("name", "known", "found"),
    [
        ("a", ["a", "A"], "a"),
        ("A", ["a", "A"], "A"),
        ("B", ["a", "b"], "b"),
        ("ärger", ["Ärger"], "Ärger"),
        ("straße", ["STRASSE"], None),
        ("x", ["a"], None),
    ],
)
def test_one_name_matches_exactly_or_whatever_its_case(name, known, found):
    assert match_name(name, known) == found


def test_a_name_that_several_spell_differently_is_ambiguous():
    with pytest.raises(InvalidInputError, match=r"'aB': it may be 'ab' or 'AB'"):
        match_name("aB", ["ab", "AB", "c"])


def test_keys_are_the_pairs_that_the_log_knows():
    assert LogicalFieldId(7, 5, 3).physical == PhysicalKey(5, 3) == (5, 3)


@pytest.fixture
def asked(monkeypatch):
    """The keys of all chains that anybody asks the log for."""
    keys: list[PhysicalKey] = []
    chain = LogSnapshot.chain

    def told(snapshot, key):
        keys.append(key)
        return chain(snapshot, key)

    monkeypatch.setattr(LogSnapshot, "chain", told)
    return keys


@pytest.fixture
def numbers(shop):
    """Three pages of 100 rows in ``shop.orders``, of which statistics leave one open."""
    for start in range(0, 300, 100):
        with shop.transaction() as txn:
            txn.append("shop.orders", {"number": range(start, start + 100), "customer": [7] * 100})
    return shop


def keys_of(store, *columns):
    table = store.snapshot().table("shop.orders").definition
    return {PhysicalKey(table.table_id, table.field_ids[column]) for column in columns}


@pytest.mark.parametrize(
    "given",
    [
        "NUMBER >= 250",
        "Orders.Number >= 250",
        "shop.orders.number >= 250",
        [("Number", ">=", 250)],
        [[("NUMBER", ">=", 250)], [("number", "<", 0)]],
        pc.field("number") >= 250,
    ],
)
def test_a_filter_finds_statistics_and_pages_by_the_keys_of_its_names(numbers, asked, given):
    orders = numbers.snapshot().table("shop.orders")
    del asked[:]

    rows = orders.candidate_rows(given)

    assert set(asked) == keys_of(numbers, "number")
    assert all(isinstance(key, PhysicalKey) for key in asked if key in keys_of(numbers, "number"))
    assert rows.num_rows == 100
    assert orders.read(["customer"], filter=given).num_rows == 50
    assert set(asked) <= keys_of(numbers, "number", "customer")


def test_conditions_are_known_by_field_id_before_statistics_are_looked_at(numbers):
    definition = numbers.snapshot().table("shop.orders").definition

    text = "NUMBER > 3 and Customer is null"
    parsed = parse_filter(text, definition.bare_schema, visible_table(definition))

    found = [(part.column, part.field, part.key) for part in parsed.tree.parts]
    fields = [LogicalFieldId(definition.namespace_id, definition.table_id, number) for number in (1, 3)]
    assert found == [("number", fields[0], fields[0].physical), ("customer", fields[1], fields[1].physical)]


def test_a_query_asks_for_the_keys_that_its_names_are_resolved_to_and_no_others(numbers, asked):
    text = "SELECT max(O.NUMBER) FROM Shop.Orders o WHERE Customer = 7 AND number < 120"
    fields = resolved(numbers, text).fields
    del asked[:]

    assert numbers.sql(text).column(0).to_pylist() == [119]
    assert set(asked) == {field.physical for field in fields} == keys_of(numbers, "number", "customer")


@pytest.mark.parametrize("option", [{}, {"filter": "NUMBER >= 7"}], ids=["all rows", "filtered"])
def test_spark_plans_and_its_tasks_read_by_the_keys_of_the_names_in_its_options(tmp_path, asked, option):
    pytest.importorskip("pyspark")
    from spark_pages.spark.source import SparkPagesDataSource  # noqa: PLC0415 - optional

    store = sp.create(str(tmp_path / "store"))
    with store.transaction() as txn:
        names = ["id", "Number", "customer", "other"]
        txn.create_table("Orders", pa.schema([(name, pa.int64()) for name in names]))
        txn.append("Orders", dict.fromkeys(names, range(9)))
    source = SparkPagesDataSource(
        {"path": str(tmp_path / "store"), "table": "orders", "columns": "CUSTOMER", **option}
    )
    schema = source.schema()
    reader = source.reader(schema)
    del asked[:]

    (partition, *_) = reader.partitions()
    rows = pa.Table.from_batches(pickle.loads(pickle.dumps(reader)).read(partition))  # noqa: S301 - our own

    # The first column tells how many rows there are.
    wanted = {"id", "customer"} | ({"Number"} if option else set())
    definition = store.snapshot().table("Orders").definition
    assert schema.names == ["customer"]
    assert {key for key in asked if key[0]} == {
        PhysicalKey(definition.table_id, definition.field_ids[name]) for name in wanted
    }
    assert {7, 8} <= set(rows["customer"].to_pylist())


def test_an_unknown_table_is_told_without_decoding_any_definition(numbers, monkeypatch):
    numbers.checkpoint()
    snapshot = Store(numbers.object_store).snapshot()
    monkeypatch.setattr(LogSnapshot, "tables", None)
    snapshot.log.namespace_names = lambda: {2: "shop"}

    with pytest.raises(TableNotFoundError, match=r"Did you mean 'people'\?"):
        find_table(snapshot.log, "peple")
