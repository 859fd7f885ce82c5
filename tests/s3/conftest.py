"""The server, once per run, and a proxy in front of it, once per test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.s3.proxy import FaultProxy
from tests.s3.server import MISSING, S3Server, new_url, server_binary


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
