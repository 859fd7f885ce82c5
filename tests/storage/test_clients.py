"""Storage options as people write them become those of obstore."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import spark_pages as sp
from spark_pages.errors import InvalidInputError
from spark_pages.storage.clients import obstore_options


@pytest.mark.parametrize(
    "given",
    [
        {"allow_http": True, "timeout": "5s"},
        {"client_options": {"allow_http": True, "timeout": "5s"}},
        {"client_options.allow_http": True, "client_options": {"timeout": "5s"}},
    ],
)
def test_options_of_the_client_may_stand_anywhere(given: dict[str, Any]) -> None:
    found = obstore_options({"region": "x", **given})

    assert found == {"region": "x", "client_options": {"allow_http": True, "timeout": "5s"}}


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (10, 10),
        (0.5, 0.5),
        ("500ms", 0.5),
        ("10s", 10),
        (" 1.5 m ", 90),
        ("2h", 7200),
        (timedelta(seconds=3), 3),
    ],
)
def test_durations_are_seconds_or_text(given: Any, seconds: float) -> None:
    found = obstore_options({"retry_config": {"retry_timeout": given, "backoff": {"max_backoff": given}}})

    wanted = timedelta(seconds=seconds)
    assert found == {"retry_config": {"retry_timeout": wanted, "backoff": {"max_backoff": wanted}}}


@pytest.mark.parametrize("given", ["soon", -1, True, "10 parsecs", None, [1]])
def test_a_duration_that_is_none_is_named(given: Any) -> None:
    with pytest.raises(
        InvalidInputError, match=r"option retry_config.backoff.init_backoff: .* cannot be read as a duration"
    ):
        obstore_options({"retry_config": {"backoff": {"init_backoff": given}}})


@pytest.mark.parametrize("name", ["retry_config", "client_options"])
def test_a_table_that_is_none_is_named(name: str) -> None:
    with pytest.raises(InvalidInputError, match=f"option {name}: it is a str, expected names and values"):
        obstore_options({name: "5"})


def test_obstore_takes_what_a_profile_can_hold() -> None:
    options = {
        "endpoint": "http://127.0.0.1:9", "access_key_id": "a", "secret_access_key": "b", "allow_http": True,
        "connect_timeout": "1s", "retry_config": {"max_retries": 0, "retry_timeout": 1},
    }  # fmt: skip

    with pytest.raises(sp.SparkPagesError, match=r"connection refused .* Check that a server runs"):
        sp.open("s3://bucket/store", options)


def test_azure_without_an_account_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)

    with pytest.raises(InvalidInputError, match="Name the account: by the option account_name"):
        sp.open("az://container/store")
