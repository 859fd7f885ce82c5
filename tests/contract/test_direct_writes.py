"""Large objects of a local store are written past the page cache, and are the same without it."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from spark_pages.errors import StorageError
from spark_pages.io.local_file import huge_memory
from spark_pages.storage import DurableLocalStore
from spark_pages.storage.direct import BLOCK_BYTES, DIRECT_BYTES

pytestmark = pytest.mark.skipif(not hasattr(os, "O_DIRECT"), reason="this system has no direct writes")


def memory_of(size: int) -> memoryview:
    memory = huge_memory(size)
    memory[:] = os.urandom(size)
    return memory


@pytest.fixture
def store(tmp_path: Path) -> DurableLocalStore:
    return DurableLocalStore(tmp_path / "store")


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bool, int]]:
    """Of each write whether it went past the page cache, and how many bytes were to be written."""
    found: list[tuple[bool, int]] = []
    write = os.write

    def tell(descriptor: int, data: memoryview) -> int:
        found.append((bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT), len(data)))
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", tell)
    return found


def test_whole_blocks_go_past_the_page_cache_and_what_is_behind_them_through_it(store, writes):
    data = memory_of(2 * DIRECT_BYTES + 5)

    store.put("pages/a", data)

    assert store.get("pages/a") == bytes(data)
    assert writes == [(True, 2 * DIRECT_BYTES), (False, 5)]


@pytest.mark.parametrize(
    "given",
    [
        lambda: memory_of(DIRECT_BYTES - BLOCK_BYTES),
        lambda: memory_of(2 * DIRECT_BYTES)[1:],
        lambda: bytes(memory_of(2 * DIRECT_BYTES)),
    ],
    ids=["short", "not aligned", "of Python"],
)
def test_other_memory_goes_through_it(store, writes, given):
    data = given()

    store.put("pages/a", data)

    assert store.get("pages/a") == bytes(data)
    assert writes == [(False, len(data))]


def test_a_file_system_that_refuses_in_the_middle_gets_the_rest_through_its_page_cache(store, monkeypatch):
    data = memory_of(2 * DIRECT_BYTES)
    write = os.write
    asked: list[int] = []

    def refuse(descriptor: int, rest: memoryview) -> int:
        if not fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
            return write(descriptor, rest)
        asked.append(len(rest))
        if len(asked) > 1:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return write(descriptor, rest[:BLOCK_BYTES])

    monkeypatch.setattr(os, "write", refuse)
    store.put("pages/a", data)

    assert store.get("pages/a") == bytes(data)
    assert asked == [len(data), len(data) - BLOCK_BYTES]


def test_a_disk_that_is_full_is_told_and_leaves_no_object(store, monkeypatch):
    def fail(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fail)
        with pytest.raises(StorageError, match="ENOSPC"):
            store.put("pages/a", memory_of(DIRECT_BYTES))

    assert store.list("pages/") == []
