"""What the service refuses, how it ends, and what it tells of itself."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import spark_pages as sp
from spark_pages.errors import InvalidInputError, SparkPagesError, StorageError
from spark_pages.service.failures import from_flight
from spark_pages.storage import MeteredStore
from tests.effort import examples
from tests.service.conftest import Served, token
from tests.service.stores import store_with_a_past, write_more

_TEXTS = st.sampled_from(
    ["", "default", "t", "private", "../x", "\x00", "é" * 3, "x" * 5000, "pages/x", "get_table_meta_snapshot"]
)
_NUMBERS = st.sampled_from([-1, 0, 1, 7, 1 << 31, (1 << 63) - 1, 1 << 63, 1 << 70, True, 1.5])
_PIECES = st.lists(st.one_of(_NUMBERS, _TEXTS), max_size=6)
_VALUES = st.one_of(_TEXTS, _NUMBERS, st.none(), _PIECES, st.lists(_PIECES, max_size=3), st.just({}))
_NAMES = [
    "db",
    "table",
    "version",
    "from",
    "to",
    "piece",
    "path",
    "ranges",
    "pieces",
    "blooms",
    "timestamp_us",
    "tag",
    "start",
    "end",
    "column",
    "granularity",
    "limit",
]
_GETS = [
    "get_table_meta_snapshot",
    "collect_table_meta_changes_in_range",
    "part",
    "piece",
    "stats",
    "bytes",
    "pages",
    "history",
    "changes",
    "tags",
    "leases",
    "?",
]
_WELL_FORMED = {"db": "default", "table": "t", "version": 5, "from": 3, "to": 5, "piece": [1, "", "", 5, 0]}


class Gated(MeteredStore):
    """A store whose next request waits until it is let go."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.closed = False
        self.waiting = threading.Event()
        self.go = threading.Event()

    def get(self, key: str, *most: int) -> bytes:
        self._wait()
        return super().get(key, *most)

    def stamps(self, keys: Sequence[str]) -> list[str | None]:
        self._wait()
        return super().stamps(keys)

    def _wait(self) -> None:
        if self.closed:
            self.waiting.set()
            self.go.wait(60)


@pytest.fixture(scope="module")
def fuzzed(ca, certificate):
    served = Served(store_with_a_past(versions=2).object_store, ca, certificate, question_bytes=8192)
    client = fl.FlightClient(served.url, tls_root_certs=served.ca)
    options = fl.FlightCallOptions(headers=[(b"authorization", f"Bearer {token()}".encode())], timeout=60)
    yield served, client, options
    client.close()
    served.close()


def check_refused(ask) -> None:
    """A named error of ours or an answer; never a traceback, never a dead service."""
    refused: list[pa.ArrowException] = []
    try:
        ask()
    except pa.ArrowException as error:
        refused.append(error)
    for error in refused:
        assert "Traceback" not in str(error)
        assert error.extra_info, f"no named error: {type(error)} {str(error)[:300]}"
        named = from_flight(error, "x")
        assert type(named).__name__ != "InternalError", named
        assert named.message


@given(body=st.one_of(st.binary(max_size=200), st.binary(max_size=4).map(lambda head: b"[" * 9000 + head)))
@settings(
    max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_bytes_that_are_no_question_are_refused_by_name(fuzzed, body):
    _, client, options = fuzzed

    check_refused(lambda: client.do_get(fl.Ticket(body), options).read_all())
    for name in ("open", "version", "tables", "blame", "nothing"):
        check_refused(lambda name=name: list(client.do_action(fl.Action(name, body), options)))


@given(
    get=st.sampled_from(_GETS),
    fields=st.dictionaries(st.sampled_from(_NAMES), _VALUES, max_size=6),
    base=st.sampled_from([{}, _WELL_FORMED]),
)
@settings(
    max_examples=examples(80), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_questions_with_wrong_fields_are_refused_by_name(fuzzed, get, fields, base):
    _, client, options = fuzzed
    asked = json.dumps({**base, **fields, "get": get}).encode()

    check_refused(lambda: client.do_get(fl.Ticket(asked), options).read_all())
    check_refused(lambda: list(client.do_action(fl.Action("version", asked), options)))


def test_what_flight_has_beside_questions_is_refused_by_name(fuzzed):
    served, client, options = fuzzed
    path = fl.FlightDescriptor.for_path("x")

    with pytest.raises(fl.FlightError) as caught:
        client.do_put(path, pa.schema([]), options)[0].close()
    assert isinstance(from_flight(caught.value, served.url), InvalidInputError)
    with pytest.raises(
        (fl.FlightError, OSError), match="answers actions"
    ) as caught:  # pyarrow loses its kind
        client.get_schema(path, options)
    assert "Traceback" not in str(caught.value)
    with pytest.raises(fl.FlightError) as caught:
        client.do_exchange(path, options)[1].read_all()
    assert isinstance(from_flight(caught.value, served.url), InvalidInputError)
    assert client.do_get(
        fl.Ticket(json.dumps({**_WELL_FORMED, "get": "get_table_meta_snapshot"}).encode()), options
    ).read_all()


def test_questions_and_answers_that_are_too_large_are_refused(serve):
    store = store_with_a_past(versions=2)
    served = serve(store, question_bytes=2000, answer_bytes=1000)
    client = served.connect()

    with pytest.raises(InvalidInputError, match=r"has [0-9]+ bytes, expected at most 2000"):
        client._calls.request("version", tag="x" * 3000)
    with pytest.raises(InvalidInputError, match="asks for 1001 bytes, expected at most 1000"):
        client._calls.get(
            "bytes", db="default", table="t", version=5, path="pages/x",
            ranges=[[0, 501], [0, 500]], pieces=[[1, "", "", 5, 0]],
        )  # fmt: skip


def test_answers_come_in_messages_of_bounded_size(serve):
    store = store_with_a_past()
    client = serve(store, message_bytes=2000).connect()
    _, batches = client._calls.get("get_table_meta_snapshot", db="default", table="t")

    assert len(batches) > 3
    assert max(batch.nbytes for batch in batches) < 4000
    assert client.snapshot().table("t").read().equals(store.snapshot().table("t").read())


def test_a_call_that_takes_too_long_is_refused_and_still_counts_until_its_work_ends(serve, monkeypatch):
    store = store_with_a_past(versions=1)
    gated = Gated(store.object_store)
    served = serve(gated)
    client = served.connect()
    gated.closed = True

    with monkeypatch.context() as patch:
        patch.setattr(served.serving._flight, "_settings", replace(served.settings, deadline_s=0.2))
        with pytest.raises(StorageError, match="Cannot get an answer of the service"):
            client.snapshot()
    assert b"spark_pages_calls_in_flight 1.0" in served.serving.metrics.text()

    gated.closed = False
    gated.go.set()
    while b"spark_pages_calls_in_flight 0.0" not in served.serving.metrics.text():
        gated.go.wait(0.01)
    assert client.snapshot().version > 0


READS_THE_LOG = {
    "history": lambda client: client.history(),
    "changes": lambda client: client.changes(0, 3),
    "blame": lambda client: client.blame("t", "n", 0),
    "leases": lambda client: client.leases(),
    "tags": lambda client: client.tags(),
    "snapshot": lambda client: client.get_table_meta_snapshot("default", "t"),
    "flights": lambda client: list(client._calls._channel().list_flights(b"", with_token())),
}


def with_token() -> fl.FlightCallOptions:
    return fl.FlightCallOptions(headers=[(b"authorization", f"Bearer {token()}".encode())], timeout=60)


@pytest.mark.parametrize("call", READS_THE_LOG.values(), ids=READS_THE_LOG)
def test_whatever_reads_the_log_has_a_deadline_and_a_place(serve, monkeypatch, call):
    gated = Gated(store_with_a_past(versions=1).object_store)
    served = serve(gated)
    client = served.connect()
    gated.closed = True

    with monkeypatch.context() as patch:
        patch.setattr(served.serving._flight, "_settings", replace(served.settings, deadline_s=0.2))
        with pytest.raises((StorageError, fl.FlightError), match=r"Cannot get an answer of the service"):
            call(client)
    assert b"spark_pages_calls_in_flight 1.0" in served.serving.metrics.text()

    gated.closed = False
    gated.go.set()
    while b"spark_pages_calls_in_flight 0.0" not in served.serving.metrics.text():
        gated.go.wait(0.01)
    call(client)


def test_a_client_does_not_wait_longer_than_it_said(serve):
    gated = Gated(store_with_a_past(versions=1).object_store)
    client = serve(gated).connect(timeout_s=30.0)
    client._calls._timeout_s = 0.3
    gated.closed = True

    with pytest.raises(StorageError, match="took longer than it may"):
        client.snapshot()

    gated.closed = False
    gated.go.set()


def test_too_many_calls_at_once_are_refused_and_come_through_when_they_try_again(serve):
    gated = Gated(store_with_a_past(versions=1).object_store)
    served = serve(gated, calls=1)
    blocked, hasty, patient = served.connect(), served.connect(), served.connect(retry_s=60.0)
    gated.closed = True
    thread = threading.Thread(target=blocked.snapshot)
    thread.start()
    gated.waiting.wait(30)

    with pytest.raises(StorageError, match="takes no more"):
        hasty.snapshot()
    gated.closed = False
    threading.Timer(0.3, gated.go.set).start()
    assert patient.snapshot().version > 0
    thread.join()


def test_when_it_ends_calls_in_flight_are_done_and_new_ones_refused(serve):
    gated = Gated(store_with_a_past(versions=1).object_store)
    served = serve(gated, drain_s=60.0)
    inside, late = served.connect(), served.connect()
    gated.closed = True
    answers: list[int] = []
    call = threading.Thread(target=lambda: answers.append(inside.snapshot().version))
    call.start()
    gated.waiting.wait(30)
    drained: list[bool] = []
    ending = threading.Thread(target=lambda: drained.append(served.serving.drain()))
    ending.start()
    while served.serving._flight.gate.is_open:
        pass

    with pytest.raises(StorageError, match="is ending and takes no more"):
        late.snapshot()
    assert health(served) == (503, "draining")
    assert json.loads(next(iter(raw(served).do_action(fl.Action("health", b"")))).body.to_pybytes()) == {
        "status": "draining"
    }
    gated.closed = False
    gated.go.set()
    call.join()
    ending.join()
    assert drained == [True]
    assert answers


def test_a_call_that_hangs_is_left_behind_when_the_time_is_up(serve):
    gated = Gated(store_with_a_past(versions=1).object_store)
    served = serve(gated)
    client = served.connect()
    gated.closed = True
    answers: list[int] = []
    call = threading.Thread(target=lambda: answers.append(client.snapshot().version))
    call.start()
    gated.waiting.wait(30)

    assert served.serving._flight.gate.close(0.05) is False

    gated.closed = False
    gated.go.set()
    call.join()
    assert answers


def test_a_client_goes_on_when_the_service_comes_back(ca, certificate):
    store = store_with_a_past(versions=2)
    first = Served(store.object_store, ca, certificate)
    client = first.connect(retry_s=60.0)
    rows = client.snapshot().table("t").read()
    first.serving.drain()
    version = write_more(store)
    back: list[Served] = []

    def come_back() -> None:
        back.append(Served(store.object_store, ca, certificate, port=first.serving.port))

    timer = threading.Timer(0.5, come_back)
    timer.start()
    snapshot = client.snapshot()

    assert snapshot.version == version
    assert snapshot.table("t").read(stop=rows.num_rows).equals(rows)
    timer.join()
    first.opened[0].close()
    back[0].close()


def test_after_a_failure_the_next_call_does_not_wait_for_the_old_channel(serve):
    served = serve(store_with_a_past(versions=1))
    client = served.connect()
    channel = client._calls._channel()
    served.serving.drain()

    with pytest.raises(StorageError):
        client.snapshot()

    assert client._calls._channel() is not channel


def test_metrics_and_health_tell_how_the_service_is(serve):
    store = store_with_a_past(versions=1)
    served = serve(store)
    client = served.connect()
    client.snapshot().table("t").read()
    with pytest.raises(SparkPagesError):
        client.snapshot(999)

    text = fetch(served, "/metrics").decode()

    assert f"spark_pages_version {float(store.snapshot().version)}" in text
    assert 'spark_pages_calls_total{call="get_table_meta_snapshot",outcome="ok"} 1.0' in text
    assert 'spark_pages_calls_total{call="version",outcome="VersionNotFoundError"} 1.0' in text
    assert "spark_pages_calls_in_flight 0.0" in text
    assert 'spark_pages_call_seconds_count{call="version"}' in text
    assert health(served) == (200, "serving")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        fetch(served, "/other")


def test_names_of_calls_that_do_not_exist_make_no_new_metrics(serve):
    served = serve(store_with_a_past(versions=1))
    client = served.connect()
    for number in range(5):
        with pytest.raises(InvalidInputError, match="Cannot answer action"):
            client._calls.request(f"made up {number}")
        with pytest.raises(InvalidInputError, match="Cannot answer 'get'"):
            client._calls.get(f"made up {number}")

    assert b"made up" not in served.serving.metrics.text()
    assert b'call="unknown",outcome="InvalidInputError"} 10.0' in served.serving.metrics.text()


def test_a_bug_is_told_by_the_name_of_an_incident_and_nothing_of_its_insides(serve, monkeypatch, caplog):
    served = serve(store_with_a_past(versions=1))
    client = served.connect()

    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("insides")

    monkeypatch.setattr(served.serving.metadata, "version_info", broken)
    with pytest.raises(sp.SparkPagesError, match=r"incident [0-9a-f]{12}") as caught:
        client.snapshot()

    assert type(caught.value).__name__ == "InternalError"
    assert "insides" not in str(caught.value)
    assert "insides" in caplog.text


def raw(served: Served) -> fl.FlightClient:
    return fl.FlightClient(served.url, tls_root_certs=served.ca)


def fetch(served: Served, path: str) -> bytes:
    url = f"http://127.0.0.1:{served.serving.http_port}{path}"
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.read()


def health(served: Served) -> tuple[int, str]:
    try:
        return 200, json.loads(fetch(served, "/health"))["status"]
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["status"]
