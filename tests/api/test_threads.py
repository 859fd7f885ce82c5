"""Where the system starts no more threads, what is done in several is done in one, or refused by name."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.errors import StorageError
from spark_pages.io.workers import Workers
from spark_pages.service.serving import Serving
from spark_pages.service.settings import ServiceSettings
from tests.api.calls import QUIET

ROWS = 400_000


@pytest.fixture
def store(url):
    store = sp.create(f"memory://{url.rpartition('/')[2]}", properties=QUIET)
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([(name, pa.int64()) for name in "ab"]))
        txn.append("t", {name: range(ROWS) for name in "ab"})
    return store


@pytest.fixture
def _no_threads(monkeypatch):
    def start(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)


@pytest.mark.usefixtures("_no_threads")
def test_reads_scans_writes_and_checks_do_without_threads(store):
    with store.transaction() as txn:
        txn.append("t", {"a": [1], "b": [1]})
        txn.update_rows("t", [0, ROWS - 1], {"a": [7, 8]})

    table = sp.open(store.url).snapshot().table("t")

    assert table.read().num_rows == table.scan().read_all().num_rows == ROWS + 1
    assert table.take([0, ROWS - 1])["a"].to_pylist() == [7, 8]
    assert store.verify("all").ok


@pytest.mark.usefixtures("_no_threads")
def test_jobs_of_a_call_are_all_done_by_its_own_thread():
    done = []
    workers = Workers(8)

    workers.run([lambda number=number: done.append(number) for number in range(20)])

    assert done == list(range(20))


def test_no_job_is_begun_after_its_call_where_threads_run_out_halfway(monkeypatch):
    done, start = [], threading.Thread.start
    left = iter([True])
    monkeypatch.setattr(
        threading.Thread, "start", lambda thread: start(thread) if next(left, False) else fail()
    )
    workers = Workers(8)

    workers.run([lambda number=number: done.append(number) for number in range(20)])
    seen = sorted(done)
    monkeypatch.undo()
    workers.run([lambda: None] * 20)

    assert seen == sorted(done) == list(range(20))


def fail():
    raise RuntimeError("can't start new thread")


@pytest.mark.usefixtures("_no_threads")
def test_a_service_that_gets_no_thread_says_so(store):
    with pytest.raises(StorageError, match="starts no more threads") as failed:
        Serving(store.object_store, ServiceSettings(http_port=0), None)

    assert "ulimit -u" in failed.value.hint
