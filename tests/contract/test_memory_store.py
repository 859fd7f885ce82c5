from __future__ import annotations

import itertools

import pytest

from spark_pages.storage import ObjectStore, RemoteStore, open_object_store
from tests.contract.store_contract import StoreContract

_names = itertools.count()


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return open_object_store(f"memory://contract-{next(_names)}")


def test_two_stores_of_one_name_share_their_objects():
    open_object_store("memory://shared").put("a", b"1")

    assert open_object_store("memory://shared").get("a") == b"1"
    assert open_object_store("memory://other").list("") == []


def test_a_memory_without_a_name_is_the_one_named_default():
    open_object_store("memory://").put("a", b"1")

    assert open_object_store("memory://default").get("a") == b"1"
    assert RemoteStore("memory://").url == "memory://default"


def test_a_store_in_memory_has_no_local_path():
    assert open_object_store("memory://shared").local_path("a") is None
