"""Opening: table 0 is read by a schema that is fixed, and what it says of itself must agree with that."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.catalog import table_zero as module
from spark_pages.errors import CommitConflictError, DamageError, UnsupportedFormatError
from spark_pages.log.checkpoint import writer as checkpoint_writer
from spark_pages.model.actions import CatalogIntent, IntentKind, TransactionRecord
from spark_pages.model.table import TableDefinition, with_field_ids
from spark_pages.store import Store
from tests.invariants import check_table_zero, rows_of
from tests.transaction.stores import QUIET, metered

V1 = Path(__file__).parents[1] / "compat" / "v1"
SCHEMA = pa.schema([("n", pa.int64())])


@pytest.fixture
def flights(url: str) -> Store:
    store = sp.create(url, properties=QUIET)
    with store.transaction() as txn:
        txn.create_table("flights", SCHEMA)
        txn.append("flights", {"n": [1, 2]})
    return store


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A later release, whose catalog has two columns more; `later.undo()` is this release again."""
    more = [pa.field("owner", pa.string()), pa.field("weight", pa.int64())]
    monkeypatch.setattr(module, "_SCHEMA", pa.schema([*module._SCHEMA, *more]))
    return monkeypatch


def plant(store: Store, definition: TableDefinition) -> None:
    """A commit that changes what the catalog says of itself, as no release would."""
    head = store._log.refresh()
    intent = CatalogIntent(IntentKind.ALTER, definition.table_id, -1, "catalog", definition)
    record = TransactionRecord("ab" * 16, "by hand", head.state.version, "somebody", intents=(intent,))
    store._log.commit(head, lambda _: record)


def told(store: Store) -> TableDefinition:
    return store._log.refresh().table((-1, "catalog"))


# the check


def test_a_new_store_describes_itself_in_its_first_commit(url):
    store = sp.create(url)

    own = store.snapshot(version=0).table("system.columns").read(["table", "name", "created_by"]).to_pylist()

    assert [row["name"] for row in own] == module.table_zero(0).schema.names
    assert {(row["table"], row["created_by"]) for row in own} == {("catalog", 0)}


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.field("kind", pa.int32(), nullable=False), "column 4 of itself as 'kind' of type int32"),
        (pa.field("sort", pa.string(), nullable=False), "column 4 of itself as 'sort'"),
        (pa.field("kind", pa.string()), "expected 'kind' of type string \\(not null\\)"),
    ],
)
@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_catalog_that_says_something_else_of_itself_is_refused(flights, column, message, checkpoint):
    fields = [*module._SCHEMA]
    fields[3] = column
    plant(flights, replace(told(flights), schema=with_field_ids(pa.schema(fields))))
    if checkpoint:
        flights._log.checkpoint()

    for opened in (
        lambda: sp.open(flights.url).snapshot(),
        lambda: Store(flights.object_store).snapshot(),
        flights.snapshot,
    ):
        with pytest.raises(DamageError, match=message):
            opened()


def test_a_catalog_that_is_not_there_is_refused(flights):
    head = flights._log.refresh()
    intent = CatalogIntent(IntentKind.DROP, told(flights).table_id, -1, "catalog")
    record = TransactionRecord("ab" * 16, "by hand", head.state.version, "somebody", intents=(intent,))
    flights._log.commit(head, lambda _: record)

    with pytest.raises(DamageError, match="expected a description of itself"):
        sp.open(flights.url).snapshot()


def test_what_changes_while_a_process_lives_is_noticed(flights):
    flights.snapshot()
    plant(Store(flights.object_store), replace(told(flights), next_field_id=99))

    with pytest.raises(DamageError, match="as a table of its own"):
        flights.snapshot()
    assert flights.snapshot(version=1).table("flights").num_rows == 2


def test_the_root_of_a_checkpoint_answers_without_another_request(flights, monkeypatch):
    monkeypatch.setattr(checkpoint_writer, "_TABLES_PER_FILE", 1)
    flights.checkpoint()
    counts = []
    for digest in (None, ""):
        if digest is not None:  # as a checkpoint of an earlier release
            with flights.transaction() as txn:
                txn.append("flights", {"n": [3]})
            monkeypatch.setattr(checkpoint_writer, "_table_zero", lambda *_: "")
            flights.checkpoint()
        other, meter = metered(flights)
        other.snapshot().table("flights")
        counts.append(meter.counts.requests)

    assert counts[1] == counts[0] + 1


# another schema


@pytest.fixture(params=["checkpoint-and-tail", "only-log"])
def first_release(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store as the first release wrote it."""
    shutil.copytree(V1 / request.param / "store", tmp_path / "store")
    return str(tmp_path / "store")


def test_a_later_release_reads_a_store_of_the_first_one_as_it_is(first_release, later):
    store = sp.open(first_release)

    shown = store.snapshot().table("system.tables").read(["name", "num_rows"])

    assert set(shown["name"].to_pylist()) == {"catalog", *store.snapshot().tables()}
    assert told(store).schema.names == module.table_zero(0).schema.names[:-2]
    assert store.snapshot().table("system.catalog").columns == told(store).schema.names


def test_its_first_change_of_the_catalog_brings_the_new_columns_in(first_release, later):
    store = sp.open(first_release)
    before = str({name: rows.to_pydict() for name, rows in rows_of(store).items()})
    rows = store.snapshot().table("system.catalog").num_rows

    with store.transaction() as txn:
        txn.create_table("fresh", SCHEMA)
    with store.transaction() as txn:
        txn.drop_table("fresh")
    store.checkpoint()

    zero = sp.open(first_release).snapshot().table("system.catalog")
    assert zero.columns == module.table_zero(0).schema.names
    assert zero.read(["owner", "weight"]).num_rows == zero.num_rows > rows
    own = zero.read(filter="table_id = 0 and deleted_by is null")
    assert own["name"].to_pylist() == ["catalog", *zero.columns]
    assert str({name: rows.to_pydict() for name, rows in rows_of(store).items()}) == before
    check_table_zero(store)
    assert store.verify(pages="all").ok


def test_a_restore_brings_them_in_too(first_release, later):
    store = sp.open(first_release)
    with store.transaction() as txn:
        txn.create_table("fresh", SCHEMA)
    version = store.snapshot().version
    with store.transaction() as txn:
        txn.drop_table("fresh")

    store.restore(version=version)

    assert "fresh" in store.snapshot().tables()
    assert len(store.snapshot().table("system.catalog").columns) == 15
    check_table_zero(store)


def test_this_release_refuses_the_catalog_of_a_later_one(first_release, later):
    here = sp.open(first_release)
    with sp.open(first_release).transaction() as txn:
        txn.create_table("fresh", SCHEMA)
    later.undo()

    with pytest.raises(UnsupportedFormatError, match="does not know: 'owner', 'weight'"):
        sp.open(first_release)
    with pytest.raises(UnsupportedFormatError), here.transaction() as txn:
        txn.create_table("mine", SCHEMA)


def test_of_two_that_bring_them_in_at_once_one_repeats(first_release, later):
    one, two = sp.open(first_release).transaction(), sp.open(first_release).transaction()
    one.create_table("a", SCHEMA)
    two.create_table("b", SCHEMA)

    one.commit()

    with pytest.raises(CommitConflictError, match="'catalog'"):
        two.commit()
    store = sp.open(first_release)
    with store.transaction() as txn:
        txn.create_table("b", SCHEMA)
    check_table_zero(store)
