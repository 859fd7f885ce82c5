"""Times of versions after resets of the clock, on values alone."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_pages.errors import DamageError
from spark_pages.log.commit_times import (
    MAX_TIME_US,
    MIN_TIME_US,
    RESETS_PROPERTY,
    ClockReset,
    ahead_of,
    as_datetime,
    dated,
    dating,
    resets_of,
    with_reset,
)
from spark_pages.log.discovery import version_at


def test_versions_of_a_wrong_clock_are_dated_to_the_last_microseconds_before_the_reset():
    recorded = [100, 200, 9_000, 9_001, 9_002, 9_402]
    properties = with_reset({}, ClockReset(4, 300, 9_002 - 300))

    times = [dated(properties, version, time) for version, time in enumerate(recorded)]

    assert times == [100, 200, 298, 299, 300, 700]


def test_without_a_reset_a_version_has_the_time_that_its_commit_records():
    assert dated({"other": "1"}, 3, 17) == 17


@pytest.mark.parametrize("text", ["1:2", "1:2:3:4", "a:b:c", "1:2:3 ,"])
def test_a_property_that_lists_no_resets_is_damage(text):
    with pytest.raises(DamageError, match="clock_resets"):
        resets_of({RESETS_PROPERTY: text})


@given(st.integers())
def test_every_number_of_microseconds_is_some_datetime(timestamp_us):
    assert (as_datetime(timestamp_us) - as_datetime(0)).total_seconds() * 1e6 + 1 >= MIN_TIME_US
    assert as_datetime(max(timestamp_us, MAX_TIME_US)).year == 9999


CLOCKS = st.lists(st.integers(0, 1_000_000) | st.sampled_from(["jump", "reset"]), min_size=1, max_size=40)


@given(CLOCKS)
def test_times_grow_with_versions_and_now_is_the_newest_one_after_a_reset(steps):
    """A number is a commit so much later; a jump is one of a clock far ahead; a reset follows the clock."""
    now, recorded, properties = 1_000, [0], {}
    for version, step in enumerate(steps, 1):
        now += step if isinstance(step, int) else 1
        clock = now + 10**12 if step == "jump" else now
        time = max(clock + ahead_of(properties), recorded[-1] + 1)
        if step == "reset" and recorded[-1] + 1 - ahead_of(properties) > now:
            time = recorded[-1] + 1
            properties = with_reset(properties, ClockReset(version, now, time - now))
        recorded.append(time)
    recorded.append(max(now + 1 + ahead_of(properties), recorded[-1] + 1))
    head = len(recorded) - 1

    times = [dated(properties, version, time) for version, time in enumerate(recorded)]

    assert all(one < two for one, two in itertools.pairwise(times))
    found = version_at(dating(properties, recorded.__getitem__), head, times[head])
    assert found == head
    assert "reset" in steps or times == recorded
