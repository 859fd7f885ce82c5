"""Which way the requests for local pages go: through the operating system's cache, or past it."""

from __future__ import annotations

import os

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_pages.io import PageHandler, ReadTrace, local_file
from tests.io.fakes import FolderStore, write_pages
from tests.io.strategies import steady

ARRAYS = [pa.array(range(n * 100, n * 100 + 50)) for n in range(6)]
CHOSEN = (0, 2, 5)
"""Pages with gaps between them, so that each is a request."""
LAST = 20480
"""Where the last page begins."""

preadv = os.preadv


@pytest.fixture
def store(tmp_path):
    return FolderStore(tmp_path)


@pytest.fixture
def pages(store):
    written = write_pages(store, ARRAYS)
    return [written[number] for number in CHOSEN]


def caching(monkeypatch, is_cached) -> None:
    """The system caches what begins where this holds, and no file system refuses to read it at once."""

    def cached_bytes(_, offset, length):
        return length if any(map(is_cached, range(offset, offset + length, 4096))) else 0

    monkeypatch.setattr(local_file, "cached_bytes", cached_bytes)
    monkeypatch.setattr(
        os, "preadv", lambda descriptor, buffers, offset, _=0: preadv(descriptor, buffers, offset)
    )


def read(store, pages) -> ReadTrace:
    trace = ReadTrace()
    found = PageHandler(store, decoded_bytes=0, compressed_bytes=0).get_pages(pages, trace=trace)
    assert [batch.column("data")[0].as_py() // 100 for batch in found] == [*CHOSEN]
    assert trace.requests == 3
    return trace


def test_pages_that_the_system_caches_are_read_from_its_cache(store, pages, monkeypatch):
    caching(monkeypatch, lambda _: True)

    trace = read(store, pages)

    assert (trace.cached_requests, trace.direct_requests) == (3, 0)


def test_pages_that_the_system_does_not_cache_are_read_past_it(store, pages, monkeypatch):
    caching(monkeypatch, lambda _: False)

    trace = read(store, pages)

    assert (trace.cached_requests, trace.direct_requests) == (0, 3)


def test_each_request_goes_its_own_way_and_the_counts_and_texts_say_which(store, pages, monkeypatch):
    caching(monkeypatch, lambda offset: offset != LAST)
    handler = PageHandler(store)
    trace = ReadTrace()

    handler.get_pages(pages, trace=trace)

    assert (trace.cached_requests, trace.direct_requests) == (2, 1)
    assert (handler.stats().cached_requests, handler.stats().direct_requests) == (2, 1)
    told = "(1 direct, 2 from the system's cache)"
    assert told in repr(trace)
    assert told in repr(handler.stats())


@pytest.mark.parametrize("answer", ["refuses", "stops early"])
def test_pages_that_leave_the_systems_cache_before_they_are_read_are_read_past_it(
    store, pages, monkeypatch, answer
):
    caching(monkeypatch, lambda _: True)

    def late(descriptor, buffers, offset, flags=0):
        if flags and answer == "refuses":
            raise BlockingIOError
        return preadv(descriptor, [buffers[0][:100]] if flags else buffers, offset)

    monkeypatch.setattr(os, "preadv", late)

    trace = read(store, pages)

    assert (trace.cached_requests, trace.direct_requests) == (0, 3)


def test_a_file_of_which_the_system_caches_nothing_is_looked_at_once(store, pages, monkeypatch):
    looks = []
    monkeypatch.setattr(local_file, "cached_bytes", lambda _, *place: looks.append(place[0]) or 0)

    read(store, pages)

    assert looks == [0]


def test_another_file_of_the_same_name_is_not_read_in_place_of_the_open_one(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(bytes(8192))
    file = local_file.LocalFile(str(path))
    path.rename(tmp_path / "b")
    path.write_bytes(b"x" * 8192)

    assert not file.read_cached(0, memoryview(bytearray(4096)))


def test_a_closed_file_leaves_neither_of_its_descriptors_open(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(bytes(8192))
    before = os.listdir("/proc/self/fd")
    file = local_file.LocalFile(str(path))
    file.read_cached(0, memoryview(bytearray(4096)))

    file.close()

    assert os.listdir("/proc/self/fd") == before


@steady
@given(cached=st.sets(st.integers(0, 40)), chosen=st.sets(st.integers(0, 39), min_size=1))
def test_whatever_the_system_caches_every_page_comes_right_and_each_request_goes_one_way(
    tmp_path_factory, cached, chosen
):
    store = FolderStore(tmp_path_factory.mktemp("ways"))
    arrays = [pa.array(range(n, n + 50)) for n in range(40)]
    pages = write_pages(store, arrays)
    trace = ReadTrace()

    with pytest.MonkeyPatch.context() as patch:
        caching(patch, lambda offset: offset // 4096 in cached)
        wanted = [pages[number] for number in sorted(chosen)]
        found = PageHandler(store).get_pages(wanted, trace=trace)

    assert [batch.column("data")[0].as_py() for batch in found] == sorted(chosen)
    assert trace.cached_requests + trace.direct_requests == trace.requests
