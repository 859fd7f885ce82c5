"""What the driver does to look for the commits of others: how far it reads, and in how many requests.

And what it says of a clock by which no commit can be told.
"""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.errors import CommitError, UnsupportedFormatError
from spark_pages.format.commit import encode_commit
from spark_pages.log.commit.driver import CommitDriver
from spark_pages.log.commit.protocol_types import ReadFailed, ReadSlot, Yield
from spark_pages.log.fairness import NOBODY, CommitSchedule
from spark_pages.log.slots import SlotReader
from spark_pages.model.actions import Features
from spark_pages.runtime import Runtime
from spark_pages.storage import MeteredStore
from spark_pages.storage.store import Doubtful
from spark_pages.store import Store
from tests.maintenance.vacuum.stores import Clock, WatchedStore, new_past, opened
from tests.transaction.stores import QUIET

COMMITS = 100


@pytest.fixture(scope="module")
def meter():
    url = f"memory://{uuid4().hex}"
    store = sp.create(url, properties=QUIET)
    with store.transaction() as txn:
        txn.create_table("t", pa.schema({"n": pa.int64()}))
    while store.snapshot().version < COMMITS:
        with store.transaction() as txn:
            txn.append("t", pa.table({"n": [1]}))
    return MeteredStore(store.object_store)


def came(meter, start: int, first: CommitSchedule) -> list[int]:
    """The versions that a look finds."""
    runtime = replace(Runtime(), sleep_s=lambda _: None)
    driver = CommitDriver(SlotReader(meter, runtime.map), runtime, timeout_s=60)
    driver.pace.create_took(1.0)
    driver.pace.head_moved()

    def look():
        return (yield Yield(start, first))

    return [slot.version for slot in driver.drive(look())]


class Garbling:
    """Storage whose bytes come as they are told to, a few times, and then as they are."""

    def __init__(self, inner, answers) -> None:
        self._inner = inner
        self.answers = list(answers)

    def get(self, key, *most):
        found = self._inner.get(key, *most)
        return self.answers.pop(0)(found) if self.answers else found

    def __getattr__(self, name):
        return getattr(self._inner, name)


def read_back(objects, version: int):
    """What the commit rule hears of a slot."""
    runtime = Runtime()
    driver = CommitDriver(SlotReader(objects, runtime.map), runtime, timeout_s=60)

    def look():
        return (yield ReadSlot(version))

    return driver.drive(look())


def test_a_slot_that_is_read_back_damaged_twice_tells_no_more_than_one_that_cannot_be_read(meter):
    garbled = Garbling(meter, [lambda data: data[:-5] + bytes(5)] * 2)

    found = read_back(garbled, 7)

    assert isinstance(found, ReadFailed)
    assert "00000000000000000007" in found.reason
    assert read_back(garbled, 7).version == 7


def test_a_slot_of_a_newer_release_is_not_taken_for_one_that_cannot_be_read(meter):
    newer = encode_commit(replace(read_back(meter, 7), features=Features(reader=("holograms",))))[0]

    with pytest.raises(UnsupportedFormatError):
        read_back(Garbling(meter, [lambda _: newer] * 2), 7)


def test_a_commit_whose_answer_was_lost_and_that_is_read_back_damaged_once_has_landed():
    store = sp.create(f"memory://{uuid4().hex}", properties=QUIET)
    with store.transaction() as txn:
        txn.create_table("t", pa.schema({"n": pa.int64()}))
    garbled = Garbling(store.object_store, [])
    writer = Store(garbled, replace(Runtime(), sleep_s=lambda _: None))
    writer.snapshot()

    def lost(key, data):
        garbled.create = store.object_store.create
        garbled.answers.append(lambda read: read[:-5] + bytes(5))
        store.object_store.create(key, data)
        return Doubtful("the connection broke")

    garbled.create = lost
    with writer.transaction() as txn:
        txn.append("t", pa.table({"n": [1, 2]}))

    assert garbled.answers == []
    assert txn.version == store.snapshot().version == 2
    assert store.snapshot().table("t").num_rows == 2


@pytest.mark.parametrize("first", [NOBODY, CommitSchedule(1, 1), CommitSchedule(1, 3), CommitSchedule(8, 2)])
def test_who_is_far_behind_reads_on_to_the_head_at_once(meter, first):
    before = meter.counts

    assert came(meter, 3, first) == list(range(3, COMMITS + 1))
    assert (meter.counts - before).gets <= COMMITS + 8


@pytest.mark.parametrize(
    ("first", "gets"), [(NOBODY, 8), (CommitSchedule(1, 1), 2), (CommitSchedule(1, 3), 4)]
)
def test_who_finds_no_more_than_it_expected_has_asked_once(meter, first, gets):
    before = meter.counts

    assert came(meter, COMMITS, first) == [COMMITS]
    assert (meter.counts - before).gets == gets


def append_by(store: Store, times: int = 1) -> None:
    for _ in range(times):
        with store.transaction() as txn:
            txn.append("small", {"x": [1]})


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "spark_pages.log.commit.driver"]


def test_a_clock_that_is_more_than_a_minute_behind_the_commit_before_is_told_once_for_a_handle(caplog):
    clock = Clock()
    past = new_past(clock)
    behind = Clock(clock.now_us - 90_000_000)

    append_by(opened(past.object_store, behind), times=3)
    append_by(opened(past.object_store, behind))

    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    first, second = told(caplog)
    assert first.startswith(
        "The clock of this machine is 90 s behind the commit before version 2 of memory://"
    )
    assert "the commit before version 5 of" in second


@pytest.mark.parametrize("seconds", [-3_600, 0, 59])
def test_a_clock_that_is_ahead_or_hardly_behind_is_no_news(caplog, seconds):
    clock = Clock()
    past = new_past(clock)

    append_by(opened(past.object_store, Clock(clock.now_us - seconds * 1_000_000)), times=3)

    assert told(caplog) == []


class Telling(WatchedStore):
    """Storage that tells its clock, and is not in the memory of this process."""

    url = "file:///telling"

    def __init__(self, inner, clock: Clock) -> None:
        super().__init__(inner)
        self.clock = clock
        self.asked = 0

    def now_us(self) -> int:
        self.asked += 1
        return self.clock()


AHEAD = [
    *(
        (seconds, f"{seconds} s ahead of that of the storage")
        for seconds in (3_600, 14 * 3_600, 74 * 365 * 86_400)
    ),
    (9_000 * 365 * 86_400, "none of the years 1970 to 9999"),
]


@pytest.mark.parametrize(("seconds", "why"), AHEAD)
def test_a_clock_that_is_far_ahead_of_the_parent_and_of_the_storage_commits_nothing(seconds, why):
    clock = Clock()
    past = new_past(clock)
    before = [info.key for info in past.object_store.list("")]
    telling = Telling(past.object_store, clock)

    with pytest.raises(CommitError, match=rf"Cannot commit: .* {why}") as told:
        append_by(opened(telling, Clock(clock.now_us + seconds * 1_000_000)))

    assert [info.key for info in past.object_store.list("")] == before
    assert "Set the clock" in str(told.value.hint)


def test_a_clock_that_goes_as_that_of_the_storage_does_commits_however_old_the_parent_is():
    clock = Clock()
    past = new_past(clock)
    telling = Telling(past.object_store, clock)
    clock.pass_s(10 * 365 * 86_400)

    append_by(opened(telling, Clock(clock.now_us + 50_000_000)))
    append_by(opened(telling, Clock(clock.now_us - 3_600_000_000)))

    assert past.store.snapshot().version == 3


def test_storage_is_asked_for_its_time_once_for_a_handle_and_only_where_the_parent_is_old():
    clock = Clock()
    past = new_past(clock)
    telling = Telling(past.object_store, clock)
    store = opened(telling, clock)

    append_by(store, times=3)
    assert telling.asked == 0

    for _ in range(3):
        clock.pass_s(0)
        append_by(opened(telling, clock))
    assert telling.asked == 0

    clock.pass_s(3_600)
    append_by(store, times=3)
    assert telling.asked == 1


@pytest.mark.parametrize("now_us", [-5_000_000, 253_402_300_800_000_000, 1 << 62])
def test_a_clock_of_no_year_from_1970_to_9999_commits_nothing(now_us):
    clock = Clock()
    past = new_past(clock)
    silent = Telling(past.object_store, clock)
    silent.now_us = lambda: None

    with pytest.raises(CommitError, match="none of the years 1970 to 9999"):
        append_by(opened(silent, Clock(now_us)))


def test_who_commits_again_and_again_waits_as_after_a_lost_slot_until_the_time_of_one_commit_is_up(meter):
    seconds, slept = iter([0.0, 10.0, 59.0, 60.0]), []
    runtime = replace(Runtime(), monotonic_s=lambda: next(seconds), sleep_s=slept.append, jitter=lambda: 1.0)
    driver = CommitDriver(SlotReader(meter, runtime.map), runtime, timeout_s=60)
    driver.pace.create_took(4.0)

    has_time = driver.after_losses()

    assert [has_time(losses) for losses in (1, 2, 3)] == [True, True, False]
    assert slept == [1.0], "half a request, but for what is left"
