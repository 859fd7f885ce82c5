"""Makes the store of ``tests/compat/v1/nan/``: ``python -m tests.compat.make_nan``.

Its pages have NaN beside other values, nothing but NaN, and none, and are listed by commits, a page manifest
and a checkpoint. As with `make_v1`, neither this file nor what it made is edited after a release.
"""

from __future__ import annotations

from math import inf, nan
from unittest.mock import patch

import pyarrow as pa

import spark_pages as sp
from spark_pages.store import Store
from spark_pages.transaction import placement
from tests.compat.make_v1 import make_anew

SCHEMA = pa.schema([("x", pa.float64()), ("half", pa.float16()), ("single", pa.float32())])
PAGES = [[1.5, nan, -0.0], [nan, nan, None], [7.0, 8.0, inf], [-inf, nan, nan]]


def rows(values: list[float | None]) -> pa.Table:
    """The same values in each type."""
    return pa.table([pa.array(values, kind) for kind in SCHEMA.types], schema=SCHEMA)


def make(url: str) -> Store:
    """A manifest, a checkpoint, and inline pages behind it."""
    properties = {"log_compaction_commits": "0", "checkpoint_commits": "0", "tail_page_bytes": "0"}
    store = sp.create(url, properties=properties)
    with patch.object(placement, "MANIFEST_PAGES", 2), store.transaction() as txn:
        txn.create_table("t", SCHEMA)
        txn.append("t", rows(PAGES[0]))
    for page in PAGES[1:]:
        with store.transaction() as txn:
            txn.append("t", rows(page))
        if page == PAGES[2]:
            store.checkpoint()
    return store


if __name__ == "__main__":
    make_anew("nan", make)
