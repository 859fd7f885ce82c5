from __future__ import annotations

import itertools

import pytest

from spark_pages.errors import ObjectNotFoundError
from spark_pages.storage import TimedRequest, TimedStore, open_object_store
from tests.contract.store_contract import StoreContract

_names = itertools.count()


@pytest.fixture
def timed() -> TimedStore:
    ticks = itertools.count()
    return TimedStore(open_object_store(f"memory://timed-{next(_names)}"), lambda: float(next(ticks)))


class TestTimedStore(StoreContract):
    @pytest.fixture
    def store(self, timed: TimedStore) -> TimedStore:
        return timed


def test_every_call_is_remembered_with_its_time_and_size(timed):
    timed.create("_log/0", b"1234")
    timed.get("_log/0")
    timed.get_range("_log/0", 1, 2)
    timed.get_ranges("_log/0", [(2, 1), (0, 1)])

    assert timed.requests == [
        TimedRequest("create", "_log/0", None, 0, 1, 0, failed=False),
        TimedRequest("get", "_log/0", None, 2, 3, 4, failed=False),
        TimedRequest("get_range", "_log/0", 1, 4, 5, 2, failed=False),
        TimedRequest("get_ranges", "_log/0", 0, 6, 7, 2, failed=False),
    ]


def test_a_call_that_fails_is_remembered_as_failed(timed):
    with pytest.raises(ObjectNotFoundError):
        timed.get("_log/7")

    assert [(each.key, each.failed) for each in timed.requests] == [("_log/7", True)]


def test_no_read_passes_by_the_clock(tmp_path):
    timed = TimedStore(open_object_store(str(tmp_path)))
    timed.put("pages/1", b"1")

    assert timed.local_path("pages/1") is None
