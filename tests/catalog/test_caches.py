"""What is known of the catalog costs nothing to ask again, and is known anew when it has changed."""

from __future__ import annotations

import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.errors import InvalidInputError, TableNotFoundError
from spark_pages.log.checkpoint import writer as checkpoint_writer
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.storage import MeteredStore
from spark_pages.store import Store
from tests.transaction.stores import QUIET, metered

SCHEMA = pa.schema([pa.field("n", pa.int64(), nullable=False), ("s", pa.string())])


@pytest.fixture
def many(url: str) -> Store:
    """A store of 300 tables of 20 columns in two namespaces, in a checkpoint."""
    store = sp.create(url, properties=QUIET)
    schema = pa.schema([(f"c{number}", pa.int64()) for number in range(20)])
    with store.transaction() as txn:
        txn.create_namespace("sales")
        txn.create_type("percent", pa.int8(), check="VALUE <= 100")
        for number in range(150):
            txn.create_table(f"t{number:03}", schema)
            txn.create_table(f"sales.t{number:03}", schema)
    store.checkpoint()
    return store


def requests_of(meter: MeteredStore, ask) -> int:
    """Requests but looks at slots, of which each refresh makes a fixed number in one round."""
    before = meter.counts.requests - meter.counts.stamps
    ask()
    return meter.counts.requests - meter.counts.stamps - before


def test_names_that_are_known_cost_no_request(many):
    store, meter = metered(many)
    snapshot = store.snapshot()
    snapshot.table("t007"), snapshot.table("sales.t007")

    def look_up() -> None:
        for number in range(150):
            assert snapshot.table(f"t{number:03}").columns[3] == "c3"
            assert snapshot.table(f"sales.t{number:03}").definition.field_ids["c7"] == 8

    assert requests_of(meter, look_up) <= 1
    assert requests_of(meter, look_up) == 0


def test_namespaces_and_types_that_are_known_cost_no_request(many):
    store, meter = metered(many)
    snapshot = store.snapshot()
    first = requests_of(meter, lambda: (snapshot.namespaces(), snapshot.types()))

    assert first <= 1
    assert requests_of(meter, lambda: (snapshot.namespaces(), snapshot.types())) == 0


def test_a_newer_version_costs_its_commit_and_the_rest_of_the_catalog_nothing(many):
    store, meter = metered(many)
    store.snapshot().table("t007")
    with many.transaction() as txn:
        txn.rename_table("t007", "renamed")
        txn.add_column("t008", pa.field("more", pa.int8()))

    fresh = store.snapshot()

    assert requests_of(meter, lambda: fresh.table("renamed")) == 0
    assert requests_of(meter, lambda: fresh.table("t008")) == 0
    assert fresh.table("t008").columns[-1] == "more"
    with pytest.raises(TableNotFoundError):
        fresh.table("t007")


def test_a_transaction_that_changes_a_known_table_reads_nothing_of_the_others(many):
    store, meter = metered(many)
    with store.transaction() as txn:
        txn.set_comment("t007", "first")

    def change() -> None:
        with store.transaction() as txn:
            txn.set_comment("t007", "second")

    assert requests_of(meter, change) <= 6
    assert meter.counts.lists == 0


def test_to_see_whether_a_namespace_is_empty_reads_that_part_of_the_catalog(many, monkeypatch):
    with many.transaction() as txn:
        txn.create_namespace("empty")
    monkeypatch.setattr(checkpoint_writer, "_TABLES_PER_FILE", 10)
    with many.transaction() as txn:
        for number in range(0, 150, 5):
            txn.set_comment(f"t{number:03}", "so that all files are cut anew")
            txn.set_comment(f"sales.t{number:03}", "likewise")
    many.checkpoint()
    assert len(many.snapshot().log.checkpoint.root.catalog) > 25
    store, meter = metered(many)
    txn = store.transaction()
    assert txn.snapshot.version == 3

    assert requests_of(meter, lambda: txn.drop_namespace("empty")) <= 2
    txn.rollback()


def test_to_drop_a_table_only_tables_with_constraints_are_asked_whether_they_refer_to_it(many, monkeypatch):
    with many.transaction() as txn:
        txn.create_table("from_t009", pa.schema([("n", pa.int64())]))
        txn.add_constraint("from_t009", "to", foreign_key=(["n"], "t009", ["c0"]))
    many.checkpoint()
    store, _ = metered(many)
    asked: list[str] = []
    table = LogSnapshot.table
    monkeypatch.setattr(LogSnapshot, "tables", None)
    monkeypatch.setattr(LogSnapshot, "table", lambda self, name: asked.append(name[1]) or table(self, name))

    with store.transaction() as txn:
        txn.drop_table("t007")
        with pytest.raises(InvalidInputError, match="a foreign key of 'from_t009' refers to it"):
            txn.drop_table("t009")
        with pytest.raises(InvalidInputError, match="a foreign key of 'from_t009' refers to it"):
            txn.rename_table("t009", "other")
        txn.drop_table("from_t009")
        txn.drop_table("t009")

    assert {name for name in asked if name.startswith(("t0", "from"))} == {"t007", "t009", "from_t009"}


def test_rows_of_a_typed_column_cost_no_more_requests_than_others(many):
    with many.transaction() as txn:
        for name, column in (("marks", sp.typed("p", "percent")), ("numbers", pa.field("p", pa.int8()))):
            txn.create_table(name, pa.schema([column]))
    costs = []
    for name in ("marks", "numbers"):
        store, meter = metered(many)
        store.snapshot().table(name)

        def append(store: Store = store, name: str = name) -> None:
            with store.transaction() as txn:
                txn.append(name, {"p": [100]})

        costs.append(requests_of(meter, append))

    assert costs[0] == costs[1]
