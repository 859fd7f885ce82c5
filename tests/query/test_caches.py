"""What leaves a store leaves the page caches of whoever deletes it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.errors import ObjectNotFoundError, SnapshotExpiredError
from tests.transaction.stores import QUIET

ROWS = 20_000


@pytest.fixture
def store(tmp_path):
    """A table in page files, whose first half was replaced."""
    store = sp.create(str(tmp_path / "s"), properties=QUIET)
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("n", pa.int64())]))
        txn.append("t", {"n": np.random.default_rng(1).integers(0, 2**60, ROWS)})
    return store


def replace(store: sp.Store) -> None:
    with store.transaction() as txn:
        txn.update_rows("t", np.arange(ROWS), {"n": np.random.default_rng(2).integers(0, 2**60, ROWS)})


def test_pages_that_vacuum_deletes_leave_the_caches_and_those_of_other_files_stay(store):
    before = store.snapshot().table("t")
    before.read()
    replace(store)
    after = store.snapshot().table("t")
    after.read()
    both = store.cache_stats.decoded_bytes

    store.vacuum(retention=1)

    assert 0 < store.cache_stats.decoded_bytes < both
    misses = store.cache_stats.misses
    after.read()
    assert store.cache_stats.misses == misses
    with pytest.raises((SnapshotExpiredError, ObjectNotFoundError)):
        before.read()


def test_a_pinned_page_of_a_deleted_file_stays_until_its_last_pin_is_gone(store):
    before = store.snapshot().table("t")
    pages = before.directory.chain("n").all_pages().descriptors(0, 1)
    handler = before.page_handler

    with handler.pinned(pages) as (held,):
        replace(store)
        store.vacuum(retention=1)
        assert handler.get_page(pages[0]).equals(held)

    with pytest.raises(ObjectNotFoundError):
        handler.get_page(pages[0])
