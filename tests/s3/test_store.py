"""The life of a store on ``s3://``, and what is told where none can be made."""

from __future__ import annotations

import pytest

import spark_pages as sp
from spark_pages.errors import StorageError
from tests.contract.store_life import Options, StoreLife
from tests.s3.proxy import Fault, FaultProxy, Kind
from tests.s3.server import S3Server

pytestmark = pytest.mark.s3


class TestStoreOnS3(StoreLife):
    @pytest.fixture
    def options(self, server: S3Server) -> Options:
        return server.options()


def test_a_store_that_cannot_be_made_is_told_why_at_once(
    server: S3Server, proxy: FaultProxy, url: str
) -> None:
    wrong = {**server.options(), "secret_access_key": "wrong"}
    away = proxy.options("2s")
    proxy.inject(Fault("another region", "no", 301), times=None)

    with pytest.raises(StorageError, match=r"the credentials are wrong.*HTTP 403"):
        sp.create(url, storage_options=wrong)
    with pytest.raises(StorageError, match=r"there is no such bucket.*HTTP 404"):
        sp.create("s3://no-such-bucket/store", storage_options=server.options())
    with pytest.raises(StorageError, match=r"the bucket is in another region"):
        sp.create(url, storage_options=away)

    assert not [each for each in proxy.seen if each.kind is Kind.CREATE]
    assert sp.create(url, storage_options=server.options()).snapshot().version == 0
