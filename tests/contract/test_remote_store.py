"""`RemoteStore` without a network: options, secrets, faults and forks."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import traceback
from datetime import timedelta
from typing import Any

import obstore
import pytest
from obstore import exceptions
from obstore.store import MemoryStore

from spark_pages.errors import InvalidInputError, ObjectNotFoundError, StorageError
from spark_pages.storage import Created, Doubtful, Exists, NotCreated, RemoteStore, clients, open_object_store

CANARY = "CANARY-SECRET"
OPTIONS = {"access_key_id": "CANARY-ID", "secret_access_key": CANARY, "region": "us-east-1"}
BODY = f"Server returned non-2xx status code: 403 Forbidden: <AWSAccessKeyId>{CANARY}</AWSAccessKeyId>"


@pytest.fixture
def store() -> RemoteStore:
    return RemoteStore("s3://bucket/prefix", OPTIONS)


@pytest.fixture(autouse=True)
def unused_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "_threads", clients._Threads())


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """What obstore is asked to connect to; every connection is a memory of its own."""
    asked: list[tuple[str, dict[str, Any]]] = []

    def connect(url: str, **options: Any) -> MemoryStore:
        asked.append((url, options))
        return MemoryStore()

    monkeypatch.setattr(clients, "from_url", connect)
    return asked


def raising(error: BaseException):
    def fail(*_args: object, **_options: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (exceptions.AlreadyExistsError(BODY), Exists),
        (exceptions.PreconditionError(BODY), Doubtful),
        (exceptions.GenericError(BODY), Doubtful),
        (exceptions.PermissionDeniedError(BODY), NotCreated),
        (exceptions.UnauthenticatedError(BODY), NotCreated),
        (exceptions.NotSupportedError(BODY), Doubtful),
        (exceptions.NotModifiedError(BODY), Doubtful),
        (exceptions.InvalidPathError(BODY), Doubtful),
        (exceptions.JoinError(BODY), Doubtful),
        (FileNotFoundError(BODY), Doubtful),
        (FileNotFoundError(BODY.replace("403", "404")), NotCreated),
        (exceptions.GenericError(BODY.replace("403", "404")), Doubtful),
        (exceptions.GenericError(f"Received redirect without LOCATION {CANARY}"), NotCreated),
        (FileExistsError(BODY), Doubtful),
        (TimeoutError(BODY), Doubtful),
        (ValueError(BODY), Doubtful),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_whatever_obstore_raises_a_create_is_answered_by_a_value(store, monkeypatch, error, outcome):
    monkeypatch.setattr(obstore, "put", raising(error))

    answer = store.create("_log/0", b"x")

    assert type(answer) is outcome
    assert CANARY not in repr(answer)


def test_the_reason_of_a_refusal_names_the_key_the_kind_and_the_status(store, monkeypatch):
    monkeypatch.setattr(obstore, "put", raising(exceptions.PermissionDeniedError(BODY)))

    reason = store.create("_log/0", b"x").reason

    assert "'_log/0' in s3://bucket/prefix" in reason
    assert "PermissionDeniedError, HTTP 403" in reason


def test_a_program_that_is_told_to_stop_stops(store, monkeypatch):
    monkeypatch.setattr(obstore, "put", raising(KeyboardInterrupt()))

    with pytest.raises(KeyboardInterrupt):
        store.create("_log/0", b"x")
    with pytest.raises(KeyboardInterrupt):
        store.put("_log/0", b"x")


def test_creates_go_through_a_client_that_never_retries_and_all_else_through_one_that_does(
    store, connections, monkeypatch
):
    used = []
    monkeypatch.setattr(
        obstore, "put", lambda *args, **options: used.append((args[0], options)) or {"e_tag": None}
    )

    outcome = store.create("_log/0", b"x")
    store.put("_log/0", b"x")

    by_retries = {options["retry_config"]["max_retries"]: url for url, options in connections}
    assert by_retries == {0: "s3://bucket/prefix", 5: "s3://bucket/prefix"}
    assert outcome == Created()
    clients_used = store._clients()
    assert [client for client, _ in used] == [clients_used.once, clients_used.patient]
    assert used[0][1] == {"mode": "create"}


@pytest.mark.parametrize(
    "url",
    ["s3://b/p", "s3a://b/p", "gs://b/p", "az://c/p", "abfss://c@account.dfs.core.windows.net/p"],
)
def test_options_reach_obstore_under_their_own_names_and_no_client_of_creates_retries(connections, url):
    retries = {"max_retries": 9, "retry_timeout": timedelta(seconds=5)}
    store = open_object_store(
        url, {"token": "t", "client_options": {"timeout": "2s"}, "retry_config": retries}
    )

    store.list("")

    common = {"token": "t", "client_options": {"timeout": "2s"}}
    assert connections == [
        (url, {**common, "retry_config": {"max_retries": 0}}),
        (url, {**common, "retry_config": retries}),
    ]


def test_nothing_is_connected_before_the_first_use(connections):
    RemoteStore("s3://bucket/prefix", OPTIONS)

    assert connections == []


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (FileNotFoundError(BODY), ObjectNotFoundError),
        (exceptions.PermissionDeniedError(BODY), StorageError),
        (exceptions.GenericError(BODY), StorageError),
        (ValueError(BODY), StorageError),
    ],
)
def test_an_error_of_obstore_becomes_ours_and_nothing_of_its_text_is_kept(
    store, monkeypatch, error, expected
):
    for verb in ("get", "get_ranges", "head", "put"):
        monkeypatch.setattr(obstore, verb, raising(error))

    for call in (
        lambda: store.get("a"),
        lambda: store.get_range("a", 0, 1),
        lambda: store.size("a"),
        lambda: store.put("a", b""),
    ):
        with pytest.raises(expected) as caught:
            call()
        assert CANARY not in "".join(traceback.format_exception(caught.value))
        assert CANARY.encode() not in pickle.dumps(caught.value)


def test_no_secret_is_in_repr_str_vars_or_pickle(store):
    store._clients()

    assert repr(store) == str(store) == "RemoteStore('s3://bucket/prefix')"
    assert CANARY not in repr(vars(store))
    for leave in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(InvalidInputError, match="Cannot pickle") as caught:
            leave(store)
        assert CANARY not in str(caught.value)


def test_a_store_whose_options_are_of_the_environment_is_pickled_as_its_address():
    again = pickle.loads(pickle.dumps(RemoteStore("s3://bucket/prefix")))  # noqa: S301  our own bytes

    assert again.url == "s3://bucket/prefix"


def test_a_store_in_memory_says_why_it_cannot_be_pickled():
    with pytest.raises(InvalidInputError, match="in the memory of this process alone"):
        pickle.dumps(RemoteStore("memory://x"))


def test_a_profile_stands_alone():
    with pytest.raises(InvalidInputError, match="stands alone"):
        RemoteStore("s3://bucket", {"profile": "prod", "region": "eu"})


@pytest.mark.parametrize(
    "options",
    [
        {"nonsense": CANARY},
        {"region": 3, "secret_access_key": CANARY},
        {"allow_http": CANARY},
        {"virtual_hosted_style_request": CANARY},
        {"retry_config": {"retry_timeout": CANARY}},
    ],
)
def test_wrong_options_are_a_wrong_call_that_names_the_options_and_hides_their_values(options):
    store = RemoteStore("s3://bucket/prefix", options)

    with pytest.raises(InvalidInputError, match=next(iter(options))) as caught:
        store.create("_log/0", b"x")

    assert CANARY not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    "url",
    [
        f"s3://id:{CANARY}@bucket/prefix",
        f"s3://{CANARY}@bucket/prefix",
        f"s3://bucket/prefix?sig={CANARY}",
        f"gs://bucket/prefix#{CANARY}",
        f"abfss://container:{CANARY}@account.dfs.core.windows.net/p",
        "s3://",
        "s3:///prefix",
    ],
)
def test_an_address_with_a_secret_or_without_a_bucket_is_refused_and_not_repeated(url):
    with pytest.raises(InvalidInputError) as caught:
        open_object_store(url)

    assert CANARY not in "".join(traceback.format_exception(caught.value))


def test_a_process_that_was_forked_before_the_first_request_builds_its_own_clients(
    store, connections, monkeypatch
):
    of_parent = store._build()
    store._built = of_parent
    monkeypatch.setattr(os, "getpid", lambda: of_parent.pid + 1)

    of_child = store._clients()

    assert of_child.pid == of_parent.pid + 1
    assert of_child.patient is not of_parent.patient
    assert store._clients() is of_child
    assert len(connections) == 4


def test_a_process_that_was_forked_after_a_request_is_refused_at_once(store, connections, monkeypatch):
    store.list("")
    here = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: here + 1)

    for call in (lambda: store.get("a"), lambda: store.create("a", b"x")):
        with pytest.raises(StorageError, match="forked") as caught:
            call()
        assert "spawn" in str(caught.value)


def test_a_child_that_was_really_forked_ends_with_an_error_and_does_not_hang(connections):
    used = RemoteStore("s3://bucket/prefix", OPTIONS)
    used.list("")
    receiver, sender = multiprocessing.Pipe(duplex=False)

    child = multiprocessing.get_context("fork").Process(target=_tell_how_a_read_ends, args=(used, sender))
    child.start()

    assert receiver.poll(20)
    assert receiver.recv() == "StorageError"
    child.join(20)
    assert child.exitcode == 0


def _tell_how_a_read_ends(store, sender):
    try:
        store.get("a")
    except Exception as error:  # noqa: BLE001  the parent judges
        sender.send(type(error).__name__)
