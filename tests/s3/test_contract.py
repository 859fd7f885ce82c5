"""The storage contract against the server, straight and through a proxy that only passes on."""

from __future__ import annotations

import pytest

from spark_pages.storage import ObjectStore, open_object_store
from tests.contract.store_contract import StoreContract
from tests.s3.proxy import FaultProxy
from tests.s3.server import S3Server

pytestmark = pytest.mark.s3


class TestS3Store(StoreContract):
    @pytest.fixture
    def store(self, server: S3Server, url: str) -> ObjectStore:
        return open_object_store(url, server.options())


class TestS3StoreThroughTheProxy(StoreContract):
    @pytest.fixture
    def store(self, proxy: FaultProxy, url: str) -> ObjectStore:
        return open_object_store(url, proxy.options())
