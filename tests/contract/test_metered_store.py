from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor

import pytest

from spark_pages.errors import ObjectNotFoundError
from spark_pages.storage import DurableLocalStore, MeteredStore, RequestCounts, open_object_store
from tests.contract.store_contract import StoreContract

_names = itertools.count()


@pytest.fixture
def metered() -> MeteredStore:
    return MeteredStore(open_object_store(f"memory://metered-{next(_names)}"))


class TestMeteredStore(StoreContract):
    @pytest.fixture
    def store(self, metered: MeteredStore) -> MeteredStore:
        return metered


def test_requests_bytes_and_keys_of_every_operation_are_counted(metered):
    metered.create("_log/0", b"1234")
    metered.create("_log/0", b"lost")
    metered.put("pages/1", bytearray(100))
    metered.get("_log/0")
    metered.get_range("pages/1", 0, 10)
    metered.size("pages/1")
    metered.list("pages/")
    metered.delete("pages/1")

    assert metered.counts == RequestCounts(
        creates=2,
        puts=1,
        gets=1,
        ranges=1,
        sizes=1,
        lists=1,
        deletes=1,
        bytes_read=14,
        bytes_written=104,
        keys=("_log/0", "_log/0", "pages/1", "_log/0", "pages/1", "pages/1", "pages/", "pages/1"),
    )
    assert metered.counts.requests == 8


def test_ranges_that_touch_or_overlap_are_one_request_and_a_gap_starts_another(metered):
    metered.put("pages/1", bytes(100))
    before = metered.counts

    metered.get_ranges("pages/1", [(40, 10), (0, 10), (10, 10), (45, 10), (56, 1), (90, 0)])

    spent = metered.counts - before
    assert spent.ranges == spent.requests == 3
    assert spent.bytes_read == 41
    assert spent.keys == ("pages/1",) * 3


def test_the_difference_of_two_snapshots_is_what_happened_between_them(metered):
    metered.put("a", b"1")
    before = metered.counts

    metered.get("a")

    assert metered.counts - before == RequestCounts(gets=1, bytes_read=1, keys=("a",))
    assert before == RequestCounts(puts=1, bytes_written=1, keys=("a",))


def test_a_request_that_fails_is_counted_and_its_bytes_are_not(metered):
    with pytest.raises(ObjectNotFoundError):
        metered.get("gone")

    assert metered.counts == RequestCounts(gets=1, keys=("gone",))


def test_no_count_is_lost_between_threads(metered):
    metered.put("a", b"12")

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda _: metered.get("a"), range(2_000)))

    assert metered.counts.gets == 2_000
    assert metered.counts.bytes_read == 4_000


def test_a_metered_local_store_hands_out_no_path_that_would_pass_by_the_meter(tmp_path):
    local = DurableLocalStore(tmp_path)
    local.put("a", b"x")

    assert local.local_path("a") is not None
    assert MeteredStore(local).local_path("a") is None
