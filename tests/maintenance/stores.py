"""Stores with something of everything, and ways to spoil them."""

from __future__ import annotations

from functools import cache
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.format.commit import decode_slot, encode_commit
from spark_pages.format.names import commit_key
from spark_pages.model.actions import Commit
from spark_pages.storage import open_object_store
from spark_pages.storage.store import ObjectStore
from spark_pages.store import Store
from spark_pages.transaction import placement


def rich_store(url: str, monkeypatch: pytest.MonkeyPatch | None = None) -> Store:
    """Two tables, four checkpoints, inline, file and constant pages, a manifest, and a tail.

    In memory it is a copy of one that is made once.
    """
    if not url.startswith("memory://"):
        return _make_rich_store(url, monkeypatch)
    objects = open_object_store(url)
    for key, data in _rich_objects(monkeypatch is not None).items():
        objects.put(key, data)
    return sp.open(url)


@cache
def _rich_objects(has_manifest: bool) -> dict[str, bytes]:
    with pytest.MonkeyPatch.context() as patch:
        store = _make_rich_store(f"memory://{uuid4().hex}", patch if has_manifest else None)
    return {key: store.object_store.get(key) for key in keys_of(store)}


def _make_rich_store(url: str, monkeypatch: pytest.MonkeyPatch | None) -> Store:
    store = sp.create(url)
    schema = pa.schema([("n", pa.int64()), ("s", pa.string()), pa.field("f", pa.float64(), nullable=False)])
    with store.transaction() as txn:
        txn.create_table("t", schema)
        txn.append("t", pa.table({"n": [1, None, 3], "s": ["a", "b" * 40, None], "f": [0.0, 1.5, 2.0]}))
    store.checkpoint()
    for number in range(3):
        with store.transaction(app_id="app", app_version=number) as txn:
            txn.append("t", pa.table({"n": [number], "f": [1.0]}))
    store.checkpoint()
    with store.transaction() as txn:
        txn.create_table("u", pa.schema([("x", pa.int64())]))
        txn.append("u", pa.table({"x": np.random.default_rng(1).integers(0, 1 << 60, 40_000)}))
    with store.transaction() as txn:
        txn.update_rows("t", [1], {"n": [7]})
    store.checkpoint()
    if monkeypatch is not None:
        with monkeypatch.context() as patch:
            patch.setattr(placement, "MANIFEST_PAGES", 2)
            with store.transaction() as txn:
                txn.append("u", pa.table({"x": np.random.default_rng(2).integers(0, 1 << 60, 40_000)}))
    store.checkpoint()
    with store.transaction() as txn:
        txn.append("t", pa.table({"n": [9], "s": ["z"], "f": [3.0]}))
    return store


def keys_of(store: Store, prefix: str = "") -> list[str]:
    """Keys of the store's objects."""
    return [info.key for info in store.object_store.list(prefix)]


def flip(objects: ObjectStore, key: str, position: int | None = None) -> None:
    """One bit of an object is another; in its middle by default."""
    data = bytearray(objects.get(key))
    data[len(data) // 2 if position is None else position] ^= 4
    objects.put(key, bytes(data))


def slot(objects: ObjectStore, version: int) -> Commit:
    """The commit in a slot."""
    found = decode_slot(objects.get(commit_key(version)), commit_key(version))
    assert isinstance(found, Commit)
    return found


def forge(objects: ObjectStore, commit: Commit) -> None:
    """The commit is in its slot, with a digest that is right."""
    objects.put(commit_key(commit.version), encode_commit(commit)[0])
