"""A store whose catalog has been changed a lot."""

from __future__ import annotations

import pyarrow as pa

import spark_pages as sp
from spark_pages.store import Store
from tests.transaction.stores import QUIET

SCHEMA = pa.schema([("n", pa.int64()), ("m", pa.string())])


def worn_store(url: str) -> Store:
    """Ten versions of a catalog in which tables, columns, types and namespaces came, changed and went."""
    store = sp.create(url, properties=QUIET)
    with store.transaction() as txn:
        txn.create_namespace("old")
        txn.create_type("small", pa.int8(), check="VALUE < 100")
        txn.create_table("kept", SCHEMA)
        txn.append("kept", {"n": [1, 2], "m": ["a", None]})
        txn.create_table("gone", SCHEMA)
        txn.create_table("old.gone", SCHEMA)
    for number in range(4):
        with store.transaction() as txn:
            txn.set_comment("kept", f"comment {number}")
    with store.transaction() as txn:
        txn.add_column("kept", pa.field("late", pa.int64()), default=7)
        txn.add_constraint("kept", "positive", check="n > 0")
    with store.transaction() as txn:
        txn.drop_column("kept", "m")
        txn.drop_constraint("kept", "positive")
    with store.transaction() as txn:
        txn.create_table("new", pa.schema([pa.field("n", pa.int64(), nullable=False)]))
        txn.add_constraint("new", "new_key", primary_key=["n"])
    with store.transaction() as txn:
        txn.drop_type("small")
        txn.drop_table("gone")
        txn.drop_table("old.gone")
        txn.drop_namespace("old")
    with store.transaction() as txn:
        txn.create_table("newest", SCHEMA)
    return store
