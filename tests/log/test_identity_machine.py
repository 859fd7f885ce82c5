"""A store is created again and again at one address, while handles of former ones go on writing.

The model knows what each store was told to hold. On remote storage a handle looks at its store every five
seconds only, so a former one may put a commit into the present store; that must never be seen in it, nor
keep it from going on after a repair.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

import spark_pages as sp
from spark_pages.format.commit import decode_slot
from spark_pages.log.identity import StoreIdentity
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
        for each in self.objects.list(""):
            self.objects.delete(each.key)
        for each in made.objects.list(""):
            self.objects.put(each.key, made.objects.get(each.key))
        self.present = made.snapshot().log.state.store_id
        self.rows[self.present] = []

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
        self.number += 1
        try:
            with handle.transaction() as txn:
                txn.append("t", {"n": [self.number]})
        except sp.StoreReplacedError:
            assert store_id != self.present or self.is_foreign_near()
            return
        assert store_id == self.present or not has_looked
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
        if handle._log.known().state.store_id == self.present:
            assert self.seen_by(handle) == self.rows[self.present]
        else:
            assert handle.snapshot().log.state.store_id != self.present

    @staticmethod
    def seen_by(store: Store) -> list[int]:
        return store.snapshot().table("t").read().column("n").to_pylist()

    @invariant()
    def whoever_comes_sees_what_the_present_store_was_told(self) -> None:
        if self.handles:
            assert self.seen_by(Store(self.objects)) == self.rows[self.present]


def test_no_store_ever_shows_a_commit_of_another_or_loses_its_own() -> None:
    run_state_machine_as_test(Recreated, settings=FEW)


@pytest.mark.parametrize(
    ("rule_taken_out", "instead", "waits"),
    [("is_foreign", lambda *_: False, 1), ("_compare", lambda *_: None, 6)],
)
def test_the_machine_finds_it_where_a_rule_is_taken_out(
    rule_taken_out: str, instead: Any, waits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StoreIdentity, rule_taken_out, instead)
    machine = Recreated()
    machine.begin()
    machine.recreate()
    machine.wait(waits)

    with pytest.raises((AssertionError, sp.SparkPagesError)):
        machine.append_and_look()
