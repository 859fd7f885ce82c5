"""Requests that the server applies after the client has given up, and commits whose outcome nobody knows."""

from __future__ import annotations

import pickle
import random
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.errors import CommitConflictError, CommitUnknownError
from spark_pages.runtime import Runtime
from spark_pages.storage import open_object_store
from spark_pages.store import Store
from tests.effort import LONG, examples
from tests.invariants import check_store
from tests.s3.proxy import Fault, FaultProxy, Kind
from tests.s3.server import S3Server, new_url

pytestmark = pytest.mark.s3

SCHEMA = pa.schema([("writer", pa.int64()), ("number", pa.int64())])
SLOT = r"/_log/\d{20}\.avro"
STORES = 6
RUNS = 1_000 if LONG else examples(60)
"""Late requests for each store."""

Row = tuple[int, int]


def row(writer: int, number: int) -> pa.Table:
    return pa.table({"writer": [writer], "number": [number]})


def commit(store: Store, writer: int, number: int) -> int:
    with store.transaction() as txn:
        txn.append("t", row(writer, number))
    assert txn.version is not None
    return txn.version


def rows_of(store: Store) -> list[Row]:
    read = store.snapshot().table("t").read().to_pydict()
    return list(zip(read["writer"], read["number"], strict=True))


def made(server: S3Server, url: str) -> Store:
    store = sp.create(url, storage_options=server.options())
    with store.transaction() as txn:
        txn.create_table("t", SCHEMA)
    return store


def impatient(proxy: FaultProxy, url: str, timeout: str = "1s") -> Store:
    """The store through the proxy, whose minute is a fifth of a second."""
    runtime = replace(
        Runtime(),
        monotonic_s=lambda: time.monotonic() * 300,
        sleep_s=lambda seconds: time.sleep(min(seconds, 0.01)),
    )
    return Store(open_object_store(url, proxy.options(timeout, {"max_retries": 0})), runtime)


@pytest.mark.sampled
def test_commits_whose_puts_arrive_late_are_there_once_beside_those_of_another_writer(
    server: S3Server, proxy: FaultProxy
) -> None:
    """Every second put of a slot arrives late: after 0 to 30 ms, when the slot may be another's."""
    urls = [new_url() for _ in range(STORES)]

    def run(number: int) -> tuple[list[Row], list[Row]]:
        random_ = random.Random(number)
        quiet = replace(Runtime(), sleep_s=lambda seconds: time.sleep(min(seconds, 0.02)))
        direct = made(server, urls[number])
        harmed = Store(open_object_store(urls[number], proxy.options("2s")), quiet)
        told: list[tuple[int, Row]] = []
        for each in range(RUNS):
            told.append((commit(harmed, 0, each), (0, each)))
            if random_.random() < 0.4:
                told.append((commit(direct, 1, each), (1, each)))
            if each % 64 == 63:
                direct.checkpoint()
        proxy.settle(60)
        return [what for _, what in sorted(told)], rows_of(sp.open(urls[number], server.options()))

    random_ = random.Random(7)

    def fault() -> Fault:
        answer = random_.choice((500, 503, "drop", "reset"))
        if random_.random() < 0.5:
            return Fault("late", "late", answer, late_s=random_.random() * 0.03)
        return Fault("in time", "now", "real")

    proxy.inject(fault, Kind.CREATE, path=SLOT, times=None)
    with ThreadPoolExecutor(STORES) as pool:
        results = list(pool.map(run, range(STORES)))

    assert sum(each.fault == "late" for each in proxy.seen) > RUNS * STORES / 2
    for expected, found in results:
        assert found == expected
    check_store(sp.open(server.folder_of(urls[0])))


def test_a_put_that_arrives_after_its_client_timed_out_does_not_double_the_commit(
    server: S3Server, proxy: FaultProxy, url: str
) -> None:
    direct = made(server, url)
    harmed = Store(open_object_store(url, proxy.options("100ms")), Runtime())
    expected = []

    for number in range(20):
        proxy.inject(Fault("late", "late", "never", late_s=0.07 + 0.005 * number), Kind.CREATE, path=SLOT)
        commit(harmed, 0, number)
        commit(direct, 1, number)
        expected += [(0, number), (1, number)]
    proxy.settle()

    assert proxy.faults == 20
    assert rows_of(sp.open(url, server.options())) == expected
    check_store(sp.open(server.folder_of(url)))


def doubtful(server: S3Server, proxy: FaultProxy, url: str, fault: Fault) -> CommitUnknownError:
    """What a writer is told whose puts of slots and reads of them all meet faults; it dies then."""
    made(server, url)
    store = impatient(proxy, url)
    txn = store.transaction()
    txn.append("t", row(0, 0))
    proxy.inject(fault, Kind.CREATE, path=SLOT, times=None)
    proxy.inject(Fault("unreadable", "no", 503), Kind.GET, path=SLOT, times=None)
    with pytest.raises(CommitUnknownError) as caught:
        txn.commit()
    proxy.clear()
    error: CommitUnknownError = pickle.loads(pickle.dumps(caught.value))  # noqa: S301  our own bytes
    return error


@pytest.mark.parametrize(
    "fault",
    [
        Fault("never applied", "no", 503),
        Fault("applied", "now", 503),
        Fault("applied late", "late", 503, late_s=0.4),
    ],
    ids=lambda fault: fault.name,
)
def test_a_commit_in_doubt_is_resumed_by_another_process_and_lands_once(
    server: S3Server, proxy: FaultProxy, url: str, fault: Fault
) -> None:
    error = doubtful(server, proxy, url, fault)
    other = sp.open(url, server.options())

    landed = other.resume(error)
    again = other.resume(error)
    proxy.settle()

    assert landed == again == error.context["version"] == 2
    assert commit(other, 1, 0) == 3
    assert rows_of(sp.open(url, server.options())) == [(0, 0), (1, 0)]
    check_store(sp.open(server.folder_of(url)))


def test_a_commit_in_doubt_whose_slot_went_to_another_is_a_conflict_and_never_lands(
    server: S3Server, proxy: FaultProxy, url: str
) -> None:
    error = doubtful(server, proxy, url, Fault("applied late", "late", 503, late_s=None))
    other = sp.open(url, server.options())

    assert commit(other, 1, 0) == 2
    with pytest.raises(CommitConflictError, match="Cannot find the commit"):
        other.resume(error)
    proxy.settle()

    assert rows_of(sp.open(url, server.options())) == [(1, 0)]
    check_store(sp.open(server.folder_of(url)))


def test_a_resume_while_storage_is_still_away_says_unknown_again(
    server: S3Server, proxy: FaultProxy, url: str
) -> None:
    error = doubtful(server, proxy, url, Fault("never applied", "no", 503))
    store = impatient(proxy, url)
    proxy.inject(Fault("away", "no", 503), path=SLOT, times=None)

    with pytest.raises(CommitUnknownError) as caught:
        store.resume(error)
    proxy.clear()

    assert caught.value.context["data"] == error.context["data"]
    assert store.resume(caught.value) == 2
    assert rows_of(sp.open(url, server.options())) == [(0, 0)]
