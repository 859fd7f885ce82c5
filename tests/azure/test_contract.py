"""The storage contract, and the life of a store, on Azure Blob Storage as Azurite has it."""

from __future__ import annotations

import pytest

import spark_pages as sp
from spark_pages.errors import StorageError
from spark_pages.storage import ObjectStore, open_object_store
from tests.azure.server import ACCOUNT_KEY, AzureServer
from tests.contract.store_contract import StoreContract
from tests.contract.store_life import Options, StoreLife

pytestmark = pytest.mark.azure


class TestAzureStore(StoreContract):
    @pytest.fixture
    def store(self, server: AzureServer, url: str) -> ObjectStore:
        return open_object_store(url, server.options())


class TestStoreOnAzure(StoreLife):
    @pytest.fixture
    def options(self, server: AzureServer) -> Options:
        return server.options()


def test_a_store_that_cannot_be_made_is_told_why(server: AzureServer, url: str) -> None:
    wrong = {**server.options(), "account_key": "d3Jvbmc="}

    with pytest.raises(StorageError, match=r"the credentials are wrong.*HTTP 403"):
        sp.create(url, storage_options=wrong)
    with pytest.raises(StorageError, match=r"there is no such bucket or container.*HTTP 404") as told:
        sp.create("az://no-such-container/store", storage_options=server.options())

    assert ACCOUNT_KEY not in str(told.value)
