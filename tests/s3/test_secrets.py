"""No credential of an S3 store is shown, kept or sent anywhere but to its server."""

from __future__ import annotations

import logging
import pickle
import traceback

import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.errors import CommitUnknownError, InvalidInputError, SparkPagesError, StorageError
from spark_pages.storage import NotCreated, open_object_store
from tests.s3.proxy import Fault, FaultProxy
from tests.s3.server import ACCESS_KEY_ID, SECRET_ACCESS_KEY, S3Server, options_for

pytestmark = pytest.mark.s3

SECRETS = (ACCESS_KEY_ID, SECRET_ACCESS_KEY)
NO_RETRIES = {"max_retries": 0}


def shows_a_secret(*told: object) -> bool:
    return any(secret in str(each) or secret in repr(each) for secret in SECRETS for each in told)


def everything_of(error: SparkPagesError) -> str:
    return "".join(traceback.format_exception(error)) + repr(vars(error)) + repr(pickle.dumps(error))


def test_a_store_that_was_used_shows_its_address_only_and_refuses_to_be_pickled(
    server: S3Server, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    store = sp.create(url, storage_options=server.options())
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("a", pa.int64())]))
        txn.append("t", pa.table({"a": [1]}))
    table = store.snapshot().table("t")
    table.read()

    assert not shows_a_secret(store, store.object_store, store.snapshot(), table, table.directory, txn)
    assert not shows_a_secret(vars(store.object_store), store.history().to_pylist(), caplog.text)
    with pytest.raises(InvalidInputError) as caught:
        pickle.dumps(store.object_store)
    assert not shows_a_secret(everything_of(caught.value))


def test_no_object_of_a_store_holds_a_credential(server: S3Server, url: str) -> None:
    store = sp.create(url, storage_options=server.options())
    with store.transaction(operation="ingest") as txn:
        txn.create_table("t", pa.schema([("a", pa.int64())]))
        txn.append("t", pa.table({"a": [1]}))
    store.checkpoint()

    infos = store.object_store.list("")

    assert len(infos) > 5
    for info in infos:
        data = store.object_store.get(info.key)
        assert not any(secret.encode() in data for secret in SECRETS), info.key


def test_wrong_credentials_are_refused_by_an_error_that_shows_neither_them_nor_the_answer(
    server: S3Server, url: str
) -> None:
    wrong = options_for(server.port, retries=NO_RETRIES) | {"secret_access_key": f"{SECRET_ACCESS_KEY}-wrong"}
    objects = open_object_store(url, wrong)

    outcome = objects.create("_log/0", b"x")
    assert isinstance(outcome, NotCreated)
    assert "403" in outcome.reason
    assert not shows_a_secret(outcome)
    for call in (
        lambda: objects.get("a"),
        lambda: objects.get_range("a", 0, 1),
        lambda: objects.put("a", b"x"),
        lambda: objects.list(""),
        lambda: objects.delete("a"),
    ):
        with pytest.raises(StorageError, match="credentials") as caught:
            call()
        assert not shows_a_secret(everything_of(caught.value))


@pytest.mark.parametrize("status", [400, 403, 404, 409, 412, 500, 503])
def test_an_answer_that_names_secrets_is_not_passed_on(
    server: S3Server, proxy: FaultProxy, url: str, status: int
) -> None:
    objects = open_object_store(url, proxy.options("2s", NO_RETRIES))
    proxy.inject(Fault(str(status), "no", status), times=None)

    assert not shows_a_secret(objects.create("_log/0", b"x"))
    for call in (
        lambda: objects.get("a"),
        lambda: objects.get_range("a", 0, 1),
        lambda: objects.size("a"),
        lambda: objects.put("a", b"x"),
        lambda: objects.list(""),
    ):
        with pytest.raises(SparkPagesError) as caught:
            call()
        assert not isinstance(caught.value, CommitUnknownError)
        assert not shows_a_secret(everything_of(caught.value))
