"""Names of namespaces, tables and columns are compared without regard to case; the exact spelling wins."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_pages.errors import (
    AlreadyExistsError,
    ColumnNotFoundError,
    InvalidInputError,
    SchemaMismatchError,
    TableNotFoundError,
)
from spark_pages.model.names import fold_name, match_name
from spark_pages.store import Store
from tests.transaction.stores import store_with
from tests.versions.hand import numbers

FLIGHTS = pa.table({"Carrier": ["UA", "DL"], "delay": [1, 2]})


@pytest.fixture
def store() -> Store:
    """Tables ``Flights`` and ``Sales.Orders``, of the columns ``Carrier`` and ``delay``."""
    made = store_with(numbers(0, 3))
    with made.transaction() as txn:
        txn.create_namespace("Sales")
        txn.create_table("Flights", FLIGHTS.schema)
        txn.create_table("sales.Orders", FLIGHTS.schema)
        txn.append("flights", FLIGHTS)
        txn.append("SALES.orders", FLIGHTS)
    return made


@pytest.fixture
def twins() -> Store:
    """Tables ``t`` and ``T``, the latter with the columns ``a`` and ``A``."""
    made = store_with(numbers(0, 3))
    with made.transaction() as txn:
        txn.create_table("T", pa.schema([("a", pa.int64()), ("A", pa.int64())]))
        txn.append("T", {"a": [1], "A": [2]})
    return made


@pytest.mark.parametrize("name", ["Flights", "flights", "FLIGHTS", "default.flights", "DEFAULT.Flights"])
def test_a_table_is_found_whatever_the_case_of_its_name(store, name):
    assert store.snapshot().table(name).name == "Flights"


@pytest.mark.parametrize("name", ["Sales.Orders", "sales.orders", "SALES.ORDERS"])
def test_a_namespace_is_found_whatever_the_case_of_its_name(store, name):
    assert store.snapshot().table(name).name == "Sales.Orders"


def test_system_tables_are_found_whatever_the_case_of_their_names(store):
    listed = store.snapshot().table("SYSTEM.Tables").read(["NAME"], filter="Name = 'Flights'")

    assert listed.to_pydict() == {"name": ["Flights"]}


def test_columns_are_read_as_the_table_spells_them(store):
    table = store.snapshot().table("flights")

    assert table.read(["DELAY", "carrier"]).column_names == ["delay", "Carrier"]
    assert table.take([1], ["carrier"]).to_pydict() == {"Carrier": ["DL"]}
    assert table.scan(["Delay"], filter="DELAY > 1").read_all().to_pydict() == {"delay": [2]}
    assert table.read(filter=[("DELAY", "==", 2)]).num_rows == 1
    assert table.aggregate("DELAY").max.as_py() == 2
    assert table.pages("DELAY").column("column").to_pylist() == ["delay"]
    assert table.blocks("DELAY").num_rows == 2
    assert table.directory.locate_row("DELAY", 1).row_in_page == 1
    assert table.directory.lookup(table.directory.latest("DELAY").id, "Delay").entry_count == 2


def test_rows_are_written_to_the_columns_that_are_meant(store):
    with store.transaction() as txn:
        txn.append("FLIGHTS", {"CARRIER": ["AA"], "Delay": [3]})
        txn.update_rows("flights", [0], {"DELAY": [10]})
        txn.update_rows("flights", [1], {"DELAY": [20], "carrier": ["XX"]})

    assert store.snapshot().table("flights").read().to_pydict() == {
        "Carrier": ["UA", "XX", "AA"],
        "delay": [10, 20, 3],
    }


def test_definitions_change_whatever_the_case_of_names(store):
    with store.transaction() as txn:
        txn.rename_column("flights", "DELAY", "late")
        txn.set_nullable("FLIGHTS", "LATE", False)
        txn.add_constraint("flights", "key", primary_key=["LATE"])
        txn.set_comment("flights", "by how much", column="LATE")
        txn.reorder_columns("flights", ["LATE", "carrier"])
        txn.drop_table("sales.orders")
        txn.drop_namespace("SALES")

    assert store.snapshot().table("flights").columns == ["late", "Carrier"]
    assert store.snapshot().tables() == ["Flights", "t"]


def test_the_case_of_a_name_can_be_changed(store):
    with store.transaction() as txn:
        txn.rename_table("flights", "FLIGHTS")
        txn.rename_column("flights", "delay", "Delay")

    assert store.snapshot().tables() == ["FLIGHTS", "t", "Sales.Orders"]
    assert store.snapshot().table("flights").columns == ["Carrier", "Delay"]


def test_history_blame_claims_and_compaction_find_tables_and_columns(store):
    newest = store.snapshot().version

    claim = store.claim("FLIGHTS", columns=["DELAY"], owner="me", stop=1)

    assert store.changes(newest, newest, table="FLIGHTS", granularity="rows").num_rows == 2
    assert store.blame("FLIGHTS", "DELAY", 0).version == newest
    assert claim is not None
    assert [each["table"] for each in store.compact_pages("FLIGHTS")] == ["Flights"]


def test_of_names_that_differ_by_case_the_exact_one_is_meant(twins):
    snapshot = twins.snapshot()

    assert [snapshot.table(name).name for name in ("t", "T")] == ["t", "T"]
    assert snapshot.table("T").read(["A"]).to_pydict() == {"A": [2]}
    assert snapshot.table("T").read(["a"], filter="A = 2").to_pydict() == {"a": [1]}


def test_a_name_that_several_spell_differently_is_refused_and_both_are_named():
    store = store_with(numbers(0, 3))
    with store.transaction() as txn:
        txn.create_table("Flights", pa.schema([("Ab", pa.int64()), ("aB", pa.int64())]))
        txn.create_table("FLIGHTS", numbers(0, 1).schema)

    with pytest.raises(InvalidInputError, match=r"'FLIGHTS' or 'Flights'"):
        store.snapshot().table("flights")
    with pytest.raises(InvalidInputError, match="'Ab' or 'aB'"):
        store.snapshot().table("Flights").read(["ab"])


def test_sql_refuses_to_make_a_table_or_column_that_differs_by_case_only(store):
    with pytest.raises(AlreadyExistsError, match="Flights"):
        store.sql("create table FLIGHTS (a int)")
    with pytest.raises(SchemaMismatchError, match="Carrier"):
        store.sql("alter table flights add column CARRIER varchar")


def test_a_namespace_is_not_called_like_one_that_every_store_has(store):
    with pytest.raises(AlreadyExistsError), store.transaction() as txn:
        txn.create_namespace("System")


def test_a_field_of_an_arrow_expression_is_spelled_exactly(store):
    with pytest.raises(ColumnNotFoundError) as refused:
        store.snapshot().table("flights").read(filter=pc.field("DELAY") == 1)

    assert "'delay'" in refused.value.hint


def test_rows_with_two_columns_for_one_of_the_table_are_refused(store):
    with pytest.raises(InvalidInputError), store.transaction() as txn:
        txn.append("flights", {"delay": [1], "DELAY": [2], "Carrier": ["x"]})


def test_names_that_mean_nothing_are_suggested_as_they_are_spelled(store):
    with pytest.raises(TableNotFoundError) as no_table:
        store.snapshot().table("FLIGHT")
    with pytest.raises(ColumnNotFoundError) as no_column:
        store.snapshot().table("flights").read(["CARIER"])

    assert "'Flights'" in no_table.value.hint
    assert "'Carrier'" in no_column.value.hint


def test_a_table_that_a_transaction_made_dropped_or_renamed_is_found_by_it(store):
    with store.transaction() as txn:
        txn.create_table("News", numbers(0, 1).schema)
        txn.append("NEWS", numbers(0, 1))
        txn.rename_table("flights", "Trips")
        txn.drop_table("sales.orders")

        assert txn.table("trips").name == "Trips"
        with pytest.raises(TableNotFoundError):
            txn.table("Flights".upper())
        with pytest.raises(TableNotFoundError):
            txn.table("sales.orders")


names = st.text(min_size=1, max_size=6)


@given(names, names)
def test_folding_goes_character_by_character_and_twice_changes_nothing(one, two):
    assert fold_name(one + two) == fold_name(one) + fold_name(two)
    assert fold_name(fold_name(one)) == fold_name(one)


@given(st.text(st.characters(codec="ascii"), min_size=1, max_size=6))
def test_what_duckdb_takes_for_one_name_is_one_name(name):
    assert fold_name(name.upper()) == fold_name(name.lower()) == fold_name(name)


@given(st.lists(names, unique=True, max_size=6), names)
def test_a_name_means_itself_or_the_only_one_that_differs_by_case(known, name):
    alike = [each for each in known if fold_name(each) == fold_name(name)]

    if name in known:
        assert match_name(name, known) == name
    elif len(alike) > 1:
        with pytest.raises(InvalidInputError):
            match_name(name, known)
    else:
        assert match_name(name, known) == (alike[0] if alike else None)
