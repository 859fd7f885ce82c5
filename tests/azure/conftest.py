"""The server, once per run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.azure.server import MISSING, AzureServer, new_url, server_binary


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureServer]:
    """A running Azurite."""
    if server_binary() is None:
        pytest.skip(MISSING)
    with AzureServer(tmp_path_factory.mktemp("azure")) as server:
        yield server


@pytest.fixture
def url(server: AzureServer) -> str:
    """An empty place in its container."""
    return new_url()
