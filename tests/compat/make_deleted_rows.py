"""Makes the store of ``tests/compat/v1/deleted-rows/``: ``python -m tests.compat.make_deleted_rows``.

It holds a table with deleted rows, before and behind a checkpoint. As with `make_v1`, neither this file nor what
it made is edited after a release.
"""

from __future__ import annotations

import pyarrow as pa

import spark_pages as sp
from spark_pages.store import Store
from tests.compat.make_v1 import make_anew


def make(url: str) -> Store:
    """A table whose rows are deleted by number and by condition, and appended to in between."""
    store = sp.create(url, properties={"log_compaction_commits": "0", "checkpoint_commits": "0"})
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("n", pa.int64()), ("s", pa.string())]))
        txn.append("t", pa.table({"n": range(100), "s": [f"row {n}" for n in range(100)]}))
    with store.transaction("delete by number") as txn:
        txn.delete("t", [3, 99])
    store.checkpoint()
    with store.transaction() as txn:
        txn.append("t", pa.table({"n": [100, 101], "s": ["late", None]}))
    with store.transaction("delete by condition") as txn:
        txn.delete("t", where="n >= 50 and n < 60 or s is null")
    return store


if __name__ == "__main__":
    make_anew("deleted-rows", make)
