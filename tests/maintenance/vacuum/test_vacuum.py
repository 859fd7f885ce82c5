"""What goes, what stays, and what a plan says of it."""

from __future__ import annotations

from datetime import timedelta

import pyarrow.compute as pc
import pytest

from spark_pages.errors import CommitConflictError, InvalidInputError, SnapshotExpiredError, StorageError
from spark_pages.format.commit import decode_slot
from spark_pages.format.names import commit_key
from spark_pages.log.vacuum.reachability import Reason
from spark_pages.model.actions import COMMITTED, Commit, Tombstone
from spark_pages.storage import MeteredStore
from tests.invariants import check_nothing_needed_is_gone, check_store, check_versions_stay, rows_of
from tests.maintenance.vacuum.stores import Clock, WatchedStore, eventful_past, new_past, numbers, opened


def keys(store, prefix=""):
    return {info.key for info in store.object_store.list(prefix)}


def page_files_of(objects):
    """Page files of the newest version, as a newcomer reads it."""
    snapshot = opened(objects).snapshot()
    names = ["system.catalog", *snapshot.tables()]
    return {path for name in names for path in snapshot.table(name).pages()["path"].to_pylist() if path}


def slot(store, version):
    return decode_slot(store.object_store.get(commit_key(version)), "slot")


def test_versions_that_are_kept_have_the_rows_that_they_always_had():
    past = eventful_past()

    past.store.vacuum(retention=4)

    past.note()
    check_versions_stay(past.object_store, past.history)
    check_nothing_needed_is_gone(past.object_store)


def test_a_version_that_is_not_kept_is_refused_by_name_with_the_range_that_can_be_read():
    past = eventful_past()
    head = past.store.snapshot().version

    past.store.vacuum(retention=3)

    with pytest.raises(SnapshotExpiredError) as refused:
        opened(past.object_store).snapshot(version=1)
    assert f"Cannot read version 1: it was cleaned away, and retention keeps versions {head - 2} to" in str(
        refused.value
    )


def test_a_page_file_goes_when_the_last_of_its_pages_is_in_no_kept_version():
    past = new_past()
    past.append("large", 1)
    past.rewrite("large", -1)
    past.append("large", 2)
    before = keys(past.store, "pages/")

    past.store.vacuum(retention=1)

    assert keys(past.store, "pages/") == page_files_of(past.object_store)
    assert before - keys(past.store, "pages/")


def test_a_page_file_stays_while_one_of_its_pages_is_live():
    past = new_past()
    past.append("large", 1)
    (file,) = keys(past.store, "pages/")
    with past.store.transaction() as txn:
        txn.update_rows("large", [0], {"x": [-1]})
    past.note()
    past.append("small", 3, rows=1)

    past.store.vacuum(retention=1)

    assert file in keys(past.store, "pages/")
    check_versions_stay(past.object_store, past.history)


def test_a_page_file_that_a_restore_has_brought_back_stays():
    past = new_past()
    past.append("large", 1)
    old = past.store.snapshot().version
    file = next(iter(keys(past.store, "pages/")))
    past.store.checkpoint()
    past.rewrite("large", -1)
    past.store.checkpoint()
    past.append("small", 1, rows=1)
    past.store.restore(version=old)
    past.note()
    past.append("small", 2, rows=1)

    past.store.vacuum(retention=1)
    past.store.vacuum(retention=1)

    assert file in keys(past.store, "pages/")
    check_versions_stay(past.object_store, past.history)


def test_cleaned_slots_are_tombstones_that_settle_doubt_time_and_chain():
    past = eventful_past()
    before = {version: slot(past.store, version) for version in past.history}

    past.store.vacuum(retention=1)

    for version in range(max(before)):
        tombstone = slot(past.store, version)
        commit = before[version]
        assert isinstance(tombstone, Tombstone)
        assert (tombstone.token, tombstone.digest) == (commit.token, commit.digest)
        assert tombstone.timestamp_us == commit.timestamp_us
        assert tombstone.transactions == tuple((record.token, COMMITTED) for record in commit.records)
        assert tombstone.checkpoint.version >= version
    assert isinstance(slot(past.store, max(before)), Commit)


def test_what_the_checkpoint_before_needed_goes_too_where_only_the_newest_version_is_kept():
    past = eventful_past()
    past.append("large", 7)

    past.store.vacuum(retention=1)

    assert keys(past.store, "pages/") == page_files_of(past.object_store)
    assert len(keys(past.store, "_log/checkpoints/")) <= 2


def test_a_plan_says_what_goes_and_executing_it_deletes_exactly_that():
    past = eventful_past()
    plan = past.store.vacuum_plan(retention=2)
    before = keys(past.store)
    sizes = {key: len(past.object_store.get(key)) for key in plan.objects["key"].to_pylist()}

    result = plan.execute()

    planned = plan.objects.to_pylist()
    gone = {each["key"] for each in planned if each["reason"] != Reason.SLOT}
    assert before - keys(past.store) == gone
    assert {each["key"]: each["size_bytes"] for each in planned} == sizes
    assert plan.counts.keys() >= {"slot", "page file", "checkpoint root"}
    assert result.objects == plan.objects.num_rows
    assert result.size_bytes == plan.size_bytes == pc.sum(plan.objects["size_bytes"]).as_py()
    assert "page file" in repr(plan)
    assert f"versions {result.oldest} to" in repr(plan)


def test_a_second_vacuum_finds_nothing_and_commits_nothing():
    past = eventful_past()
    past.store.vacuum(retention=1)
    head = past.store.snapshot().version
    before = keys(past.store)

    result = past.store.vacuum(retention=1)

    assert (result.version, result.objects) == (None, 0)
    assert past.store.snapshot().version == head
    assert keys(past.store) == before


def test_a_vacuum_of_a_store_that_only_grows_reads_no_segment_that_old_and_new_share(small_trees):
    past = new_past()
    small_trees(pages=4)
    for start in range(6):
        past.append("large", start)
        past.store.checkpoint()
    past.append("large", 6)
    past.store.vacuum(retention=2)
    past.append("large", 7)
    past.store.checkpoint()
    past.append("large", 8)

    plan = past.store.vacuum_plan(retention=2)

    assert "page file" not in plan.counts
    plan.execute()
    past.note()
    check_versions_stay(past.object_store, past.history)


@pytest.mark.parametrize("orphans", [False, True])
def test_a_vacuum_lists_objects_only_where_it_is_asked_for_orphans(orphans):
    past = eventful_past()
    meter = MeteredStore(past.object_store)

    done = opened(meter).vacuum(retention=1, orphans=orphans)

    assert done.objects > 20
    assert bool(meter.counts.lists) is orphans


def test_a_tag_holds_its_version_and_all_later_ones_until_it_and_every_other_one_there_are_deleted():
    past = eventful_past()
    past.store.tag("kept", version=5)
    past.store.tag("kept-too", version=5)
    past.note()

    for name in ("kept", "kept-too"):
        past.store.vacuum(retention=1)
        check_versions_stay(past.object_store, past.history)
        assert past.store.snapshot().log.state.retention.min_readable == 5
        past.store.delete_tag(name)
        past.note()
    past.store.vacuum(retention=1)

    assert past.store.snapshot().log.state.retention.min_readable > 5
    past.note()
    check_versions_stay(past.object_store, past.history)


def test_versions_are_kept_by_age_by_number_or_as_the_properties_of_the_store_say():
    clock = Clock()
    past = new_past(clock)
    for start in range(4):
        clock.pass_s(3600)
        past.append("small", start, rows=1)
    clock.pass_s(60)
    store, head = past.store, past.store.snapshot().version

    by_age = store.vacuum_plan(retention=timedelta(hours=2)).retention.min_readable
    by_number = store.vacuum_plan(retention=2).retention.min_readable
    by_default = store.vacuum_plan().retention.min_readable
    with store.transaction() as txn:
        txn.set_properties({"retention_seconds": "7200", "retention_versions": "3"})
    by_properties = store.vacuum_plan().retention.min_readable

    assert by_age == head - 2  # it was the newest until an hour ago, and so within the last two
    assert by_number == head - 1
    assert by_default == 0
    assert by_properties == head - 2


@pytest.mark.parametrize("retention", [-1, timedelta(seconds=-1)])
def test_a_negative_retention_is_refused(store, retention):
    with pytest.raises(InvalidInputError, match="negative"):
        store.vacuum_plan(retention=retention)


def test_the_history_tells_of_a_vacuum():
    past = eventful_past()

    result = past.store.vacuum(retention=2)

    history = past.store.history().to_pylist()
    newest = next(row for row in history if row["transaction"] is not None)
    assert (newest["operation"], newest["version"]) == ("vacuum", result.version)
    assert dict(newest["parameters"])["oldest"] == str(result.oldest)


def test_a_store_is_written_and_opened_after_a_vacuum_as_before():
    past = eventful_past()
    past.store.vacuum(retention=1)
    want = rows_of(past.store)

    past.append("large", 9)
    past.store.checkpoint()
    other = opened(past.object_store)

    assert rows_of(other, past.store.snapshot().version - 1) == want
    assert rows_of(other) == rows_of(past.store)
    assert other.snapshot().log.state.retention == past.store.snapshot().log.state.retention


def test_nothing_goes_from_a_store_whose_versions_are_all_kept():
    past = eventful_past()
    before = keys(past.store, "_log/0")

    result = past.store.vacuum()

    assert (result.version, result.objects) == (None, 0)
    assert keys(past.store, "_log/0") == before
    check_store(past.store)


def test_what_comes_into_use_between_plan_and_execution_is_spared():
    past = new_past()
    past.append("large", 1)
    old = past.store.snapshot().version
    file = next(iter(keys(past.store, "pages/")))
    past.rewrite("large", -1)
    plan = past.store.vacuum_plan(retention=1)
    past.store.restore(version=old)
    past.note()

    result = plan.execute()

    assert file in plan.objects["key"].to_pylist()
    assert file in keys(past.store)
    assert result.spared == 1
    check_versions_stay(past.object_store, past.history)
    check_nothing_needed_is_gone(past.object_store)


def test_a_plan_that_a_tag_has_overtaken_deletes_nothing():
    past = eventful_past()
    plan = past.store.vacuum_plan(retention=1)
    past.store.tag("held", version=3)
    before = keys(past.store)

    with pytest.raises(CommitConflictError, match="a tag"):
        plan.execute()

    assert keys(past.store) == before
    past.note()
    check_versions_stay(past.object_store, past.history)


def forbid(number, kind, key):
    """Of a store that may only be read."""
    if kind in ("create", "put", "delete"):
        raise StorageError("You may not write here.")


def test_a_vacuum_that_may_not_write_its_checkpoint_ends_with_the_reason():
    past = new_past()
    past.append("large", 1)

    with pytest.raises(StorageError, match="You may not write here"):
        opened(WatchedStore(past.object_store, forbid)).vacuum(retention=1)


def test_a_store_that_may_only_be_read_is_planned_for_with_the_checkpoints_that_it_has():
    past = eventful_past()
    reader = opened(WatchedStore(past.object_store, forbid))

    plan = reader.vacuum_plan(retention=1)

    assert 0 < plan.counts["slot"] < past.store.vacuum_plan(retention=1).counts["slot"]


def test_slots_that_a_killed_vacuum_has_left_between_tombstones_are_cleaned_by_the_next():
    past = eventful_past()
    commits = {version: past.object_store.get(commit_key(version)) for version in past.history}
    past.store.vacuum(retention=1)
    left = [3, 5]
    for version in left:
        past.object_store.put(commit_key(version), commits[version])
    past.append("large", 7)

    past.store.vacuum(retention=1)

    assert all(isinstance(slot(past.store, version), Tombstone) for version in left)
    check_versions_stay(past.object_store, past.history)


def test_page_manifests_of_cleaned_slots_go():
    past = new_past()
    with past.store.transaction() as txn:
        txn._page_bytes = 8
        txn.append("small", numbers(1, rows=1_001))
    past.note()
    past.append("large", 1)
    (manifest,) = keys(past.store, "_log/manifests/")

    plan = past.store.vacuum_plan(retention=1)
    plan.execute()

    assert plan.counts["manifest"] == 1
    assert manifest not in keys(past.store)
    check_versions_stay(past.object_store, past.history)


def test_compacted_ranges_of_cleaned_slots_go():
    past = new_past()
    for start in range(20):
        past.append("small", start, rows=1)
    past.store.compact_log()
    before = {key for key in keys(past.store, "_log/") if key.endswith(".compacted.avro")}

    past.store.vacuum(retention=1)

    left = {key for key in keys(past.store, "_log/") if key.endswith(".compacted.avro")}
    assert before
    assert not [key for key in left if int(key.split("-")[1][:20]) < max(past.history)]
    check_versions_stay(past.object_store, past.history)


def test_what_names_an_object_goes_after_it_and_slots_go_last():
    past = eventful_past()
    past.append("large", 7)
    past.store.vacuum_plan(retention=1).execute()
    past.append("large", 8)
    done: list[str] = []
    watched = WatchedStore(
        past.object_store, lambda _, kind, key: done.append(key) if kind in ("delete", "put") else None
    )

    plan = opened(watched).vacuum_plan(retention=1)
    done.clear()
    plan.execute()

    def places(prefix):
        return [index for index, key in enumerate(done) if key.startswith(prefix)]

    first_slot = min(index for index in places("_log/0") if not done[index].endswith(".compacted.avro"))
    assert min(len(places(prefix)) for prefix in ("_log/segments/", "_log/parts/", "_log/checkpoints/")) > 0
    assert max(places("_log/segments/") + places("_log/stats/")) < min(places("_log/parts/"))
    assert max(places("_log/parts/")) < min(places("_log/checkpoints/"))
    assert max(places("_log/checkpoints/")) < first_slot
    assert max(places("pages/")) < first_slot


def test_a_plan_reads_kept_commits_out_of_compacted_ranges():
    past = new_past()
    past.append("small", 1, rows=1)
    past.store.checkpoint()
    for start in range(100):
        with past.store.transaction() as txn:
            txn.append("small", numbers(start, rows=1))
    past.store.compact_log()
    past.append("small", 2, rows=1)
    slots_read: list[str] = []

    def note(number, kind, key):
        if kind == "get" and len(key) == len(commit_key(0)):
            slots_read.append(key)

    watched = WatchedStore(past.object_store)
    store = opened(watched)
    store.snapshot()
    watched.watch = note

    store.vacuum_plan(retention=90)

    assert len(slots_read) < 40
