"""Stores with a table for tests."""

from __future__ import annotations

from uuid import uuid4

import pyarrow as pa

import spark_pages as sp
from spark_pages.storage import MeteredStore
from spark_pages.tables.store import Store

QUIET = {
    "checkpoint_commits": "0",
    "checkpoint_bytes": "0",
    "log_compaction_commits": "0",
    "tail_page_bytes": "0",
}
"""Properties of a store that nobody looks after beside commits, where each append leaves pages of its own:
so requests and pages can be counted."""


def store_with(*tables: pa.Table, schema: pa.Schema | None = None) -> Store:
    """A store in memory with table ``t``; each argument is appended by a commit of its own.

    Nothing is done beside commits.
    """
    store = sp.create(f"memory://{uuid4().hex}", properties=QUIET)
    with store.transaction() as txn:
        txn.create_table("t", schema or tables[0].schema)
    for table in tables:
        with store.transaction() as txn:
            txn.append("t", table)
    return store


def metered(store: Store) -> tuple[Store, MeteredStore]:
    """The same store opened anew, with every request counted."""
    meter = MeteredStore(store.objects)
    return Store(meter), meter
