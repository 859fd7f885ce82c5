"""Where page files are written: property ``location`` of a namespace, and all that must know of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.errors import CommitConflictError, InvalidInputError, InvalidKeyError, UnsupportedFormatError
from spark_pages.format import features
from spark_pages.maintenance.verify.faults import FaultKind
from spark_pages.model.page import PendingPage
from spark_pages.runtime import Runtime
from spark_pages.store import Store
from spark_pages.transaction.written_rows import write_rows
from tests.invariants import check_table_zero, rows_of
from tests.maintenance.vacuum.stores import KilledError, WatchedStore

SCHEMA = pa.schema([("n", pa.int64())])
MANY = 30_000


def many(seed: int = 0) -> dict[str, np.ndarray]:
    """Rows that do not fit into a commit."""
    return {"n": np.random.default_rng(seed).integers(0, 1 << 62, MANY)}


@pytest.fixture
def sales(store: Store) -> Store:
    """A store with namespace ``sales`` at ``eu/sales``, and a table in it whose rows are in page files."""
    with store.transaction() as txn:
        txn.create_namespace("sales", {"location": "eu/sales"})
        txn.create_table("sales.orders", SCHEMA)
        txn.append("sales.orders", many())
    return store


def folders(store: Store, table: str) -> set[str]:
    """Where the page files of a table lie."""
    paths = store.snapshot().table(table).pages()["path"].to_pylist()
    return {path.rpartition("/")[0] for path in paths if path}


def files(store: Store, folder: str) -> set[str]:
    return {info.key for info in store.object_store.list(folder)}


def dying(store: Store) -> Store:
    """A process that ends when all but its commit is in storage."""

    def watch(_number: int, kind: str, _key: str) -> str | None:
        return "before" if kind == "create" else None

    return Store(WatchedStore(store.object_store, watch))


def set_location(store: Store, namespace: str, location: str | None) -> None:
    with store.transaction() as txn:
        txn.set_namespace_properties(namespace, {"location": location})


def test_page_files_of_a_namespace_are_written_to_its_location(sales):
    with sales.transaction() as txn:
        txn.create_table("flights", SCHEMA)
        txn.append("flights", many())
        txn.update_rows("sales.orders", np.arange(MANY), {"n": np.arange(MANY)})
    with sales.transaction() as txn:
        txn.append("sales.orders", {"n": [7]})

    assert folders(sales, "sales.orders") == {"eu/sales"}
    assert folders(sales, "flights") == {"pages"}
    assert sales.snapshot().table("sales.orders").take([3, MANY])["n"].to_pylist() == [3, 7]
    sales.checkpoint()
    assert rows_of(Store(sales.object_store)) == rows_of(sales)
    check_table_zero(sales)
    assert sales.verify(pages="all").ok


def test_pages_that_are_compacted_go_to_the_location_of_the_day(sales):
    for _ in range(3):
        with sales.transaction() as txn:
            txn.append("sales.orders", {"n": np.arange(3_000) << 40})
    set_location(sales, "sales", "us")

    sales.compact_pages("sales.orders")

    assert folders(sales, "sales.orders") == {"eu/sales", "us"}
    assert sales.verify(pages="all").ok


def test_on_a_disk_the_folder_lies_below_the_root_of_the_store(tmp_path: Path):
    store = sp.create(str(tmp_path / "store"))
    with store.transaction() as txn:
        txn.create_namespace("sales", {"location": "eu/sales"})
        txn.create_table("sales.orders", SCHEMA)
        txn.append("sales.orders", many())

    assert len(list((tmp_path / "store" / "eu" / "sales").glob("*.pages"))) == 1
    assert sp.open(str(tmp_path / "store")).snapshot().table("sales.orders").num_rows == MANY


def test_pages_written_early_and_pages_of_other_processes_go_there_too(sales):
    snapshot = sales.snapshot()
    orders = snapshot.table("sales.orders")
    inherited = snapshot.namespaces()[-1].properties
    rows = write_rows(sales.object_store, Runtime(), orders.definition, snapshot.version, many(1), inherited)

    with sales.transaction(memory_bytes=1 << 16) as txn:
        txn.append("sales.orders", many(2))
    with sales.transaction(read_version=snapshot.version) as txn:
        txn.append_written("sales.orders", [rows])

    assert folders(sales, "sales.orders") == {"eu/sales"}
    assert len(files(sales, "eu/sales/")) > 3


def test_another_location_holds_for_the_pages_to_come_and_no_page_moves(sales):
    before = sales.snapshot().table("sales.orders").pages()

    set_location(sales, "sales", "us/sales")
    assert sales.snapshot().table("sales.orders").pages() == before
    with sales.transaction() as txn:
        txn.append("sales.orders", many(1))
    assert folders(sales, "sales.orders") == {"eu/sales", "us/sales"}
    set_location(sales, "sales", None)
    with sales.transaction() as txn:
        txn.append("sales.orders", many(2))

    assert folders(sales, "sales.orders") == {"eu/sales", "us/sales", "pages"}
    assert sales.verify(pages="all").ok


def test_vacuum_finds_what_is_left_at_places_that_nobody_writes_to_any_more(sales):
    set_location(sales, "sales", "us/sales")
    with sales.transaction() as txn:
        txn.append("sales.orders", many(1))
        txn.rename_table("sales.orders", "orders")
    with sales.transaction() as txn:
        txn.drop_namespace("sales")
    sales.object_store.put("eu/sales/notes.txt", b"of somebody else")
    with sales.transaction() as txn:
        txn.truncate_table("orders")
        txn.append("orders", many(2))

    sales.vacuum(retention=1)

    assert files(sales, "eu/") == {"eu/sales/notes.txt"}
    assert files(sales, "us/") == set()
    assert sales.snapshot().table("orders").num_rows == MANY


def test_orphans_of_a_location_are_found_and_go(sales):
    named = files(sales, "eu/")
    with pytest.raises(KilledError), dying(sales).transaction() as txn:
        txn.append("sales.orders", many(1))
    set_location(sales, "sales", "us/sales")
    left = files(sales, "eu/") - named
    assert len(left) == 1
    for number in range(2):
        with sales.transaction() as txn:
            txn.append("sales.orders", {"n": [number]})

    told = [fault for fault in sales.verify().faults if fault.kind is FaultKind.ORPHAN]
    assert left == {fault.key for fault in told if "eu/" in fault.key}
    assert all("Vacuum removes it" in fault.remedy for fault in told)
    sales.vacuum(retention=1, orphans=True)
    assert files(sales, "eu/") == named
    assert sales.verify(pages="all").ok


def test_a_restore_does_not_make_the_store_forget_a_location(sales):
    set_location(sales, "sales", "us/sales")
    with sales.transaction() as txn:
        txn.append("sales.orders", many(1))
    sales.restore(version=1)
    with sales.transaction() as txn:
        txn.append("sales.orders", many(2))

    sales.vacuum(retention=1)

    assert folders(sales, "sales.orders") == {"eu/sales"}
    assert files(sales, "us/") == set()


@pytest.mark.parametrize(
    "location",
    [
        "", "/sales", "sales/", "../sales", "a/../../b", "a//b", "s3://bucket/sales", "C:\\sales", "Sales",
        "_log", "_log/sales", "_tmp", "_doctor/x", "_delta", "pages", "x" * 201, "a/" * 220 + "b",
        f"sales/{0:020d}-{'ab' * 16}-0.pages",
    ],
)  # fmt: skip
def test_a_location_is_a_folder_of_the_store_and_none_of_its_own(store, location):
    with pytest.raises(InvalidInputError, match="Cannot set property 'location' of namespace 'sales'"):
        store.transaction().create_namespace("sales", {"location": location})


@pytest.mark.parametrize("location", ["eu/sales", "eu", "eu/sales/old"])
def test_two_namespaces_have_places_apart(sales, location):
    with pytest.raises(InvalidInputError, match=r"is not apart from 'eu/sales', that of 'sales'"):
        sales.transaction().create_namespace("other", {"location": location})
    with sales.transaction() as txn:
        txn.create_namespace("other", {"location": "eu/sales-2"})
        with pytest.raises(InvalidInputError, match="is not apart"):
            txn.set_namespace_properties("other", {"location": location})


def test_of_two_writers_who_choose_one_place_for_two_namespaces_one_wins(store):
    one, two = store.transaction(), Store(store.object_store).transaction()
    one.create_namespace("one", {"location": "eu"})
    two.create_namespace("two", {"location": "eu/sales"})
    one.commit()

    with pytest.raises(CommitConflictError, match="not apart from 'eu'") as failure:
        two.commit()
    assert (failure.value.context["read_version"], failure.value.context["conflicting_version"]) == (0, 1)

    assert [each.name for each in store.snapshot().namespaces()][3:] == ["one"]


def test_a_folder_with_objects_of_others_and_one_of_another_store_is_no_location(store):
    store.object_store.put("lake/inner/_log/00000000000000000000.avro", b"x")
    store.object_store.put("raw/file.parquet", b"x")

    for location in ("raw", "lake/inner", "lake/inner/pages"):
        with pytest.raises(InvalidInputError, match="is of somebody else"):
            store.transaction().create_namespace("sales", {"location": location})


def test_after_a_crash_the_same_transaction_can_be_tried_again(store):
    def make(into: Store) -> None:
        with into.transaction() as txn:
            txn.create_namespace("sales", {"location": "eu"})
            txn.create_table("sales.orders", SCHEMA)
            txn.append("sales.orders", many())

    with pytest.raises(KilledError):
        make(dying(store))
    assert len(files(store, "eu/")) == 1

    make(store)

    assert folders(store, "sales.orders") == {"eu"}


def test_pages_of_another_transaction_s_file_are_not_registered_and_own_ones_are(sales):
    data = sales.object_store.get(key := next(iter(files(sales, "eu/"))))
    page = sales.snapshot().table("sales.orders").directory.latest("n")
    pending = PendingPage("n", key, page.offset, page.alloc_len, page.actual_len, page.entry_count)
    set_location(sales, "sales", None)

    with sales.transaction() as txn, pytest.raises(InvalidKeyError, match="another transaction's page file"):
        txn.directory("sales.orders").register_batch([pending])

    set_location(sales, "sales", "us")
    with sales.transaction() as txn:
        own = txn.next_page_file("sales.orders")
        sales.object_store.put(own, data)
        txn.directory("sales.orders").register_page("n", own, page.offset)
    assert own.startswith("us/")
    assert folders(sales, "sales.orders") == {"eu/sales", "us"}


def test_releases_that_do_not_know_locations_do_not_write(sales, monkeypatch):
    assert sales.snapshot().log.state.features.writer == ("locations",)
    monkeypatch.setattr(features, "WRITER_FEATURES", frozenset({features.CONSTRAINTS}))

    with pytest.raises(UnsupportedFormatError, match="locations"):
        Store(sales.object_store).transaction().append("sales.orders", {"n": [1]})
    assert Store(sales.object_store).snapshot().table("sales.orders").num_rows == MANY


def test_users_do_not_set_the_properties_by_which_the_store_knows_its_places(store):
    with pytest.raises(InvalidInputError, match="property 'location' of a namespace"):
        store.transaction().set_properties({"spark_pages.location/raw": "sales"})
    with pytest.raises(InvalidInputError, match="property 'location' of a namespace"):
        sp.create("memory://no-such-location", properties={"spark_pages.location/raw": "sales"})
