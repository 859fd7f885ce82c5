"""What the driver does to look for the commits of others: how far it reads, and in how many requests.

And what it says of a clock by which no commit can be told.
"""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.log.commit.driver import CommitDriver
from spark_pages.log.commit.messages import LetOthers
from spark_pages.log.slots import SlotReader
from spark_pages.log.turns import NOBODY, Before
from spark_pages.runtime import Runtime
from spark_pages.storage import MeteredStore
from spark_pages.tables.store import Store
from tests.retention.stores import Clock, new_past, opened
from tests.tables.stores import QUIET

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
    return MeteredStore(store.objects)


def came(meter, start: int, first: Before) -> list[int]:
    """The versions that a look finds."""
    runtime = replace(Runtime(), sleep_s=lambda _: None)
    driver = CommitDriver(SlotReader(meter, runtime.map), runtime, timeout_s=60)
    driver.pace.create_took(1.0)
    driver.pace.head_moved()

    def look():
        return (yield LetOthers(start, first))

    return [slot.version for slot in driver.drive(look())]


@pytest.mark.parametrize("first", [NOBODY, Before(1, 1), Before(1, 3), Before(8, 2)])
def test_who_is_far_behind_reads_on_to_the_head_at_once(meter, first):
    before = meter.counts

    assert came(meter, 3, first) == list(range(3, COMMITS + 1))
    assert (meter.counts - before).gets <= COMMITS + 8


@pytest.mark.parametrize(("first", "gets"), [(NOBODY, 8), (Before(1, 1), 2), (Before(1, 3), 4)])
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

    append_by(opened(past.objects, behind), times=3)
    append_by(opened(past.objects, behind))

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

    append_by(opened(past.objects, Clock(clock.now_us - seconds * 1_000_000)), times=3)

    assert told(caplog) == []
