"""The model that the public API is held against: a dictionary of lists for every version."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize

import spark_pages as sp
from spark_pages.store import Store

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string())])
ALONE = {"checkpoint_commits": "0", "checkpoint_bytes": "0", "log_compaction_commits": "0"}
NAMES = ["a", "b", "c"]
ROWS = st.lists(st.tuples(st.none() | st.integers(-9, 9), st.none() | st.text("ab", max_size=3)), max_size=5)

Row = tuple[Any, Any]
Tables = dict[str, list[Row]]


def as_table(rows: list[Row]) -> pa.Table:
    return pa.table({"n": [n for n, _ in rows], "s": [s for _, s in rows]}, schema=SCHEMA)


def as_rows(table: pa.Table) -> list[Row]:
    return list(zip(table["n"].to_pylist(), table["s"].to_pylist(), strict=True))


class PublicModel(RuleBasedStateMachine):
    """Two handles on one store, and what it must hold."""

    @initialize()
    def begin(self) -> None:
        url = f"memory://{uuid4().hex}"
        first = sp.create(url, properties=ALONE)
        self.stores = [first, Store(first.object_store)]
        self.versions: list[Tables] = [{}]
        self.wrote: list[set[str]] = [set()]
        self.tags: dict[str, int] = {}
        self.open: Any = None
        self.pairs: dict[int, int] = {}
        self.dropped: dict[str, list[list[Row]]] = {}
        self.oldest = 0
        self.halfway: set[int] = set()  # versions in which tables look otherwise than the model says
        self.may_undrop = True
        rows = [(number, "ab"[number % 2]) for number in range(6)]
        with first.transaction() as txn:
            txn.create_table("a", SCHEMA)
            txn.append("a", as_table(rows))
        self.landed(txn.version, {"a": rows}, {"a"})

    # what the model knows

    @property
    def now(self) -> Tables:
        return self.versions[-1]

    def landed(self, version: int, tables: Tables, wrote: set[str]) -> None:
        """The store has moved on by one version that changes tables."""
        assert version == len(self.versions)
        self.versions.append(tables)
        self.wrote.append(wrote)

    def maintained(self) -> None:
        """The store may have moved on, but nothing has changed."""
        while len(self.versions) <= self.stores[0].snapshot().version:
            self.versions.append(self.now)
            self.wrote.append(set())

    def old_version(self, data: st.DataObject) -> int:
        """One that retention has not passed, of which the model tells all."""
        return self.one_of(data, self.readable())

    def one_of(self, data: st.DataObject, versions: list[int]) -> int:
        """Drawn alike however many there are, which is for the store to say."""
        return versions[data.draw(st.integers(0, 999)) % len(versions)]

    def readable(self) -> list[int]:
        """The versions that can be read and are as the model says, oldest first."""
        return [each for each in range(self.oldest, len(self.versions)) if each not in self.halfway]

    def a_table(self, data: st.DataObject) -> str:
        """A table that there is now."""
        return data.draw(st.sampled_from(sorted(self.now)))

    def handle(self, second: bool) -> Store:
        return self.stores[second]

    def changed(self) -> None:
        """Both processes know of it: an append of one that does not would conflict, and be repeated."""
        for store in self.stores:
            store.snapshot()

    def teardown(self) -> None:
        fresh = Store(self.stores[0].object_store)
        for version in self.readable():
            snapshot = fresh.snapshot(version=version)
            found = {name: as_rows(snapshot.table(name).read()) for name in snapshot.tables()}
            assert found == self.versions[version]
        for store in (fresh, *self.stores):
            store.close()
