"""What the driver does to look for the commits of others: how far it reads, and in how many requests."""

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


def test_who_commits_again_and_again_waits_as_after_a_lost_slot_until_the_time_of_one_commit_is_up(meter):
    seconds, slept = iter([0.0, 10.0, 59.0, 60.0]), []
    runtime = replace(Runtime(), monotonic_s=lambda: next(seconds), sleep_s=slept.append, jitter=lambda: 1.0)
    driver = CommitDriver(SlotReader(meter, runtime.map), runtime, timeout_s=60)
    driver.pace.create_took(4.0)

    has_time = driver.after_losses()

    assert [has_time(losses) for losses in (1, 2, 3)] == [True, True, False]
    assert slept == [1.0], "half a request, but for what is left"
