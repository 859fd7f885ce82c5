"""Stores with a table for tests."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

import pyarrow as pa

import spark_pages as sp
from spark_pages.errors import StorageError
from spark_pages.storage import MeteredStore, RequestCounts
from spark_pages.storage.store import Doubtful, ObjectStore
from spark_pages.store import Store

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


LOOKS = 10
"""Requests of one look for newer slots: the first slot, the newest one known, and the next 1, 2, 3, 5,
9, 17, 33 and 65."""


class Meter(MeteredStore):
    """A store that counts, and remembers the keys that were looked for without being read."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.looked_for: list[str] = []

    def stamps(self, keys: Sequence[str]) -> list[str | None]:
        """See `ObjectStore.stamps`."""
        self.looked_for += keys
        return super().stamps(keys)


def metered(store: Store) -> tuple[Store, Meter]:
    """The same store opened anew, with every request counted."""
    meter = Meter(store.object_store)
    return Store(meter), meter


def reads_and_looks(counts: RequestCounts) -> tuple[int, int]:
    """Requests that look for objects, apart from all others."""
    return counts.requests - counts.stamps, counts.stamps


class Doubting:
    """Storage that, while it is `broken`, answers nothing; creates land all the same, or not, as told."""

    def __init__(self, store: Store, lands: bool) -> None:
        self._inner = store.object_store
        self._lands = lands
        self.broken = False

    def create(self, key, data):
        if self.broken and not self._lands:
            return Doubtful("no answer came")
        outcome = self._inner.create(key, data)
        return Doubtful("no answer came") if self.broken else outcome

    def get(self, key, *most):
        if self.broken:
            raise StorageError(f"{key} cannot be read now")
        return self._inner.get(key, *most)

    def __getattr__(self, name):
        return getattr(self._inner, name)
