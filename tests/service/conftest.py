"""Certificates, tokens and running services for tests."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import jwt
import pytest
import trustme

import spark_pages as sp
from spark_pages.service.remote_store import StoreClient, connect
from spark_pages.service.serving import Serving
from spark_pages.service.settings import ServiceSettings
from spark_pages.service.tokens import TokenVerifier
from spark_pages.storage.store import ObjectStore

SECRET = b"0123456789abcdef0123456789abcdef-secret"
AUDIENCE = "spark-pages"


def token(scope: str = "read:*", **claims: Any) -> str:
    """A token that the services of these tests accept, unless the claims say otherwise."""
    known = {"scope": scope, "aud": AUDIENCE, "exp": time.time() + 600, **claims}
    given = {name: value for name, value in known.items() if value is not None}
    return jwt.encode(given, SECRET, algorithm="HS256")


class Served:
    """A service in this process, with real TLS, and how to reach it."""

    def __init__(
        self, objects: ObjectStore, ca: trustme.CA, certificate: trustme.LeafCert, **more: Any
    ) -> None:
        self.settings = ServiceSettings(
            certificate=certificate.cert_chain_pems[0].bytes(),
            private_key=certificate.private_key_pem.bytes(),
            **{"staleness_s": 1e-6, "http_port": 0, "drain_s": 5.0, **more},
        )
        self.ca = ca.cert_pem.bytes()
        self.serving = Serving(objects, self.settings, TokenVerifier([SECRET], "HS256", AUDIENCE))
        self.opened: list[StoreClient] = []

    @property
    def url(self) -> str:
        return f"grpc+tls://127.0.0.1:{self.serving.port}"

    def connect(self, scope: str = "read:*", bearer: Any = None, **more: Any) -> StoreClient:
        options = {"certificate": self.ca, "retry_s": 0.0, **more}
        store = connect(self.url, token(scope) if bearer is None else bearer, **options)
        self.opened.append(store)
        return store

    def close(self) -> None:
        for store in self.opened:
            store.close()
        self.serving.drain()


@pytest.fixture(scope="session")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="session")
def certificate(ca: trustme.CA) -> trustme.LeafCert:
    return ca.issue_cert("localhost", "127.0.0.1")


@pytest.fixture
def serve(ca: trustme.CA, certificate: trustme.LeafCert) -> Iterator[Callable[..., Served]]:
    """Makes services of stores; they end with the test."""
    made: list[Served] = []

    def start(store: sp.Store | ObjectStore, **more: Any) -> Served:
        objects = store.object_store if isinstance(store, sp.Store) else store
        made.append(Served(objects, ca, certificate, **more))
        return made[-1]

    yield start
    for each in made:
        each.close()
