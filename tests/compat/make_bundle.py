"""Makes the store of ``tests/compat/v1/bundle/``: ``python -m tests.compat.make_bundle``.

It holds a bundle of 64 commits, as they are made where those are too large for one frame; here the limit is
set low. As with `make_v1`, neither this file nor what it made is edited after a release.
"""

from __future__ import annotations

from unittest.mock import patch

import pyarrow as pa

import spark_pages as sp
from spark_pages.log.compaction import compacted_range
from spark_pages.store import Store
from tests.compat.make_v1 import make_anew


def make(url: str) -> Store:
    """A table with rows, and many commits without."""
    store = sp.create(url, properties={"log_compaction_commits": "0", "checkpoint_commits": "0"})
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("n", pa.int64()), ("s", pa.string())]))
        txn.append("t", pa.table({"n": [1, None, 3], "s": ["a", "b", None]}))
    for number in range(68):
        store.tag(f"at-{number}")
    with store.transaction() as txn:
        txn.append("t", pa.table({"n": [4], "s": ["d"]}))
    limit = 24 * store.object_store.size("_log/00000000000000000040.avro")
    with patch.object(compacted_range, "MAX_RANGE_BYTES", limit):
        store.compact_log()
    return store


if __name__ == "__main__":
    make_anew("bundle", make)
