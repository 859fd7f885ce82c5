"""Stores to which another release, that knows more than this one, has committed."""

from __future__ import annotations

from dataclasses import replace

from spark_pages.format.commit import encode_commit
from spark_pages.format.names import commit_key
from spark_pages.model.actions import Features
from spark_pages.storage.store import ObjectStore
from spark_pages.store import Store
from tests.log.records import commit, record

FROZEN = Features(writer=("frozen-pages",))
"""A writer must know what this release does not."""


def ask(store: Store, features: Features = FROZEN) -> Store:
    """The newest commit is of a release that asks for features; gives the store as this one opens it anew."""
    version = store.snapshot().version + 1
    (parent,) = store._log.commits(version - 1, version)
    mine = replace(record(), token=f"{version:016x}" * 2)
    other = commit(version, mine, parent=parent)
    other = replace(
        other,
        token=f"{version + (1 << 40):016x}" * 2,
        timestamp_us=parent.timestamp_us + 1,
        checkpoint=parent.checkpoint,
        compacted=parent.compacted,
        features=features,
    )
    store.object_store.create(commit_key(version), encode_commit(other)[0])
    return Store(store.object_store)


def content(objects: ObjectStore) -> dict[str, bytes]:
    """Every object, bit by bit."""
    return {info.key: objects.get(info.key) for info in objects.list("")}
