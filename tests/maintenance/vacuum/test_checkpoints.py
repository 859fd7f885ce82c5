"""Checkpoints and vacuum at the same time: what a new one shares with an old one is never deleted."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from spark_pages.errors import DamageError
from spark_pages.format.commit import decode_slot
from spark_pages.format.names import HINT_KEY, commit_key
from spark_pages.format.segment import checkpoint_of
from spark_pages.log.checkpoint.reader import TreeReader
from spark_pages.log.discovery import base_state
from spark_pages.log.last_checkpoint import read_hint
from spark_pages.log.latest import LatestSnapshot
from spark_pages.model.actions import Retention
from tests.invariants import check_nothing_needed_is_gone, check_versions_stay, rows_of
from tests.maintenance.vacuum.stores import WatchedStore, new_past, numbers, opened


def header_of(past, version):
    return decode_slot(past.object_store.get(commit_key(version)), "slot").checkpoint


def small_append(store, start):
    with store.transaction() as txn:
        txn.append("small", numbers(start, rows=1))


@pytest.mark.parametrize("seen", [False, True], ids=["unnoticed", "noticed by another thread"])
def test_a_checkpoint_that_vacuum_overtook_is_named_by_nobody_and_read_by_nobody(seen):
    past = new_past()
    for start in range(3):
        past.append("large", start)
    past.store.checkpoint()
    past.append("large", 3)
    other = opened(past.object_store)
    other.snapshot()

    def overtake(number, kind, key):
        if kind == "put" and key.startswith("_log/checkpoints/"):
            slow.watch = lambda *_: None
            for start in range(4, 8):
                with other.transaction() as txn:
                    txn.append("large", numbers(start, rows=50_000))
                other.checkpoint()
            small_append(other, 8)
            other.vacuum(retention=1)
            other.vacuum(retention=1)
            if seen:
                writer.snapshot()

    slow = WatchedStore(past.object_store, overtake)
    writer = opened(slow)
    overtaken = writer.checkpoint()
    small_append(writer, 9)

    head = writer.snapshot().version
    assert (read_hint(past.object_store) == overtaken) is not seen  # what it leaves for those who come
    assert header_of(past, head) != overtaken
    assert rows_of(opened(past.object_store)) == rows_of(other)
    check_nothing_needed_is_gone(past.object_store)


def test_a_checkpoint_is_built_on_the_newest_one_that_the_log_names():
    past = new_past()
    past.append("large", 1)
    named = past.store.checkpoint()
    past.append("large", 2)
    unaware = opened(past.object_store)
    unaware.snapshot()
    aware = opened(past.object_store)
    unnamed = aware.checkpoint()
    small_append(unaware, 3)
    newcomer = opened(past.object_store)
    assert newcomer.snapshot().log.state.base == unnamed

    made = newcomer.checkpoint()

    root = newcomer.snapshot().log.checkpoint.root
    assert header_of(past, newcomer.snapshot().version) == named
    assert made.version == newcomer.snapshot().version
    assert root.predecessors[0][1] == named
    past.note()
    check_versions_stay(past.object_store, past.history)


def test_a_checkpoint_shares_nothing_with_one_that_nobody_names_though_nothing_else_is_named():
    past = new_past()
    unaware = opened(past.object_store)
    unaware.snapshot()
    aware = opened(past.object_store)
    unnamed = aware.checkpoint()
    small_append(unaware, 1)

    made = aware.checkpoint()

    assert header_of(past, unaware.snapshot().version) is None
    assert aware.snapshot().log.checkpoint.root.predecessors == ()
    past.note()
    unaware.vacuum(retention=1, orphans=True)
    there = {info.key for info in past.object_store.list("_log/checkpoints/")}
    assert unnamed.location.key not in there
    assert made.location.key in there
    assert rows_of(aware) == rows_of(opened(past.object_store))
    aware.restore(version=past.store.snapshot().version)
    check_versions_stay(past.object_store, past.history)
    check_nothing_needed_is_gone(past.object_store)


def test_objects_of_a_checkpoint_say_for_which_one_they_were_written():
    past = new_past()
    past.append("large", 1)
    past.store.checkpoint()
    first = {info.key for info in past.object_store.list("_log/") if info.key.count("/") == 2}
    past.append("large", 2)
    past.store.checkpoint()
    second = {info.key for info in past.object_store.list("_log/") if info.key.count("/") == 2} - first

    def said(keys):
        return {checkpoint_of(past.object_store.get(key)) for key in keys if "checkpoints" not in key}

    assert said(first) == {2}
    assert said(second) == {3}


def test_two_checkpoints_give_equal_contents_different_names():
    past = new_past()
    same = pa.table({"x": pa.array([7] * 10, pa.int64())})
    stats = set()
    for _ in range(3):
        with past.store.transaction() as txn:
            txn.create_table(f"t{len(stats)}", same.schema)
            txn.append(f"t{len(stats)}", same)
        past.store.checkpoint()
        new = {info.key for info in past.object_store.list("_log/stats/")} - stats
        assert new
        stats |= new


def test_a_version_older_than_the_newest_checkpoint_is_read_from_the_one_that_vacuum_wrote_for_it():
    past = new_past()
    for start in range(4):
        past.append("large", start)
    version = past.note()
    past.append("large", 5)
    past.append("small", 1, rows=1)
    past.store.checkpoint()
    past.append("small", 2, rows=1)

    past.store.vacuum(retention=1 + past.note() - version)

    assert past.store.snapshot().log.state.retention.min_readable == version
    assert past.store.snapshot().log.state.retention.checkpoint.version == version
    past.note()
    check_versions_stay(past.object_store, past.history)


def test_a_process_does_not_change_over_to_a_checkpoint_that_vacuum_has_passed():
    past = new_past()
    named = past.store.checkpoint()
    past.append("small", 1, rows=1)
    overtaken = past.store.checkpoint()
    tree = TreeReader(past.object_store)
    standing = replace(
        base_state(tree, named),
        version=overtaken.version + 2,
        named_checkpoint=named,
        retention=Retention(overtaken.version + 1, overtaken.version + 1),
    )
    newest = LatestSnapshot(tree)
    newest.advance(standing)

    newest.rebase_on_checkpoint(overtaken)

    assert newest.snapshot.state.base == newest.snapshot.state.newest_checkpoint == named


@pytest.mark.parametrize("is_cut", [False, True], ids=["gone", "cut short"])
def test_that_the_checkpoint_is_lost_where_the_log_begins_is_damage_that_names_it(is_cut):
    past = new_past()
    past.append("large", 1)
    past.store.checkpoint()
    past.append("small", 2, rows=1)
    past.store.vacuum(retention=1)
    key = past.store.snapshot().log.state.retention.checkpoint.location.key
    for lost in past.object_store.list("_log/checkpoints/"):
        if is_cut:
            past.object_store.put(lost.key, past.object_store.get(lost.key)[:-7])
        else:
            past.object_store.delete(lost.key)
    past.object_store.delete(HINT_KEY)

    with pytest.raises(DamageError, match="repair") as told:
        opened(past.object_store).snapshot()

    assert told.value.context["key"] == key
