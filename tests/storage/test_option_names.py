"""Storage options by the names of environment variables; what obstore would panic at is refused before."""

from __future__ import annotations

import pytest

import spark_pages as sp
from spark_pages.errors import InvalidInputError, StorageError
from spark_pages.storage.clients import obstore_options

KEYS = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "hidden"}
AT_ONCE = {"retry_config": {"max_retries": 0}}


@pytest.mark.parametrize(
    "name", ["allow_http", "ALLOW_HTTP", "AWS_ALLOW_HTTP", "client_options.allow_http", "google_allow_http"]
)
def test_options_of_the_client_may_have_the_prefix_of_a_provider(name):
    assert obstore_options({name: "true"}) == {"client_options": {"allow_http": "true"}}


WRONG = {
    "an endpoint that is no URL": {"AWS_ENDPOINT_URL": "not a url"},
    "an endpoint without a host": {"endpoint": "https://"},
    "an endpoint of another scheme": {"endpoint": "s3://x"},
    "a region of two lines": {"AWS_REGION": "eu\n"},
    "a region that is a number": {"region": 1},
    "an option given twice": {"region": "eu-central-1", "AWS_REGION": "eu-central-1"},
}


@pytest.mark.parametrize("what", WRONG)
def test_options_that_make_no_request_are_refused_by_name(what):
    with pytest.raises(InvalidInputError, match=r"storage option") as refused:
        sp.open("s3://bucket/x", {**KEYS, **WRONG[what]})

    assert "hidden" not in repr(refused.value)


UNREACHABLE = {
    "an endpoint without TLS": ({}, "http://, which is not allowed", "allow_http=True"),
    "a server that is down": (
        {"AWS_ALLOW_HTTP": "true"},
        "connection refused",
        "a server runs at the endpoint",
    ),
}


@pytest.mark.parametrize("what", UNREACHABLE)
@pytest.mark.parametrize("verb", [sp.open, sp.create])
def test_a_server_that_gives_no_answer_is_told_with_the_reason(what, verb, closed_port):
    options, reason, remedy = UNREACHABLE[what]
    url = f"http://127.0.0.1:{closed_port}"

    with pytest.raises(StorageError) as failed:
        verb("s3://bucket/x", {**KEYS, **AT_ONCE, **options, "AWS_REGION": "eu-1", "AWS_ENDPOINT_URL": url})

    assert reason in failed.value.message
    assert remedy in failed.value.hint
    assert "hidden" not in repr(failed.value)
