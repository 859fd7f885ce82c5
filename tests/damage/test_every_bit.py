"""Every bit of a small object of every kind in the log: its reader refuses it by name, or it changes nothing.

Here readers are asked directly, so that all bits can be tried. `test_flipped_bits.py` shows for some bits
of each object that whole stores answer as these readers do; `test_page_file_bits.py` tries page files.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from spark_pages.errors import DamageError
from spark_pages.format.digest import locate
from spark_pages.format.names import commit_key
from spark_pages.log.checkpoint.reader import TreeReader
from spark_pages.log.compaction.compacted_range import CompactedRange, decode_range
from spark_pages.log.last_checkpoint import Hint, read_hints
from spark_pages.log.log import Log
from spark_pages.log.slots import SlotReader
from spark_pages.model.actions import Commit, Tombstone
from spark_pages.runtime import Runtime
from spark_pages.storage.store import ObjectStore
from tests.damage.flipping import KINDS, Flipped, kind_of, small_store

FETCHED_BY_DIGEST = {"checkpoints", "parts", "segments", "stats", "catalog", "manifests"}
"""Kinds that are read only where length and digest are known beforehand."""


class OneObject:
    """A store of a single object."""

    def __init__(self, key: str, data: bytes) -> None:
        self._key = key
        self.data = data

    def get(self, key: str, *_: int) -> bytes:
        assert key == self._key
        return self.data


@pytest.fixture(scope="module")
def objects() -> dict[str, ObjectStore]:
    """The smallest object of each kind, by kind: its store and key."""
    with pytest.MonkeyPatch.context() as patch:
        store = small_store(patch)
    store.compact_log()
    found = smallest(store.object_store)
    store.vacuum(retention=2)
    return found | {"tombstone": smallest(store.object_store, Tombstone)["slot"]}


def smallest(store: ObjectStore, slots: type = Commit) -> dict[str, tuple[str, bytes]]:
    """Key and bytes of the smallest object of each kind."""
    found: dict[str, tuple[str, bytes]] = {}
    for info in store.list("_log/"):
        kind, data = kind_of(info.key), store.get(info.key)
        if kind == "slot" and not isinstance(
            reader_of(kind, info.key, data)(OneObject(info.key, data)), slots
        ):
            continue
        if kind not in found or len(data) < len(found[kind][1]):
            found[kind] = info.key, data
    return found


def reader_of(kind: str, key: str, data: bytes) -> Callable[[Any], Any]:
    """What reads objects of the kind out of a store."""
    if kind in FETCHED_BY_DIGEST:
        place = locate(key, data)
        return lambda store: TreeReader(store).fetch(place)
    if kind == "compacted range":
        start, end = (int(each) for each in key.removeprefix("_log/").split(".")[0].split("-"))
        wanted = CompactedRange(start, (end - start + 1).bit_length() - 1)
        return lambda store: decode_range(store.get(key), wanted)
    version = int(key.removeprefix("_log/").removesuffix(".avro"))
    assert key == commit_key(version)
    return lambda store: SlotReader(store).read(version)


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted({*KINDS, "tombstone"} - {"hint", "page file"}))
def test_every_flipped_bit_is_refused_by_the_reader_of_its_kind_which_names_the_object(kind, objects):
    key, data = objects[kind]
    read = reader_of(kind, key, data)
    one = OneObject(key, data)
    assert read(one)
    flipped = bytearray(data)

    for bit in range(8 * len(data)):
        flipped[bit // 8] ^= 1 << bit % 8
        one.data = bytes(flipped)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DamageError, match=re.escape(key)):
            read(one)


@pytest.mark.slow
def test_every_flipped_bit_of_the_hint_leads_to_the_same_head(monkeypatch):
    store = small_store(monkeypatch)
    expected = store.snapshot().log.state
    (info,) = store.object_store.list("_log/_last_checkpoint")

    asked: set[Hint] = set()
    for bit in range(8 * info.size_bytes):
        hinted = Flipped(store.object_store, info.key, bit)
        hint = read_hints(hinted)
        if hint not in asked:
            asked.add(hint)
            found = Log(hinted, Runtime()).refresh().state
            assert (found.version, found.digest) == (expected.version, expected.digest), bit
    assert len(asked) > 10
