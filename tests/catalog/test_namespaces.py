"""Namespaces: made, described and dropped; what is in them; two writers at once."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_pages.errors import (
    AlreadyExistsError,
    CommitConflictError,
    InvalidInputError,
    NotFoundError,
    TableExistsError,
    TableNotFoundError,
)
from spark_pages.store import Store
from tests.invariants import check_table_zero, rows_of

SCHEMA = pa.schema([("n", pa.int64())])


@pytest.fixture
def sales(store: Store) -> Store:
    """A store with namespace ``sales`` and a table of two rows in it."""
    with store.transaction() as txn:
        txn.create_namespace("sales")
        txn.create_table("sales.orders", SCHEMA)
        txn.append("sales.orders", {"n": [1, 2]})
    return store


def names(store: Store) -> list[str]:
    return [each.name for each in store.snapshot().namespaces()][3:]


def test_a_table_of_a_namespace_is_another_one_than_its_namesake(sales):
    with sales.transaction() as txn:
        txn.create_table("orders", SCHEMA)
        txn.append("orders", {"n": [9]})

    assert sales.snapshot().tables() == ["orders", "sales.orders"]
    assert sales.snapshot().table("sales.orders").read()["n"].to_pylist() == [1, 2]
    assert sales.snapshot().table("default.orders").read()["n"].to_pylist() == [9]
    assert sales.snapshot().table("sales.orders").name == "sales.orders"
    sales.checkpoint()
    assert rows_of(Store(sales.object_store)) == rows_of(sales)
    check_table_zero(sales)
    assert sales.verify(pages="all").ok


def test_names_are_unique_in_a_namespace_and_it_must_be_there(sales):
    txn = sales.transaction()
    with pytest.raises(TableExistsError):
        txn.create_table("sales.orders", SCHEMA)
    with pytest.raises(NotFoundError, match="namespace 'marketing'"):
        txn.create_table("marketing.orders", SCHEMA)
    with pytest.raises(TableNotFoundError, match="namespace 'marketing'"):
        sales.snapshot().table("marketing.orders")
    for taken in ("sales", "default", "temp", "system"):
        with pytest.raises(AlreadyExistsError):
            txn.create_namespace(taken)
    for name in ("", "a.b", " a"):
        with pytest.raises(InvalidInputError):
            txn.create_namespace(name)


def test_a_namespace_with_tables_is_not_dropped_and_an_empty_one_is(sales):
    with pytest.raises(InvalidInputError, match=r"it holds 'sales.orders'"):
        sales.transaction().drop_namespace("sales")

    with sales.transaction() as txn:
        txn.drop_table("sales.orders")
        txn.drop_namespace("sales")

    assert names(sales) == []
    with pytest.raises(NotFoundError):
        sales.transaction().undrop_table("sales.orders")
    with pytest.raises(InvalidInputError, match="every store has it"):
        sales.transaction().drop_namespace("default")
    check_table_zero(sales)


def test_a_namespace_made_again_does_not_have_the_tables_of_the_earlier_one(sales):
    with sales.transaction() as txn:
        txn.drop_table("sales.orders")
        txn.drop_namespace("sales")
    with sales.transaction() as txn:
        txn.create_namespace("sales")

    with pytest.raises(TableNotFoundError, match="has been dropped"):
        sales.transaction().undrop_table("sales.orders")


def test_a_table_moves_between_namespaces_without_its_pages(sales):
    pages = sales.snapshot().table("sales.orders").pages()
    with sales.transaction() as txn:
        txn.rename_table("sales.orders", "orders")
    with sales.transaction() as txn:
        txn.create_namespace("archive")
        txn.rename_table("orders", "archive.old_orders")

    assert sales.snapshot().tables() == ["archive.old_orders"]
    assert sales.snapshot().table("archive.old_orders").pages() == pages
    check_table_zero(sales)


def test_pages_of_a_table_are_written_as_its_namespace_says(sales):
    many = {"n": range(10_000)}
    with sales.transaction() as txn:
        txn.set_namespace_properties("sales", {"page_bytes": "8192"})
        txn.create_table("sales.small", SCHEMA)
        txn.create_table("sales.large", SCHEMA, properties={"page_bytes": "65536"})
        txn.append("sales.small", many)
        txn.append("sales.large", many)
    with sales.transaction() as txn:
        txn.set_namespace_properties("sales", {"page_bytes": None})
        txn.append("sales.small", many)

    first, later = (sales.snapshot(version=version).table("sales.small") for version in (2, 3))
    assert len(first.pages("n")) == 10
    assert len(sales.snapshot().table("sales.large").pages("n")) == 2
    assert len(later.pages("n")) == 12
    with pytest.raises(InvalidInputError, match="page_bytes"):
        sales.transaction().set_namespace_properties("sales", {"page_bytes": "few"})


def test_of_two_writers_who_make_the_same_namespace_one_wins(sales):
    one, two = sales.transaction(), Store(sales.object_store).transaction()
    one.create_namespace("marketing")
    two.create_namespace("marketing")

    one.commit()

    with pytest.raises(CommitConflictError, match="both give the name 'marketing' to a namespace"):
        two.commit()
    assert names(sales) == ["marketing", "sales"]


@pytest.mark.parametrize("first", ["the table", "the drop"])
def test_a_namespace_is_not_dropped_while_a_table_is_made_in_it(sales, first):
    with sales.transaction() as txn:
        txn.create_namespace("empty")
    making, dropping = sales.transaction(), Store(sales.object_store).transaction()
    making.create_table("empty.t", SCHEMA)
    dropping.drop_namespace("empty")
    one, two = (making, dropping) if first == "the table" else (dropping, making)

    one.commit()

    with pytest.raises(CommitConflictError, match="namespace 'empty'"):
        two.commit()


def test_tables_made_in_one_namespace_at_once_do_not_meet(sales):
    one, two = sales.transaction(), Store(sales.object_store).transaction()
    one.create_table("sales.a", SCHEMA)
    two.create_table("sales.b", SCHEMA)

    one.commit()
    two.commit()

    assert sales.snapshot().tables() == ["sales.a", "sales.b", "sales.orders"]


def test_restore_brings_namespaces_back_and_takes_them_away(sales):
    with sales.transaction() as txn:
        txn.drop_table("sales.orders")
        txn.drop_namespace("sales")
        txn.create_namespace("marketing")

    sales.restore(version=1)

    assert names(sales) == ["sales"]
    assert sales.snapshot().table("sales.orders").num_rows == 2
    check_table_zero(sales)
    assert Store(sales.object_store).snapshot().tables() == ["sales.orders"]


def test_what_one_transaction_makes_together_gets_its_ids_at_the_commit(store):
    one, two = store.transaction(), Store(store.object_store).transaction()
    for txn, name in ((one, "a"), (two, "b")):
        txn.create_namespace(name)
        txn.create_table(f"{name}.t", SCHEMA)
        txn.append(f"{name}.t", {"n": [1]})

    one.commit()
    two.commit()

    assert store.snapshot().tables() == ["a.t", "b.t"]
    assert [each.namespace_id for each in store.snapshot().namespaces()][3:] == [2, 4]
    check_table_zero(store)
