"""An object that has grown beyond what its referrer or the format allows is not read."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import spark_pages as sp
from spark_pages.errors import SparkPagesError
from spark_pages.storage import local
from tests.damage.flipping import kind_of, small_store

GROWN = 8 << 30
"""Bytes of a sparse file, which takes no disk."""

CALLS: dict[str, Callable[[str], object]] = {
    "read": lambda url: sp.open(url).snapshot().table("t").read(),
    "append": lambda url: appended(sp.open(url)),
    "vacuum": lambda url: sp.open(url).vacuum(retention=1),
    "verify": lambda url: sp.open(url).verify(),
}


def appended(store: sp.Store) -> None:
    with store.transaction() as txn:
        txn.append("t", {"n": [1]})


@pytest.fixture(scope="module")
def most_read(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """The longest read of each kind of object that has grown, over all calls that may read it."""
    found: dict[str, int] = {}
    with pytest.MonkeyPatch.context() as patch:
        good = small_store(patch)
        objects = {info.key: good.object_store.get(info.key) for info in good.object_store.list("")}
        for kind, key in {kind_of(key): key for key in objects if key.startswith("_log/")}.items():
            lengths: list[int] = []
            patch.setattr(local, "_read", counting(lengths))
            for call in CALLS.values():
                folder = tmp_path_factory.mktemp("grown")
                put(folder, objects, key)
                with suppress(SparkPagesError):
                    call(str(folder))
            found[kind] = max(lengths)
    return found


def counting(lengths: list[int], read: Callable[..., bytes] = local._read) -> Callable[..., bytes]:
    def counted(descriptor: int, offset: int, length: int) -> bytes:
        lengths.append(length)
        return read(descriptor, offset, length) if length < GROWN else pytest.fail(f"read {length} bytes")

    return counted


def put(folder: Path, objects: dict[str, bytes], grown: str) -> None:
    for key, data in objects.items():
        path = folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    os.truncate(folder / grown, GROWN)


def test_no_call_reads_more_of_a_grown_object_than_the_format_allows(most_read):
    assert len(most_read) >= 7
    assert {kind: most for kind, most in most_read.items() if most > 1 << 20} == {}
