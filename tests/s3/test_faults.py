"""Every fault on every request of a store: the work is done exactly once, or an honest error says so."""

from __future__ import annotations

import pickle
import shutil
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.errors import CommitUnknownError, SparkPagesError, StorageError
from spark_pages.runtime import Runtime
from spark_pages.storage import ObjectStore, open_object_store
from spark_pages.store import Store
from tests.effort import LONG
from tests.invariants import check_store
from tests.s3.proxy import Fault, FaultProxy, Kind
from tests.s3.server import ACCESS_KEY_ID, SECRET_ACCESS_KEY, S3Server, new_url

pytestmark = pytest.mark.s3

TIMEOUT = "300ms"
"""Of clients that are never answered; the others wait for as long as a busy machine takes."""

RETRIES = {
    "max_retries": 3,
    "retry_timeout": timedelta(seconds=10),
    "backoff": {
        "init_backoff": timedelta(milliseconds=2),
        "max_backoff": timedelta(milliseconds=10),
        "base": 2,
    },
}

FAULTS = [
    *(Fault(f"{status}, not applied", "no", status) for status in (409, 412, 429, 500, 503)),
    Fault("dropped, not applied", "no", "drop"),
    Fault("reset, not applied", "no", "reset"),
    Fault("never answered, not applied", "no", "never"),
    *(Fault(f"{status}, applied", "now", status) for status in (409, 412, 429, 500, 503)),
    Fault("dropped, applied", "now", "drop"),
    Fault("reset, applied", "now", "reset"),
    Fault("never answered, applied", "now", "never"),
    Fault("half an answer, applied", "now", "half"),
    Fault("slow answer, applied", "now", "real", delay_s=0.05),
    Fault("trickling answer, applied", "now", "trickle"),
    Fault("500, applied late", "late", 500, late_s=0.05),
    Fault("timeout, applied late", "late", "never", late_s=0.2),
]
NUMBERS = np.random.default_rng(0).integers(0, 2**60, 8_000)
BASE = pa.table({"n": NUMBERS[:4_000]})  # 32 KiB that do not compress: a page file, not inline
MORE = pa.table({"n": NUMBERS[4_000:]})


@dataclass(frozen=True, slots=True)
class Target:
    """Requests that meet a fault, and the work that makes them."""

    kinds: tuple[Kind, ...]
    path: str
    work: Callable[[Store], object]

    @property
    def creates(self) -> bool:
        return Kind.CREATE in self.kinds

    @property
    def reads(self) -> bool:
        return self.work is read


def append(store: Store) -> object:
    with store.transaction(operation="more") as txn:
        txn.append("t", MORE)
    return txn.version


def read(store: Store) -> pa.Table:
    return store.snapshot().table("t").read()


TARGETS = {
    "the slot of a commit": Target((Kind.CREATE,), r"/_log/\d{20}\.avro", append),
    "the page file of a commit": Target((Kind.PUT,), "/pages/", append),
    "the catalog file of a checkpoint": Target((Kind.PUT,), "/_log/catalog/", Store.checkpoint),
    "a segment of a checkpoint": Target((Kind.PUT,), "/_log/segments/", Store.checkpoint),
    "a part of a checkpoint": Target((Kind.PUT,), "/_log/parts/", Store.checkpoint),
    "the root of a checkpoint": Target((Kind.PUT,), "/_log/checkpoints/", Store.checkpoint),
    "the root of a checkpoint read back": Target((Kind.GET,), "/_log/checkpoints/", Store.checkpoint),
    "the hint": Target((Kind.PUT,), "/_last_checkpoint", Store.checkpoint),
    "the hint read": Target((Kind.GET,), "/_last_checkpoint", read),
    "a slot read": Target((Kind.GET,), r"/_log/\d{20}\.avro", read),
    "a root read": Target((Kind.GET,), "/_log/checkpoints/", read),
    "a part read": Target((Kind.GET,), "/_log/parts/", read),
    "a segment read": Target((Kind.GET,), "/_log/segments/", read),
    "a page read": Target((Kind.RANGE,), "/pages/", read),
    "a listing": Target((Kind.LIST,), "", lambda store: store.object_store.list("")),
    "a delete": Target((Kind.DELETE,), "", lambda store: store.object_store.delete("pages/orphan")),
}


NO_HARM = ("real", "trickle")
USUAL = ("409, not applied", "reset, not applied", "503, applied", "half an answer, applied")
ONCE = [
    pytest.param(
        fault,
        target,
        id=f"{fault.name}-{name}",
        marks=[] if target.creates or fault.name in USUAL else [pytest.mark.slow],
    )
    for name, target in TARGETS.items()
    for fault in FAULTS
]
"""Faults that happen to one request: in `make test`, all of them to creates, and the usual ones to others."""

LASTING = [
    pytest.param(fault, target, id=f"{fault.name}-{name}")
    for name, target in TARGETS.items()
    for fault in FAULTS
    if fault.answer not in NO_HARM and (LONG or target.creates or fault.name in USUAL)
]
"""Faults that happen to every request: all of them to creates, and to all else where `LONG` is set."""


def quick(speed: float) -> Runtime:
    """Time passes faster, so that a deadline of a minute comes soon; nobody sleeps long."""
    return replace(
        Runtime(),
        monotonic_s=lambda: time.monotonic() * speed,
        sleep_s=lambda seconds: time.sleep(min(seconds, 0.01)),
    )


def check_error(error: BaseException) -> None:
    """It is ours, names an object or the commit, and shows nothing that the server said."""
    assert isinstance(error, StorageError | CommitUnknownError)
    told = "".join(traceback.format_exception(error)) + repr(error.context)
    pickled = pickle.dumps(error)
    for secret in (ACCESS_KEY_ID, SECRET_ACCESS_KEY):
        assert secret not in told
        assert secret.encode() not in pickled
    assert "_log/" in told or "pages/" in told or "commit" in told or "Listing" in told


class Client:
    """Storage through the proxy, by a client that can be replaced."""

    def __init__(self, now: ObjectStore) -> None:
        self.now = now

    def __getattr__(self, name: str) -> Any:
        return getattr(self.now, name)

    def opened(self, speed: float = 1.0) -> Store:
        """The store, by one who has read nothing yet."""
        return Store(self, quick(speed))


@dataclass(frozen=True, slots=True)
class Place:
    """Where a store is: behind the proxy, and as the folder in which the server keeps it."""

    patient: ObjectStore
    hasty: ObjectStore
    folder: str

    def client(self, fault: Fault) -> Client:
        """A client that gets over the fault."""
        return Client(self.hasty if fault.answer == "never" else self.patient)

    def rows_now(self) -> pa.Table:
        """Read behind the back of proxy and server, by one who knows nothing; every invariant holds."""
        fresh = sp.open(self.folder)
        check_store(fresh)
        return fresh.snapshot().table("t").read()


@pytest.fixture(scope="module")
def shared_proxy(server: S3Server) -> Iterator[FaultProxy]:
    """Clients are built once, because that takes longer than most of these tests."""
    with FaultProxy(server.port) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def template(server: S3Server, shared_proxy: FaultProxy) -> tuple[str, Place]:
    """A table of one page file, a checkpoint, and a commit after it; and the place for its copies."""
    url, copies = new_url(), new_url()
    store = sp.create(url, storage_options=server.options())
    with store.transaction() as txn:
        txn.create_table("t", BASE.schema)
        txn.append("t", BASE)
    store.checkpoint()
    store.object_store.put("pages/orphan", b"x")
    with store.transaction() as txn:
        txn.create_table("other", BASE.schema)
    patient, hasty = (
        open_object_store(copies, shared_proxy.options(timeout, RETRIES)) for timeout in (None, TIMEOUT)
    )
    return server.folder_of(url), Place(patient, hasty, server.folder_of(copies))


@pytest.fixture
def proxy(shared_proxy: FaultProxy) -> Iterator[FaultProxy]:
    yield shared_proxy
    shared_proxy.clear()
    shared_proxy.settle()
    shared_proxy.forget()


@pytest.fixture
def place(template: tuple[str, Place], proxy: FaultProxy) -> Place:
    """The template again as it was."""
    original, place = template
    shutil.rmtree(place.folder, ignore_errors=True)
    shutil.copytree(original, place.folder)
    return place


@pytest.mark.parametrize(("fault", "target"), ONCE)
def test_work_that_meets_one_fault_is_done_once_or_says_that_it_is_not(
    place: Place, proxy: FaultProxy, fault: Fault, target: Target
) -> None:
    client = place.client(fault)
    store = client.opened()
    proxy.inject(fault, *target.kinds, path=target.path)

    done = False
    try:
        target.work(store)
        done = True
    except SparkPagesError as error:
        check_error(error)

    assert proxy.faults == 1
    assert done or not target.creates, "a commit must get over one fault"
    client.now = place.patient
    proxy.settle()
    if target.reads:
        assert read(store).equals(BASE)
        return
    rows = place.rows_now()
    if target.work is append:
        assert rows.num_rows == (8_000 if done else 4_000)
        if not done:
            append(store)
            rows = place.rows_now()
        assert rows["n"].to_numpy().tolist() == NUMBERS.tolist()
    else:
        target.work(store)
        assert rows.equals(BASE)


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(("fault", "target"), LASTING)
def test_work_whose_requests_all_meet_a_fault_ends_in_an_honest_error_or_was_done(
    place: Place, proxy: FaultProxy, fault: Fault, target: Target
) -> None:
    client = place.client(fault)
    store = client.opened(speed=300.0)
    proxy.inject(fault, *target.kinds, path=target.path, times=None)

    done = False
    try:
        target.work(store)
        done = True
    except SparkPagesError as error:
        check_error(error)

    proxy.clear()
    client.now = place.patient
    proxy.settle()
    if target.reads:
        assert read(store).equals(BASE)
        return
    rows = place.rows_now()
    if target.work is not append:
        target.work(store)
        assert rows.equals(BASE)
        return
    assert rows.num_rows in ((8_000,) if done else (4_000, 8_000))
    if fault.applied == "no":
        assert not done
        assert rows.num_rows == 4_000
