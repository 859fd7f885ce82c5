"""Readers and retention: expired, leased, long asleep, and on a checkpoint that has gone."""

from __future__ import annotations

from datetime import timedelta

import pytest

from spark_pages.errors import (
    CommitConflictError,
    DamageError,
    InvalidInputError,
    SnapshotExpiredError,
    StorageError,
)
from spark_pages.format.names import HINT_KEY
from spark_pages.log.last_checkpoint import read_hint
from spark_pages.query import scan
from spark_pages.storage.store import ObjectStore
from spark_pages.versions.leases import ReaderLease
from tests.effort import some
from tests.invariants import check_versions_stay, rows_of
from tests.maintenance.vacuum.stores import (
    Clock,
    WatchedStore,
    copied,
    eventful_past,
    new_past,
    numbers,
    opened,
)

HOUR = timedelta(hours=1)


def cold(objects: ObjectStore, version: int | None = None):
    """Table ``large`` of a reader that has loaded nothing of it yet."""
    return opened(objects).snapshot(version=version).table("large")


def busy(past, times: int = 3) -> None:
    """All that was there is replaced, with checkpoints, and vacuum takes what it can."""
    for value in range(times):
        past.rewrite("large", -10 - value)
        past.store.checkpoint()
        past.append("small", 50 + value, rows=1)


def test_a_reader_whose_version_has_expired_is_told_so_and_never_given_another_row():
    past = eventful_past()
    version = past.store.snapshot().version - 1
    table = cold(past.object_store, version)
    busy(past)
    past.store.vacuum(retention=1)

    with pytest.raises(SnapshotExpiredError, match=rf"version {version}\b"):
        table.read()
    with pytest.raises(SnapshotExpiredError, match=rf"version {version}\b"):
        table.directory.locate_row("x", 9_000)
    with pytest.raises(SnapshotExpiredError, match=rf"version {version}\b"):
        table.take([5])


def test_an_update_whose_pages_a_vacuum_has_deleted_is_told_of_a_conflict_and_can_be_repeated():
    past = eventful_past()
    late = opened(past.object_store)
    txn = late.transaction()
    txn.update_rows("large", [5], {"x": [7]})
    read = txn.snapshot.version
    busy(past)
    past.store.vacuum(retention=1)

    with pytest.raises(
        CommitConflictError, match=f"read version {read}: it was overtaken by a vacuum.*lease"
    ) as failure:
        txn.commit()
    assert failure.value.context["conflicting_version"] > read
    assert "(vacuum)" in str(failure.value)

    with late.transaction() as again:
        again.update_rows("large", [5], {"x": [7]})
    assert late.snapshot().version == again.version
    assert late.snapshot().table("large").take([5], ["x"]).to_pylist() == [{"x": 7}]


@pytest.fixture
def small_windows(monkeypatch):
    """A scan reads no more at a time than a batch."""
    monkeypatch.setattr(scan, "SHARED_WINDOW_BYTES", (1, 1, 1))


def test_a_scan_in_its_middle_ends_with_the_same_error(small_windows):
    past = new_past()
    for start in range(4):
        past.append("large", start)
    batches = cold(past.object_store).scan(batch_rows=9_000)
    batches.read_next_batch()
    busy(past)
    past.store.vacuum(retention=1)

    with pytest.raises(SnapshotExpiredError):
        batches.read_all()


def test_a_leased_reader_reads_to_the_end_whatever_vacuum_is_asked_for(small_windows):
    past = new_past()
    for start in range(4):
        past.append("large", start)
    reader = opened(past.object_store)
    version = past.store.snapshot().version
    with reader.snapshot().lease(HOUR) as lease:
        batches = lease.snapshot.table("large").scan(batch_rows=9_000)
        batches.read_next_batch()
        past.note()
        busy(past)
        past.store.vacuum(retention=1, orphans=True)

        rest = batches.read_all()

    assert rest.num_rows == past.history[version]["large"].num_rows - 9_000
    assert rest == past.history[version]["large"].slice(9_000)
    past.store.vacuum(retention=1)
    with pytest.raises(SnapshotExpiredError):
        opened(past.object_store).snapshot(version=version)


@pytest.mark.sampled
def test_a_vacuum_that_comes_at_any_request_of_a_reader_refuses_it_before_it_has_its_lease_or_not_at_all(
    small_windows,
):
    past = eventful_past()
    version = 9

    def read(objects: ObjectStore, leased: list[ReaderLease]):
        with opened(objects).snapshot(version=version).lease(HOUR) as lease:
            leased.append(lease)
            return lease.snapshot.table("large").scan(batch_rows=9_000).read_all()

    watched = WatchedStore(copied(past.object_store))
    rows = read(watched, [])
    refused = 0
    for number in some(range(watched.requests), 2):
        objects, leased = copied(past.object_store), []

        def vacuum(n, *_, number=number, objects=objects):
            if n == number:
                store = opened(objects)
                with store.transaction() as txn:
                    txn.update_rows("large", list(range(0, 20_000, 4096)), {"x": [9] * 5})
                store.checkpoint()
                store.vacuum(retention=1, orphans=True)

        try:
            assert read(WatchedStore(objects, vacuum), leased) == rows
        except SnapshotExpiredError:
            assert not leased, f"at request {number}"
            refused += 1
    assert 0 < refused < watched.requests


def test_a_reader_of_a_kept_version_whose_checkpoint_has_gone_reads_the_same_rows_from_another():
    past = new_past()
    past.append("large", 1)
    past.append("small", 1, rows=2)
    past.store.checkpoint()
    reader = opened(past.object_store)
    old_base = reader.snapshot().log.state.base
    past.append("large", 2, rows=100_000)  # so many that the checkpoint writes the base anew
    past.store.checkpoint()
    past.append("large", 3)
    version = past.note()
    tables = {name: reader.snapshot().table(name) for name in ("large", "small")}
    past.append("small", 4, rows=1)
    past.store.vacuum(retention=1 + past.note() - version)
    left = {info.key for info in past.object_store.list("_log/checkpoints/")}

    rows = {name: table.read() for name, table in tables.items()}

    assert old_base.location.key not in left
    assert tables["large"].directory._snapshot.state.base.location.key in left
    assert rows == past.history[version]


def test_a_process_that_slept_while_its_place_in_the_log_was_cleaned_catches_up():
    past = eventful_past()
    sleeper = opened(past.object_store)
    sleeper.snapshot()
    busy(past, times=6)
    past.store.vacuum(retention=1)
    past.append("small", 99, rows=1)

    assert rows_of(sleeper) == rows_of(past.store)
    with sleeper.transaction() as txn:
        txn.append("large", numbers(5))
    assert rows_of(opened(past.object_store)) == rows_of(sleeper)


def test_a_process_that_had_replayed_everything_changes_over_to_a_checkpoint():
    past = new_past()
    past.append("large", 1)
    old = opened(past.object_store)
    assert old.snapshot().log.state.base is None

    past.rewrite("large", -1)
    past.store.vacuum(retention=1)

    assert rows_of(old) == rows_of(past.store)
    assert old.snapshot().log.state.base is not None


@pytest.mark.parametrize("hint", ["as it is", "lost", "of long ago"])
def test_the_head_is_found_over_tombstones_whatever_the_hint_says(hint):
    past = eventful_past()
    long_ago = past.object_store.get(HINT_KEY)
    busy(past)
    past.store.vacuum(retention=2)
    past.note()
    if hint == "lost":
        past.object_store.delete(HINT_KEY)
    if hint == "of long ago":
        past.object_store.put(HINT_KEY, long_ago)

    assert rows_of(opened(past.object_store)) == rows_of(past.store)
    check_versions_stay(past.object_store, past.history)


def test_finding_the_head_over_a_long_cleaned_log_takes_few_requests():
    past = new_past()
    for start in range(80):
        with past.store.transaction() as txn:
            txn.append("small", numbers(start, rows=1))
    past.store.checkpoint()
    past.store.vacuum(retention=1)
    past.object_store.delete(HINT_KEY)
    watched = WatchedStore(past.object_store)

    assert opened(watched).snapshot().version == past.store.snapshot().version

    assert watched.requests < 30


def test_a_vacuum_leaves_a_hint_from_which_newcomers_need_no_detour():
    past = eventful_past()
    past.store.vacuum(retention=2)
    watched = WatchedStore(past.object_store)
    newest = past.store.snapshot().log.state

    opened(watched).snapshot()

    hinted = read_hint(past.object_store)
    assert hinted.version >= newest.retention.min_readable
    assert watched.requests <= 10


def test_a_missing_page_file_of_a_version_that_is_kept_is_damage():
    past = eventful_past()
    table = cold(past.object_store)
    for info in past.object_store.list("pages/"):
        past.object_store.delete(info.key)

    with pytest.raises(DamageError, match="an object that it needs is missing"):
        table.read()


def test_a_lease_that_has_run_out_holds_nothing_and_cannot_be_renewed():
    clock = Clock()
    past = new_past(clock)
    past.append("large", 1)
    lease = opened(past.object_store, clock).snapshot().lease(HOUR)
    version = lease.snapshot.version
    past.note()
    past.rewrite("large", -1)

    past.store.vacuum(retention=1)
    assert past.store.snapshot().log.state.retention is None or (
        past.store.snapshot().log.state.retention.min_readable <= version
    )
    clock.pass_s(3601)
    past.store.vacuum(retention=1)

    with pytest.raises(SnapshotExpiredError, match="to be leased"):
        lease.renew(HOUR)
    assert past.store.leases().num_rows == 0


def test_a_lease_is_renewed_listed_and_released():
    clock = Clock()
    past = new_past(clock)
    past.append("large", 1)
    lease = past.store.snapshot().lease(HOUR)
    until = lease.expires_at
    clock.pass_s(1800)
    lease.renew(HOUR)

    listed = past.store.leases().to_pylist()
    assert [(each["lease_id"], each["version"]) for each in listed] == [
        (lease.lease_id, lease.snapshot.version)
    ]
    assert listed[0]["expires_at"] == lease.expires_at > until
    lease.release()
    lease.release()
    assert past.store.leases().num_rows == 0
    assert "not held" in repr(lease)


def test_a_version_that_vacuum_has_passed_cannot_be_leased():
    past = eventful_past()
    snapshot = opened(past.object_store).snapshot(version=4)
    past.store.vacuum(retention=1)

    with pytest.raises(SnapshotExpiredError, match="to be leased"):
        snapshot.lease(HOUR)


def test_a_reader_that_may_not_write_reads_without_a_lease_where_it_says_so():
    past = eventful_past()

    def forbid(number, kind, key):
        if kind in ("create", "put"):
            raise StorageError("You may not write here.")

    snapshot = opened(WatchedStore(past.object_store, forbid)).snapshot()

    with pytest.raises(StorageError, match="may not write"):
        snapshot.lease(HOUR)
    with snapshot.lease(HOUR, required=False) as lease:
        assert lease.expires_at is None
        assert lease.snapshot.table("small").num_rows == past.store.snapshot().table("small").num_rows


def test_a_lease_of_no_duration_is_refused(store):
    with pytest.raises(InvalidInputError, match="over at once"):
        store.snapshot().lease(timedelta(0))
