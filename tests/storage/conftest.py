"""A port at which nobody listens."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest


@pytest.fixture
def closed_port() -> Iterator[int]:
    with socket.socket() as held:  # bound and never listening, so that nobody else takes it
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]
