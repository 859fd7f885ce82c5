"""What a connected store tells of its log is what an opened store tells."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.errors import (
    AccessDeniedError,
    DamageError,
    InvalidInputError,
    RowOutOfRangeError,
    TableNotFoundError,
    VersionNotFoundError,
)
from spark_pages.service import log_queries
from spark_pages.service.metadata import MetadataService
from spark_pages.service.remote_history import LogVerbs
from spark_pages.service.wire import frame_of_table, table_of
from spark_pages.store import Store
from tests.service.stores import QUIET, store_with_a_past


@pytest.fixture(scope="module")
def past() -> Store:
    store = store_with_a_past()
    store.checkpoint()
    store.tag("march", 3)
    store.tag("april", 5)
    return store


@pytest.mark.parametrize("limit", [None, 0, 1, 4, 10_000])
def test_history_is_that_of_an_opened_store(past, serve, limit):
    assert serve(past).connect().history(limit).equals(past.history(limit))


@pytest.mark.parametrize("limit", [None, 1, 5, 9])
def test_history_is_asked_for_in_parts(past, serve, limit, monkeypatch):
    monkeypatch.setattr(log_queries, "MOST_HISTORY", 4)

    assert serve(past).connect().history(limit).equals(past.history(limit))


def test_history_of_a_store_whose_log_was_cleaned_ends_where_it_begins(serve, monkeypatch):
    store = store_with_a_past()
    store.vacuum(retention=3)
    monkeypatch.setattr(log_queries, "MOST_HISTORY", 2)

    assert serve(store).connect().history().equals(store.history())


@pytest.mark.parametrize("granularity", ["pages", "rows"])
@pytest.mark.parametrize("table", [None, "t", "private.secrets", "T", "system.catalog"])
def test_changes_are_those_of_an_opened_store(past, serve, granularity, table):
    end = past.snapshot().version

    found = serve(past).connect().changes(2, end, table, granularity)

    assert found.equals(past.changes(2, end, table, granularity))


def test_changes_of_no_versions_are_none(past, serve):
    assert serve(past).connect().changes(3, 2).equals(past.changes(3, 2))


def test_changes_of_too_many_versions_are_refused_before_anything_is_read(past, serve, monkeypatch):
    monkeypatch.setattr(log_queries, "MOST_CHANGED", 3)
    client = serve(past).connect()

    assert client.changes(1, 3).equals(past.changes(1, 3))
    with pytest.raises(InvalidInputError, match=r"4 versions.*at most 3.*spark_pages\.open"):
        client.changes(1, 4)


def test_an_answer_larger_than_the_service_sends_is_refused(past, serve):
    client = serve(past, answer_bytes=200).connect()

    with pytest.raises(InvalidInputError, match=r"its answer has \d+ bytes, expected at most 200"):
        client.changes(0, past.snapshot().version)
    with pytest.raises(InvalidInputError, match=r"`start` and `end` closer together"):
        client.history()


def test_tags_and_leases_are_those_of_an_opened_store(past, serve):
    client = serve(past).connect()

    with past.snapshot().lease(timedelta(hours=1)):
        held = client.leases()
        assert held.equals(past.leases())
        assert held.num_rows == 1
    assert client.tags() == past.tags() == {"april": 5, "march": 3}
    assert client.leases().num_rows == 0


def test_blame_names_the_commit_that_an_opened_store_names(past, serve):
    client = serve(past).connect()

    for row in (0, 20, 41, 100):
        assert client.blame("t", "v", row) == past.blame("t", "v", row)
    with pytest.raises(RowOutOfRangeError, match="column 'v' of table 't'"):
        client.blame("t", "v", 1 << 40)
    with pytest.raises(TableNotFoundError, match="nowhere"):
        client.blame("nowhere", "v", 0)


def test_blame_of_a_deleted_row_names_its_deleter_here_too(serve):
    store = store_with_a_past()
    with store.transaction(operation="forget") as txn:
        txn.delete("t", [0])

    found = serve(store).connect().blame("t", "n", 0)

    assert found.deleted_by is not None
    assert found.deleted_by.operation == "forget"
    assert found == store.blame("t", "n", 0)


def test_blame_of_a_cleaned_log_says_at_or_before(serve):
    store = store_with_a_past()
    store.checkpoint()
    store.vacuum(retention=1)

    found = serve(store).connect().blame("t", "n", 0)

    assert not found.exact
    assert found == store.blame("t", "n", 0)


DENIED = {
    "history": lambda c: c.history(),
    "leases": lambda c: c.leases(),
    "changes of all": lambda c: c.changes(0, 1),
    "changes of another namespace": lambda c: c.changes(0, 1, "private.secrets"),
    "changes of the catalog": lambda c: c.changes(0, 1, "system.catalog"),
    "blame of another namespace": lambda c: c.blame("private.secrets", "s", 0),
    "blame of one that is not there": lambda c: c.blame("nowhere.t", "s", 0),
    "snapshot of another namespace": lambda c: c.get_table_meta_snapshot("private", "secrets"),
    "changes by seed 004": lambda c: c.collect_table_meta_changes_in_range("private", "secrets", 1),
}


@pytest.mark.parametrize("call", DENIED.values(), ids=DENIED)
def test_a_token_of_one_namespace_is_told_of_no_other(past, serve, call):
    with pytest.raises(AccessDeniedError, match="the token does not allow"):
        call(serve(past).connect("read:default"))


def test_a_token_of_one_namespace_reads_what_is_its_own(past, serve):
    served = serve(past)
    default, system = served.connect("read:default"), served.connect("read:system")

    assert default.changes(0, 9, "t").equals(past.changes(0, 9, "t"))
    assert default.blame("DEFAULT.t", "v", 0) == past.blame("t", "v", 0)
    assert default.tags() == past.tags()
    assert system.history(2).equals(past.history(2))
    with pytest.raises(AccessDeniedError, match="all namespaces"):
        system.changes(0, 1)


@pytest.mark.parametrize("as_time", [lambda t: t, lambda t: t.isoformat(), pa.scalar])
def test_the_snapshot_of_seed_004_is_that_of_a_version_or_a_time(past, serve, as_time):
    client, service = serve(past).connect(), MetadataService(past.object_store)
    when = past.history().filter(pa.compute.field("version") == 6).column("timestamp")[0].as_py()

    by_version = client.get_table_meta_snapshot("default", "t", 6)
    by_time = client.get_table_meta_snapshot("default", "t", as_time(when))
    local = service.get_table_meta_snapshot("default", "t", as_time(when))

    assert by_version.version == by_time.version == local.version == 6
    assert by_time.definition == local.definition
    assert by_time.redo.keys() == local.redo.keys()
    assert client.get_table_meta_snapshot("default", "t").version == past.snapshot().version


def test_a_time_before_the_store_is_no_version_for_seed_004(past, serve):
    with pytest.raises(VersionNotFoundError):
        serve(past).connect().get_table_meta_snapshot("default", "t", datetime(1999, 1, 1, tzinfo=UTC))


def test_the_changes_of_seed_004_are_those_of_the_service(serve):
    store = store_with_a_past()
    client, service = serve(store).connect(), MetadataService(store.object_store)

    told = client.collect_table_meta_changes_in_range("default", "t", 4)
    local = service.collect_table_meta_changes_in_range("default", "t", 4)

    assert (told.from_, told.to, told.timestamp_us) == (local.from_, local.to, local.timestamp_us)
    assert told.redo_locations == local.redo_locations
    for field_id, edits in local.hot_redo.items():
        found = [each.added.descriptors() for each in told.hot_redo[field_id]]
        assert found == [each.added.descriptors() for each in edits]


def test_pages_of_a_bulk_commit_are_loaded_from_changes_when_they_are_asked_for(serve):
    # given
    store = sp.create("memory://bulk-changes", properties=QUIET)
    rows = pa.table({"n": pa.array(range(700_000), pa.int64())})
    with store.transaction() as txn:
        txn.create_table("t", rows.schema, properties={"page_bytes": "4096"})
    store.append("t", rows)
    # when
    told = serve(store).connect().collect_table_meta_changes_in_range("default", "t", 2, 2)
    # then
    (edit,) = told.hot_redo[1]
    assert edit.added.num_rows == 700_000


class Lying:
    """A service that answers the same, whatever it is asked."""

    def __init__(self, header, rows):
        self._answer = header, list(frame_of_table(rows).split(1 << 20))

    def get(self, *_, **__):
        return self._answer

    def request(self, *_, **__):
        return self._answer[0]


def verbs(header, rows) -> LogVerbs:
    made = LogVerbs()
    made._calls = Lying(header, rows)
    return made


@pytest.mark.parametrize(
    ("header", "call"),
    [
        ({}, lambda v: v.history()),
        ({"first": "x", "oldest": 0}, lambda v: v.history()),
        ({"first": 7, "oldest": 0}, lambda v: v.history()),
        ({"version": 1, "timestamp_us": 0, "exact": 1}, lambda v: v.blame("t", "n", 0)),
        ({"version": True, "timestamp_us": 0, "exact": True}, lambda v: v.blame("t", "n", 0)),
        ({}, lambda v: v.tags()),
        ({}, lambda v: v.leases()),
        ({}, lambda v: v.changes(0, 1)),
    ],
)
def test_an_answer_that_is_not_understood_is_named_so(past, header, call):
    with pytest.raises(DamageError, match="answer of the service"):
        call(verbs(header, past.history()))


def test_rows_of_an_answer_are_looked_at_before_they_are_used():
    no_text = pa.array([b"\xff\xfe"], pa.binary()).view(pa.string())
    batch = pa.record_batch([no_text], names=["tag"])

    with pytest.raises(DamageError):
        table_of([batch], batch.schema)
