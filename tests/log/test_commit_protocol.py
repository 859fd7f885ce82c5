"""The commit rule driven by hand: requests come out, answers go in, and no storage is there."""

from __future__ import annotations

from typing import Any

import pytest

from spark_pages.log.commit_codec import decode_slot
from spark_pages.log.commit_protocol import (
    Committed,
    Conflict,
    CreateSlot,
    Pause,
    ReadFailed,
    ReadSlot,
    Unknown,
    commit_protocol,
)
from spark_pages.log.names import commit_key
from spark_pages.log.replay import replay
from spark_pages.log.state import LogState
from spark_pages.model.actions import CheckpointRef, Tombstone
from spark_pages.model.location import Location
from spark_pages.storage.store import Created, Doubtful, Exists
from tests.log.records import append, commit, create, record, swap, token

MINE = token(77)
FIRST = commit(0, record(1, intents=(create(1, "x"),)))
BASE = replay(LogState(), [FIRST], lambda _: None)
APPEND = {"counts": (4,), "splices": (append(1, 1, 0, 4),)}
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
            BASE, build, commit_token=MINE, now_us=lambda: now_us, load_manifest=lambda _: None
        )
        self.outcome: Any = None
        self.request: Any = next(self.protocol)
        self.first = self.request

    def answer(self, response: Any) -> Any:
        try:
            self.request = self.protocol.send(response)
        except StopIteration as stop:
            self.request, self.outcome = None, stop.value
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
    assert driver.answer(None) == Pause(1)
    assert driver.answer(True) == driver.first
    driver.answer(Created())

    assert isinstance(driver.outcome, Committed)
    assert len(driver.built) == 1


def test_doubt_with_my_token_asks_again_until_storage_says_that_it_is_there():
    driver = Driver(**APPEND)

    for attempt in (1, 2):
        assert driver.answer(DOUBT) == ReadSlot(1)
        assert driver.answer(driver.own()) == Pause(attempt)
        assert driver.answer(True) == driver.first
    driver.answer(Exists())
    driver.answer(driver.own())

    assert isinstance(driver.outcome, Committed)


def test_exists_for_a_slot_that_is_empty_tries_the_same_slot_again():
    driver = Driver(**APPEND)

    driver.answer(Exists())
    assert driver.answer(None) == Pause(1)

    assert driver.answer(True) == driver.first


def test_a_slot_that_cannot_be_read_is_tried_again():
    driver = Driver(**APPEND)

    driver.answer(DOUBT)
    assert driver.answer(ReadFailed("no route")) == Pause(1)

    assert driver.answer(True) == driver.first


@pytest.mark.parametrize("answer", [DOUBT, Exists()])
def test_the_commit_of_another_is_rebased_on_and_the_next_slot_tried(answer):
    other = commit(1, record(2, **APPEND), parent=FIRST)
    driver = Driver(**APPEND)

    driver.answer(answer)
    assert driver.answer(other) == Pause(1)
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
    page = {"splices": (swap(1, 1, (7,), 5, 5),)}
    driver = Driver(**page)

    driver.answer(Exists())
    driver.answer(commit(1, record(2, **page), parent=FIRST))

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


@pytest.mark.parametrize("found", [None, ReadFailed("no route"), "own"])
def test_no_clear_answer_before_the_deadline_is_unknown_and_keeps_what_is_needed_to_resume(found):
    driver = Driver(**APPEND)

    driver.answer(DOUBT)
    driver.answer(driver.own() if found == "own" else found)
    driver.answer(False)

    assert isinstance(driver.outcome, Unknown)
    assert (driver.outcome.version, driver.outcome.token) == (1, MINE)
    assert driver.outcome.data == driver.first.data
    assert driver.outcome.reason


def test_no_time_left_after_a_rebase_is_a_conflict_because_nothing_was_put():
    driver = Driver(**APPEND)

    driver.answer(Exists())
    driver.answer(commit(1, record(2, **APPEND), parent=FIRST))
    driver.answer(False)

    assert isinstance(driver.outcome, Conflict)
    assert driver.outcome.overlap is None
