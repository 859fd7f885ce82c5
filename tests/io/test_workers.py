from __future__ import annotations

import threading
import time

import pyarrow as pa
import pytest

from spark_pages.format.pages import ipc_layout, page_codec
from spark_pages.io import decode_page, encode_page
from spark_pages.io.workers import SerialQueue, Workers


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


def test_what_many_bring_is_worked_on_once_and_by_one_at_a_time():
    at_work, together, done = [], [], []

    def work(item: int) -> None:
        at_work.append(item)
        together.append(len(at_work))
        time.sleep(0.0001)
        done.append(item)
        at_work.remove(item)

    in_turn = SerialQueue(work)
    Workers(8).run([lambda n=n: in_turn.submit(n) for n in range(200)])

    assert sorted(done) == list(range(200))
    assert set(together) == {1}


def test_who_brings_something_while_another_works_waits_for_nothing():
    gate, begun, done = threading.Event(), threading.Event(), []

    def work(item: str) -> None:
        begun.set()
        assert item == "second" or gate.wait(60)
        done.append(item)

    in_turn = SerialQueue(work)
    first = threading.Thread(target=in_turn.submit, args=("first",))
    first.start()
    assert begun.wait(60)

    in_turn.submit("second")

    assert done == []
    gate.set()
    first.join(60)
    assert done == ["first", "second"]


def test_work_that_fails_is_told_to_who_did_it_and_the_rest_goes_on():
    in_turn = SerialQueue(lambda item: fail() if item == 1 else done.append(item))
    done = []

    with pytest.raises(ValueError, match="the first"):
        in_turn.submit(1)
    in_turn.submit(2)

    assert done == [2]


def test_a_schema_that_was_seen_before_is_not_parsed_again(monkeypatch):
    parsed = []
    real = page_codec._read_schema
    monkeypatch.setattr(page_codec, "_schemas", {})
    monkeypatch.setattr(ipc_layout, "_shapes", {})
    monkeypatch.setattr(page_codec, "_read_schema", lambda *each: parsed.append(1) or real(*each))
    pages = [encode_page(pa.array([n, n + 1])) for n in range(5)]

    found = [decode_page(page.data, where="", expected_checksum=None, expected_entries=2) for page in pages]

    assert [batch.column(0).to_pylist() for batch in found] == [[n, n + 1] for n in range(5)]
    assert parsed == [1]
