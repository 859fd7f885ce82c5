"""A member of a group commit that cannot be built, encoded or applied is refused alone; the others land."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_pages.errors import InvalidInputError
from spark_pages.format import commit
from spark_pages.log.commit import protocol
from spark_pages.log.commit.protocol_types import Committed, Deferred, GroupMember, Refused
from spark_pages.log.state import LogState
from tests.effort import examples
from tests.io.strategies import steady
from tests.log.records import record, swap
from tests.log.test_commit_protocol import APPEND, Group, kinds, member


def cannot_be_built(state: LogState) -> Any:
    raise ZeroDivisionError("a fault of ours")


BAD = {
    "a number beyond 63 bits": lambda n: member(n, **APPEND, app_id="a", app_version=1 << 70),
    "a lone surrogate": lambda n: member(n, **APPEND, operation="\ud800"),
    "a surrogate in a parameter": lambda n: member(n, **APPEND, parameters={"a": "\udfff"}),
    "a parameter of another type": lambda n: member(n, **APPEND, parameters={"a": 7}),
    "a writer of another type": lambda n: member(n, **APPEND, writer=b"bytes"),
    "a build that raises": lambda _: GroupMember(0, cannot_be_built),
    "pages that are not there": lambda n: member(n, counts=(5,), splices=(swap(1, 1, (7,), 5, 5),)),
}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("place", range(3))
def test_a_bad_member_is_refused_and_the_others_land(bad, place):
    members = [member(11, **APPEND), member(12, **APPEND)]
    members.insert(place, BAD[bad](13))
    expected = ["Committed", "Committed"]
    expected.insert(place, "Refused")

    group = Group(members)

    assert kinds(group) == expected
    assert len(group.slots[1].records) == 2


@settings(steady, max_examples=examples(40))
@given(st.lists(st.sampled_from(["good", *BAD]), min_size=1, max_size=6))
def test_any_mix_of_members_commits_the_good_ones(mix):
    makers = {"good": lambda n: member(n, **APPEND), **BAD}

    group = Group([makers[kind](20 + number) for number, kind in enumerate(mix)])

    assert [kind == "good" for kind in mix] == [isinstance(o, Committed) for o in group.outcomes]
    assert all(isinstance(o, Committed | Refused) for o in group.outcomes)


def test_values_that_the_log_cannot_hold_are_told_without_a_foreign_error():
    group = Group([BAD["a number beyond 63 bits"](11)])

    assert isinstance(group.outcomes[0].error, InvalidInputError)
    assert str(group.outcomes[0].error).startswith("Cannot commit the transaction: the log cannot hold")


@pytest.fixture
def small_commits(monkeypatch):
    monkeypatch.setattr(commit, "MAX_COMMIT_BYTES", 40_000)
    monkeypatch.setattr(protocol, "GROUP_BYTES", 4_000)


def large(number: int) -> GroupMember:
    return member(number, **APPEND, operation="x" * 50_000)


def test_a_member_too_large_for_any_commit_is_refused_where_it_is_first(small_commits):
    group = Group([large(11), member(12, **APPEND)])

    assert kinds(group) == ["Refused", "Deferred"]
    assert "a commit holds at most 40000" in str(group.outcomes[0].error)


def test_a_member_too_large_for_the_group_waits_for_a_commit_of_its_own(small_commits):
    group = Group([member(11, **APPEND), large(12), member(13, **APPEND)])

    assert kinds(group) == ["Committed", "Deferred", "Committed"]


def test_members_share_a_commit_as_far_as_there_is_room(small_commits):
    members = [member(number, **APPEND, operation="x" * 1_500) for number in range(11, 15)]

    group = Group(members)

    assert kinds(group) == ["Committed", "Committed", "Deferred", "Deferred"]
    assert isinstance(group.outcomes[2], Deferred)


def test_a_record_is_encoded_once_for_each_try(monkeypatch):
    encoded = []
    of = commit.EncodedTransaction.of
    monkeypatch.setattr(commit.EncodedTransaction, "of", lambda r: (encoded.append(r.token), of(r))[1])

    Group([member(11, **APPEND), member(12, **APPEND)])

    assert encoded == [record(11).token, record(12).token]
