from __future__ import annotations

import threading
import time

import pyarrow as pa
import pytest

from spark_pages.io import decode_page, encode_page, page_payload, stream_shape
from spark_pages.io.workers import Workers


def fail() -> None:
    raise ValueError("the first")


@pytest.mark.parametrize("threads", [1, 4])
def test_every_job_is_done_once(threads):
    done = []

    Workers(threads).run([lambda n=n: done.append(n) for n in range(50)])

    assert sorted(done) == list(range(50))


def test_no_job_is_begun_after_one_that_failed():
    done = []

    with pytest.raises(ValueError, match="the first"):
        Workers(1).run([lambda: done.append(1), fail, lambda: done.append(2)])

    assert done == [1]


def test_a_failure_is_raised_when_no_job_runs_any_more():
    begun, gate, done = threading.Event(), threading.Event(), []

    def slow() -> None:
        begun.set()
        gate.wait(30)
        done.append(1)

    def fail_meanwhile() -> None:
        begun.wait(30)
        threading.Timer(0.05, gate.set).start()
        fail()

    with pytest.raises(ValueError, match="the first"):
        Workers(2).run([slow, fail_meanwhile])

    assert done == [1]


@pytest.mark.parametrize("threads", [1, 4])
def test_what_jobs_give_comes_as_it_is_done_while_others_still_run(threads):
    gate = threading.Event()

    def last() -> int:
        assert gate.wait(60)
        return 2

    found = []
    for number in Workers(threads).each([*([lambda: 1] * 20), last]):
        found.append(number)
        if len(found) == 20 - (threads == 1):
            gate.set()

    assert sorted(found) == [1] * 20 + [2]


def test_who_stops_listening_leaves_no_job_behind():
    begun = []

    def job() -> None:
        begun.append(1)
        time.sleep(0.01)

    workers = Workers(3)
    for _ in workers.each([job] * 50):
        break
    left = len(begun)

    time.sleep(0.1)
    assert len(begun) == left < 50


def test_a_schema_that_was_seen_before_is_not_parsed_again(monkeypatch):
    parsed = []
    real = page_payload._read_schema
    monkeypatch.setattr(page_payload, "_schemas", {})
    monkeypatch.setattr(stream_shape, "_shapes", {})
    monkeypatch.setattr(page_payload, "_read_schema", lambda *each: parsed.append(1) or real(*each))
    pages = [encode_page(pa.array([n, n + 1])) for n in range(5)]

    found = [decode_page(page.data, where="", expected_checksum=None, expected_entries=2) for page in pages]

    assert [batch.column(0).to_pylist() for batch in found] == [[n, n + 1] for n in range(5)]
    assert parsed == [1]
