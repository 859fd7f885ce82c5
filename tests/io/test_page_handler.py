from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from dataclasses import replace

import pyarrow as pa
import pytest

from spark_pages.errors import DamageError, ObjectNotFoundError
from spark_pages.io import CacheStats, PageBatch, PageHandler, ReadTrace
from spark_pages.io.local_reads import LocalRangeReader
from spark_pages.model.added_pages import NewPage, page_batches
from spark_pages.model.page import PAGE_HEADER_SIZE, PageKind, PageStats
from spark_pages.model.run import PageRun, key_of
from spark_pages.query.concat import as_array
from tests.io.fakes import FolderStore, MemoryStore, constant_page, inline_page, write_pages

ARRAYS = [pa.array(range(n * 100, n * 100 + 50)) for n in range(6)]


@pytest.fixture(params=["memory", "folder"])
def store(request, tmp_path):
    return MemoryStore() if request.param == "memory" else FolderStore(tmp_path)


@pytest.fixture
def pages(store):
    return write_pages(store, ARRAYS)


def values(batches):
    return [batch.column("data").to_pylist() for batch in batches]


def test_pages_come_in_the_order_asked_with_duplicates(store, pages):
    found = PageHandler(store).get_pages([pages[4], pages[1], pages[4], inline_page(ARRAYS[2], 99)])

    assert values(found) == [ARRAYS[n].to_pylist() for n in (4, 1, 4, 2)]


def test_a_second_call_performs_no_request(store, pages):
    handler = PageHandler(store)
    first = handler.get_pages(pages)
    before = handler.stats()

    second = handler.get_pages(pages)

    assert second == first
    assert handler.stats() - before == CacheStats(decoded_hits=6)


def test_pages_that_are_read_together_and_not_kept_are_widened_together(tmp_path, monkeypatch):
    calls, one_call = [], PageBatch.numbers_into
    monkeypatch.setattr(PageBatch, "numbers_into", lambda *call: (calls.append(1), one_call(*call)))
    arrays = [pa.array(range(n * 1000, n * 1000 + 500)) for n in range(8)]
    store = FolderStore(tmp_path)
    pages = write_pages(store, arrays)
    PageHandler(store).get_pages(pages[:1])  # so that what they look like is known
    calls.clear()

    found = PageHandler(store).get_pages(pages, admit=False)

    assert [batch.column(0) for batch in found] == arrays
    assert len(calls) == 1


def test_the_misses_of_one_call_are_read_by_as_few_requests_as_can_be(store, pages):
    handler = PageHandler(store)
    handler.get_page(pages[2])

    handler.get_pages(pages)

    stats = handler.stats()
    assert (stats.decoded_hits, stats.misses, stats.requests) == (1, 6, 3)
    assert stats.coalesced == 3


def test_a_page_that_left_the_decoded_cache_is_decompressed_from_the_compressed_cache(store, pages):
    handler = PageHandler(store, decoded_bytes=0)
    handler.get_pages(pages)
    before = handler.stats()

    found = handler.get_pages(pages)

    assert values(found) == [array.to_pylist() for array in ARRAYS]
    assert handler.stats() - before == CacheStats(compressed_hits=6)


def test_a_scan_leaves_decoded_pages_as_they_were_and_its_second_run_asks_storage_for_nothing(store, pages):
    handler = PageHandler(store)
    handler.get_page(pages[0])
    before = handler.stats()

    found = handler.get_pages(pages, admit=False)
    after = handler.stats() - before
    again = handler.get_pages(pages, admit=False)

    assert values(found) == values(again) == [array.to_pylist() for array in ARRAYS]
    assert (after.decoded_bytes, after.decoded_hits, after.misses) == (0, 1, 5)
    assert handler.stats() - before - after == CacheStats(decoded_hits=1, compressed_hits=5)


def test_a_scan_without_free_room_keeps_and_evicts_nothing(store, pages):
    handler = PageHandler(store, decoded_bytes=1 << 20, compressed_bytes=1)
    handler.get_page(pages[0])

    handler.get_pages(pages, admit=False)

    assert (handler.stats().compressed_bytes, handler.stats().evictions) == (0, 0)


def test_a_page_that_a_point_read_takes_from_a_scan_has_memory_of_its_own(store, pages):
    handler = PageHandler(store)
    handler.get_pages(pages, admit=False)
    scanned = handler.stats().compressed_bytes

    found = [handler.get_page(page) for page in pages]

    held = [handler._state.cache._decoded.entries[key_of(page)] for page in pages]
    assert values(found) == [array.to_pylist() for array in ARRAYS]
    assert [len(each.packed.obj) for each in held] == [page.actual_len for page in pages]
    assert (handler.stats().compressed_bytes, scanned > 0) == (0, True)


def test_the_result_of_a_scan_does_not_hold_on_to_what_was_read_with_it(store, pages):
    handler = PageHandler(store)
    handler.get_pages(pages, admit=False)
    entries = handler._state.cache._compressed.entries.values()
    stored = list({id(page.block): page.packed.obj for page in entries}.values())
    del entries

    found = handler.get_pages(pages, admit=False)
    handler.clear()

    assert values(found) == [array.to_pylist() for array in ARRAYS]
    only_listed = [bytes(1000)]
    assert {sys.getrefcount(each) for each in stored} == {sys.getrefcount(each) for each in only_listed}


def test_a_page_that_came_wrong_at_first_is_not_kept_by_a_scan_as_it_came(tmp_path, monkeypatch):
    store = FolderStore(tmp_path)
    pages = write_pages(store, ARRAYS)
    real = LocalRangeReader.read

    def flip(self, spans, pending):
        for together in real(self, spans, pending):
            for _, view in together:
                view[PAGE_HEADER_SIZE] ^= 1
            yield together

    monkeypatch.setattr(LocalRangeReader, "read", flip)
    handler = PageHandler(store)

    handler.get_pages(pages, admit=False)
    monkeypatch.undo()

    assert values(handler.get_pages(pages, admit=False)) == [array.to_pylist() for array in ARRAYS]


def test_a_trace_tells_which_pages_one_question_touched(store, pages):
    handler = PageHandler(store)
    handler.get_page(pages[1])
    trace = ReadTrace()

    handler.get_pages([pages[2], pages[1], pages[2], inline_page(ARRAYS[0], 99)], trace=trace)

    assert trace.page_ids == ["0000000000000002", "0000000000000001", "0000000000000063"]
    assert (trace.decoded_hits, trace.compressed_hits, trace.misses, trace.requests) == (1, 1, 1, 1)
    assert trace.bytes_read in (pages[2].actual_len, pages[2].alloc_len)


def test_what_calls_are_told_adds_up_to_what_the_handler_tells(store):
    pages = write_pages(store, [pa.array([f"{n}-{i}" for i in range(500)]) for n in range(40)])
    handler = PageHandler(store, decoded_bytes=40_000, compressed_bytes=20_000)
    traces = [ReadTrace() for _ in range(6)]

    for number, trace in enumerate(traces):
        handler.get_pages(pages[5 * number : 5 * number + 15], admit=number != 3, trace=trace)

    stats = handler.stats()
    names = (
        "decoded_hits",
        "compressed_hits",
        "misses",
        "requests",
        "bytes_read",
        "coalesced",
        "joined",
        "evictions",
    )
    for name in names:
        assert sum(getattr(trace, name) for trace in traces) == getattr(stats, name)
    assert stats.decoded_hits + stats.compressed_hits + stats.misses == 6 * 15
    assert min(getattr(stats, name) for name in names if name != "joined") > 0


def test_fewer_rows_than_the_payload_holds_are_its_prefix(store, pages):
    found = PageHandler(store).get_page(replace(pages[1], entry_count=3))

    assert values([found]) == [[100, 101, 102]]


def test_more_rows_than_the_payload_holds_read_as_null(store, pages):
    found = PageHandler(store).get_page(replace(pages[1], entry_count=52))

    assert values([found]) == [[*ARRAYS[1].to_pylist(), None, None]]


def test_a_page_without_rows_is_a_legal_page(store, pages):
    found = PageHandler(store).get_page(replace(pages[1], entry_count=0))

    assert (found.num_rows, found.schema.names) == (0, ["data"])


def test_two_descriptors_of_one_payload_may_show_different_rows_of_it(store, pages):
    handler = PageHandler(store)

    short, whole = handler.get_pages([replace(pages[1], entry_count=1), pages[1]])

    assert (short.num_rows, whole.num_rows) == (1, 50)


def test_a_descriptor_that_lies_about_its_payload_is_damage_even_when_the_page_is_cached(store, pages):
    handler = PageHandler(store)
    handler.get_page(pages[1])

    with pytest.raises(DamageError, match="payload entries 51, found 50"):
        handler.get_page(replace(pages[1], payload_entries=51, entry_count=50))


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (7, pa.int64()),
        ("x", pa.string()),
        (None, pa.string()),
        (True, pa.bool_()),
        ([1, None], pa.list_(pa.int8())),
    ],
)
def test_a_constant_page_repeats_its_value(store, value, kind):
    found = PageHandler(store).get_page(constant_page(value, kind, 1000))

    assert values([found]) == [[value] * 1000]
    assert found.schema.field("data").type == kind


def test_constants_of_one_provisional_id_do_not_pass_for_each_other(store):
    handler = PageHandler(store)

    found = handler.get_pages([constant_page(1, pa.int64(), 2), constant_page(2, pa.int64(), 2)])
    again = handler.get_page(constant_page(1, pa.int64(), 3))

    assert values([*found, again]) == [[1, 1], [2, 2], [1, 1, 1]]


def test_a_count_that_would_fill_the_memory_is_refused(store, pages):
    handler = PageHandler(store)

    with pytest.raises(DamageError, match="Cannot expand"):
        handler.get_page(constant_page(1, pa.int64(), 1 << 40))
    with pytest.raises(DamageError, match="Cannot expand"):
        handler.get_page(replace(pages[0], entry_count=1 << 40))


def test_an_inline_page_without_bytes_is_damage(store):
    with pytest.raises(DamageError, match="found none"):
        PageHandler(store).get_page(replace(inline_page(ARRAYS[0]), data=None))


def test_a_damaged_page_is_named_and_never_cached():
    store = MemoryStore()
    pages = write_pages(store, ARRAYS)
    whole = store.objects["pages/a.pages"]
    store.objects["pages/a.pages"] = whole[:100] + bytes([whole[100] ^ 1]) + whole[101:]
    handler = PageHandler(store)

    with pytest.raises(DamageError, match=r"pages/a\.pages@0"):
        handler.get_page(pages[0])
    store.objects["pages/a.pages"] = whole

    assert values([handler.get_page(pages[0])]) == [ARRAYS[0].to_pylist()]


def test_the_caches_stay_within_their_budgets(store):
    pages = write_pages(store, [pa.array([f"{n}-{i}" for i in range(500)]) for n in range(40)])
    handler = PageHandler(store, decoded_bytes=40_000, compressed_bytes=20_000)

    handler.get_pages(pages)

    stats = handler.stats()
    assert 0 < stats.decoded_bytes <= 40_000
    assert 0 < stats.compressed_bytes <= 20_000
    assert stats.evictions > 0


def test_a_cached_page_does_not_hold_on_to_the_whole_run_it_was_read_with(store, pages):
    handler = PageHandler(store)

    handler.get_pages(pages)

    held = [handler._state.cache._decoded.entries[key_of(page)] for page in pages]
    assert [len(each.packed.obj) for each in held] == [page.actual_len for page in pages]
    assert sum(each.size_bytes for each in held) == handler.stats().decoded_bytes


def test_many_threads_get_the_same_pages(store, pages):
    handler = PageHandler(store, decoded_bytes=4_000, compressed_bytes=2_000)
    wrong = []

    def ask():
        for _ in range(30):
            wrong.extend([1] if values(handler.get_pages(pages)) != [a.to_pylist() for a in ARRAYS] else [])

    threads = [threading.Thread(target=ask) for _ in range(4)]
    [each.start() for each in threads]
    [each.join() for each in threads]

    assert wrong == []


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_reads_on_its_own(store, pages):
    handler = PageHandler(store)
    handler.get_pages([pages[0], pages[2], pages[4]])
    handler._state.cache._budgets.decoded.lock.acquire()  # as another thread might at the moment of the fork

    child = os.fork()
    if child == 0:
        signal.alarm(120)  # a child that waits for a lock for ever must not hang the run
        found = handler.get_pages(pages)
        os._exit(0 if values(found) == [a.to_pylist() for a in ARRAYS] and handler.stats().misses == 6 else 1)
    handler._state.cache._budgets.decoded.lock.release()

    assert os.waitpid(child, 0)[1] == 0


def test_a_handler_pickles_without_its_contents(store, pages):
    handler = PageHandler(store, decoded_bytes=12_345)
    handler.get_pages(pages)

    copy = pickle.loads(pickle.dumps(handler))  # noqa: S301

    assert copy.stats() == CacheStats()
    assert values(copy.get_pages(pages)) == [array.to_pylist() for array in ARRAYS]


def test_a_closed_handler_holds_nothing_and_may_be_used_again(store, pages):
    handler = PageHandler(store)
    handler.get_pages([pages[0], pages[2]])

    handler.close()

    assert (handler.stats().decoded_bytes, handler.stats().compressed_bytes) == (0, 0)
    assert handler.get_page(pages[0]).num_rows == 50
    assert pages[0].kind is PageKind.FILE


def test_a_file_that_was_replaced_is_read_anew(tmp_path):
    store = FolderStore(tmp_path)
    handler = PageHandler(store, decoded_bytes=0, compressed_bytes=0)
    before = write_pages(store, ARRAYS[:1])
    handler.get_pages(before)
    (tmp_path / "pages/a.pages").unlink()

    after = write_pages(store, ARRAYS[1:2])

    assert values(handler.get_pages(after)) == [ARRAYS[1].to_pylist()]


def test_a_file_that_was_deleted_is_not_found_although_it_was_open(tmp_path):
    store = FolderStore(tmp_path)
    handler = PageHandler(store, decoded_bytes=0, compressed_bytes=0)
    pages = write_pages(store, ARRAYS)
    handler.get_pages(pages[:1])
    (tmp_path / "pages/a.pages").unlink()

    with pytest.raises(ObjectNotFoundError):
        handler.get_pages(pages[1:])


def test_what_a_run_holds_is_what_its_descriptors_give(store, pages):
    handler = PageHandler(store)
    loose = [inline_page(ARRAYS[2], 5), constant_page(7, pa.int64(), 3, 6)]
    described = [
        pages[0],
        replace(pages[1], entry_count=3),
        replace(pages[2], entry_count=52),
        *loose,
        pages[4],
    ]
    run = run_of(described)
    trace = ReadTrace()

    (found,) = handler.get_values([run], trace=trace)

    expected = [batch.column("data") for batch in PageHandler(store).get_pages(run.descriptors(0, 6))]
    assert list(map(as_array, found)) == expected
    assert (len(trace.page_ids), trace.misses, trace.compressed_hits) == (6, 4, 2)


def test_a_run_and_descriptors_share_the_caches(store, pages):
    handler = PageHandler(store)
    handler.get_pages(pages)
    before = handler.stats()

    handler.get_values([run_of(pages)])

    assert handler.stats() - before == CacheStats(decoded_hits=6)


def run_of(pages):
    """The pages as columns; their ids become 0, 1, 2, ..."""
    fields = (
        "entry_count",
        "payload_entries",
        "kind",
        "offset",
        "alloc_len",
        "actual_len",
        "checksum",
        "data",
    )
    new = [
        NewPage(
            **{name: getattr(page, name) for name in fields}, path=page.disk_path or None, stats=PageStats(0)
        )
        for page in pages
    ]
    return PageRun(page_batches(new)[0])
