"""Scans go by windows: ahead of the caller, within bounds, each page once; over when nobody wants more."""

from __future__ import annotations

import gc
import multiprocessing
import signal
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spark_pages as sp
from spark_pages.errors import DamageError, InvalidInputError
from spark_pages.io import PageHandler, ReadTrace
from spark_pages.model.row_ranges import RowRanges
from spark_pages.query import row_reader, scan
from spark_pages.query.scan import prefetch
from tests.effort import examples
from tests.io.strategies import steady
from tests.transaction.stores import metered, store_with

ROWS = 3_000


@pytest.fixture
def small_windows(monkeypatch):
    """Windows of some 200 rows, so that a small table has many."""
    monkeypatch.setattr(scan, "SHARED_WINDOW_BYTES", (8_000, 8_000, 8_000))
    monkeypatch.setattr(scan, "BATCH_ROWS", 64)


def numbers() -> pa.Table:
    """Columns whose pages end at different rows; too much for the commit itself."""
    random = np.random.default_rng(3)
    return pa.table(
        {
            "n": pa.array(range(ROWS), pa.int64()),
            "flag": pa.array(random.random(ROWS) < 0.5),
            "s": [random.bytes(i % 40).hex() for i in range(ROWS)],
        }
    )


@pytest.fixture
def table(tmp_path):
    """A table on disk, because only pages in files make requests, with many pages."""
    store = sp.create(str(tmp_path / "s"))
    with store.transaction() as txn:
        txn._page_bytes = 1_000
        txn.create_table("t", numbers().schema)
        txn.append("t", numbers())
    return store.snapshot().table("t")


def scanning_threads() -> int:
    return sum(thread.name == "spark-pages scan" for thread in threading.enumerate())


def until(true) -> bool:
    """Whether it comes true before long."""
    for _ in range(6_000):
        if true():
            return True
        time.sleep(0.01)
    return False


@settings(steady, max_examples=examples(20))
@given(st.data())
def test_windows_give_each_row_asked_for_once_and_in_order(data):
    counts = data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=8))
    store = store_with(*(pa.table({"n": list(range(n)), "s": ["x" * i for i in range(n)]}) for n in counts))
    table = store.snapshot().table("t")
    total = sum(counts)
    start = data.draw(st.integers(0, total))
    stop = data.draw(st.integers(start, total))
    drawn = sorted(data.draw(st.sets(st.integers(start, stop), max_size=6))) if start < stop else []
    bounds = np.array(drawn[: len(drawn) // 2 * 2], np.int64).reshape(-1, 2)
    wanted = RowRanges.joined(bounds)
    names = ["n", "s"]
    cut = data.draw(st.integers(0, total))

    found = list(
        scan.plan_windows(
            lambda row, end: [next(table.directory.chain(name).runs(row, end)) for name in names],
            [pa.int64(), pa.string()],
            [wanted.between(0, cut), wanted.between(cut, total)],
            data.draw(st.none() | st.integers(1, 50)),
        )
    )

    rows = [row for ranges in found for row in ranges.rows().tolist()]
    assert rows == wanted.rows().tolist()
    assert all(ranges.num_rows for ranges in found)


@pytest.mark.parametrize("batch_rows", [None, 1, 100, 1_000, 1 << 70])
def test_a_scan_of_many_windows_gives_every_row_and_reads_each_page_once(table, small_windows, batch_rows):
    trace = ReadTrace()

    batches = list(table.scan(batch_rows=batch_rows, trace=trace))

    assert pa.Table.from_batches(batches) == numbers()
    assert max(batch.num_rows for batch in batches) <= (batch_rows or 64)
    assert len(trace.page_ids) == len(set(trace.page_ids)) == table.pages().num_rows


def test_each_column_of_a_window_is_put_together_once_however_many_batches_it_makes(table, monkeypatch):
    columns, one_column = [], row_reader.assembled
    monkeypatch.setattr(
        row_reader, "assembled", lambda parts, kind: columns.append(kind) or one_column(parts, kind)
    )

    batches = list(table.scan(batch_rows=300))

    assert [batch.num_rows for batch in batches] == [300] * 10
    assert pa.Table.from_batches(batches) == numbers()
    assert columns == numbers().schema.types


def test_a_scan_with_a_filter_reads_no_page_twice(table, small_windows):
    trace = ReadTrace()
    whole = numbers()

    found = table.scan(["s", "n"], filter="n % 3 = 0 and flag", trace=trace).read_all()

    passing = pc.and_(pc.equal(pc.remainder(whole["n"], 3), 0), whole["flag"])
    assert found == whole.filter(passing).select(["s", "n"])
    assert len(trace.page_ids) == len(set(trace.page_ids))


def test_pages_of_other_columns_are_read_only_where_a_row_passes(table):
    trace = ReadTrace()

    assert table.scan(["s"], filter=[("n", "in", [5, 2_900])], trace=trace).read_all().num_rows == 2

    assert len(trace.page_ids) == 2 + 2


def test_a_take_of_more_than_the_cache_holds_leaves_it_as_it_is(table, tmp_path, monkeypatch):
    monkeypatch.setattr(row_reader, "_PART_PAGES", 7)
    monkeypatch.setattr(row_reader, "TARGET_PAGE_BYTES", 1_000)
    hot, large = ReadTrace(), ReadTrace()
    small = sp.open(str(tmp_path / "s"), cache=sp.CacheConfig(decoded_bytes=40_000, compressed_bytes=0))
    again = small.snapshot().table("t")
    again.take([5, 6, 7], ["n"])
    rows = np.random.default_rng(1).permutation(ROWS)

    taken = again.take(rows, trace=large)
    again.take([7, 5, 6], ["n"], trace=hot)

    assert taken == numbers().take(rows)
    assert len(large.page_ids) == len(set(large.page_ids)) == again.pages().num_rows
    assert (hot.misses, hot.decoded_hits) == (0, 1)


def test_nothing_is_read_before_the_first_batch_and_no_thread_is_begun_for_it(
    table, small_windows, monkeypatch
):
    loads = []
    obtain = PageHandler._get_or_load
    monkeypatch.setattr(
        PageHandler, "_get_or_load", lambda *args: loads.append(threading.current_thread()) or obtain(*args)
    )

    reader = table.scan()
    assert not loads
    reader.read_next_batch()

    assert set(loads) == {threading.current_thread()}
    assert scanning_threads() == 0


@pytest.mark.parametrize("condition", [None, "n % 3 = 0 and flag"])
def test_a_scan_that_reads_nothing_ahead_gives_the_same_without_a_thread(table, monkeypatch, condition):
    monkeypatch.setattr(scan, "LONE_WINDOW_BYTES", (8_000, 8_000, 8_000))
    monkeypatch.setattr(scan, "BATCH_ROWS", 64)
    loads, trace = [], ReadTrace()
    obtain = PageHandler._get_or_load
    monkeypatch.setattr(
        PageHandler, "_get_or_load", lambda *args: loads.append(threading.current_thread()) or obtain(*args)
    )

    reader = table.scan(filter=condition, trace=trace, prefetch=False)
    first = reader.read_next_batch()
    of_one_window = len(loads)
    found = pa.Table.from_batches([first, *reader])

    assert set(loads) == {threading.current_thread()}
    assert 0 < of_one_window * 5 < len(loads), "the others are read when they are asked for"
    assert found == table.read(filter=condition)
    assert len(trace.page_ids) == len(set(trace.page_ids))


def test_a_scan_that_reads_nothing_ahead_has_windows_of_its_own_size(table, monkeypatch):
    monkeypatch.setattr(scan, "SHARED_WINDOW_BYTES", (8_000, 8_000, 8_000))
    monkeypatch.setattr(scan, "BATCH_ROWS", 64)
    monkeypatch.setattr(scan, "LONE_WINDOW_BYTES", (80_000, 80_000, 80_000))
    one_by_one, alone = ReadTrace(), ReadTrace()

    table.scan(trace=one_by_one).read_next_batch()
    table.scan(trace=alone, prefetch=False).read_next_batch()

    assert len(alone.page_ids) > 2 * len(one_by_one.page_ids)


def test_a_scan_is_never_more_than_two_windows_ahead(table, small_windows):
    begun = []

    def jobs():
        for number in range(20):
            begun.append(number)
            yield lambda number=number: number

    for taken in prefetch(jobs(), 2):
        assert len(begun) - (taken + 1) <= 2
    assert taken == 19


def test_a_reader_that_is_dropped_leaves_no_thread(table, small_windows):
    reader = table.scan()
    reader.read_next_batch()
    for _ in range(10):
        reader.read_next_batch()

    del reader
    gc.collect()

    assert until(lambda: scanning_threads() == 0)


def test_a_scan_that_is_closed_asks_storage_for_no_more_and_leaves_no_thread(small_windows):
    filled = store_with(schema=numbers().schema)
    with filled.transaction() as txn:
        txn._page_bytes = 1_000
        txn.append("t", numbers())
    store, meter = metered(filled)
    table = store.snapshot().table("t")
    reader = table.scan()
    for _ in range(10):
        reader.read_next_batch()

    reader.close()

    assert until(lambda: scanning_threads() == 0)
    asked = meter.counts
    time.sleep(0.1)
    assert meter.counts == asked
    table.scan().read_all()
    assert (meter.counts - asked).ranges > asked.ranges


def test_a_scan_holds_a_few_windows_however_long_the_table(tmp_path, monkeypatch):
    monkeypatch.setattr(scan, "SHARED_WINDOW_BYTES", (1 << 20, 1 << 20, 1 << 20))
    store = sp.create(str(tmp_path / "s"))
    values = np.random.default_rng(1).integers(0, 2**60, 4 << 20)
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("n", pa.int64())]))
        txn.append("t", {"n": values})
    reader = store.snapshot().table("t").scan()
    before, most, rows = pa.total_allocated_bytes(), 0, 0

    for batch in reader:
        rows += batch.num_rows
        most = max(most, pa.total_allocated_bytes() - before)

    assert rows == len(values)
    assert most < 6 << 20, "of 32 MiB"


def test_a_caller_that_is_interrupted_while_it_waits_leaves_no_thread():
    go_on, caller = threading.Event(), threading.main_thread().ident
    jobs = iter([lambda: 0, lambda: go_on.wait(60), lambda: 2])
    ahead = prefetch(jobs, 2)
    next(ahead)

    def waits() -> bool:
        frame = sys._current_frames()[caller]
        codes = (frame.f_code, frame.f_back.f_code)
        return codes == (threading.Condition.wait.__code__, Future.result.__code__)

    def interrupt() -> None:
        assert until(waits)
        signal.pthread_kill(caller, signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # workers of pytest-xdist ignore it
    try:
        with ThreadPoolExecutor(1) as other:
            interrupted = other.submit(interrupt)
            with pytest.raises(KeyboardInterrupt):
                next(ahead)
            interrupted.result()
    finally:
        signal.signal(signal.SIGINT, before)

    go_on.set()
    assert until(lambda: scanning_threads() == 0)


def test_an_error_comes_in_its_turn_and_the_scan_is_over(table, small_windows, monkeypatch):
    obtain = PageHandler._get_or_load
    calls = []

    def failing(*args):
        calls.append(1)
        if len(calls) > 3:
            raise DamageError("a page is not what it was")
        return obtain(*args)

    monkeypatch.setattr(PageHandler, "_get_or_load", failing)
    reader = table.scan(["n"])
    rows = []

    with pytest.raises(DamageError, match="not what it was"):
        rows.extend(row for batch in reader for row in batch["n"].to_pylist())

    assert rows == list(range(len(rows)))
    assert rows
    assert until(lambda: scanning_threads() == 0)


def test_a_scan_that_was_begun_before_a_fork_is_refused_in_the_child(table, small_windows):
    reader = table.scan()
    reader.read_next_batch()
    for _ in range(6):
        reader.read_next_batch()
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()

    def child():
        try:
            for _ in reader:
                pass
        except InvalidInputError as error:
            answers.put(str(error))

    process = context.Process(target=child)
    process.start()
    process.join(30)

    assert process.exitcode == 0
    assert "forked" in answers.get()


def test_a_table_without_columns_asked_for_still_has_its_rows(table):
    assert table.read([]).num_rows == ROWS
    assert table.take([1, 2], []).num_rows == 2
    assert sum(batch.num_rows for batch in table.scan([], start=5)) == ROWS - 5
    assert table.read([], filter="n < 7").num_rows == 7


def test_columns_of_different_lengths_are_read_as_far_as_the_shortest(small_windows):
    store = sp.create("memory://ragged")
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("a", pa.int64()), ("b", pa.string())]), aligned=False)
        txn.append("t", pa.table({"a": list(range(500))}))
        txn.append("t", pa.table({"b": [str(i) for i in range(300)]}))
    table = store.snapshot().table("t")

    assert table.scan().read_all().to_pydict() == {"a": list(range(300)), "b": [str(i) for i in range(300)]}
    assert table.take([299, 0])["a"].to_pylist() == [299, 0]
    assert table.read(filter="b = '299'")["a"].to_pylist() == [299]


@pytest.mark.parametrize(
    "asked", [{}, {"columns": ["s"]}, {"start": 100, "stop": 2_001}, {"start": 7, "stop": 7}]
)
def test_explain_tells_what_a_scan_then_takes(table, small_windows, asked):
    trace = ReadTrace()

    plan = table.explain(**asked)
    assert table.page_handler.stats().requests == 0
    list(table.scan(**asked, trace=trace))

    assert (plan.pages, plan.requests, plan.bytes) == (len(trace.page_ids), trace.requests, trace.bytes_read)
    assert plan.decoded_hits == plan.compressed_hits == plan.skipped == 0


def test_explain_tells_skipped_pages_and_what_the_caches_hold(table):
    condition = [("n", "<", 120)]
    before = table.explain(["n", "s"], filter=condition)
    table.read(["n", "s"], filter=condition)

    after = table.explain(["n", "s"], filter=condition)

    n, s = after.columns
    assert n.tested
    assert not s.tested
    assert n.pages + n.skipped == table.pages("n").num_rows
    assert n.pages < 3
    assert before.requests > 0
    assert (after.requests, after.bytes, after.decoded_hits) == (0, 0, after.pages)
    assert "skipped" in repr(after)
    assert "<table>" in after._repr_html_()


ASKED_OF_EXPLAIN = [
    "s < '1'",
    "flag and n % 7 < 3",
    "s like '7%' or n > 2900",
    "n between 500 and 900",
    "n < 0",
    "n % 100 = 0",
]


@pytest.fixture(scope="module", params=["folder", "memory"])
def url_of_many_pages(request, tmp_path_factory):
    """A store that no test changes, in a folder or in memory."""
    folder = tmp_path_factory.mktemp("explained")
    url = {"folder": str(folder / "s"), "memory": f"memory://{folder.name}"}[request.param]
    with sp.create(url).transaction() as txn:
        txn._page_bytes = 1_000
        txn.create_table("t", numbers().schema)
        txn.append("t", numbers())
    return url


@pytest.mark.parametrize("text", ASKED_OF_EXPLAIN)
@pytest.mark.parametrize("decoded_bytes", [0, 64 << 20])
def test_a_scan_with_a_filter_takes_no_more_than_explain_tells_and_each_page_once(
    url_of_many_pages, small_windows, text, decoded_bytes
):
    url = url_of_many_pages
    table = sp.open(url, cache=sp.CacheConfig(decoded_bytes=decoded_bytes)).snapshot().table("t")
    trace = ReadTrace()

    plan = table.explain(filter=text)
    list(table.scan(filter=text, trace=trace))

    assert len(trace.page_ids) == len(set(trace.page_ids))
    assert len(trace.page_ids) <= plan.pages
    assert trace.requests <= plan.requests
    assert trace.bytes_read <= plan.bytes


def test_a_scan_whose_filter_tests_all_columns_takes_what_explain_tells(table, small_windows):
    trace = ReadTrace()
    text = "n % 7 = 0 or flag or s = 'x'"

    plan = table.explain(filter=text)
    list(table.scan(filter=text, trace=trace))

    assert (plan.pages, plan.requests, plan.bytes) == (len(trace.page_ids), trace.requests, trace.bytes_read)
