"""Vacuums that plan one oldest version on different checkpoints, and what is told where a version is lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_pages.errors import CommitConflictError, DamageError, StorageError
from spark_pages.format.commit import encode_tombstone
from spark_pages.format.names import commit_key
from spark_pages.log.log import Log
from spark_pages.log.retention import covers, further
from spark_pages.log.vacuum import planner
from spark_pages.model.actions import COMMITTED, CheckpointRef, Retention, Tombstone
from spark_pages.model.location import Location
from tests.invariants import check_versions_stay, rows_of
from tests.maintenance.vacuum.stores import Past, new_past, opened

OLD = timedelta(days=1)


@pytest.fixture
def past() -> Past:
    """A checkpoint of version 2, and four versions after it."""
    past = new_past()
    past.append("small", 1, rows=2)
    past.store.checkpoint()
    for start in range(4):
        past.append("small", start, rows=2)
    return past


@contextmanager
def no_checkpoints() -> Iterator[None]:
    """Storage refuses every new checkpoint."""
    error = StorageError("Cannot write the checkpoint: the disk is full.")
    with (
        patch.object(Log, "checkpoint", side_effect=error),
        patch.object(planner, "write_checkpoint", side_effect=error),
    ):
        yield


def bury(past: Past, version: int) -> None:
    """Overwrite a slot by a tombstone, as a faulty vacuum did."""
    commit = past.store._log.commits(version, version + 1)[0]
    transactions = tuple((record.token, COMMITTED) for record in commit.records)
    ref = past.store.snapshot().log.state.newest_checkpoint
    tombstone = Tombstone(version, commit.timestamp_us, commit.token, commit.digest, transactions, ref)
    past.object_store.put(commit_key(version), encode_tombstone(tombstone)[0])


def test_a_plan_with_a_newer_checkpoint_than_the_recorded_one_records_its_own(past: Past):
    head = past.store.snapshot().version
    second = opened(past.object_store)
    plan = second.vacuum_plan(retention=1)  # reads the oldest version from a checkpoint of its own
    past.store.tag("kept", version=head)
    with no_checkpoints():
        first = past.store.vacuum_plan(retention=2).execute()  # the same oldest version, an older checkpoint

    second_done = plan.execute()

    assert first.oldest == second_done.oldest == head
    assert second_done.version is not None
    check_versions_stay(past.object_store, past.history)
    assert opened(past.object_store).verify(pages="all").ok


def test_a_vacuum_after_one_whose_checkpoint_failed_keeps_the_oldest_version_readable(past: Past):
    head = past.store.tag("kept")
    past.append("small", 9, rows=1)
    with no_checkpoints():
        past.store.vacuum(retention=1)
    other = opened(past.object_store)
    other.snapshot()

    past.store.vacuum_plan(retention=1).execute()

    other.checkpoint()  # knows nothing of the checkpoint that the plan made, and leads past it
    assert opened(past.object_store).snapshot(tag="kept").version == head
    check_versions_stay(past.object_store, past.history)


def test_a_plan_that_would_read_its_oldest_version_from_an_older_checkpoint_is_made_again(past: Past):
    with no_checkpoints():
        late = opened(past.object_store).vacuum_plan(retention=1)
    past.store.vacuum_plan(retention=2).execute()  # gives up less, on a newer checkpoint
    before = sorted(info.key for info in past.object_store.list(""))

    with pytest.raises(CommitConflictError, match="Cannot vacuum versions before 6: another vacuum"):
        late.execute()

    assert sorted(info.key for info in past.object_store.list("")) == before
    opened(past.object_store).vacuum(retention=1)
    check_versions_stay(past.object_store, past.history)


def test_a_plan_on_a_checkpoint_that_may_be_gone_is_made_again(past: Past):
    late = opened(past.object_store).vacuum_plan(retention=3)
    with no_checkpoints():
        past.store.vacuum_plan(retention=1).execute()  # gives up more, on an older checkpoint

    with pytest.raises(CommitConflictError, match="Cannot vacuum versions before 4: another vacuum"):
        late.execute()

    check_versions_stay(past.object_store, past.history)


@pytest.mark.parametrize("keep", ["tag", "lease", "retention"])
def test_verify_names_a_kept_version_that_cannot_be_read(past: Past, keep: str):
    lost = {"tag": 5, "lease": 5, "retention": 4}[keep]
    if keep == "tag":
        past.store.tag("kept", version=5)
    if keep == "lease":
        past.store.snapshot(version=5).lease(timedelta(hours=1))
    with no_checkpoints():
        past.store.vacuum(retention=past.store.snapshot().version - 3)
    past.store.checkpoint()
    bury(past, 3)

    found = opened(past.object_store).verify()

    assert not found.ok
    named = {"tag": "tag 'kept'", "lease": "lease ", "retention": "the oldest version"}[keep]
    assert any(f"Cannot open version {lost} ({named}" in fault.what for fault in found.damage), found


def test_a_version_that_cannot_be_read_is_not_tagged(past: Past):
    with no_checkpoints():
        past.store.vacuum(retention=past.store.snapshot().version - 3)
    past.store.checkpoint()
    bury(past, 3)

    with pytest.raises(DamageError, match="Cannot tag version 5 as 'late': the version cannot be read"):
        opened(past.object_store).tag("late", version=5)

    assert opened(past.object_store).tags() == {}
    assert rows_of(past.store) == past.history[max(past.history)]


def checkpoint(version: int) -> CheckpointRef:
    return CheckpointRef(version, Location(f"checkpoint {version}", 1, "d"))


RECORDS = st.integers(0, 9).flatmap(
    lambda oldest: st.builds(
        Retention,
        st.integers(0, oldest),
        st.just(oldest),
        st.none() | st.integers(0, oldest).map(checkpoint),
    )
)


@given(RECORDS, RECORDS)
def test_two_records_together_never_move_anything_back(one: Retention, two: Retention):
    both = further(one, two)

    assert both == further(two, one)
    assert covers(both, one)
    assert covers(both, two)
    assert both.checkpoint is None or both.checkpoint.version <= both.min_readable


@given(RECORDS, RECORDS)
def test_a_record_that_covers_a_plan_changes_nothing_by_it(recorded: Retention, plan: Retention):
    assert covers(recorded, plan) == (further(recorded, plan) == recorded)
