"""The commit rule driven by hand: requests come out, answers go in, and no storage is there."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from spark_pages.errors import InvalidInputError
from spark_pages.format.commit import EncodedTransaction, decode_slot
from spark_pages.format.names import commit_key
from spark_pages.log.commit import protocol as commit_protocol_module
from spark_pages.log.commit.protocol import commit_protocol
from spark_pages.log.commit.protocol_types import (
    Committed,
    Conflict,
    CreateSlot,
    Deferred,
    Duplicate,
    EncodedRecord,
    GroupMember,
    ReadFailed,
    ReadSlot,
    ReadSlots,
    Refused,
    Unknown,
    Wait,
    Yield,
)
from spark_pages.log.fairness import NOBODY
from spark_pages.log.replay import replay
from spark_pages.log.state import LogState
from spark_pages.model.actions import CheckpointRef, ManifestRef, Retention, Tombstone
from spark_pages.model.location import Location
from spark_pages.storage.store import Created, Doubtful, Exists, NotCreated
from tests.log.records import append, commit, create, record, swap, token

MINE = token(77)
FIRST = commit(0, record(1, intents=(create(1, "x"),)))
BASE = replay(LogState(), [FIRST], lambda _: None)
APPEND = {"counts": (4,), "splices": (append(1, 1, 0, 4),)}
PAGE_7 = {"counts": (5,), "splices": (replace(swap(1, 1, (7,), 5, 5), stop=1),)}
DOUBT = Doubtful("the connection broke")
REF = CheckpointRef(1, Location("k", 1, "d"))


class Driver:
    """Plays storage: `answer` hands in one answer and keeps the next request, or the outcome."""

    def __init__(self, now_us: int = 5, **record_of_mine: Any) -> None:
        self.built: list[LogState] = []

        def build(state: LogState) -> Any:
            self.built.append(state)
            return record(9, **record_of_mine)

        self.protocol = commit_protocol(
            BASE,
            [GroupMember(0, build)],
            new_token=lambda: MINE,
            now_us=lambda: now_us,
            load_manifest=lambda _: None,
        )
        self.outcome: Any = None
        self.request: Any = next(self.protocol)
        self.first = self.request

    def answer(self, response: Any) -> Any:
        try:
            self.request = self.protocol.send(response)
        except StopIteration as stop:
            self.request, (self.outcome,) = None, stop.value
        return self.request

    def own(self) -> Any:
        """My commit as the slot would give it."""
        return decode_slot(self.first.data, "slot")


def test_created_means_committed_after_one_request():
    driver = Driver(**APPEND)
    assert driver.request.key == commit_key(1)

    driver.answer(Created())

    assert isinstance(driver.outcome, Committed)
    assert (driver.outcome.version, driver.outcome.tries) == (1, 1)
    assert driver.outcome.state.digest == driver.own().digest
    assert driver.own().parent_digest == FIRST.digest


@pytest.mark.parametrize(("now_us", "expected"), [(5, 1_001), (1_000, 1_001), (5_000, 5_000)])
def test_commit_times_rise_whatever_the_clock_says(now_us, expected):
    assert Driver(now_us, **APPEND).own().timestamp_us == expected


def test_exists_with_my_token_means_that_an_earlier_try_had_landed():
    driver = Driver(**APPEND)

    assert driver.answer(Exists()) == ReadSlot(1)
    driver.answer(driver.own())

    assert isinstance(driver.outcome, Committed)


def test_doubt_about_an_empty_slot_puts_the_same_bytes_there_again():
    driver = Driver(**APPEND)

    assert driver.answer(DOUBT) == ReadSlot(1)
    assert driver.answer(None) == Wait(1)
    assert driver.answer(True) == driver.first
    driver.answer(Created())

    assert isinstance(driver.outcome, Committed)
    assert len(driver.built) == 1


def test_doubt_with_my_token_asks_again_until_storage_says_that_it_is_there():
    driver = Driver(**APPEND)

    for attempt in (1, 2):
        assert driver.answer(DOUBT) == ReadSlot(1)
        assert driver.answer(driver.own()) == Wait(attempt)
        assert driver.answer(True) == driver.first
    driver.answer(Exists())
    driver.answer(driver.own())

    assert isinstance(driver.outcome, Committed)


def test_what_was_surely_not_created_is_an_error_at_once():
    driver = Driver(**APPEND)

    driver.answer(NotCreated("The disk is full (ENOSPC)."))

    assert isinstance(driver.outcome, Refused)
    assert "ENOSPC" in str(driver.outcome.error)


def test_not_created_after_a_try_in_doubt_says_nothing_of_that_try():
    driver = Driver(**APPEND)

    driver.answer(DOUBT)
    driver.answer(None)
    assert driver.answer(True) == driver.first

    assert driver.answer(NotCreated("The disk is full (ENOSPC).")) == ReadSlot(1)
    driver.answer(driver.own())
    driver.answer(True)
    driver.answer(Exists())
    driver.answer(driver.own())
    assert isinstance(driver.outcome, Committed)


def test_exists_for_a_slot_that_is_empty_tries_the_same_slot_again():
    driver = Driver(**APPEND)

    driver.answer(Exists())
    assert driver.answer(None) == Wait(1)

    assert driver.answer(True) == driver.first


def test_a_slot_that_cannot_be_read_is_tried_again():
    driver = Driver(**APPEND)

    driver.answer(DOUBT)
    assert driver.answer(ReadFailed("no route")) == Wait(1)

    assert driver.answer(True) == driver.first


@pytest.mark.parametrize("answer", [DOUBT, Exists()])
def test_the_commit_of_another_is_rebased_on_and_the_next_slot_tried(answer):
    other = commit(1, record(2, **APPEND), parent=FIRST)
    driver = Driver(**APPEND)

    driver.answer(answer)
    assert driver.answer(other) == Wait(1, lost=True)
    again = driver.answer(True)
    mine = decode_slot(again.data, "slot")
    driver.answer(Created())

    assert isinstance(again, CreateSlot)
    assert again.key == commit_key(2)
    assert (mine.version, mine.parent_digest, mine.token) == (2, other.digest, MINE)
    assert mine.timestamp_us > other.timestamp_us
    assert [state.version for state in driver.built] == [0, 1]
    assert isinstance(driver.outcome, Committed)
    assert (driver.outcome.version, driver.outcome.tries) == (2, 2)


def test_a_conflict_is_an_outcome_that_names_the_commit_in_the_way():
    driver = Driver(**PAGE_7)

    driver.answer(Exists())
    driver.answer(commit(1, record(2, **PAGE_7), parent=FIRST))

    assert isinstance(driver.outcome, Conflict)
    assert driver.outcome.overlap.version == 1


@pytest.mark.parametrize(
    ("transactions", "expected"), [((), Conflict), (((token(9), "committed"),), Committed)]
)
def test_a_tombstone_tells_by_its_tokens_whether_mine_had_landed(transactions, expected):
    driver = Driver(**APPEND)

    driver.answer(DOUBT)
    driver.answer(Tombstone(1, 5, token(4), "d", transactions, REF))

    assert isinstance(driver.outcome, expected)


@pytest.mark.parametrize(
    ("answer", "found", "reason"),
    [
        (DOUBT, None, "the slot stayed empty: the connection broke"),
        (Exists(), None, "the slot stayed empty: storage says that it is taken"),
        (DOUBT, ReadFailed("no route"), "no route"),
        (DOUBT, "own", "the commit is there, .* that it is durable: the connection broke"),
    ],
)
def test_no_clear_answer_before_the_deadline_is_unknown_and_keeps_what_is_needed_to_resume(
    answer, found, reason
):
    driver = Driver(**APPEND)

    driver.answer(answer)
    driver.answer(driver.own() if found == "own" else found)
    driver.answer(False)

    assert isinstance(driver.outcome, Unknown)
    assert (driver.outcome.version, driver.outcome.token) == (1, MINE)
    assert driver.outcome.data == driver.first.data
    assert re.fullmatch(reason, driver.outcome.reason)


def test_no_time_left_after_a_rebase_is_a_conflict_because_nothing_was_put():
    driver = Driver(**APPEND)

    driver.answer(Exists())
    driver.answer(commit(1, record(2, **APPEND), parent=FIRST))
    driver.answer(False)

    assert isinstance(driver.outcome, Conflict)
    assert driver.outcome.overlap is None


# several transactions in one commit


class Group:
    """Plays storage for several members; `landed` are the commits that storage holds from slot 1 on."""

    writer = "someone"

    def __init__(self, members: list[GroupMember], state: LogState = BASE, landed: list[Any] = ()) -> None:
        self.slots = {slot.version: slot for slot in landed}
        self.requests: list[Any] = []
        self.told: list[Any] = []
        protocol = commit_protocol(
            state,
            members,
            new_token=lambda: MINE,
            now_us=lambda: 5,
            load_manifest=lambda _: None,
            writer=self.writer,
            if_stopped=self.told.append,
        )
        response: Any = None
        try:
            while True:
                request = protocol.send(response)
                self.requests.append(request)
                response = self.respond(request)
        except StopIteration as stop:
            self.outcomes = stop.value

    def respond(self, request: Any) -> Any:
        match request:
            case CreateSlot(key, data):
                slot = decode_slot(data, key)
                if slot.version in self.slots:
                    return Exists()
                self.slots[slot.version] = slot
                return Created()
            case ReadSlot(version):
                return self.slots.get(version)
            case ReadSlots(start, stop):
                return [self.slots[version] for version in range(start, stop)]
            case Yield(start):
                return [slot for version, slot in sorted(self.slots.items()) if version >= start]
            case Wait():
                return True


def member(number: int, read_version: int = 0, reads: Any = (), **given: Any) -> GroupMember:
    return GroupMember(
        read_version,
        lambda _: record(number, **{"read_version": read_version, **given}),
        frozenset(reads),
    )


def kinds(group: Group) -> list[str]:
    return [type(outcome).__name__ for outcome in group.outcomes]


def test_a_group_is_one_commit_with_a_record_for_each_and_ordinals_that_follow_on():
    group = Group([member(11, **APPEND), member(12, **APPEND), member(13, **APPEND)])

    landed = group.slots[1]

    assert kinds(group) == ["Committed"] * 3
    assert [r.token for r in landed.records] == [token(11), token(12), token(13)]
    assert [r.base_ordinal for r in landed.records] == [0, 1, 2]
    assert len(group.requests) == 1
    assert replay(BASE, [landed], lambda _: None).tokens.keys() >= {token(11), token(12), token(13)}


def ready(number: int, asked: list[LogState], since: int) -> GroupMember:
    """A member whose record is known, and who notes on which states it is asked for it none the less."""
    says = record(number, read_version=0, **APPEND)

    def build(state: LogState) -> Any:
        asked.append(state)
        return replace(says, parameters={"asked": "yes"})

    return GroupMember(0, build, ready=EncodedRecord(says, EncodedTransaction.of(says), since))


def test_a_record_that_was_ready_is_committed_behind_the_pages_of_others_and_nobody_is_asked_for_it():
    asked: list[LogState] = []

    group = Group([member(11, **APPEND), ready(12, asked, since=0), ready(13, asked, since=0)])

    assert kinds(group) == ["Committed"] * 3
    assert [r.base_ordinal for r in group.slots[1].records] == [0, 1, 2]
    assert [r.token for r in group.slots[1].records] == [token(11), token(12), token(13)]
    assert asked == []


def test_a_record_that_was_ready_before_the_catalog_changed_is_asked_for_on_what_is_there_now():
    asked: list[LogState] = []
    renamed = commit(1, record(2, intents=(create(2, "y"),)), parent=FIRST)

    group = Group([ready(12, asked, since=0), ready(13, asked, since=0)], BASE, [renamed])

    assert kinds(group) == ["Committed", "Committed"]
    assert [r.parameters for r in group.slots[2].records] == [{"asked": "yes"}] * 2
    assert {state.catalog_version for state in asked} == {1}


def test_should_the_thread_be_stopped_only_those_in_the_commit_that_was_put_are_in_doubt():
    group = Group([member(11, **PAGE_7), member(12, **PAGE_7), member(13, **APPEND)])

    (told,) = group.told

    assert [type(outcome) for outcome in told] == [Unknown, Deferred, Unknown]
    assert told[0] == told[2]
    assert (told[0].version, told[0].token, told[0].data) == (1, MINE, group.requests[0].data)


def test_manifests_get_ordinals_behind_the_pages_of_the_members_before():
    manifest = ManifestRef(Location("m", 1, "d"), 1, 50)
    group = Group([member(11, **APPEND, manifests=(manifest,)), member(12, **APPEND, manifests=(manifest,))])

    first, second = group.slots[1].records

    assert (first.base_ordinal, first.manifests[0].base_ordinal) == (0, 1)
    assert (second.base_ordinal, second.manifests[0].base_ordinal) == (51, 52)


def test_a_member_that_overlaps_with_one_before_it_is_put_off_and_then_conflicts_with_what_landed():
    group = Group([member(11, **PAGE_7), member(12, **APPEND), member(13, **PAGE_7)])
    landed = group.slots[1]
    again = Group([member(13, **PAGE_7)], replay(BASE, [landed], lambda _: None), [landed])

    assert kinds(group) == ["Committed", "Committed", "Deferred"]
    assert [r.token for r in landed.records] == [token(11), token(12)]
    assert kinds(again) == ["Conflict"]
    assert again.requests == [ReadSlots(1, 2)]


def test_members_that_read_different_versions_are_each_checked_against_what_landed_since():
    second = commit(1, record(2, **PAGE_7), parent=FIRST)
    state = replay(BASE, [second], lambda _: None)

    members = [member(11, 1, **PAGE_7), member(12, 0, **APPEND), member(13, 0, **PAGE_7)]
    group = Group(members, state, [second])

    assert kinds(group) == ["Committed", "Committed", "Conflict"]
    assert group.outcomes[2].overlap.version == 1


def test_a_member_that_was_compared_with_what_landed_is_compared_with_what_came_later_alone():
    slots = [commit(1, record(2, **PAGE_7), parent=FIRST)]
    slots.append(commit(2, record(3, **PAGE_7), parent=slots[0]))
    state = replay(BASE, slots, lambda _: None)
    compared = [replace(member(number, 0, **PAGE_7), compared=number - 11) for number in (11, 12, 13)]

    group = Group(compared, state, slots)

    assert kinds(group) == ["Conflict", "Conflict", "Committed"]
    assert [outcome.overlap.version for outcome in group.outcomes[:2]] == [1, 2]
    assert group.slots[3].records[0].read_version == 0


def test_what_a_member_says_for_the_check_of_conflicts_is_what_it_commits_unless_others_come_between():
    second = commit(1, record(2, **APPEND), parent=FIRST)
    third = commit(2, record(3, **APPEND), parent=second)
    state = replay(BASE, [second], lambda _: None)
    asked: dict[int, list[LogState]] = {11: [], 12: []}

    def says(number: int) -> GroupMember:
        def build(on: LogState) -> Any:
            asked[number].append(on)
            return record(number, **APPEND)

        return GroupMember(0, build)

    alone = Group([says(11)], state, [second])
    raced = Group([says(12)], state, [second, third])

    assert kinds(alone) == kinds(raced) == ["Committed"]
    assert asked[11] == [state]
    assert asked[11][0] is state
    assert [on.version for on in asked[12]] == [1, 2]


def test_after_a_lost_slot_each_member_is_checked_and_the_others_go_on():
    other = commit(1, record(2, **PAGE_7), parent=FIRST)

    group = Group([member(11, **PAGE_7), member(12, **APPEND)], BASE, [other])

    assert kinds(group) == ["Conflict", "Committed"]
    assert [r.token for r in group.slots[2].records] == [token(12)]
    assert group.outcomes[1].version == 2


def test_writers_whose_turn_it_is_are_let_in_and_what_they_commit_is_read_at_once():
    landed = [FIRST]
    for version in range(1, 9):
        others = replace(record(20 + version, **APPEND), writer="another")
        landed.append(commit(version, others, parent=landed[-1]))

    group = Group([member(11, **APPEND)], BASE, landed[1:])

    assert kinds(group) == ["Committed"]
    assert group.outcomes[0].version == 9
    assert [type(request) for request in group.requests] == [
        *(CreateSlot, ReadSlot, Wait),
        *(Yield, Yield, CreateSlot),
    ]
    assert [request.start for request in group.requests if isinstance(request, Yield)] == [2, 9]


def test_from_the_second_lost_slot_on_all_that_came_in_between_is_read_at_once():
    landed = [FIRST]
    for version in range(1, 8):
        landed.append(commit(version, record(20 + version, **APPEND), parent=landed[-1]))

    group = Group([member(11, **APPEND)], BASE, landed[1:])

    assert kinds(group) == ["Committed"]
    assert group.outcomes[0].version == 8
    assert sum(isinstance(request, CreateSlot) for request in group.requests) == 3
    assert [each for each in group.requests if isinstance(each, Yield)] == [Yield(3, NOBODY)]


class Quicker(Group):
    """Plays storage to which others commit so often during each request, 56 times in all."""

    writer = ""

    def __init__(self, at_once: int) -> None:
        self.at_once, self.head = at_once, 0
        landed = [FIRST]
        for version in range(1, 57):
            landed.append(commit(version, record(20 + version, **APPEND), parent=landed[-1]))
        super().__init__([member(11, **APPEND)], BASE, landed[1:])

    def respond(self, request: Any) -> Any:
        self.head = min(self.head + self.at_once, 56)
        if isinstance(request, Yield):
            return [self.slots[version] for version in range(request.start, self.head + 1)]
        return super().respond(request)


@pytest.mark.parametrize(("at_once", "creates"), [(3, 5), (1, 13)])
def test_who_has_lost_four_slots_to_others_who_are_quicker_by_far_tries_the_next_one_when_they_stop(
    at_once, creates
):
    quicker = Quicker(at_once)

    assert kinds(quicker) == ["Committed"]
    assert quicker.outcomes[0].version == 57
    assert [type(each) for each in quicker.requests].count(CreateSlot) == creates


def test_members_that_conflict_with_what_others_commit_in_their_turn_do_not_try_a_slot():
    first = commit(1, replace(record(21, **APPEND), writer="another"), parent=FIRST)
    second = commit(2, replace(record(22, **PAGE_7), writer="another"), parent=first)

    group = Group([member(11, **PAGE_7)], BASE, [first, second])

    assert kinds(group) == ["Conflict"]
    assert group.outcomes[0].overlap.version == 2
    assert [type(request) for request in group.requests].count(CreateSlot) == 1


def test_serializable_members_conflict_with_changes_of_the_tables_that_they_read():
    second = commit(1, record(2, **APPEND), parent=FIRST)

    group = Group([member(11, **APPEND, reads={1}), member(12, **APPEND, reads={5})], BASE, [second])

    assert kinds(group) == ["Conflict", "Committed"]


def test_a_member_that_cannot_be_built_is_refused_alone():
    def fails(state: LogState) -> Any:
        raise InvalidInputError("no such version")

    group = Group([member(11, **APPEND), GroupMember(0, fails), member(13, **APPEND)])

    assert kinds(group) == ["Committed", "Refused", "Committed"]


def test_a_pair_of_exactly_once_is_built_on_what_members_before_it_bring():
    def build(state: LogState, number: int) -> Any:
        known = state.apps.get("etl")
        return Duplicate(known[1]) if known else record(number, **APPEND, app_id="etl", app_version=3)

    members = [GroupMember(0, lambda state: build(state, 11)), GroupMember(0, lambda state: build(state, 12))]
    group = Group(members)
    again = Group(members[1:], replay(BASE, [group.slots[1]], lambda _: None), [group.slots[1]])

    assert kinds(group) == ["Committed", "Deferred"]
    assert kinds(again) == ["Committed"]
    assert again.outcomes[0].version == 1
    assert again.outcomes[0].commit is None


def test_new_tables_of_one_group_get_different_ids():
    def build(name: str) -> GroupMember:
        def built(state: LogState) -> Any:
            return record(ord(name), intents=(create(state.next_table_id, name),))

        return GroupMember(0, built)

    group = Group([build("a"), build("b"), build("a")])

    assert kinds(group) == ["Committed", "Committed", "Deferred"]
    assert [r.intents[0].table_id for r in group.slots[1].records] == [2, 3]


def test_a_member_for_which_there_is_no_room_waits_for_the_next_group(monkeypatch):
    monkeypatch.setattr(commit_protocol_module, "GROUP_PAGES", 2)

    group = Group([member(11, **APPEND), member(12, **APPEND), member(13, **APPEND)])

    assert kinds(group) == ["Committed", "Committed", "Deferred"]


def test_all_members_share_the_doubt_of_their_commit():
    members = [member(11, **APPEND), member(12, **APPEND)]
    protocol = commit_protocol(
        BASE, members, new_token=lambda: MINE, now_us=lambda: 5, load_manifest=lambda _: None
    )
    protocol.send(None)
    protocol.send(DOUBT)
    protocol.send(None)
    with pytest.raises(StopIteration) as stop:
        protocol.send(False)

    one, two = stop.value.value
    assert isinstance(one, Unknown)
    assert one == two
    assert len(decode_slot(one.data, "slot").records) == 2


def test_a_transaction_from_before_the_epoch_is_refused_whatever_it_touches():
    retention = commit(1, record(2, retention=Retention(1, 1)), parent=FIRST)

    group = Group([member(11, 0, **APPEND), member(12, 1, **APPEND)], BASE, [retention])

    assert kinds(group) == ["Conflict", "Committed"]
    assert "before version 1 are refused" in group.outcomes[0].overlap.what


def test_the_epoch_is_held_against_the_version_read_however_far_a_member_was_compared():
    slots = [commit(1, record(2, **APPEND), parent=FIRST)]
    slots.append(commit(2, record(3, retention=Retention(1, 1)), parent=slots[0]))

    group = Group([replace(member(11, 0, **APPEND), compared=1)], BASE, slots)

    assert kinds(group) == ["Conflict"]
    assert "before version 1 are refused" in group.outcomes[0].overlap.what
