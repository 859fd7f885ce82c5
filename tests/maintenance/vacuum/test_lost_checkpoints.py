"""Vacuum where a checkpoint is lost: it goes on if another stands for it, else it deletes nothing."""

from __future__ import annotations

from uuid import uuid4

import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.errors import ObjectNotFoundError
from spark_pages.store import Store
from tests.transaction.stores import QUIET

APPENDS = 12


def past(*checkpoints: int) -> Store:
    """A store of 12 commits of one row after that of the table, with checkpoints at some versions."""
    store = sp.create(f"memory://{uuid4().hex}", properties=QUIET)
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("n", pa.int64())]))
    for number in range(APPENDS):
        with store.transaction() as txn:
            txn.append("t", {"n": [number]})
        if txn.version in checkpoints:
            store.checkpoint()
    return store


def lose_root(store: Store, version: int) -> None:
    (root,) = [info.key for info in store.object_store.list(f"_log/checkpoints/{version:020d}")]
    store.object_store.delete(root)


@pytest.mark.parametrize("kept", [1, 3, 6, 9])
def test_a_lost_checkpoint_before_a_newer_one_keeps_vacuum_from_nothing(kept: int) -> None:
    store = past(4, 12)
    lose_root(store, 4)
    newest = store.snapshot().version
    want = {version: store.snapshot(version=version).table("t").read() for version in range(1, newest + 1)}

    deleted = Store(store.object_store).vacuum(retention=kept).objects

    again = Store(store.object_store)
    assert deleted >= newest - kept - 4
    oldest = again.snapshot().log.state.retention.min_readable
    for version in range(oldest, newest + 1):
        assert again.snapshot(version=version).table("t").read().equals(want[version])
    assert again.verify(pages="all").ok


def test_a_lost_checkpoint_that_is_the_newest_keeps_everything() -> None:
    store = past(4, 12)
    lose_root(store, 12)
    before = {info.key for info in store.object_store.list("")}

    with pytest.raises(ObjectNotFoundError, match=r"is missing, which is kept.*repair before you vacuum"):
        Store(store.object_store).vacuum(retention=9)

    assert before <= {info.key for info in store.object_store.list("")}
