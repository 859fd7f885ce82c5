"""What keeps a store in order, and what may happen to a commit; none of it changes a row that can be read."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from spark_pages.errors import (
    AlreadyExistsError,
    CommitConflictError,
    CommitUnknownError,
    SnapshotExpiredError,
)
from spark_pages.format.names import HINT_KEY
from spark_pages.model.actions import Claim
from spark_pages.runtime import Runtime
from spark_pages.store import Store
from tests.property.public_model import PublicModel, as_rows, as_table
from tests.transaction.stores import Doubting

TAGS = ["x", "y"]
FAR_AWAY_US = 1 << 60


def oldest_readable(store: Store) -> int:
    retention = store.snapshot().log.state.retention
    return retention.min_readable if retention else 0


class Upkeep(PublicModel):
    """Checkpoints, compaction, vacuum, repair; tags, leases, claims, restores; outcomes that nobody knows."""

    # maintenance

    @rule(
        second=st.booleans(), what=st.sampled_from(["checkpoint", "compact_log", "compact_pages", "reopen"])
    )
    def maintain(self, second: bool, what: str) -> None:
        if what == "reopen":
            self.stores[second] = Store(self.stores[0].object_store)
        else:
            getattr(self.handle(second), what)()
            self.maintained()

    # versions by name

    @rule(second=st.booleans(), name=st.sampled_from(TAGS), data=st.data())
    def tag(self, second: bool, name: str, data: st.DataObject) -> None:
        version = self.old_version(data)
        store = self.handle(second)
        if self.tags.get(name, version) != version:
            with pytest.raises(AlreadyExistsError):
                store.tag(name, version)
            store.delete_tag(name)
        store.tag(name, version)
        self.tags[name] = version
        self.maintained()
        assert store.snapshot(tag=name).version == version

    @precondition(lambda self: self.tags)
    @rule(second=st.booleans(), data=st.data())
    def delete_tag(self, second: bool, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.tags)))
        self.handle(second).delete_tag(name)
        del self.tags[name]
        self.maintained()

    @rule(second=st.booleans(), by=st.sampled_from(["version", "timestamp", "tag"]), data=st.data())
    def restore(self, second: bool, by: str, data: st.DataObject) -> None:
        store = self.handle(second)
        wanted = self.old_version(data)
        if by == "tag" and self.tags:
            name = data.draw(st.sampled_from(sorted(self.tags)))
            wanted, version = self.tags[name], store.restore(tag=name)
        elif by == "timestamp":
            version = store.restore(timestamp=store.snapshot(version=wanted).timestamp)
        else:
            version = store.restore(version=wanted)
        self.may_undrop = False  # it drops and brings back by itself
        if version == len(self.versions):
            names = set(self.now) | set(self.versions[wanted])
            self.landed(version, self.versions[wanted], names)
        else:
            assert version == len(self.versions) - 1
            assert self.now == self.versions[wanted]
        self.changed()

    @precondition(lambda self: self.open is None)
    @rule(second=st.booleans(), keep=st.integers(1, 8), at_once=st.booleans())
    def vacuum(self, second: bool, keep: int, at_once: bool) -> None:
        store = self.handle(second)
        kept = [max(0, len(self.versions) - keep), *self.tags.values()]
        if at_once:
            store.vacuum(retention=keep)
        else:
            store.vacuum_plan(retention=keep).execute()
        self.maintained()
        readable = oldest_readable(store)
        assert self.oldest <= readable
        assert min(kept) >= readable or readable == self.oldest or at_once
        assert min([*self.tags.values(), len(self.versions)]) >= readable
        self.oldest = readable
        self.may_undrop = False  # what was dropped before may be gone
        self.changed()
        if readable:
            with pytest.raises(SnapshotExpiredError):
                store.snapshot(version=readable - 1)

    @rule(second=st.booleans(), pages=st.sampled_from(["all", "sample", "none"]))
    def verify(self, second: bool, pages: Any) -> None:
        self.handle(not second).compact_pages()
        self.maintained()
        found = self.handle(second).verify(pages=pages)
        assert found.ok
        assert found.version == len(self.versions) - 1

    @rule(second=st.booleans(), lose_hint=st.booleans())
    def repair(self, second: bool, lose_hint: bool) -> None:
        store = self.handle(second)
        if lose_hint:
            store.object_store.delete(HINT_KEY)
        has_hint = bool(list(store.object_store.list(HINT_KEY)))
        plan = store.repair_plan(pages="all")
        assert plan.beyond == ()
        assert not plan.steps or not has_hint
        assert len(plan.execute()) == len(plan.steps)
        assert store.repair_plan().steps == ()
        assert store.verify().ok

    @precondition(lambda self: self.open is None)
    @rule(second=st.booleans(), data=st.data())
    def a_lease_keeps_its_version(self, second: bool, data: st.DataObject) -> None:
        version = self.old_version(data)
        snapshot = self.handle(second).snapshot(version=version)
        with snapshot.lease(timedelta(minutes=5)):
            assert version in self.handle(not second).leases()["version"].to_pylist()
            self.handle(not second).vacuum(retention=1)
            found = {name: as_rows(snapshot.table(name).read()) for name in snapshot.tables()}
            assert found == self.versions[version]
        assert version not in self.handle(not second).leases()["version"].to_pylist()
        self.maintained()
        self.oldest = oldest_readable(self.stores[0])
        assert self.oldest <= version
        self.may_undrop = False
        self.changed()

    @precondition(lambda self: any(self.now.values()))
    @rule(second=st.booleans(), data=st.data())
    def a_claim_is_advice(self, second: bool, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(name for name, rows in self.now.items() if rows)))
        store = self.handle(second)
        definition = store.snapshot().table(name).definition
        claim = Claim(definition.table_id, definition.field_ids["n"], 0, 1, "me", 1, FAR_AWAY_US)
        with store.transaction(operation="claim") as txn:
            txn.claim(claim)
        self.landed(txn.version, self.now, set())
        assert claim in store.snapshot().log.state.claims
        rows = [(250, self.now[name][0][1]), *self.now[name][1:]]
        with self.handle(not second).transaction() as txn:
            txn.update_rows(name, [0], {"n": [250]})
        self.landed(txn.version, {**self.now, name: rows}, {name})
        with store.transaction(operation="release") as txn:
            txn.claim(replace(claim, expires_at_us=0))
        self.landed(txn.version, self.now, set())
        assert claim not in store.snapshot().log.state.claims

    @precondition(lambda self: self.now)
    @rule(second=st.booleans(), data=st.data(), lands=st.booleans(), another=st.booleans())
    def an_unknown_outcome_is_resumed(
        self, second: bool, data: st.DataObject, lands: bool, another: bool
    ) -> None:
        name = self.a_table(data)
        objects, seconds = Doubting(self.stores[0], lands), count()
        hasty = Store(objects, replace(Runtime(), monotonic_s=lambda: next(seconds), sleep_s=lambda _: None))
        txn = hasty.transaction()
        txn.append(name, as_table([(77, "?")]))
        objects.broken = True
        with pytest.raises(CommitUnknownError) as failure:
            txn.commit()
        objects.broken = False
        if lands:
            self.landed(len(self.versions), {**self.now, name: [*self.now[name], (77, "?")]}, {name})
        if another:
            with self.handle(second).transaction() as txn:
                txn.append(name, as_table([(78, "!")]))
            self.landed(txn.version, {**self.now, name: [*self.now[name], (78, "!")]}, {name})
        resuming = self.handle(not second)
        if another and not lands:
            with pytest.raises(CommitConflictError):
                resuming.resume(failure.value)
            return
        version = resuming.resume(failure.value)
        if not lands:
            self.landed(version, {**self.now, name: [*self.now[name], (77, "?")]}, {name})
        assert version == len(self.versions) - 1 - another
        assert resuming.resume(failure.value) == version
