"""However many threads ask for a page at once, it is loaded once; and none of them waits for ever."""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from spark_pages.errors import DamageError, StorageError
from spark_pages.io import PageHandler, ReadTrace, local_file, page_reader
from tests.io.fakes import FolderStore, MemoryStore, write_pages

ARRAYS = [pa.array(range(n * 100, n * 100 + 50)) for n in range(6)]
VALUES = [array.to_pylist() for array in ARRAYS]
DEADLINE_S = 60


class GatedStore(MemoryStore):
    """Answers no range before the gate is open; says when it was first asked."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.was_asked = threading.Event()
        self.failure: BaseException | None = None

    def get_range(self, key, offset, length):
        self.was_asked.set()
        assert self.gate.wait(DEADLINE_S)
        found = super().get_range(key, offset, length)
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        return found


@pytest.fixture
def store():
    return GatedStore()


@pytest.fixture
def pages(store):
    return write_pages(store, ARRAYS)


@pytest.fixture
def threads():
    with ThreadPoolExecutor(8) as pool:
        yield pool


def waiting_for(handler: PageHandler, count: int) -> None:
    """Return once so many calls wait for the loads of others."""
    done, started = threading.Event(), time.monotonic()
    while (
        sum(
            pending._changed is not None and len(pending._changed._waiters)
            for pending in pending_loads(handler)
        )
        < count
    ):
        assert not done.wait(0.001)
        assert time.monotonic() < started + DEADLINE_S


def pending_loads(handler: PageHandler):
    return set(handler._state.cache._pending.values())


def values(batches):
    return [batch.column("data").to_pylist() for batch in batches]


def test_a_page_that_eight_threads_ask_for_is_read_and_decoded_once(store, pages, threads, monkeypatch):
    decoded = Counter()
    real = page_reader._loaded
    monkeypatch.setattr(  # alone or with its neighbours, each page comes by here
        page_reader,
        "_loaded",
        lambda page, packed, keep: decoded.update([bytes(packed)]) or real(page, packed, keep),
    )
    handler = PageHandler(store)
    calls = [threads.submit(handler.get_pages, pages) for _ in range(8)]
    waiting_for(handler, 7)

    store.gate.set()

    assert [values(call.result(DEADLINE_S)) for call in calls] == [VALUES] * 8
    assert len(store.asked) == 1
    assert sorted(decoded.values()) == [1] * 6
    assert (handler.stats().misses, handler.stats().joined) == (6, 42)


def test_a_page_of_the_compressed_cache_that_many_threads_ask_for_is_decoded_once(
    store, pages, threads, monkeypatch
):
    store.gate.set()
    handler = PageHandler(store, decoded_bytes=0)
    handler.get_page(pages[0])
    gate, begun, decoded = threading.Event(), threading.Event(), []
    real = page_reader.decode_loaded

    def decode(*arguments):
        decoded.append(arguments[0])
        begun.set()
        assert gate.wait(DEADLINE_S)
        return real(*arguments)

    monkeypatch.setattr(page_reader, "decode_loaded", decode)
    calls = [threads.submit(handler.get_page, pages[0])]
    assert begun.wait(DEADLINE_S)
    calls += [threads.submit(handler.get_page, pages[0]) for _ in range(3)]
    waiting_for(handler, 3)

    gate.set()

    assert values(call.result(DEADLINE_S) for call in calls) == VALUES[:1] * 4
    assert len(decoded) == 1


def test_calls_that_want_some_of_the_same_pages_each_load_the_rest(store, pages, threads):
    handler = PageHandler(store)
    first = threads.submit(handler.get_pages, pages[:4])
    assert store.was_asked.wait(DEADLINE_S)
    trace = ReadTrace()
    store.was_asked.clear()
    second = threads.submit(handler.get_pages, pages[2:], trace=trace)
    assert store.was_asked.wait(DEADLINE_S), "it has joined the first by now, and asks for the rest"
    assert not second.done()

    store.gate.set()

    assert values(first.result(DEADLINE_S)) == VALUES[:4]
    assert values(second.result(DEADLINE_S)) == VALUES[2:]
    assert (trace.joined, trace.misses, trace.requests) == (2, 2, 1)
    assert len(store.asked) == 2


def test_all_that_wait_for_a_page_are_given_its_error(store, pages, threads):
    handler = PageHandler(store)
    store.failure = StorageError("the network is down")
    calls = [threads.submit(handler.get_page, pages[0]) for _ in range(4)]
    waiting_for(handler, 3)

    store.gate.set()

    errors = [call.exception(DEADLINE_S) for call in calls]
    assert [str(error) for error in errors] == ["the network is down"] * 4
    assert len({id(error) for error in errors}) == 4
    assert len(store.asked) == 1
    assert pending_loads(handler) == set()


def test_all_that_wait_for_a_page_on_a_disk_that_fails_are_given_its_error(tmp_path, threads, monkeypatch):
    store = FolderStore(tmp_path)
    pages = write_pages(store, ARRAYS)
    handler = PageHandler(store)
    gate, reads = threading.Event(), []

    def read(*_):
        reads.append(1)
        assert gate.wait(DEADLINE_S)
        raise StorageError("the disk is broken")

    monkeypatch.setattr(local_file.LocalFile, "read", read)
    calls = [threads.submit(handler.get_page, pages[0]) for _ in range(4)]
    waiting_for(handler, 3)

    gate.set()

    assert [str(call.exception(DEADLINE_S)) for call in calls] == ["the disk is broken"] * 4
    assert reads == [1]


def test_who_comes_after_an_error_tries_again(store, pages):
    store.gate.set()
    store.failure = StorageError("the network is down")
    handler = PageHandler(store)

    with pytest.raises(StorageError):
        handler.get_page(pages[0])

    assert values([handler.get_page(pages[0])]) == VALUES[:1]


def test_a_damaged_page_fails_for_who_waits_for_it_and_not_for_who_waits_for_its_neighbours(
    store, pages, threads
):
    whole = store.objects["pages/a.pages"]
    at = pages[3].offset + 100
    store.objects["pages/a.pages"] = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
    handler = PageHandler(store)
    batch = threads.submit(handler.get_pages, pages)
    assert store.was_asked.wait(DEADLINE_S)
    singles = [threads.submit(handler.get_page, page) for page in pages]
    waiting_for(handler, 6)

    store.gate.set()

    found = [single.exception(DEADLINE_S) for single in singles]
    assert [type(error) for error in found] == [*[type(None)] * 3, DamageError, *[type(None)] * 2]
    assert f"pages/a.pages@{pages[3].offset}" in str(found[3])
    assert isinstance(batch.exception(DEADLINE_S), DamageError)
    assert (
        len(store.asked) == 4
    )  # the batch twice, since it was damaged, and the two pages behind by who waits


@pytest.mark.parametrize("death", [KeyboardInterrupt(), MemoryError(), SystemExit()])
def test_who_waits_for_a_call_that_dies_loads_the_page_itself(store, pages, threads, death):
    handler = PageHandler(store)
    store.failure = death
    dying = threads.submit(handler.get_page, pages[0])
    assert store.was_asked.wait(DEADLINE_S)
    waiters = [threads.submit(handler.get_page, pages[0]) for _ in range(3)]
    waiting_for(handler, 3)

    store.gate.set()

    assert values(waiter.result(DEADLINE_S) for waiter in waiters) == VALUES[:1] * 3
    assert dying.exception(DEADLINE_S) is death
    assert len(store.asked) == 2
    assert pending_loads(handler) == set()


def test_a_call_that_died_before_it_could_clean_up_is_taken_over(store, pages, monkeypatch):
    store.gate.set()
    store.failure = KeyboardInterrupt()
    handler = PageHandler(store)
    monkeypatch.setattr(
        handler._state.cache, "store_loaded", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
    )
    with pytest.raises(KeyboardInterrupt):
        handler.get_page(pages[0])
    monkeypatch.undo()

    found = handler.get_page(pages[0])

    assert values([found]) == VALUES[:1]


def test_pages_of_a_batch_reach_who_waits_for_them_before_the_batch_is_done(store, pages, threads):
    handler = PageHandler(store)
    store.gate.set()
    far = write_pages(store, ARRAYS[:1], "pages/b.pages")
    slow = threading.Event()
    real = store.get_range

    def get_range(key, offset, length):
        assert key == "pages/a.pages" or slow.wait(DEADLINE_S)
        store.gate.wait(DEADLINE_S)
        return real(key, offset, length)

    store.gate.clear()
    store.get_range = get_range
    batch = threads.submit(handler.get_pages, [pages[0], far[0]])
    waiter = threads.submit(handler.get_page, pages[0])
    waiting_for(handler, 1)
    store.gate.set()

    found = waiter.result(DEADLINE_S)

    assert not batch.done()
    slow.set()
    assert values([found]) == VALUES[:1]
    assert len(batch.result(DEADLINE_S)) == 2
