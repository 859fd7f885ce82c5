"""Objects that no commit names: they go when their writer cannot come any more, and not before."""

from __future__ import annotations

from datetime import timedelta

import pytest

from spark_pages.errors import CommitConflictError
from spark_pages.log.checkpoint.writer import write_checkpoint
from spark_pages.log.vacuum.reachability import Reason
from tests.invariants import check_nothing_needed_is_gone, check_versions_stay, rows_of
from tests.maintenance.vacuum.stores import KilledError, WatchedStore, new_past, numbers, opened

TOKEN = "ab" * 16


def keys(past, prefix=""):
    return {info.key for info in past.object_store.list(prefix)}


def kill_commit(number, kind, key):
    """Ends the process when all but the commit is in storage."""
    return "before" if kind == "create" else None


def orphans_of(plan):
    return {each["key"] for each in plan.objects.to_pylist() if each["reason"] == Reason.ORPHAN}


def test_page_files_of_a_writer_that_died_go_once_it_would_be_refused():
    past = new_past()
    past.append("large", 1)
    before = keys(past, "pages/")
    dead = opened(WatchedStore(past.object_store, kill_commit))
    with pytest.raises(KilledError), dead.transaction() as txn:
        txn.append("large", numbers(2))
    left = keys(past, "pages/") - before
    read_by_the_dead = past.store.snapshot().version
    past.append("small", 3, rows=1)
    past.append("small", 4, rows=1)

    may_still_come = past.store.vacuum_plan(retention=3, orphans=True)
    is_refused = past.store.vacuum_plan(retention=1, orphans=True)
    not_asked_for = past.store.vacuum_plan(retention=1)

    assert may_still_come.retention.min_epoch <= read_by_the_dead < is_refused.retention.min_epoch
    assert orphans_of(may_still_come) == set()
    assert left <= orphans_of(is_refused)
    assert orphans_of(not_asked_for) == set()
    is_refused.execute()
    assert not left & keys(past)
    past.note()
    check_versions_stay(past.object_store, past.history)


def test_a_writer_whose_page_files_went_is_refused_by_its_commit():
    past = new_past()
    past.append("large", 1)
    other = past.store

    def vacuum_before_commit(number, kind, key):
        if kind == "create":
            late.watch = lambda *_: None
            past.append("small", 2, rows=1)
            other.vacuum(retention=1, orphans=True)

    late = WatchedStore(past.object_store, vacuum_before_commit)
    txn = opened(late).transaction()
    txn.append("large", numbers(2))

    with pytest.raises(CommitConflictError, match="refused since then") as met:
        txn.commit()

    (vacuum,) = [row for row in other.history().to_pylist() if row["operation"] == "vacuum"]
    assert met.value.context["conflicting_version"] == vacuum["version"]
    assert met.value.context["conflicting_writer"] == vacuum["writer"]

    check_versions_stay(past.object_store, past.history)
    check_nothing_needed_is_gone(past.object_store)


def test_a_writer_under_a_lease_commits_though_vacuum_asks_for_everything_meanwhile():
    past = new_past()
    past.append("large", 1)
    writer = opened(past.object_store)
    txn = writer.transaction()
    lease = txn.snapshot.lease(timedelta(hours=1))
    txn.append("large", numbers(2))
    past.append("small", 2, rows=1)

    past.store.vacuum(retention=1, orphans=True)
    txn.commit()
    lease.release()

    assert rows_of(writer)["large"].num_rows == 2 * numbers(1).num_rows
    past.note()
    check_versions_stay(past.object_store, past.history)
    check_nothing_needed_is_gone(past.object_store)


def test_a_checkpoint_that_nobody_names_goes_with_all_that_is_only_its_own():
    past = new_past()
    past.append("large", 1)
    past.append("small", 2, rows=2)
    before = keys(past)
    head = past.store.snapshot().log
    write_checkpoint(past.object_store, head.state, head.checkpoint, TOKEN)
    left = keys(past) - before
    past.append("small", 3, rows=1)
    past.append("small", 4, rows=1)

    past.store.vacuum(retention=1, orphans=True)

    assert left
    assert not left & keys(past)
    past.note()
    check_versions_stay(past.object_store, past.history)


def test_a_checkpoint_that_may_still_be_named_stays_with_all_that_it_shares():
    past = new_past()
    past.append("large", 1)
    past.append("small", 2, rows=2)
    before = keys(past)
    head = past.store.snapshot().log
    write_checkpoint(past.object_store, head.state, head.checkpoint, TOKEN)
    left = keys(past) - before

    past.store.vacuum(retention=1, orphans=True)

    assert left <= keys(past)


def test_objects_of_a_checkpoint_that_is_being_written_stay_though_it_has_no_root_yet():
    past = new_past()
    past.append("large", 1)
    past.append("small", 2, rows=2)
    before = keys(past)
    head = past.store.snapshot().log
    begun = write_checkpoint(past.object_store, head.state, head.checkpoint, TOKEN).ref
    past.object_store.delete(begun.location.key)
    left = keys(past) - before

    past.store.vacuum_plan(retention=1, orphans=True).execute()

    assert left
    assert left <= keys(past)


def test_objects_that_do_not_say_how_old_they_are_stay():
    past = new_past()
    strange = {"pages/mine.pages", "_log/manifests/mine.parquet", "_log/segments/" + "0" * 64 + ".parquet"}
    for key in strange:
        past.object_store.put(key, b"something")
    for start in range(3):
        past.append("small", start, rows=1)

    past.store.vacuum(retention=1, orphans=True)

    assert strange <= keys(past)


def test_a_second_vacuum_for_orphans_leaves_what_the_first_has_left():
    past = new_past()
    for start in range(3):
        past.append("large", start)
        past.store.checkpoint()
    past.append("small", 1, rows=1)
    past.store.vacuum(retention=1, orphans=True)
    before = keys(past)

    result = past.store.vacuum(retention=1, orphans=True)

    assert (result.version, result.objects) == (None, 0)
    assert keys(past) == before
