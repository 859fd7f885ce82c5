"""A store is created again and again at one address, while handles of former ones go on writing.

The model knows what each store was told to hold. On remote storage a handle looks at its store every five
seconds only, so a former one may put a commit into the present store; that must never be seen in it, nor
keep it from going on after a repair. Earlier copies of the store are put back, too, which takes longer than
that: a handle that knows more than the copy holds must refuse, and the others go on.
"""

from __future__ import annotations

from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

import spark_pages as sp
from spark_pages.format.commit import decode_slot, slot_digest
from spark_pages.format.names import commit_key
from spark_pages.log.store_identity import StoreIdentity
from spark_pages.runtime import Runtime
from spark_pages.store import Store
from tests.io.strategies import steady

PROPERTIES = {"checkpoint_commits": "0", "log_compaction_commits": "0"}
FEW = settings(steady, max_examples=5, stateful_step_count=12)


class Recreated(RuleBasedStateMachine):
    """Three handles of any age on one address.

    Attributes
    ----------
    rows
        What each store was told to hold, by its id.
    """

    def __init__(self) -> None:
        super().__init__()
        self.url = f"memory://{uuid4().hex}"
        self.now_s = 0.0
        self.number = 0
        self.rows: dict[str, list[int]] = {}
        self.handles: list[Store] = []
        self.copies: list[tuple[dict[str, bytes], str, list[int]]] = []

    @initialize()
    def begin(self) -> None:
        self.recreate()
        for _ in range(3):
            self.handles.append(self.opened())

    def opened(self) -> Store:
        store = Store(self.objects, Runtime(monotonic_s=lambda: self.now_s))
        store.snapshot()
        return store

    @rule()
    def recreate(self) -> None:
        made = sp.create(f"memory://{uuid4().hex}", properties=PROPERTIES)
        with made.transaction() as txn:
            txn.create_table("t", pa.schema([("n", pa.int64())]))
        self.objects = sp.storage.open_object_store(self.url)
        self.fill({each.key: made.object_store.get(each.key) for each in made.object_store.list("")})
        self.present = made.snapshot().log.state.store_id
        self.rows[self.present] = []

    def fill(self, objects: dict[str, bytes]) -> None:
        for each in self.objects.list(""):
            self.objects.delete(each.key)
        for key, data in objects.items():
            self.objects.put(key, data)

    @rule()
    def copy(self) -> None:
        objects = {each.key: self.objects.get(each.key) for each in self.objects.list("")}
        self.copies.append((objects, self.present, [*self.rows[self.present]]))

    @rule(which=st.integers(0, 9))
    def put_back(self, which: int) -> None:
        if which < len(self.copies):
            objects, self.present, rows = self.copies[which]
            self.rows[self.present] = [*rows]
            self.fill(objects)
            self.now_s += 6

    def is_known_newest_there(self, handle: Store) -> bool:
        state = handle._log.known().state
        try:
            return slot_digest(self.objects.get(commit_key(state.version)), state.version, "") == state.digest
        except sp.ObjectNotFoundError:
            return False

    @rule(which=st.integers(0, 2))
    def open(self, which: int) -> None:
        self.handles[which] = self.opened()

    @rule(seconds=st.sampled_from([1, 6]))
    def wait(self, seconds: int) -> None:
        self.now_s += seconds

    @rule(which=st.integers(0, 2), times=st.integers(1, 4))
    def append(self, which: int, times: int) -> None:
        for _ in range(times):
            self.append_once(self.handles[which])

    def append_and_look(self) -> None:
        self.append_once(self.handles[0])
        self.whoever_comes_sees_what_the_present_store_was_told()

    def append_once(self, handle: Store) -> None:
        store_id = handle._log.known().state.store_id
        has_looked = handle._log._slots.identity.is_due
        is_there = self.is_known_newest_there(handle)
        self.number += 1
        try:
            with handle.transaction() as txn:
                txn.append("t", {"n": [self.number]})
        except sp.StoreReplacedError:
            assert store_id != self.present or self.is_foreign_near() or not is_there
            return
        assert (store_id == self.present and is_there) or not has_looked
        if store_id == self.present:
            self.rows[store_id].append(self.number)

    def is_foreign_near(self) -> bool:
        slots = [each.key for each in self.objects.list("_log/0") if each.key.endswith(".avro")]
        return any(decode_slot(self.objects.get(key), key).id_of_store != self.present for key in slots)

    @rule()
    def repair(self) -> None:
        Store(self.objects).repair_plan().execute()
        assert not self.is_foreign_near()

    @rule(which=st.integers(0, 2))
    def read(self, which: int) -> None:
        handle = self.handles[which]
        if handle._log.known().state.store_id == self.present and self.is_known_newest_there(handle):
            assert self.seen_by(handle) == self.rows[self.present]
        else:
            known = handle._log.known().state
            assert handle.snapshot().log.state == known

    @staticmethod
    def seen_by(store: Store) -> list[int]:
        return store.snapshot().table("t").read().column("n").to_pylist()

    @invariant()
    def whoever_comes_sees_what_the_present_store_was_told(self) -> None:
        if self.handles:
            assert self.seen_by(Store(self.objects)) == self.rows[self.present]


def test_no_store_ever_shows_a_commit_of_another_or_loses_its_own() -> None:
    run_state_machine_as_test(Recreated, settings=FEW)


def test_the_machine_finds_it_where_nobody_tells_stores_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StoreIdentity, "is_foreign", lambda *_: False)
    machine = Recreated()
    machine.begin()
    machine.recreate()
    machine.wait(1)

    with pytest.raises((AssertionError, sp.SparkPagesError)):
        machine.append_and_look()


def test_the_machine_finds_it_where_no_slot_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StoreIdentity, "_compare", lambda *_: None)
    monkeypatch.setattr(StoreIdentity, "_compare_newest", lambda *_: None)
    machine = Recreated()
    machine.begin()
    machine.recreate()
    machine.wait(6)

    with pytest.raises((AssertionError, sp.SparkPagesError)):
        machine.append_and_look()


def test_the_machine_finds_it_where_the_newest_slot_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StoreIdentity, "_compare_newest", lambda *_: None)
    machine = Recreated()
    machine.begin()
    machine.copy()
    machine.append(0, 3)
    machine.put_back(0)

    with pytest.raises((AssertionError, sp.SparkPagesError)):
        machine.append_and_look()
