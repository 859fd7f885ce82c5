"""A connected store reads like an opened one, over real TLS."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.errors import (
    AccessDeniedError,
    InvalidInputError,
    ObjectNotFoundError,
    SnapshotExpiredError,
    StorageError,
    TableNotFoundError,
    VersionNotFoundError,
)
from spark_pages.model.chain_tree import UnloadedRun
from spark_pages.service import segment_locator
from spark_pages.service.table_view import TableView
from spark_pages.storage import MeteredStore
from spark_pages.transaction import placement
from tests.service.stores import QUIET, check_same_table, forget_all_but, store_with_a_past, write_more
from tests.transaction.stores import LOOKS


def page_store(url: str, rows: int = 20_000) -> sp.Store:
    """A table of full pages, with a bloom filter, in page files."""
    store = sp.create(url, properties=QUIET)
    numbers = np.random.default_rng(1).integers(0, 1 << 60, rows)
    data = pa.table({"n": pa.array(range(rows), pa.int64()), "v": numbers, "w": numbers[::-1].copy()})
    with store.transaction() as txn:
        txn.create_table("t", data.schema, properties={"bloom.v": "0.01"})
    with store.transaction() as txn:
        txn.append("t", data)
    return store


def without_places(pages: pa.Table) -> pa.Table:
    """Where pages are depends on the checkpoint that a reader stands on."""
    return pages.drop_columns(["kind", "path", "offset", "alloc_len"])


def rewrite_all(store: sp.Store) -> None:
    """Checkpoints and pages that were there are gone, but for what tags keep."""
    for turn in range(3):
        write_more(store, 1000 * turn)
        store.compact_pages("t")
        store.checkpoint()
    forget_all_but(store, 1)


def test_every_descriptor_and_row_is_the_same_before_and_after_checkpoints(serve, small_trees):
    store = store_with_a_past()
    client = serve(store).connect()
    for _ in range(3):
        opened, connected = store.snapshot(), client.snapshot()
        assert (connected.version, connected.timestamp) == (opened.version, opened.timestamp)
        assert sorted(connected.tables()) == sorted(opened.tables())
        for name in opened.tables():
            ours, theirs = connected.table(name), opened.table(name)
            assert ours.schema == theirs.schema
            assert without_places(ours.pages()).equals(without_places(theirs.pages()))
            assert ours.read().equals(theirs.read())
        store.checkpoint()
        write_more(store, opened.version * 100)


def test_filters_aggregates_takes_and_blooms_read_pages_through_the_service(serve, url):
    store = page_store(url)
    store.checkpoint()
    client = serve(store).connect()
    ours, theirs = client.snapshot().table("t"), store.snapshot().table("t")
    wanted = theirs.take([777], ["v"])["v"][0].as_py()

    for ask in (
        lambda t: t.read(["v"], 100, 9000),
        lambda t: t.take([19_999, 0, 5], ["w", "n"]),
        lambda t: t.read(["n"], filter=[("v", "==", wanted)]),
        lambda t: t.aggregate("v", 5, 15_000),
        lambda t: t.scan(["v"], filter="n > 19000").read_all(),
        lambda t: t.directory.locate_row("v", 12_345).page,
        lambda t: t.blocks("n"),
    ):
        assert ask(ours) == ask(theirs)


def test_bloom_filters_rule_out_pages_through_the_service(serve, url):
    store = page_store(url)
    store.checkpoint()
    client = serve(store).connect()
    absent = sp.ReadTrace()
    present = int(store.snapshot().table("t").take([777], ["v"])["v"][0].as_py())
    table = client.snapshot().table("t")

    assert table.read(["n"], filter=[("v", "==", present + 1)], trace=absent).num_rows == 0

    assert len(absent.page_ids) < table.pages("v").num_rows


def test_with_storage_options_pages_come_from_storage_and_not_through_the_service(serve, tmp_path):
    store = page_store(str(tmp_path / "store"))
    served = serve(store)
    client = served.connect(storage_options={})

    assert client.snapshot().table("t").read().equals(store.snapshot().table("t").read())

    assert b"spark_pages_page_bytes_total 0.0" in served.serving.metrics.text()
    assert client.cache_stats.requests > 0


def test_an_address_of_storage_may_be_another_one_for_the_client(serve, tmp_path):
    store = page_store(str(tmp_path / "store"))
    (tmp_path / "store").rename(tmp_path / "moved")
    (tmp_path / "store").symlink_to(tmp_path / "moved")
    client = serve(store).connect(storage_url=str(tmp_path / "moved"))

    assert client.snapshot().table("t").read(["n"], 5, 9).to_pydict() == {"n": [5, 6, 7, 8]}


def test_parts_and_bulk_commits_are_promises_that_are_kept_over_the_network(serve, small_trees, monkeypatch):
    store = store_with_a_past()
    store.checkpoint()
    monkeypatch.setattr(placement, "MANIFEST_PAGES", 1)
    monkeypatch.setattr(segment_locator, "MANY_PAGES", 1)
    write_more(store, count=5000)
    client = serve(store).connect()
    answer = client.table_at("default", "t", store.snapshot().version).answer
    assert any(isinstance(edit.added, UnloadedRun) for edits in answer.redo.values() for edit in edits)
    assert any(place.is_part for found in answer.places.values() for place in found)

    ours, theirs = client.snapshot().table("t"), store.snapshot().table("t")

    assert without_places(ours.pages()).equals(without_places(theirs.pages()))
    assert ours.read().equals(theirs.read())


def test_a_newer_version_takes_along_what_was_loaded(serve, small_trees):
    store = store_with_a_past()
    store.checkpoint()
    write_more(store)
    served = serve(store)
    client = served.connect()
    client.snapshot().table("t").pages()
    asked = calls(served, "piece")
    version = write_more(store, 5000)

    table = client.snapshot().table("t")
    found = table.pages()

    assert client.snapshot().version == version
    assert without_places(found).equals(without_places(store.snapshot().table("t").pages()))
    assert calls(served, "piece") == asked
    assert calls(served, "collect_table_meta_changes_in_range") == 1


def test_versions_times_and_tags_are_those_of_the_store(serve):
    store = store_with_a_past(versions=3)
    store.tag("release", 5)
    client = serve(store).connect()
    then = store.snapshot(5)

    assert client.snapshot(tag="release").version == 5
    assert client.snapshot(5).table("t").read().equals(then.table("t").read())
    assert client.snapshot(timestamp=then.timestamp).version == 5
    page = client.snapshot().table("t").directory.range("n", 0, 1, then.log.state.timestamp_us)
    assert page == then.table("t").directory.range("n", 0, 1)


def test_errors_are_those_of_an_opened_store(serve):
    store = store_with_a_past(versions=2)
    client = serve(store).connect()

    with pytest.raises(TableNotFoundError, match=r"'default.othr'.*Did you mean 'other'") as caught:
        client.snapshot().table("othr")
    assert caught.value.context["version"] == store.snapshot().version
    with pytest.raises(VersionNotFoundError, match="the store has versions"):
        client.snapshot(10_000)
    with pytest.raises(InvalidInputError, match="more than one of version"):
        client.snapshot(1, tag="x")
    with pytest.raises(sp.SparkPagesError, match="column 'x'"):
        client.snapshot().table("t").read(["x"])


def test_an_open_snapshot_goes_on_after_checkpoints_and_a_vacuum(serve, small_trees):
    store = store_with_a_past()
    store.checkpoint()
    kept = write_more(store)
    client = serve(store).connect()
    table = client.snapshot(kept).table("t")
    rows = store.snapshot(kept).table("t").read()
    store.tag("kept", kept)
    rewrite_all(store)

    assert table.read().equals(rows)


def test_an_open_snapshot_tells_when_it_has_expired(serve, small_trees):
    store = store_with_a_past()
    store.checkpoint()
    client = serve(store).connect()
    table = client.snapshot(write_more(store)).table("t")
    rewrite_all(store)

    with pytest.raises(SnapshotExpiredError, match="retention keeps versions"):
        table.read()


def test_many_clients_cost_storage_what_one_does(serve, small_trees):
    store = store_with_a_past()
    store.checkpoint()
    write_more(store)

    def requests_of(clients: int) -> int:
        meter = MeteredStore(store.object_store)
        served = serve(meter, staleness_s=3600.0)
        for _ in range(clients):
            client = served.connect()
            for name in ("t", "other", "private.secrets"):
                client.snapshot().table(name).pages()
        return len([key for key in meter.counts.keys if not key.startswith("pages/")])

    assert requests_of(12) == requests_of(1)


def test_requests_to_storage_grow_with_the_commits(serve, small_trees):
    store = store_with_a_past()
    store.checkpoint()
    meter = MeteredStore(store.object_store)
    served = serve(meter)
    clients = [served.connect() for _ in range(6)]
    for client in clients:
        client.snapshot().table("t").pages()

    def requests_of_a_commit(turn: int) -> int:
        write_more(store, 1000 * turn)
        served.serving.metadata.freshness.newest()
        before = meter.counts.requests
        for client in clients:
            client.snapshot().table("t").pages()
        # each call is later than the bound of staleness here: one look for newer slots, nothing else
        return meter.counts.requests - before - 2 * LOOKS * len(clients)

    assert [requests_of_a_commit(turn) <= 0 for turn in range(3)] == [True] * 3


def test_tables_of_the_system_are_read_through_the_service_by_those_who_may(serve):
    store = store_with_a_past(versions=2)
    served = serve(store)
    ours, theirs = served.connect().snapshot(), store.snapshot()

    for name in ("system.tables", "system.columns", "system.namespaces", "system.catalog"):
        assert ours.table(name).read().equals(theirs.table(name).read())
    with pytest.raises(AccessDeniedError, match="Cannot read namespace 'system': the token"):
        served.connect("read:default").snapshot().table("system.tables").read()
    assert ours.namespaces() == theirs.namespaces()


def test_a_connected_store_and_its_snapshots_are_not_pickled(serve):
    client = serve(store_with_a_past(versions=1)).connect()

    for each in (client, client.snapshot(), client.snapshot().table("t")):
        with pytest.raises(InvalidInputError, match=r"Cannot pickle .*: it holds a token"):
            pickle.dumps(each)


def test_nothing_but_pages_of_snapshots_is_read_through_the_service(serve):
    client = serve(store_with_a_past(versions=1)).connect()
    objects = client.pages._store

    with pytest.raises(ObjectNotFoundError, match="no snapshot that is open"):
        objects.get_range("_log/00000000000000000001.avro", 0, 10)
    for ask in (objects.get, objects.size, objects.list, objects.delete):
        with pytest.raises(InvalidInputError, match="connected store only reads pages"):
            ask("pages/x")


def test_a_token_is_never_sent_in_the_clear_and_addresses_are_checked(serve):
    for url in ("grpc://127.0.0.1:1", "grpc+tls://u:p@127.0.0.1:1", "s3://bucket", "grpc+tls://host", "x"):
        with pytest.raises(InvalidInputError) as caught:
            sp.connect(url, "token-of-mine")
        assert "token-of-mine" not in str(caught.value)
        assert "u:p" not in str(caught.value)


def test_a_service_that_is_not_there_or_not_trusted_is_told_as_such(serve, ca):
    served = serve(store_with_a_past(versions=1))

    with pytest.raises(StorageError, match=r"Cannot reach the service .*\w\. Check "):
        sp.connect("grpc+tls://127.0.0.1:1", "t", certificate=ca.cert_pem.bytes(), retry_s=0.0)
    with pytest.raises(StorageError, match="Cannot reach the service"):
        sp.connect(served.url, "t", retry_s=0.0)
    with pytest.raises(AccessDeniedError):
        served.connect(bearer="t")


def calls(served, name: str) -> int:
    """How many calls of this name the service answered."""
    for line in served.serving.metrics.text().decode().splitlines():
        if line.startswith(f'spark_pages_calls_total{{call="{name}",outcome="ok"}}'):
            return int(float(line.rsplit(" ", 1)[1]))
    return 0


def test_a_served_table_is_a_snapshot_of_the_log(serve, small_trees):
    store = store_with_a_past()
    store.checkpoint()
    client = serve(store).connect()
    table = client.table_at("private", "secrets", store.snapshot().version)

    assert isinstance(table, TableView)
    check_same_table(table, store.snapshot().log)


def test_tables_and_namespaces_are_found_whatever_their_case_and_tokens_hold_for_them(serve):
    store = store_with_a_past(versions=1)
    with store.transaction() as txn:
        txn.create_namespace("Sales")
        txn.create_table("Sales.Orders", pa.schema([("Amount", pa.int64())]))
        txn.append("Sales.Orders", {"Amount": [7]})
    served = serve(store)

    found = served.connect("read:Sales").snapshot().table("SALES.orders")

    assert found.name == "Sales.Orders"
    assert found.read(["AMOUNT"]).to_pydict() == {"Amount": [7]}
    with pytest.raises(AccessDeniedError):
        served.connect("read:sales").snapshot().table("sales.orders")
