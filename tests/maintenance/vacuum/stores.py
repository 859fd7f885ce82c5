"""Stores with a past, storage that fails at one request, and a clock that tests turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa

from spark_pages.catalog.table_zero import first_record
from spark_pages.runtime import Runtime
from spark_pages.storage import open_object_store
from spark_pages.storage.store import ObjectStore
from spark_pages.store import Store
from tests.invariants import Rows, rows_of

ROWS = 10_000
"""Of int64: two pages, too large to ride in a commit."""


class KilledError(BaseException):
    """The process ends here: nothing may catch it."""


Watch = Callable[[int, str, str], str | None]
"""Told number, kind and key of a request; ``"before"`` or ``"after"`` kills the process there."""


REQUESTS = frozenset(("create", "put", "get", "get_range", "get_ranges", "size", "stamps", "list", "delete"))


class WatchedStore:
    """The inner store; somebody is told of each request before it is made, and may do something meanwhile."""

    def __init__(self, inner: ObjectStore, watch: Watch = lambda *_: None) -> None:
        self._inner = inner
        self.watch = watch
        self.requests = 0

    def __getattr__(self, name: str) -> Any:
        if name not in REQUESTS:
            return getattr(self._inner, name)

        def request(key: str | Sequence[str], *more: Any) -> Any:
            number = self.requests
            self.requests += 1
            verdict = self.watch(number, name, key if isinstance(key, str) else key[0])
            if verdict == "before":
                raise KilledError
            try:
                return getattr(self._inner, name)(key, *more)
            finally:
                if verdict == "after":
                    raise KilledError

        return request

    def local_path(self, key: str) -> str | None:
        """None, so that no read passes by."""
        return None


def one_by_one(work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """Requests in a fixed order, so that the n-th is the same in every run."""
    return [work(item) for item in items]


@dataclass
class Clock:
    """A clock that stands still until a test turns it."""

    now_us: int = 1_700_000_000_000_000

    def __call__(self) -> int:
        self.now_us += 1
        return self.now_us

    def pass_s(self, seconds: float) -> None:
        self.now_us += int(seconds * 1_000_000)


def never(_: Callable[[], None]) -> Callable[[float | None], object]:
    """No work beside commits: requests would come in between at any time."""
    return lambda _: None


def runtime(clock: Clock | None = None) -> Runtime:
    """Requests one by one; the clock of the test, if it has one."""
    given = Runtime(map=one_by_one, spawn=never)
    return replace(given, now_us=clock) if clock else given


def opened(objects: ObjectStore, clock: Clock | None = None) -> Store:
    """The store as another process would open it."""
    return Store(objects, runtime(clock))


def copied(objects: ObjectStore) -> ObjectStore:
    """The same objects in a store of their own."""
    copy = open_object_store(f"memory://{uuid4().hex}")
    for info in objects.list(""):
        copy.put(info.key, objects.get(info.key))
    return copy


def numbers(start: int, rows: int = ROWS) -> pa.Table:
    """Rows that no other start has, and that do not compress."""
    values = np.random.default_rng(start).integers(0, 1 << 62, rows)
    return pa.table({"x": pa.array(values, pa.int64())})


@dataclass
class Past:
    """A store, and the rows that each of its versions had when it was made."""

    store: Store
    history: dict[int, Rows] = field(default_factory=dict)

    @property
    def object_store(self) -> ObjectStore:
        return self.store.object_store

    def note(self) -> int:
        """Note the rows of the newest version, and of those since the last note."""
        newest = self.store.snapshot().log.state
        head, oldest = newest.version, newest.retention.min_readable if newest.retention else 0
        for version in range(max(oldest, max(self.history, default=-1) + 1), head + 1):
            self.history[version] = rows_of(self.store, version)
        return head

    def append(self, table: str, start: int, rows: int = ROWS) -> None:
        with self.store.transaction() as txn:
            txn.append(table, numbers(start, rows))
        self.note()

    def rewrite(self, table: str, value: int) -> None:
        """Every page of the table gives way to another one."""
        rows = list(range(0, self.store.snapshot().table(table).num_rows, 4096))
        with self.store.transaction() as txn:
            txn.update_rows(table, rows, {"x": [value] * len(rows)})
        self.note()


def new_past(clock: Clock | None = None) -> Past:
    """A store with an empty table ``large`` and an empty table ``small``."""
    given = runtime(clock)
    past = Past(Store(open_object_store(f"memory://{uuid4().hex}"), given))
    record = first_record(given, {})
    past.store._log.create(lambda _: record)
    with past.store.transaction() as txn:
        for name in ("large", "small"):
            txn.create_table(name, pa.schema([("x", pa.int64())]))
    past.note()
    return past


def eventful_past(clock: Clock | None = None) -> Past:
    """Appends, updates, compaction, a restore, checkpoints, pages inline and in files: twelve versions."""
    past = new_past(clock)
    past.append("large", 1)
    past.append("small", 2, rows=3)
    past.store.checkpoint()
    past.rewrite("large", -1)
    past.append("small", 3, rows=2)
    past.store.checkpoint()
    past.rewrite("large", -2)
    past.rewrite("small", -3)
    past.store.compact_pages("small")
    past.note()
    past.append("large", 4)
    past.store.restore(version=4)
    past.note()
    past.append("small", 5, rows=1)
    past.append("large", 6)
    return past
