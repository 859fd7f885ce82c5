"""One asks storage, the others take its answer: counted."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from spark_pages.errors import ObjectNotFoundError, StorageError, TableNotFoundError, VersionNotFoundError
from spark_pages.runtime import Runtime
from spark_pages.service.freshness import SharedLoads
from spark_pages.service.metadata import MetadataService
from spark_pages.service.responses import PieceName
from spark_pages.storage import MeteredStore
from tests.service.stores import store_with_a_past, write_more
from tests.transaction.stores import LOOKS

THREADS = 24


class Clock:
    """Time that goes on when somebody says so, or sleeps."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds

    @property
    def runtime(self) -> Runtime:
        return replace(Runtime(), monotonic_s=lambda: self.now_s, sleep_s=self.sleep)


class Unreliable(MeteredStore):
    """A store that can be made to fail, and to wait until everybody asks."""

    failing = False
    barrier: threading.Event | None = None

    def stamps(self, keys: Sequence[str]) -> list[str | None]:
        if self.barrier is not None:
            self.barrier.wait(30)
        if self.failing:
            self._count("stamps", keys[0])
            raise StorageError("The disk is on fire.")
        return super().stamps(keys)


def together(work) -> list[object]:
    """What the work gives, or raises, in many threads at once."""
    results: list[object] = []
    ready = threading.Barrier(THREADS)

    def run() -> None:
        ready.wait()
        try:
            results.append(work())
        except StorageError as error:
            results.append(error)

    threads = [threading.Thread(target=run) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_many_threads_that_begin_at_once_cost_what_one_does(small_trees):
    store = store_with_a_past()
    store.checkpoint()
    write_more(store)
    alone, shared = MeteredStore(store.object_store), MeteredStore(store.object_store)

    def ask(service: MetadataService) -> None:
        answer = service.get_table_meta_snapshot("default", "t")
        for field_id, places in answer.places.items():
            for place in places:
                service.stats("default", "t", answer.version, PieceName(field_id, place.location.digest))

    ask(MetadataService(alone, staleness_s=3600.0))
    service = MetadataService(shared, staleness_s=3600.0)
    results = together(lambda: ask(service))

    assert results == [None] * THREADS
    assert sorted(shared.counts.keys) == sorted(alone.counts.keys)


def test_within_the_bound_storage_is_not_asked_and_after_it_once():
    store = store_with_a_past(versions=1)
    meter, clock = MeteredStore(store.object_store), Clock()
    service = MetadataService(meter, clock.runtime, staleness_s=1.0)
    first = service.version_info().version
    write_more(store)
    before, gets, stamps = meter.counts.requests, meter.counts.gets, meter.counts.stamps

    clock.now_s += 0.9
    assert {moment.version for moment in together(service.version_info)} == {first}
    assert meter.counts.requests == before

    clock.now_s += 0.2
    assert {moment.version for moment in together(service.version_info)} == {first + 1}
    assert (meter.counts.gets, meter.counts.stamps) == (
        gets + 1,
        stamps + 2 * LOOKS,
    )  # one look finds the slot


def test_nobody_asks_storage_while_nobody_calls():
    meter, clock = MeteredStore(store_with_a_past(versions=1).object_store), Clock()
    service = MetadataService(meter, clock.runtime)
    service.version_info()
    before = meter.counts.requests

    clock.now_s += 86_400

    assert meter.counts.requests == before


def test_a_version_that_somebody_has_just_committed_is_looked_for_sooner():
    store = store_with_a_past(versions=1)
    clock = Clock()
    service = MetadataService(store.object_store, clock.runtime, staleness_s=10.0)
    service.version_info()
    version = write_more(store)

    assert service.get_table_meta_snapshot("default", "t", version).version == version
    assert sum(clock.slept) <= 1.0


def test_versions_that_do_not_come_cost_no_request_for_each_question():
    meter, clock = MeteredStore(store_with_a_past(versions=1).object_store), Clock()
    service = MetadataService(meter, clock.runtime, staleness_s=10.0)
    service.version_info()
    before, began = meter.counts.requests, clock.now_s

    for _ in range(50):
        with pytest.raises(VersionNotFoundError):
            service.version_info(version=10_000)

    assert meter.counts.requests - before <= LOOKS * (clock.now_s - began + 1)


def test_when_storage_fails_all_who_wait_are_told_and_later_ones_try_again():
    store = Unreliable(store_with_a_past(versions=1).object_store)
    clock = Clock()
    service = MetadataService(store, clock.runtime, staleness_s=1.0)
    newest = service.version_info().version
    clock.now_s += 2
    store.failing, store.barrier = True, threading.Event()
    before = store.counts.requests

    def fail_once_all_wait() -> None:
        while (flight := service.freshness._flight) is None or len(flight._condition._waiters) < THREADS - 1:
            time.sleep(0.001)
        store.barrier.set()

    with ThreadPoolExecutor(1) as storage:
        storage.submit(fail_once_all_wait)
        results = together(service.version_info)

    assert all(isinstance(each, StorageError) for each in results)
    assert store.counts.requests - before == 1
    store.failing = False
    assert service.version_info().version == newest


def test_pieces_that_nobody_named_cost_no_request(small_trees):
    store = store_with_a_past()
    store.checkpoint()
    meter = MeteredStore(store.object_store)
    service = MetadataService(meter, staleness_s=3600.0)
    version = service.get_table_meta_snapshot("default", "t").version
    before = meter.counts.requests

    for digest in ("a", "b", "c"):
        with pytest.raises(ObjectNotFoundError):
            service.piece("default", "t", version, PieceName(1, digest))

    assert meter.counts.requests == before


def test_old_versions_are_opened_once_for_all_clients(small_trees):
    store = store_with_a_past()
    store.checkpoint()
    old = write_more(store)
    for turn in range(3):
        write_more(store, 1000 * turn)
    meter = MeteredStore(store.object_store)
    service = MetadataService(meter, staleness_s=3600.0)
    service.version_info()
    service.get_table_meta_snapshot("default", "t", old)
    before = meter.counts.requests

    assert len(set(map(id, together(lambda: service.get_table_meta_snapshot("default", "t", old))))) == 1
    assert meter.counts.requests == before


def test_names_are_listed_once_for_all_clients(small_trees):
    store = store_with_a_past()
    store.checkpoint()
    meter = MeteredStore(store.object_store)
    service = MetadataService(meter, staleness_s=3600.0)
    service.tables()
    before = meter.counts.requests

    assert len(service.tables()) == 3
    for _ in range(3):
        with pytest.raises(TableNotFoundError, match="Did you mean 'other'"):
            service.get_table_meta_snapshot("default", "othr")
    assert meter.counts.requests - before <= 1  # the catalog file that would hold the name


def test_times_are_read_once():
    store = store_with_a_past(versions=3)
    meter = MeteredStore(store.object_store)
    service = MetadataService(meter, staleness_s=3600.0)
    time_us = store.snapshot(4).log.state.timestamp_us
    service.version_info(timestamp_us=time_us)
    before = meter.counts.requests

    assert service.version_info(timestamp_us=time_us).version == 4
    assert meter.counts.requests == before


def test_what_several_want_is_made_once_and_what_was_used_longest_ago_goes():
    loads: SharedLoads[int, int] = SharedLoads(2)
    made: list[int] = []

    def make(key: int):
        def work() -> int:
            made.append(key)
            return key * 10

        return work

    assert [loads.get(key, make(key)) for key in (1, 2, 1, 3, 1, 2)] == [10, 20, 10, 30, 10, 20]
    assert made == [1, 2, 3, 2]
    loads.drop(1)
    loads.get(1, make(1))
    assert made == [1, 2, 3, 2, 1]
