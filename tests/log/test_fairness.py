"""Whose turn it is, as writers and numbers of commits tell."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

import pyarrow as pa
import pytest

import spark_pages as sp
from benchmarks.log.turns import Model
from spark_pages.log.commit.driver import Backoff
from spark_pages.log.fairness import (
    COMMIT_TURNS,
    NOBODY,
    SLOW,
    CommitSchedule,
    CommitTurn,
    is_for_slow,
    schedule,
    with_commit,
)
from spark_pages.runtime import Runtime
from spark_pages.storage import MeteredStore
from spark_pages.storage.store import CreateOutcome
from spark_pages.store import Store
from tests.transaction.stores import QUIET

FAIR = {COMMIT_TURNS: "fair"}


def turns(writers: str) -> tuple[CommitTurn, ...]:
    """What a log shows whose commits have these writers; capital letters have met others."""
    shown: tuple[CommitTurn, ...] = ()
    for version, writer in enumerate(writers):
        shown = with_commit(shown, version, writer, version - 1 - writer.isupper())
    return shown


def ahead(writers: str, writer: str, arrived: int = -1, properties: dict[str, str] = FAIR) -> CommitSchedule:
    return schedule(turns(writers), properties, writer, arrived if arrived >= 0 else len(writers) - 1)


def test_commits_of_one_writer_in_a_row_are_one_turn():
    assert turns("aabba") == (
        CommitTurn("a", 0, 1, False),
        CommitTurn("b", 2, 3, False),
        CommitTurn("a", 4, 4, False),
    )


def test_old_turns_are_forgotten():
    assert len(turns("ab" * 500)) == 64


@pytest.mark.parametrize("writers", ["", "a", "a" * 8, "a" * 10, "a" * 63])
def test_who_meets_nobody_waits_for_nobody(writers):
    assert ahead(writers, "a", properties={}) == NOBODY


@pytest.mark.parametrize(
    ("writers", "properties"), [("a" * 9, {}), ("a" * 64, {}), ("a", FAIR), ("a" * 64, FAIR)]
)
def test_behind_a_first_turn_and_now_and_then_a_slot_is_free_for_new_writers(writers, properties):
    assert ahead(writers, "a", properties=properties) == CommitSchedule(1, 0, unknown=True)
    assert ahead(writers, "new", properties=properties) == NOBODY
    assert ahead(writers[1:] + "a" * 2, "a", properties=properties) == NOBODY


def test_a_new_writer_waits_for_the_end_of_a_turn_or_a_free_slot():
    assert ahead("a" * 8, "new", properties={}) == CommitSchedule(1, 1)
    assert ahead("a" * 58, "new", properties={}) == CommitSchedule(1, 6)


def test_in_a_ring_no_slot_is_left_free():
    writers = "abc" * 18 + "a" * 8 + "bb"

    assert len(writers) == 64
    assert ahead(writers, "b", properties={}) == NOBODY
    assert ahead(writers, "new", properties={}) == CommitSchedule(3, 7)


def test_who_has_had_no_turn_for_the_longest_time_is_next():
    assert [ahead("abcabc", writer).writers for writer in "abc"] == [0, 1, 2]


def test_a_writer_that_was_passed_over_is_not_waited_for_again():
    assert [ahead("abcacac", writer).writers for writer in "ac"] == [0, 1]


def test_a_turn_has_nine_commits_where_fairness_to_the_single_one_is_not_asked_for():
    rest = "bc" * 2
    assert ahead(rest + "a" * 8, "a", properties={}) == NOBODY
    assert ahead(rest + "a" * 8, "b", properties={}) == CommitSchedule(1, 1)
    assert ahead(rest + "a" * 9, "a", properties={}).writers == 2
    assert ahead(rest + "a" * 9, "b", properties={}) == NOBODY


def test_a_round_of_many_writers_is_about_as_long_as_one_of_few():
    many = [chr(ord("A") + number) for number in range(36)]
    ring = "".join(many)
    assert ahead(ring * 2 + "A", "A", properties={}) == NOBODY
    assert ahead(ring * 2 + "AA", "A", properties={}).writers == 35


def test_behind_the_first_commit_of_a_new_writer_that_met_others_the_slot_is_free_for_other_new_ones():
    assert ahead("abcabcX", "Y", 0) == NOBODY
    assert ahead("abcabcx", "x", properties={}) == NOBODY
    assert ahead("abcabcX", "X", properties={}) == CommitSchedule(1, 0)
    assert ahead("abcabcX", "a").writers == 1
    assert ahead("abcabcXa", "b").writers == 0


@pytest.mark.parametrize(
    ("writers", "properties", "every"), [("a", {}, 512), ("ab", {}, 1024), ("ab", FAIR, 512)]
)
def test_a_slot_in_many_is_left_to_slow_writers(writers, properties, every):
    shown: tuple[CommitTurn, ...] = ()
    left = []
    for version in range(2_100):
        shown = with_commit(shown, version, writers[version % len(writers)], version - 1)
        if is_for_slow(shown, properties):
            left.append(version + 1)

    assert left == list(range(every, 2_100, every))
    assert not is_for_slow((), properties)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def waits(pace: Backoff, clock: Clock, first: CommitSchedule, request_s: float) -> list[float]:
    """The waits before each look; a look takes as long as a request."""
    waited = []
    for wait_s in pace.for_turn(first):
        waited.append(round(wait_s, 4))
        clock.now += wait_s + request_s
    return waited


def paced(request_s: float = 0.02) -> tuple[Backoff, Clock]:
    clock = Clock()
    pace = Backoff(replace(Runtime(), monotonic_s=clock, jitter=lambda: 0.0))
    pace.create_took(request_s)
    pace.head_moved()
    return pace, clock


def test_whoever_is_next_looks_until_patience_ends():
    pace, clock = paced()

    assert waits(pace, clock, CommitSchedule(1, 0), 0.02) == [0.0] * 5


def test_commits_that_are_left_of_a_turn_are_slept_through_but_for_the_last_ones():
    pace, clock = paced()

    assert waits(pace, clock, CommitSchedule(1, 8), 0.02)[0] == pytest.approx((8 * 1.1 - 3) * 0.02)


def test_after_a_rest_nobody_is_waited_for():
    pace, clock = paced()
    clock.now += 1.0

    assert waits(pace, clock, CommitSchedule(1, 8), 0.02) == []


def test_a_slot_is_left_to_slow_writers_for_sixteen_requests_since_the_one_before_it_came():
    pace, clock = paced()
    clock.now += 0.1

    assert pace.for_newcomers(SLOW) == pytest.approx(16 * 0.02 - 0.1)

    clock.now += 1.0
    assert pace.for_newcomers(SLOW) == 0.0


def test_before_any_request_was_timed_nobody_is_waited_for():
    clock = Clock()
    pace = Backoff(replace(Runtime(), monotonic_s=clock))

    assert waits(pace, clock, CommitSchedule(7, 9), 0.0) == []


class SlowCreates(MeteredStore):
    """Storage that takes 20 ms for a create, as its clock tells."""

    clock = Clock()

    def create(self, key: str, data: bytes) -> CreateOutcome:
        self.clock.now += 0.02
        return super().create(key, data)


def test_a_writer_that_knows_of_nobody_leaves_slots_free_now_and_then_and_asks_storage_for_nothing():
    clock, slept = Clock(), []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock.now += seconds

    meter = SlowCreates(sp.create(f"memory://{uuid4().hex}", properties=QUIET).object_store)
    meter.clock = clock
    store = Store(meter, replace(Runtime(), monotonic_s=clock, sleep_s=sleep, jitter=lambda: 0.0))
    with store.transaction() as txn:
        txn.create_table("t", pa.schema({"n": pa.int64()}))
    before_appends = meter.counts

    for number in range(140):
        with store.transaction() as txn:
            txn.append("t", pa.table({"n": [number]}))

    counts = meter.counts - before_appends
    assert (counts.creates, counts.requests) == (140, 140)
    assert slept == pytest.approx([0.06] * 3), "behind its first turn, before versions 64 and 128"


@pytest.mark.parametrize("seed", range(3))
def test_in_a_model_of_eight_writers_the_log_is_shared_evenly(seed):
    done = Model(0.02, 0.002, fair=False, seed=seed).run(8, 12)

    shares = sorted(len(writer) for writer in done)
    assert shares[-1] < 2 * shares[0]
    assert sum(shares) > 12 * 50 * 0.8
    assert max(max(writer) for writer in done) < 2


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("writers", [8, 20])
def test_in_a_fair_model_no_commit_takes_ten_times_as_long_as_half_of_them(seed, writers):
    done = Model(0.02, 0.002, fair=True, seed=seed).run(writers, 12)

    took = sorted(each for writer in done for each in writer)
    assert took[-1] < 10 * took[len(took) // 2]
    assert len(took) > 12 * 50 * 0.5


@pytest.mark.parametrize("behind", [0, 150])
@pytest.mark.parametrize("writers", [2, 8, 20])
@pytest.mark.parametrize("fair", [False, True])
def test_in_a_model_whoever_comes_late_commits_soon_and_goes_on_to(writers, behind, fair):
    done = Model(0.02, 0.002, fair=fair, seed=7).run(writers, 16, late=1, behind=behind)

    *others, late = done
    assert late[0] < 2.5
    assert len(late) > max(map(len, others)) / 5


@pytest.mark.parametrize("slow", [3, 5])
@pytest.mark.parametrize("writers", [2, 4, 9])
@pytest.mark.parametrize("fair", [False, True])
def test_in_a_model_a_writer_whose_requests_take_several_times_as_long_commits_before_its_time_is_up(
    writers, slow, fair
):
    *others, late = Model(0.02, 0.002, fair=fair, seed=3).run(writers, 60, slow=slow)

    assert late
    assert max(late) < 60
    assert sum(map(len, others)) > 60 * (22 if fair else 38), "it costs the others little"
