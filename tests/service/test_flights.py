"""What a client that knows Arrow Flight alone sees of a service: tables as flights of page descriptors."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.flight as fl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_pages.service import table_flights
from spark_pages.service.table_flights import pages_schema
from spark_pages.store import Store
from tests.effort import examples
from tests.service.conftest import Served, token
from tests.service.stores import store_with_a_past


class Generic:
    """A Flight client with a token."""

    def __init__(self, served: Served, scope: str) -> None:
        self.client = fl.FlightClient(served.url, tls_root_certs=served.ca)
        self.options = fl.FlightCallOptions(
            timeout=60, headers=[(b"authorization", b"Bearer " + token(scope).encode())]
        )

    def list(self, criteria: bytes = b"") -> list[fl.FlightInfo]:
        return list(self.client.list_flights(criteria, self.options))

    def info(self, *path: str | bytes) -> fl.FlightInfo:
        return self.client.get_flight_info(fl.FlightDescriptor.for_path(*path), self.options)

    def command(self, **fields: object) -> fl.FlightInfo:
        descriptor = fl.FlightDescriptor.for_command(json.dumps(fields).encode())
        return self.client.get_flight_info(descriptor, self.options)

    def rows(self, info: fl.FlightInfo) -> pa.Table:
        parts = [self.client.do_get(each.ticket, self.options).read_all() for each in info.endpoints]
        return pa.concat_tables([info.schema.empty_table(), *parts])

    def pages(self, **fields: object) -> pa.Table:
        ticket = fl.Ticket(json.dumps({"get": "pages", **fields}).encode())
        return self.client.do_get(ticket, self.options).read_all()


@pytest.fixture(scope="module")
def past() -> Store:
    store = store_with_a_past()
    store.checkpoint()
    with store.transaction() as txn:
        txn.update_rows("t", [3], {"v": [7]})
    return store


@pytest.fixture
def generic(past, serve):
    served = serve(past)
    made: list[Generic] = []

    def client(scope: str = "read:*") -> Generic:
        made.append(Generic(served, scope))
        return made[-1]

    yield client
    for each in made:
        each.client.close()


def paths(found: list[fl.FlightInfo]) -> list[tuple[str, ...]]:
    return sorted(tuple(part.decode() for part in each.descriptor.path) for each in found)


def test_tables_are_listed_as_flights_and_those_of_one_namespace_by_its_name(generic):
    client = generic()

    assert paths(client.list()) == [("default", "other"), ("default", "t"), ("private", "secrets")]
    assert paths(client.list(b"private")) == [("private", "secrets")]
    assert client.list(b"nowhere") == []
    assert all(each.schema == pages_schema() for each in client.list())


def test_a_flight_has_the_page_descriptors_of_its_table(generic, past, monkeypatch):
    # given
    monkeypatch.setattr(table_flights, "PAGES_OF_A_TICKET", 2)
    client, table = generic(), past.snapshot().table("t")
    # when
    info = client.info("default", "t")
    rows = client.rows(info)
    # then
    assert rows.equals(table.pages())
    assert (info.total_records, info.ordered) == (rows.num_rows, True)
    assert len(info.endpoints) > len(table.columns)


def test_a_flight_of_an_older_version_is_asked_for_by_a_command(generic, past):
    client = generic()

    info = client.command(db="DEFAULT", table="t", version=4)

    assert json.loads(info.app_metadata) == {"version": 4}
    assert client.rows(info).equals(past.snapshot(4).table("t").pages())


def test_a_flight_that_was_found_stays_at_its_version(generic, past):
    client = generic()
    info, pages = client.info("default", "other"), past.snapshot().table("other").pages()

    past.append("other", pa.table({"x": pa.array([1], pa.int32())}))

    assert client.rows(info).equals(pages)


def test_a_token_finds_flights_of_its_namespaces_alone(generic):
    client = generic("read:default")

    assert paths(client.list()) == [("default", "other"), ("default", "t")]
    with pytest.raises(fl.FlightUnauthorizedError, match="does not allow"):
        client.info("private", "secrets")
    with pytest.raises(fl.FlightUnauthorizedError, match="does not allow"):
        client.pages(db="private", table="secrets", version=5, column="s", start=0, stop=1)


def test_a_call_without_a_token_finds_no_flight(past, serve):
    served = serve(past)
    client = fl.FlightClient(served.url, tls_root_certs=served.ca)

    with pytest.raises(fl.FlightUnauthenticatedError):
        list(client.list_flights())
    with pytest.raises(fl.FlightUnauthenticatedError):
        client.get_flight_info(fl.FlightDescriptor.for_path("default", "t"))
    client.close()


WRONG = {
    "a path of one part": (lambda c: c.info("t"), "path of 1 parts"),
    "a command that is no object": (
        lambda c: c.client.get_flight_info(fl.FlightDescriptor.for_command(b"[]"), c.options),
        "object of JSON",
    ),
    "a table that is not there": (lambda c: c.info("default", "nowhere"), "nowhere"),
    "a version to come": (lambda c: c.command(db="default", table="t", version=10_000), "10,?000"),
    "criteria that are no text": (lambda c: c.list(b"\xff"), "UTF-8"),
    "criteria that are too long": (lambda c: c.list(b"x" * (300 << 10)), "UTF-8"),
    "a column that is not there": (
        lambda c: c.pages(db="default", table="t", version=4, column="z", start=0, stop=1),
        "column 'z'",
    ),
    "pages beyond the end": (
        lambda c: c.pages(db="default", table="t", version=4, column="n", start=0, stop=99),
        "numbered from 0",
    ),
    "too many pages": (
        lambda c: c.pages(db="default", table="t", version=4, column="n", start=0, stop=1 << 40),
        "at most 65536",
    ),
}


@pytest.mark.parametrize(("call", "said"), WRONG.values(), ids=WRONG)
def test_what_makes_no_sense_is_refused_with_a_hint(generic, call, said):
    with pytest.raises((fl.FlightError, pa.ArrowException), match=f"(?s){said}"):
        call(generic())


def test_more_flights_or_tickets_than_a_list_may_have_are_refused(generic, monkeypatch):
    monkeypatch.setattr(table_flights, "MOST_LISTED", 1)
    client = generic()

    assert len(client.list(b"private")) == 1
    with pytest.raises((fl.FlightError, pa.ArrowException), match="3 tables as flights"):
        client.list()
    with pytest.raises((fl.FlightError, pa.ArrowException), match="tickets, expected at most 1"):
        client.info("default", "t")


_ANY = st.one_of(st.none(), st.booleans(), st.integers(-2, 1 << 70), st.text(max_size=3), st.just("t"))
_NAMES = ["db", "table", "version", "column", "start", "stop", "end", "limit", "row", "granularity"]


@given(
    what=st.sampled_from(["pages", "history", "changes", "tags", "leases"]),
    fields=st.dictionaries(st.sampled_from(_NAMES), _ANY),
)
@settings(
    max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_question_is_answered_or_refused_by_an_error_of_ours(generic_of_module, what, fields):
    ticket = fl.Ticket(json.dumps({"get": what, **fields}).encode())

    outcome = outcome_of(lambda: generic_of_module.client.do_get(ticket, generic_of_module.options))

    assert outcome != "InternalError"


def outcome_of(call) -> str:
    try:
        call().read_all()
    except (fl.FlightError, pa.ArrowException) as error:
        return json.loads(getattr(error, "extra_info", b"") or b"{}").get("error", "")
    return "ok"


@pytest.fixture(scope="module")
def generic_of_module(ca, certificate, past):
    served = Served(past.object_store, ca, certificate)
    client = Generic(served, "read:*")
    yield client
    client.client.close()
    served.close()
