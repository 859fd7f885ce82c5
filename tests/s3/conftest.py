"""The server, once per run, and a proxy in front of it, once per test."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.s3.proxy import FaultProxy
from tests.s3.server import MISSING, SECRET_ACCESS_KEY, S3Server, new_url, server_binary


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A running versitygw."""
    if server_binary() is None:
        pytest.skip(MISSING)
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def url(server: S3Server) -> str:
    """An empty place in its bucket."""
    return new_url()


@pytest.fixture
def proxy(server: S3Server) -> Iterator[FaultProxy]:
    """A proxy in front of it that does no harm yet."""
    with FaultProxy(server.port) as proxy:
        yield proxy


@pytest.fixture
def profile(server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A profile with the options of the server, one of them from the environment."""
    options = {**server.options(), "secret_access_key": {"env": "KEY_OF_THE_TEST"}}
    lines = [f"{name} = {_toml(value)}" for name, value in options.items()]
    (tmp_path / "profiles.toml").write_text("\n".join(["[prod]", *lines]))
    monkeypatch.setenv("SPARK_PAGES_PROFILES", str(tmp_path / "profiles.toml"))
    monkeypatch.setenv("KEY_OF_THE_TEST", SECRET_ACCESS_KEY)
    return "prod"


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_toml(each)}" for name, each in value.items()) + " }"
    return json.dumps(value)
