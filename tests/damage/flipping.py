"""A store in which one bit of one object is another than was written, and the questions put to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.storage.store import ObjectStore
from spark_pages.store import Store
from spark_pages.transaction import placement

Question = Callable[[Store], Any]

KINDS = {
    "slot", "hint", "checkpoints", "parts", "segments", "stats", "catalog", "manifests", "page file",
    "compacted range",
}  # fmt: skip


class Flipped:
    """Reads through to another store, with one bit of one object flipped."""

    def __init__(self, inner: ObjectStore, key: str, bit: int) -> None:
        self._inner = inner
        self._key = key
        self._bit = bit
        self.asked = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def get(self, key: str, *most: int) -> bytes:
        data = self._inner.get(key, *most)
        if key != self._key:
            return data
        self.asked = True
        flipped = bytearray(data)
        flipped[self._bit // 8] ^= 1 << self._bit % 8
        return bytes(flipped)

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        return self.get_ranges(key, [(offset, length)])[0]

    def get_ranges(self, key: str, ranges: list[tuple[int, int]]) -> list[bytes]:
        if key != self._key:
            return self._inner.get_ranges(key, ranges)
        self._inner.get_ranges(key, ranges)  # so that ranges past the end fail as they do
        data = self.get(key)
        return [data[offset : offset + length] for offset, length in ranges]


def questions(oldest: int, newest: int) -> dict[str, Question]:
    """What a reader asks: between them they read every kind of object."""
    asked: dict[str, Question] = {
        "filtered": lambda store: store.snapshot().table("t").read(filter=[("n", ">=", 2)]).to_pylist(),
        "other table": lambda store: store.snapshot().table("u").read().column("x").to_pylist(),
        "tables": lambda store: store.snapshot().tables(),
        "tail": lambda store: [commit.digest for commit in store._log.commits_left(oldest, newest + 1)],
    }
    for version in range(oldest, newest):
        asked[f"version {version}"] = _at(version)
    return asked


def _at(version: int) -> Question:
    def ask(store: Store) -> Any:
        snapshot = store.snapshot(version=version)
        return {name: snapshot.table(name).read().to_pylist() for name in snapshot.tables()}

    return ask


def small_store(monkeypatch: pytest.MonkeyPatch) -> Store:
    """Every kind of object but ranges: commits, checkpoints with statistics, page files, a manifest."""
    store = sp.create(f"memory://{uuid4().hex}")
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("n", pa.int64()), ("s", pa.string())]))
        txn.append("t", pa.table({"n": [1, 2, None], "s": ["a", None, "c" * 40]}))
    store.checkpoint()
    with store.transaction() as txn:
        txn.append("t", pa.table({"n": [4]}))
    with monkeypatch.context() as patch, store.transaction() as txn:
        patch.setattr(placement, "MANIFEST_PAGES", 0)
        patch.setattr(placement, "fits_inline", lambda _: False)
        txn.create_table("u", pa.schema([("x", pa.int64())]))
        txn.append("u", pa.table({"x": np.arange(50)}))
        txn.commit()
    with store.transaction() as txn:
        txn.append("t", pa.table({"n": [5]}))
    store.checkpoint()
    with store.transaction() as txn:
        txn.update_rows("t", [0], {"n": [7]})
    with store.transaction() as txn:
        txn.append("u", pa.table({"x": [1]}))
    return store


def kind_of(key: str) -> str:
    """Which kind of object a key names."""
    if ".compacted." in key:
        return "compacted range"
    if key.startswith("pages/"):
        return "page file"
    folder = key.removeprefix("_log/").split("/")[0]
    return "hint" if folder == "_last_checkpoint" else "slot" if folder.endswith(".avro") else folder
