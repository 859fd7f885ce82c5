"""The newest object of each kind of a store with a past, damaged in each way: read, verified, repaired."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest

from spark_pages.errors import SparkPagesError
from spark_pages.format.names import HINT_KEY
from spark_pages.maintenance.repair import plan_repair
from spark_pages.maintenance.verify.slots import slot_of
from spark_pages.maintenance.verify.verify import survey_store, verify
from spark_pages.runtime import Runtime
from spark_pages.storage.store import ObjectStore
from spark_pages.store import Store
from spark_pages.transaction import placement
from tests.damage.flipping import kind_of
from tests.maintenance.stores import keys_of, rich_store
from tests.maintenance.vacuum.stores import copied, opened

KINDS = (
    "tombstone", "slot", "newest slot", "slot in a range", "compacted range", "hint", "checkpoints", "parts",
    "segments", "stats", "catalog", "manifests", "page file", "page file of a checkpoint",
)  # fmt: skip

HARMLESS = {"compacted range", "hint"}
"""What can be lost without any answer changing."""

BEYOND_REPAIR = {"tombstone", "slot", "newest slot", "page file"}
"""What is there once."""

Spoil = Callable[[bytes, bytes], bytes | None]
"""Gives what an object with some bytes becomes, told another one of its kind; None where it is deleted."""


def flipped(data: bytes, _: bytes) -> bytes:
    spoiled = bytearray(data)
    spoiled[len(data) // 2] ^= 4
    return bytes(spoiled)


WAYS: dict[str, Spoil] = {
    "a flipped bit": flipped,
    "cut off": lambda data, _: data[: len(data) * 2 // 3],
    "empty": lambda *_: b"",
    "another of its kind": lambda _, other: other,
    "deleted": lambda *_: None,
}


@pytest.fixture(scope="module")
def past() -> ObjectStore:
    """Checkpoints, ranges, a manifest, statistics, tombstones, a tag, a lease, and a tail."""
    with pytest.MonkeyPatch.context() as patch:
        store = rich_store(f"memory://{uuid4().hex}", patch)
        store.vacuum(retention=4)
        patch.setattr(placement, "MANIFEST_PAGES", 2)
        with store.transaction() as txn:
            txn.append("u", pa.table({"x": np.random.default_rng(3).integers(0, 1 << 60, 25_000)}))
    store.tag("held")
    store.snapshot().lease(timedelta(days=900)).__enter__()
    for number in range(12):
        with store.transaction() as txn:
            txn.append("t", pa.table({"n": [number], "f": [1.0]}))
        if number in (3, 7):
            store.checkpoint()
    store.compact_log()
    with store.transaction() as txn:  # tells of the upkeep before it
        txn.append("u", pa.table({"x": np.random.default_rng(4).integers(0, 1 << 60, 9000)}))
    store.close()
    assert verify(store.object_store, pages="all").ok
    return store.object_store


def answers(objects: ObjectStore) -> dict[str, Any]:
    """What a reader that opens the store is told, or the error in place of it."""

    def rows(store: Store, version: int | None) -> Any:
        snapshot = store.snapshot(version=version)
        return {name: snapshot.table(name).read() for name in snapshot.tables()}

    asked: dict[str, Callable[[Store], Any]] = {
        "rows": lambda store: rows(store, None),
        "rows before": lambda store: rows(store, 10),
        "filtered": lambda store: store.snapshot().table("t").read(filter=[("n", ">=", 2)]),
        "tag": lambda store: (store.tags(), store.snapshot(tag="held").table("u").num_rows),
        "leases": lambda store: store.leases().to_pydict(),
        "history": lambda store: store.history().to_pydict(),
    }
    told: dict[str, Any] = {}
    for name, question in asked.items():
        try:
            told[name] = question(opened(objects))
        except SparkPagesError as error:
            told[name] = error
    return told


def keys_by_kind(objects: ObjectStore) -> dict[str, list[str]]:
    """Objects that versions need which are kept, oldest first."""
    survey = survey_store(objects, Runtime(), "none", 0.0)
    slots = {slot_of(key): key for key in keys_of(opened(objects)) if slot_of(key) is not None}
    (bundled,) = [key for key in survey.listed if "compacted" in key]
    first, last = int(bundled[5:25]), int(bundled[26:46])
    homes = set(survey.pages.checkpoint_page_files())
    kinds: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for version, key in sorted(slots.items()):
        is_commit = survey.slots.all_commits(version, version + 1)
        in_range = "slot in a range" if first <= version <= last else "slot"
        kinds["newest slot" if key == max(slots.values()) else in_range if is_commit else "tombstone"] += [
            key
        ]
    for key in sorted(
        {*survey.tree_survey.keys, *survey.manifest_keys, *survey.pages.named, *homes, bundled, HINT_KEY}
    ):
        kinds["page file of a checkpoint" if key in homes else kind_of(key)].append(key)
    return kinds


@pytest.fixture(scope="module")
def whole(past: ObjectStore) -> dict[str, Any]:
    return answers(past)


@pytest.fixture(scope="module")
def kinds(past: ObjectStore) -> dict[str, list[str]]:
    return keys_by_kind(past)


@pytest.mark.sampled(every=9)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
def test_damage_is_named_changes_no_answer_and_is_mended_where_the_log_can_give_it_again(
    past, whole, kinds, kind, way
):
    keys, pages = kinds[kind], "all" if "page file" in kind else "none"
    key = keys[-1]
    others = [other for other in keys if other != key] or kinds["slot"]
    data, objects = past.get(key), copied(past)
    spoiled = WAYS[way](data, past.get(others[-1]))
    objects.delete(key)
    if spoiled is not None:
        objects.put(key, spoiled)

    if (kind, way) == ("newest slot", "deleted"):
        assert opened(objects).snapshot().version == opened(past).snapshot().version - 1
        return  # a log that ends one commit earlier: nothing but a copy could tell

    for question, told in answers(objects).items():
        if isinstance(told, SparkPagesError):
            assert key in str(told), question
            assert kind not in HARMLESS, question
        else:
            assert told == whole[question], question

    found = verify(objects, pages=pages)
    named = {fault.key for fault in found.faults}
    assert key in named or (kind, way) == ("compacted range", "deleted")  # nobody says that there is one
    assert found.ok == (kind in HARMLESS)

    plan = plan_repair(objects, pages=pages)
    plan.execute()

    lost = {fault.key for fault in plan.beyond}
    assert lost == ({key} if kind in BEYOND_REPAIR else set())
    if lost:
        assert not plan.steps
        assert {info.key for info in objects.list("")} == (
            {info.key for info in past.list("")} - ({key} if spoiled is None else set())
        )
    else:
        assert verify(objects, pages=pages).ok
        assert answers(objects) == whole
        assert kind in HARMLESS or objects.get(key) == data
