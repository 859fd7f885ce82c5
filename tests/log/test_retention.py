"""The rules of retention, on values alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from spark_pages.errors import DamageError, InvalidInputError
from spark_pages.log.commit.conflict import find_overlap
from spark_pages.log.replay import replay
from spark_pages.log.retention import RetentionPolicy, further, oldest_to_keep, retention_policy, usable
from spark_pages.log.state import LogState
from spark_pages.model.actions import CheckpointRef, Lease, Retention, Tag
from spark_pages.model.location import Location
from tests.log.records import commit, record

FIRST = commit(0, record(1))


def ref(version: int) -> CheckpointRef:
    return CheckpointRef(version, Location(f"checkpoint {version}", 1, "d"))


def after(*records, checkpoints=()):
    """The state after a commit for each record, the i-th of which names the i-th checkpoint."""
    state, parent = LogState(), None
    for version, each in enumerate(records):
        named = checkpoints[version] if version < len(checkpoints) else None
        parent = commit(version, each, parent=parent, checkpoint=named)
        state = replay(state, [parent], lambda _: pytest.fail("no manifest"))
    return state


@pytest.mark.parametrize(
    ("asked", "properties", "keep"),
    [
        (None, {}, RetentionPolicy(age_us=7 * 86_400_000_000)),
        (3, {"retention_versions": "9"}, RetentionPolicy(versions=3)),
        (timedelta(hours=1), {"retention_seconds": "9"}, RetentionPolicy(age_us=3_600_000_000)),
        (None, {"retention_versions": "9"}, RetentionPolicy(versions=9)),
        (None, {"retention_versions": "9", "retention_seconds": "5"}, RetentionPolicy(9, 5_000_000)),
    ],
)
def test_the_caller_says_what_is_kept_else_the_store_else_it_is_seven_days(asked, properties, keep):
    assert retention_policy(asked, properties) == keep


def test_a_property_that_is_no_number_is_refused():
    with pytest.raises(InvalidInputError, match="retention_seconds"):
        retention_policy(None, {"retention_seconds": "a week"})


@pytest.mark.parametrize(
    ("wanted", "oldest"),
    [(9, 5), (4, 4), (1, 3)],
)
def test_the_oldest_version_never_passes_a_tag_or_lease_and_never_moves_back(wanted, oldest):
    state = replace(
        LogState(),
        version=10,
        tags={"t": 6},
        leases={"a": Lease("a", 5, 200), "over": Lease("over", 3, 99)},
        retention=Retention(3, 3),
    )

    assert oldest_to_keep(state, wanted, now_us=100) == oldest


def test_bounds_never_move_back_and_the_further_one_brings_its_checkpoint():
    near, far = Retention(2, 2, ref(2)), Retention(5, 5, ref(5))

    assert further(near, far) == further(far, near) == far
    assert further(None, near) == near


def test_replay_keeps_the_further_bounds_though_a_later_commit_says_less():
    state = after(
        record(1), record(2), record(3, retention=Retention(2, 2)), record(4, retention=Retention(1, 1))
    )

    assert state.retention == Retention(2, 2)


@pytest.mark.parametrize(
    ("held", "what"),
    [
        ({"tags": (Tag("t", 0),)}, "the tag 't' holds version 0"),
        ({"leases": (Lease("l", 0, 10_000),)}, "lease l holds version 0"),
    ],
)
def test_a_log_whose_retention_passes_what_is_held_is_damaged(held, what):
    with pytest.raises(DamageError, match=what):
        after(record(1), record(2, **held), record(3, retention=Retention(1, 1)))


def test_a_retention_may_pass_a_lease_that_was_over_when_it_was_committed():
    over = Lease("l", 0, 1_001)

    state = after(record(1), record(2, leases=(over,)), record(3, retention=Retention(1, 1)))

    assert state.retention == Retention(1, 1)


@pytest.mark.parametrize(
    "held",
    [{"tags": (Tag("t", 3),)}, {"leases": (Lease("l", 3, 99),)}],
    ids=["tag", "lease"],
)
def test_a_tag_or_lease_and_a_retention_that_passes_it_exclude_each_other(held):
    holds, ends = record(1, **held), record(2, retention=Retention(4, 4))

    assert "cannot be read any more" in find_overlap(holds, 7, [ends]).what
    assert "cannot be read any more" in find_overlap(ends, 7, [holds]).what


@pytest.mark.parametrize(
    "held",
    [{"tags": (Tag("t", 4), Tag("u", None))}, {"leases": (Lease("l", 4, 99), Lease("m", 1, 0))}],
    ids=["tag", "lease"],
)
def test_what_holds_a_kept_version_or_holds_none_any_more_excludes_nothing(held):
    holds, ends = record(1, **held), record(2, retention=Retention(4, 4))

    assert find_overlap(holds, 7, [ends]) is None
    assert find_overlap(ends, 7, [holds]) is None


def test_a_checkpoint_is_used_if_it_is_named_or_younger_than_any_writer_that_was_refused():
    retention = Retention(5, 5)

    assert usable(ref(3), ref(3), retention)
    assert usable(ref(5), ref(3), retention)
    assert not usable(ref(4), ref(3), retention)
    assert not usable(None, ref(3), retention)
    assert usable(ref(4), ref(3), None)


def test_replaying_a_retention_forgets_a_checkpoint_that_nobody_has_named():
    state = after(record(1), record(2), record(3), checkpoints=(None, None, ref(1)))
    state = replace(state, newest_checkpoint=ref(2))
    before = commit(2, record(3), parent=commit(1, record(2), parent=FIRST), checkpoint=ref(1))

    ended = commit(3, record(4, retention=Retention(3, 3)), parent=before, checkpoint=ref(1))
    ended = replace(ended, parent_digest=state.digest)

    assert replay(state, [ended], lambda _: None).newest_checkpoint == ref(1)


def test_the_checkpoint_of_a_retention_is_named_by_it():
    state = after(record(1), record(2), record(3, retention=Retention(1, 1, ref(1))))

    assert state.named_checkpoint == state.newest_checkpoint == ref(1)
