"""Whatever is done in whatever order: a version that can be read has the rows that it always had.

The model is the rows of every version, noted when it was new. Two processes write, read, tag, lease,
checkpoint, compact and vacuum; one of them may sleep for long.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
)

from spark_pages.errors import SnapshotExpiredError
from spark_pages.store import Store
from spark_pages.versions.leases import ReaderLease
from tests.effort import run_machine
from tests.invariants import check_nothing_needed_is_gone, check_versions_stay, rows_of
from tests.maintenance.vacuum.stores import Clock, Past, new_past, numbers, opened

TABLES = st.sampled_from(["large", "small"])
WHO = st.integers(0, 1)


class Retention(RuleBasedStateMachine):
    """Two handles on one store, and what every version must read as."""

    @initialize()
    def begin(self) -> None:
        self.clock = Clock()
        self.past: Past = new_past(self.clock)
        self.stores: list[Store] = [self.past.store, opened(self.past.object_store, self.clock)]
        self.leases: list[ReaderLease] = []
        self.value = 0

    def done(self) -> None:
        self.past.note()

    def lengths(self) -> int:
        return self.past.store.snapshot().table("large").num_rows

    @rule(who=WHO, table=TABLES, many=st.booleans())
    def append(self, who: int, table: str, many: bool) -> None:
        self.value += 1
        with self.stores[who].transaction() as txn:
            txn.append(table, numbers(self.value, 10_000 if many else 2))
        self.done()

    @rule(who=WHO, table=TABLES)
    def rewrite(self, who: int, table: str) -> None:
        self.value += 1
        rows = list(range(0, self.stores[who].snapshot().table(table).num_rows, 4096))
        with self.stores[who].transaction() as txn:
            txn.update_rows(table, rows, {"x": [self.value] * len(rows)})
        self.done()

    @rule(who=WHO, table=TABLES)
    def compact(self, who: int, table: str) -> None:
        self.stores[who].compact_pages(table)
        self.done()

    @rule(who=WHO)
    def checkpoint(self, who: int) -> None:
        self.stores[who].checkpoint()

    @rule(who=WHO)
    def compact_log(self, who: int) -> None:
        self.stores[who].compact_log()

    @rule(who=WHO, back=st.integers(1, 6))
    def restore(self, who: int, back: int) -> None:
        version = self.past.store.snapshot().version - back
        if version >= 1:
            try:
                self.stores[who].restore(version=version)
            except SnapshotExpiredError:
                assert version < self.oldest()
        self.done()

    @rule(who=WHO, name=st.sampled_from("ab"), back=st.integers(0, 4))
    def tag(self, who: int, name: str, back: int) -> None:
        version = max(0, self.past.store.snapshot().version - back)
        try:
            self.stores[who].tag(name, version=version, replace=True)
        except SnapshotExpiredError:
            assert version < self.oldest()
        self.done()

    @precondition(lambda self: self.past.store.snapshot().log.state.tags)
    @rule(who=WHO)
    def delete_tag(self, who: int) -> None:
        self.stores[who].delete_tag(next(iter(self.past.store.snapshot().log.state.tags)))
        self.done()

    @rule(who=WHO, hours=st.integers(1, 4))
    def lease(self, who: int, hours: int) -> None:
        self.leases.append(self.stores[who].snapshot().lease(timedelta(hours=hours)))
        self.done()

    @precondition(lambda self: self.leases)
    @rule()
    def release(self) -> None:
        self.leases.pop(0).release()
        self.done()

    @rule(hours=st.integers(1, 3))
    def time_passes(self, hours: int) -> None:
        self.clock.pass_s(3600 * hours)

    @rule(
        who=WHO,
        keep=st.integers(1, 5) | st.integers(0, 8).map(lambda hours: timedelta(hours=hours)),
        orphans=st.booleans(),
    )
    def vacuum(self, who: int, keep: int | timedelta, orphans: bool) -> None:
        now = datetime.fromtimestamp(self.clock.now_us / 1e6, UTC)
        held = [each.snapshot.version for each in self.leases if each.expires_at and each.expires_at > now]
        self.stores[who].vacuum(retention=keep, orphans=orphans)
        self.done()
        check_versions_stay(self.past.object_store, self.past.history)
        check_nothing_needed_is_gone(self.past.object_store)
        assert all(version >= self.oldest() for version in held), "a lease was passed"
        for version in held:
            assert rows_of(self.stores[0], version) == self.past.history[version]

    @rule(who=WHO)
    def read(self, who: int) -> None:
        head = self.past.store.snapshot().version
        assert rows_of(self.stores[who]) == self.past.history[head]

    def oldest(self) -> int:
        retention = opened(self.past.object_store).snapshot().log.state.retention
        return retention.min_readable if retention else 0

    def teardown(self) -> None:
        if hasattr(self, "past"):
            check_versions_stay(self.past.object_store, self.past.history)
            check_nothing_needed_is_gone(self.past.object_store)


@pytest.mark.sampled
def test_rows_of_kept_versions_stay_whatever_is_done():
    run_machine(Retention, 6, steps=25)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_rows_of_kept_versions_stay_whatever_is_done_for_long():
    run_machine(Retention, 150, steps=40)
