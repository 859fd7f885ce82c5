"""A client that asks and does not read holds neither place nor memory of its answer past the deadline."""

from __future__ import annotations

import gc
import json
import os
import socket
import threading
import time
import weakref
from contextlib import suppress
from itertools import count

import pyarrow as pa
import pyarrow.flight as fl
import pytest

import spark_pages as sp
from spark_pages.errors import StorageError
from spark_pages.service import flight_server
from spark_pages.service.call_limits import AdmissionControl, ClientConnection, Deadlines, UnreadAnswers
from spark_pages.service.flight_server import _Batches
from spark_pages.service.serving import Serving
from spark_pages.service.settings import ServiceSettings
from spark_pages.service.wire import BytesFrame, Frame

MESSAGE = 1 << 20
PLACES = 2
NUMBERS = count()
HOST = "ipv4:127.0.0.1"


class Call:
    """A call that tells when it is ended."""

    def __init__(self) -> None:
        self.ended = threading.Event()

    def end(self) -> None:
        self.ended.set()


class KnownFrame(BytesFrame):
    """An answer of which can be told whether it is still there."""


def batches_of(frame: Frame | BytesFrame, gate: AdmissionControl) -> _Batches:
    settings = ServiceSettings(message_bytes=MESSAGE)
    return _Batches(frame, settings, gate.enter(), time.monotonic() + 60, lambda _: None)


@pytest.fixture
def gate() -> AdmissionControl:
    return AdmissionControl(1, lambda: None, lambda: None)


@pytest.fixture
def served():
    """A service of two places and 0.6 s, of a table whose answers are longer than Flight sends ahead."""
    store = sp.create(f"memory://stalled-readers-{next(NUMBERS)}")
    with store.transaction() as txn:
        txn.create_table("big", pa.schema([("b", pa.binary())]), properties={"codec": "none"})
        txn.append("big", {"b": [os.urandom(1000) for _ in range(20_000)]})
    store.checkpoint()
    settings = ServiceSettings(calls=PLACES, deadline_s=0.6, message_bytes=MESSAGE)
    serving = Serving(store.object_store, settings, verifier=None)
    yield store, serving, f"grpc://127.0.0.1:{serving.port}"
    serving.drain()


def stall(url: str, store: sp.Store) -> tuple[fl.FlightClient, fl.FlightStreamReader]:
    """Ask for 20 MB and read one message."""
    client = fl.FlightClient(url, generic_options=[("grpc.use_local_subchannel_pool", 1)])
    named = {"db": "default", "table": "big", "version": store.snapshot().version}
    chunks = list(
        client.do_get(question(get="get_table_meta_snapshot", **named))
    )  # to the end: its place is free
    header = json.loads(chunks[0].app_metadata.to_pybytes())
    piece = [1, header["places"]["1"][0][0], "", -1, 0]
    pages = store.snapshot().table("big").pages().to_pylist()
    ranges = [[page["offset"], page["actual_len"]] for page in pages]
    reader = client.do_get(
        question(get="bytes", path=pages[0]["path"], ranges=ranges, pieces=[piece], **named)
    )
    reader.read_chunk()
    return client, reader


def unread_by(serving: Serving) -> int:
    """Count the answers that were ended at their deadline while Flight sends them."""
    return len(serving._flight._unread._by_host.get(HOST, ()))


def leave_unread(
    store: sp.Store, serving: Serving, url: str
) -> list[tuple[fl.FlightClient, fl.FlightStreamReader]]:
    """Leave as many answers unread as there are places.

    On a busy machine, an answer may reach its deadline before Flight sends it; then another one is asked for.
    """
    held = []
    while unread_by(serving) < PLACES:
        with suppress(fl.FlightError):
            held.append(stall(url, store))
        while serving._flight.gate._inside:
            time.sleep(0.01)
    return held


def question(**fields: object) -> fl.Ticket:
    return fl.Ticket(json.dumps(fields).encode())


def test_places_are_given_back_at_the_deadline_though_nobody_reads(served):
    store, serving, url = served
    held = leave_unread(store, serving, url)

    assert serving._flight.gate.close(60.0)  # nobody is inside any more
    assert len(held) >= PLACES


def num_threads() -> int:
    return len(os.listdir("/proc/self/task"))


@pytest.fixture
def answers(monkeypatch) -> list[weakref.ref[_Batches]]:
    """Every answer of rows that is begun."""
    found: list[weakref.ref[_Batches]] = []

    def begun(*args: object) -> _Batches:
        batches = _Batches(*args)
        found.append(weakref.ref(batches))
        return batches

    monkeypatch.setattr(flight_server, "_Batches", begun)
    return found


def is_gone(answer: weakref.ref[_Batches]) -> bool:
    """Whether Flight lets go of an answer, and of the thread that sends it, within half a minute."""
    for _ in range(3_000):
        if answer() is None:
            return True
        time.sleep(0.01)
    return False


def test_threads_and_messages_are_given_back_soon_after_the_deadline_though_nobody_reads(served, answers):
    store, _, url = served
    held = [stall(url, store) for _ in range(PLACES)]

    assert len(answers) == 2 * PLACES
    assert all(map(is_gone, answers))

    assert sp.connect(url, retry_s=10.0).snapshot().table("big").num_rows == 20_000
    assert len(held) == PLACES


def test_clients_that_come_again_and_again_and_never_read_leave_no_threads_behind(served, answers):
    store, _, url = served
    threads = []
    for _ in range(4):
        held = stall(url, store)
        assert all(map(is_gone, answers))
        threads.append(num_threads())
        del held

    assert threads[-1] <= threads[0] + 4


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("form", ["{}:{}", "[{}]:{}", "%5B{}%5D:{}"])
def test_a_connection_is_found_by_its_address_and_others_go_on(host, form):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as server:
        one, other = (socket.create_connection(server.getsockname()[:2]) for _ in range(2))
        ends = [server.accept()[0] for _ in range(2)]
        peer = f"ipv{6 if ':' in host else 4}:" + form.format(host, one.getsockname()[1])

        ClientConnection(peer).end()
        ClientConnection("unix:").end()
        ClientConnection("ipv4:127.0.0.1:1").end()

        other.sendall(b"x")
        assert one.recv(1) == b""
        assert ends[1].recv(1) == b"x"
        for each in (one, other, *ends):
            each.close()


def test_a_host_that_leaves_answers_unread_is_refused_until_it_closes_them(served, monkeypatch):
    monkeypatch.setattr(flight_server, "GRACE_S", 60.0)
    store, serving, url = served
    held = leave_unread(store, serving, url)

    with pytest.raises(StorageError, match="2 answers that it does not read"):
        sp.connect(url, retry_s=0).snapshot().table("big")
    for client, reader in held:
        reader.cancel()
        client.close()
    del held, client, reader

    assert sp.connect(url, retry_s=30.0).snapshot().table("big").num_rows == 20_000


def test_an_answer_that_is_ended_holds_nothing_but_the_message_on_its_way(gate):
    frame = KnownFrame([bytes(8 * MESSAGE)])
    known, batches = weakref.ref(frame), batches_of(frame, gate)
    del frame
    (batch, _) = next(batches)

    batches.end()

    assert known() is None
    assert batch.get_total_buffer_size() < 2 * MESSAGE
    assert gate.close(0.0)
    with pytest.raises(fl.FlightError, match="took longer than it may"):
        next(batches)


def test_a_message_of_descriptors_does_not_hold_the_others():
    rows = pa.record_batch({"n": pa.array(range(1 << 20), pa.int64())})

    parts = list(Frame({}, rows).split(MESSAGE))

    assert pa.Table.from_batches(parts).equals(pa.Table.from_batches([rows]))
    assert max(part.get_total_buffer_size() for part in parts) <= MESSAGE


@pytest.mark.parametrize("lengths", [[0], [], [5], [3, 0, 4], [10, 25], [1] * 30])
def test_stretches_arrive_whole_in_messages_of_bounded_size(lengths):
    parts = [bytes([number]) * length for number, length in enumerate(lengths)]

    batches = list(BytesFrame(parts).split(10))

    rows = [row for batch in batches for row in batch.to_pylist()]
    joined = [b"".join(row["data"] for row in rows if row["range"] == number) for number in range(len(parts))]
    assert joined == parts
    assert len(batches) >= 1
    assert max(sum(len(row["data"]) for row in batch.to_pylist()) for batch in batches) <= 10


def test_calls_are_ended_in_order_and_those_that_are_gone_are_not_waited_for():
    deadlines, now = Deadlines(time.monotonic), time.monotonic()
    first, gone, last = Call(), Call(), Call()
    deadlines.watch(first, now)
    deadlines.watch(gone, now + 0.01)
    del gone

    deadlines.watch(last, now + 0.05)

    assert first.ended.wait(60)
    assert last.ended.wait(60)


def test_the_thread_ends_with_its_last_call_and_begins_again_with_the_next():
    deadlines, one, other = Deadlines(time.monotonic), Call(), Call()
    deadlines.watch(one, time.monotonic())
    one.ended.wait(60)
    while deadlines._running:
        time.sleep(0.001)

    deadlines.watch(other, time.monotonic())

    assert other.ended.wait(60)


def test_unread_answers_are_counted_by_host_for_as_long_as_they_are_there():
    unread, call = UnreadAnswers(1), Call()
    unread.add("a", call)

    with pytest.raises(StorageError, match="a: it has asked for 1 answers"):
        unread.check("a")
    unread.check("b")
    del call
    gc.collect()
    unread.check("a")
