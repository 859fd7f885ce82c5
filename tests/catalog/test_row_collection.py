"""Rows of table 0 that nobody needs go with vacuum; who reads the catalog sees nothing of it."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.errors import ObjectNotFoundError
from spark_pages.io import PageHandler
from spark_pages.maintenance import purge
from spark_pages.maintenance.purge import collect_rows
from spark_pages.store import Store
from tests.catalog.worn import SCHEMA, worn_store
from tests.invariants import check_nothing_needed_is_gone, check_table_zero, check_versions_stay, rows_of
from tests.transaction.stores import QUIET

SYSTEM = ("tables", "columns", "types", "constraints", "namespaces")


@pytest.fixture
def worn(url: str) -> Store:
    return worn_store(url)


def collect(store: Store) -> int | None:
    return collect_rows(store._log, store._runtime, PageHandler(store.object_store))


def catalog(store: Store, version: int | None = None) -> pa.Table:
    return store.snapshot(version=version).table("system.catalog").read()


def shown(store: Store) -> dict[str, pa.Table]:
    """What the store tells of all tables but table 0, whose number of rows is its own affair."""
    snapshot = store.snapshot()
    told = {name: snapshot.table(f"system.{name}").read() for name in SYSTEM}
    return {**told, "tables": told["tables"].slice(1)}


def check_rows(store: Store) -> None:
    """Table 0 numbers its rows, and agrees with the log, however it is reached."""
    assert catalog(store)["row_id"].to_pylist() == list(range(len(catalog(store))))
    check_table_zero(store)
    store.checkpoint()
    assert shown(Store(store.object_store)) == shown(store)
    assert catalog(Store(store.object_store)) == catalog(store)
    assert store.verify(pages="all").ok


def test_vacuum_takes_out_what_nobody_needs_and_the_catalog_reads_as_before(worn):
    before, rows, ended = shown(worn), rows_of(worn), catalog(worn).num_rows

    worn.vacuum(retention=1)

    left = catalog(worn)
    kept_to_the_end = left.filter(pa.compute.is_valid(left["deleted_by"]))
    assert ended == 51
    assert left.num_rows == 14 + 4 + 3 + 3
    assert kept_to_the_end.select(["kind", "name"]).to_pylist() == [{"kind": "column", "name": "m"}]
    assert shown(worn) == before
    assert rows_of(worn) == rows
    assert worn.vacuum(retention=1).version is None
    check_rows(worn)
    check_nothing_needed_is_gone(worn.object_store)


def test_versions_that_are_kept_have_the_catalog_that_they_had(worn):
    held = {version: catalog(worn, version) for version in (6, 9, worn.snapshot().version)}
    history = {version: rows_of(worn, version) for version in held}

    worn.vacuum(retention=timedelta(days=1))
    untouched = catalog(worn).num_rows
    worn.vacuum(retention=6)

    assert untouched == held[10].num_rows > catalog(worn).num_rows
    assert {version: catalog(worn, version) for version in held} == held
    check_versions_stay(worn.object_store, history)
    check_rows(worn)


@pytest.mark.parametrize("hold", ["tag", "lease"])
def test_rows_that_ended_since_a_version_that_somebody_holds_stay(worn, hold):
    before = catalog(worn).num_rows
    if hold == "tag":
        worn.tag("first", 1)
    else:
        worn.snapshot(version=1).lease(timedelta(hours=1))

    worn.vacuum(retention=1)

    assert catalog(worn).num_rows == before


def test_a_table_that_can_come_back_does_so_with_ids_that_were_never_used(worn):
    with worn.transaction() as txn:
        txn.create_namespace("safe", {"retention_seconds": "3600"})
        txn.rename_table("kept", "safe.kept")
    with worn.transaction() as txn:
        txn.drop_table("safe.kept")
    worn.vacuum(retention=1)

    with worn.transaction() as txn:
        txn.undrop_table("safe.kept")
        txn.add_column("safe.kept", pa.field("m", pa.string()))

    table = worn.snapshot().table("safe.kept")
    assert table.read().to_pylist() == [{"n": 1, "late": 7, "m": None}, {"n": 2, "late": 7, "m": None}]
    assert table.definition.field_ids == {"n": 1, "late": 3, "m": 4}
    check_rows(worn)


def test_a_purge_after_a_collection_still_knows_columns_that_were_dropped_long_ago(worn):
    worn.vacuum(retention=1)
    with worn.transaction() as txn:
        txn.drop_table("kept")
    worn.vacuum(retention=1)

    assert [kind for kind in catalog(worn)["kind"].to_pylist() if kind == "purged"] == []
    assert worn.snapshot().log.chain((worn_id := 4, 2)).num_rows == 0
    assert worn_id not in catalog(worn)["table_id"].to_pylist()
    check_rows(worn)


def test_changes_of_the_catalog_that_land_meanwhile_stay_and_those_after_it_too(worn, monkeypatch):
    worn.vacuum(retention=12)
    Store(worn.object_store).vacuum_plan(retention=1).execute()
    other, late = Store(worn.object_store), Store(worn.object_store).transaction()
    late.set_comment("new", "late")
    late.create_table("late", SCHEMA)
    seen = purge.removable_rows
    left = [1, 1]

    def then_changed(zero, oldest):
        found = seen(zero, oldest)
        if left:
            left.pop()
            with other.transaction() as txn:
                txn.create_table(f"between_{len(left)}", SCHEMA)
                txn.drop_table("newest") if left else txn.undrop_table("newest")
        return found

    monkeypatch.setattr(purge, "removable_rows", then_changed)
    version = collect(worn)
    late.commit()

    assert version is not None
    assert worn.snapshot().tables() == ["between_0", "between_1", "kept", "late", "new", "newest"]
    assert worn.snapshot().table("new").definition.schema.metadata[b"spark_pages.comment"] == b"late"
    check_rows(worn)


def test_of_two_collections_at_once_the_second_finds_nothing(worn, monkeypatch):
    Store(worn.object_store).vacuum_plan(retention=1).execute()
    other, seen, left = Store(worn.object_store), purge.removable_rows, [1]

    def then_collected(zero, oldest):
        found = seen(zero, oldest)
        if left:
            left.pop()
            assert collect(other) is not None
        return found

    monkeypatch.setattr(purge, "removable_rows", then_collected)

    assert collect(worn) is None
    assert worn.history()["operation"].to_pylist().count("collect rows") == 1
    check_rows(worn)


@pytest.mark.parametrize("loses", ["removable_rows", "_without"])
def test_where_another_vacuum_took_what_it_reads_a_vacuum_looks_again(worn, monkeypatch, loses):
    before, real, lost = shown(worn), getattr(purge, loses), []

    def losing_once(*given):
        if not lost:
            lost.append(given)
            raise ObjectNotFoundError("A page file of table 0 is gone.")
        return real(*given)

    monkeypatch.setattr(purge, loses, losing_once)

    worn.vacuum(retention=1)

    assert lost
    assert shown(worn) == shown(Store(worn.object_store)) == before
    assert collect(worn) is None
    check_rows(worn)


def test_where_much_would_be_written_anew_a_quarter_of_it_must_be_dead(worn, monkeypatch):
    monkeypatch.setattr(purge, "FEW_ROWS", 0)
    with worn.transaction() as txn:
        for number in range(60):
            txn.create_table(f"t{number:02d}", SCHEMA)
    with worn.transaction() as txn:
        for number in range(15):
            txn.drop_table(f"t{number:02d}")
    worn.vacuum(retention=1)
    assert catalog(worn).num_rows < 26 + 60 * 3
    rows = catalog(worn).num_rows
    with worn.transaction() as txn:
        txn.drop_table("t15")

    worn.vacuum(retention=1)
    before = catalog(worn)
    assert before.num_rows == rows + 1  # says that it was purged
    with worn.transaction() as txn:
        for number in range(40, 60):
            txn.drop_table(f"t{number}")
    worn.vacuum(retention=1)

    assert catalog(worn).num_rows < rows - 20 * 3 + 5
    check_rows(worn)


def test_more_rows_than_fit_into_a_commit_lie_in_a_page_file_which_goes_when_they_are_replaced(url):
    store = sp.create(url, properties=QUIET)
    wide = pa.schema([(f"column_{number}", pa.int64()) for number in range(80)])
    with store.transaction() as txn:
        txn.create_table("gone", SCHEMA)
        for number in range(60):
            txn.create_table(f"wide_{number}", wide)
    with store.transaction() as txn:
        txn.drop_table("gone")

    store.vacuum(retention=1)

    paths = {path for path in store.snapshot().table("system.catalog").pages()["path"].to_pylist() if path}
    assert len(paths) >= 1
    assert catalog(store).num_rows == 14 + 60 * 81
    check_rows(store)
    check_nothing_needed_is_gone(store.object_store)
