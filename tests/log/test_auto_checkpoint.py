from __future__ import annotations

import logging
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.errors import StorageError
from spark_pages.log import slots
from spark_pages.log.auto_maintenance import Due, LogPolicy, due_after
from spark_pages.log.discovery import on_named_checkpoint
from spark_pages.log.replay import rebase_on_checkpoint, replay
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.log.state import LogState
from spark_pages.model.actions import CheckpointRef
from spark_pages.model.chain_tree import ChainKey
from spark_pages.model.location import Location
from spark_pages.model.tail import ChainTail
from spark_pages.runtime import Runtime
from spark_pages.storage import MeteredStore
from spark_pages.store import Store
from spark_pages.transaction import placement
from tests.invariants import check_same, check_store
from tests.transaction.stores import QUIET, store_with

ROWS = pa.table({"n": [1, 2], "s": ["a", "b"]})
EVERY_8 = {**QUIET, "checkpoint_commits": "8"}


def ref(version: int) -> CheckpointRef:
    return CheckpointRef(version, Location(f"root {version}", 1, ""))


class Captured:
    """Work that was begun and is done when the test says so."""

    def __init__(self) -> None:
        self.begun: list[Callable[[], None]] = []
        self.waited: list[float | None] = []

    def __call__(self, work: Callable[[], None]) -> Callable[[float | None], object]:
        self.begun.append(work)
        return self.waited.append

    def finish(self) -> None:
        while self.begun:
            self.begun.pop(0)()


def at_once(work: Callable[[], None]) -> Callable[[float | None], object]:
    """Do the work before going on."""
    work()
    return lambda _: None


def new_store(properties: dict[str, str], spawn: Any = at_once, objects: Any = None) -> Store:
    """A store with table ``t``, opened so that work beside commits is begun by `spawn`."""
    made = sp.create(f"memory://{uuid4().hex}", properties=properties)
    store = Store(objects(made.object_store) if objects else made.object_store, Runtime(spawn=spawn))
    with store.transaction() as txn:
        txn.create_table("t", ROWS.schema)
    return store


def append(store: Store, count: int = 1) -> None:
    for _ in range(count):
        with store.transaction() as txn:
            txn.append("t", ROWS)


def roots(store: Store) -> list[int]:
    """Versions of the checkpoints that were written."""
    listed = [each.key for each in store.object_store.list("_log/checkpoints/")]
    return [int(key.split("/")[-1][:20]) for key in listed]


# what is due


@pytest.mark.parametrize(
    ("version", "state", "due"),
    [
        (62, LogState(62), Due()),
        (63, LogState(63), Due(checkpoint=True, compaction=True)),
        (63, LogState(66), Due(checkpoint=True, compaction=True)),
        (63, LogState(63, newest_checkpoint=ref(50)), Due(compaction=True)),
        (127, LogState(127, newest_checkpoint=ref(63), base=ref(63)), Due(True, True)),
        (14, LogState(14), Due()),
        (15, LogState(15), Due(compaction=True)),
        (7, LogState(7, tail_bytes=16 << 20), Due(checkpoint=True)),
        (8, LogState(8, tail_bytes=16 << 20), Due()),
        (7, LogState(7, tail_bytes=(16 << 20) - 1), Due()),
        (7, LogState(7, added_bytes=16 << 20), Due(checkpoint=True)),
        (7, LogState(7, added_bytes=(16 << 20) - 1), Due()),
        (7, LogState(7, tail_bytes=16 << 20, newest_checkpoint=ref(5)), Due()),
        (8, LogState(8, tail_columns=2048, catalog_version=8), Due(checkpoint=True)),
        (8, LogState(9, tail_columns=2048, catalog_version=8), Due(checkpoint=True)),
        (9, LogState(9, tail_columns=2048, catalog_version=8), Due()),
        (8, LogState(8, tail_columns=2047, catalog_version=8), Due()),
        (15, LogState(15, tail_columns=2048, catalog_version=8), Due(checkpoint=True, compaction=True)),
        (8, LogState(8, tail_columns=2048, catalog_version=8, newest_checkpoint=ref(5)), Due()),
    ],
)
def test_the_number_of_the_version_decides_what_is_due(version, state, due):
    assert due_after(version, state, LogPolicy()) == due


def test_nothing_is_due_where_it_is_turned_off():
    state = LogState(
        10**6 - 1, tail_bytes=10**12, added_bytes=10**12, tail_columns=10**9, catalog_version=10**6 - 1
    )

    assert not [v for v in range(10**6 - 300, 10**6) if due_after(v, state, LogPolicy.of(QUIET))]


def test_properties_of_the_store_say_how_often(caplog):
    asked = {"checkpoint_commits": "5", "checkpoint_bytes": "6", "log_compaction_commits": "7"}

    assert LogPolicy.of(asked) == LogPolicy(5, 6, 7)
    assert LogPolicy.of({"checkpoint_commits": "-1", "checkpoint_bytes": "much"}) == LogPolicy()
    assert "'much', not a whole number: 16777216 is used" in caplog.text


# beside commits


def test_a_process_that_commits_makes_checkpoints_by_itself():
    store = new_store(EVERY_8)

    append(store, 30)

    assert roots(store) == [7, 15, 23, 31]
    assert check_store(Store(store.object_store)).checkpoint.ref.version == 31


def test_a_checkpoint_is_made_after_so_many_bytes():
    store = new_store({**QUIET, "checkpoint_bytes": "20000"})

    append(store, 61)

    assert 2 <= len(roots(store)) <= 5
    assert all((version + 1) % 8 == 0 for version in roots(store))


@pytest.mark.parametrize("manifest_pages", [1, 1_000], ids=["in manifests", "in commits"])
def test_bytes_are_those_of_pages_as_they_are_stored(monkeypatch, manifest_pages):
    monkeypatch.setattr(placement, "MANIFEST_PAGES", manifest_pages)
    store = new_store({**QUIET, "checkpoint_bytes": str(1 << 20)})
    created = store.snapshot().log.state.added_bytes
    numbers = np.random.default_rng(0).integers(0, 1 << 62, 20_000)  # 160 KB a commit, in three pages

    for _ in range(6):
        with store.transaction() as txn:
            txn.append("t", pa.table({"n": numbers}))
    before = store.snapshot().log.state
    append(store, 8)

    stored = sum(store.snapshot(version=before.version).table("t").pages()["actual_len"].to_pylist())
    assert before.added_bytes - created == stored < 1 << 20
    assert roots(store) == []
    with store.transaction() as txn:
        txn.append("t", pa.table({"n": numbers}))
    append(store, 8)
    assert len(roots(store)) == 1


def test_definitions_of_many_columns_bring_a_checkpoint_at_once_and_count_from_there():
    store = new_store({})
    schema = pa.schema([(f"c{number}", pa.int64()) for number in range(300)])

    for number in range(8):
        with store.transaction() as txn:
            txn.create_table(f"t{number}", schema)
    with store.transaction() as txn:
        txn.drop_table("t3")
        txn.add_column("t4", pa.field("more", pa.int8()))
    counted = store.snapshot().log.state

    assert roots(store) == [8]
    assert (counted.base.version, counted.tail_columns, counted.catalog_version) == (8, 601, 10)
    assert check_store(Store(store.object_store)).state.tail_columns == 601


def test_a_store_of_many_tables_are_opened_by_four_reads_and_one_look_without_a_commit(monkeypatch):
    store = new_store({})
    schema = pa.schema([(f"c{number}", pa.int64()) for number in range(300)])
    for start in range(0, 30, 10):
        with store.transaction() as txn:
            for number in range(start, start + 10):
                txn.create_table(f"t{number:02d}", schema)
    decoded: list[str] = []
    decode = slots.decode_slot
    monkeypatch.setattr(slots, "decode_slot", lambda data, key: decoded.append(key) or decode(data, key))
    meter = MeteredStore(store.object_store)

    found = Store(meter).snapshot().table("t17").schema

    assert found.equals(schema)
    assert meter.counts.requests - meter.counts.stamps == 4
    assert meter.counts.stamps == 10
    assert decoded == []


def test_by_default_a_log_is_looked_after():
    store = new_store({})

    append(store, 64)

    assert roots(store) == [63]
    assert len([each for each in store.object_store.list("_log/0") if "compacted" in each.key]) == 7
    assert store.snapshot().log.state.compacted == 64


def test_of_several_processes_one_makes_the_checkpoint_and_the_others_adopt_it():
    one = new_store(EVERY_8)
    others = [Store(one.object_store, Runtime(spawn=at_once)) for _ in range(3)]

    for number in range(120):
        append([one, *others][number % 4])
    bases = [store.snapshot().log.state.base.version for store in [one, *others]]

    assert len(roots(one)) == len(set(roots(one)))
    assert len(roots(one)) == 15
    assert min(bases) >= 121 - 64 - 8


def test_a_commit_is_acknowledged_before_its_checkpoint_begins():
    captured = Captured()
    store = new_store(EVERY_8, captured)

    append(store, 6)

    assert (store.snapshot().version, roots(store), len(captured.begun)) == (7, [], 1)
    captured.finish()
    assert roots(store) == [7]


def test_while_one_is_being_made_at_most_one_more_waits():
    captured = Captured()
    store = new_store(EVERY_8, captured)

    append(store, 50)

    assert len(captured.begun) == 1
    captured.finish()
    assert len(roots(store)) == 1
    append(store, 12)
    captured.finish()
    assert len(roots(store)) == 2


class NoPuts:
    """A store that takes commits and nothing else."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def put(self, key: str, data: bytes) -> None:
        raise StorageError(f"No room for {key}.")


def test_a_checkpoint_that_fails_fails_no_commit_and_is_told(caplog):
    store = new_store(EVERY_8, objects=NoPuts)

    with caplog.at_level(logging.WARNING):
        append(store, 9)

    assert Store(store.object_store).snapshot().version == 10
    assert "StorageError: No room for" in caplog.text


def test_a_store_that_is_removed_while_it_is_looked_after_is_no_failure(caplog):
    captured = Captured()
    store = new_store(EVERY_8, captured)
    append(store, 8)
    captured.finish()
    append(store, 8)
    for info in list(store.object_store.list("")):
        store.object_store.delete(info.key)

    with caplog.at_level(logging.INFO):
        captured.finish()

    told = [record for record in caplog.records if record.name.startswith("spark_pages.log")]
    assert [record.levelname for record in told] == ["INFO"]
    assert "The store was removed while its log was looked after" in told[0].message


def test_an_object_that_is_missing_of_a_store_that_is_there_is_told(caplog):
    captured = Captured()
    store = new_store(EVERY_8, captured)
    append(store, 8)
    captured.finish()
    append(store, 8)
    gone = [info.key for info in store.object_store.list("_log/") if info.key.count("/") > 1]
    for key in gone:
        store.object_store.delete(key)

    with caplog.at_level(logging.INFO):
        captured.finish()

    assert gone
    assert "ObjectNotFoundError" in caplog.text
    assert "was removed" not in caplog.text


def test_where_no_thread_can_be_had_the_commit_is_acknowledged_all_the_same(caplog):
    def refuse(work: Callable[[], None]) -> Callable[[float | None], object]:
        raise RuntimeError("can't start new thread")

    store = new_store(EVERY_8, refuse)

    append(store, 9)

    assert store.snapshot().version == 10
    assert "can't start new thread" in caplog.text


def test_closing_waits_for_what_is_due_and_ends_it():
    objects = sp.create(f"memory://{uuid4().hex}", properties=EVERY_8).object_store

    with Store(objects) as store:
        with store.transaction() as txn:
            txn.create_table("t", ROWS.schema)
        append(store, 6)
    made = roots(store)
    append(store, 8)
    store.close()

    assert made == [7]
    assert roots(store) == [7]


SLOW = """
import os, sys, time
import pyarrow as pa
import spark_pages as sp
from spark_pages.log import auto_maintenance as care

real = care.write_checkpoint
def slow(*args):
    time.sleep(float(sys.argv[2]))
    return real(*args)
care.write_checkpoint = slow

store = sp.create(sys.argv[1], properties={"checkpoint_commits": "4"})
rows = pa.table({"n": [1]})
with store.transaction() as txn:
    txn.create_table("t", rows.schema)
"""


def run(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    program = SLOW + textwrap.dedent(code)
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )


APPEND_2 = """
    for _ in range(2):
        with store.transaction() as txn:
            txn.append("t", rows)
"""


def test_a_process_that_ends_waits_for_its_checkpoint(tmp_path):
    patience = "care.BackgroundWorker.__init__.__globals__['_EXIT_S'] = 60\n"

    run(patience + textwrap.dedent(APPEND_2), tmp_path / "s", 0.5)

    assert roots(sp.open(str(tmp_path / "s"))) == [3]


def test_a_process_that_ends_does_not_wait_for_ever(tmp_path):
    code = "care.BackgroundWorker.__init__.__globals__['_EXIT_S'] = 0.2\n" + textwrap.dedent(APPEND_2)

    run(code, tmp_path / "s", 1000)

    assert roots(sp.open(str(tmp_path / "s"))) == []
    assert sp.open(str(tmp_path / "s")).snapshot().version == 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_commits_and_makes_its_own_checkpoints(tmp_path):
    code = textwrap.dedent(APPEND_2) + textwrap.dedent(
        """
        child = os.fork()
        if not child:
            care.write_checkpoint = real
            for _ in range(4):
                with store.transaction() as txn:
                    txn.append("t", rows)
            store.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        store.close()
        """
    )

    run(code, tmp_path / "s", 1.0)

    assert roots(sp.open(str(tmp_path / "s"))) == [3, 7]
    check_store(sp.open(str(tmp_path / "s")))


# what a process keeps


def kept(store: Store) -> int:
    """Edits, tokens and names that a process keeps since its base."""
    state = store._log._newest.snapshot.state
    edits = sum(map(len, state.edits.values()))
    return edits + len(state.tokens) + len(state.tables) + len(state.names) + len(state.changed)


def test_what_a_writer_keeps_of_commits_does_not_grow():
    store = new_store({**QUIET, "checkpoint_commits": "16"})
    most = []

    for _ in range(6):
        append(store, 16)
        most.append(kept(store))

    assert max(most) <= min(most) + 3
    check_store(store)


def test_what_a_reader_keeps_does_not_grow_though_others_make_the_checkpoints():
    store = new_store({**QUIET, "checkpoint_commits": "16"})
    reader = Store(store.object_store)
    most = []

    for number in range(300):
        append(store)
        if number == 40:
            with store.transaction() as txn:
                txn.create_table("later", ROWS.schema)
        if number % 5 == 0:
            reader.snapshot()
            most.append(kept(reader))

    assert max(most) <= 4 * (64 + 16 + 5) + 20
    check_same(reader.snapshot().log, Store(store.object_store).snapshot().log)


def test_to_change_over_to_a_checkpoint_reads_its_root_and_nothing_else():
    store = new_store({**QUIET, "checkpoint_commits": "64"})
    meter = MeteredStore(store.object_store)
    append(store, 60)
    reader = Store(meter)
    reader.snapshot()
    append(store, 5)
    before = meter.counts

    reader.snapshot()

    added = [key for key in (meter.counts - before).keys if "checkpoints" in key]
    assert (reader.snapshot().log.state.base.version, len(added)) == (63, 1)
    assert not [key for key in (meter.counts - before).keys if "segments" in key or "parts" in key]


def test_a_snapshot_keeps_its_rows_while_the_process_changes_over():
    store = new_store(EVERY_8)
    append(store, 3)
    old = store.snapshot()

    append(store, 20)

    assert old.table("t").num_rows == 6
    assert old.table("t").read().num_rows == 6
    assert store.snapshot(version=old.version).table("t").num_rows == 6


def test_a_commit_in_flight_during_a_checkpoint_does_not_bring_the_old_base_back():
    store = store_with(*[ROWS] * 5)
    log = store._log
    before = log.refresh().state
    store.checkpoint()
    append(Store(store.object_store))
    in_flight = replay(before, log.commits(7, 8), log.load_manifest)

    log._newest.advance(in_flight)

    head = log._newest.snapshot
    assert (in_flight.base, head.state.base.version, head.state.version) == (None, 6, 7)
    assert len(head.state.tokens) == 2  # of the commit, and of its transaction
    check_same(head, Store(store.object_store).snapshot().log)


def test_a_thread_may_ask_for_the_end_of_another_chain_while_the_process_changes_over(monkeypatch):
    store = store_with(ROWS)
    end_of, asked = LogSnapshot.tail, []

    def tail(snapshot: LogSnapshot, key: ChainKey) -> ChainTail:
        asked.append(key)
        if len(asked) == 2:  # another thread appends to a table that nobody has asked for
            end_of(snapshot, (9, 9))
        return end_of(snapshot, key)

    with store.transaction() as txn:
        txn.append("t", ROWS)
    monkeypatch.setattr(LogSnapshot, "tail", tail)

    store.checkpoint()

    assert len(asked) >= 2
    assert store.snapshot().table("t").num_rows == 4


def test_chains_that_are_loaded_whole_stay_loaded_but_for_those_with_inline_pages():
    captured = Captured()
    store = new_store(EVERY_8, captured)
    big = pa.table({"n": np.random.default_rng(0).integers(0, 1 << 62, 50_000)})  # too much to be inline
    with store.transaction() as txn:
        txn.create_table("big", big.schema)
        txn.append("big", big)
    append(store, 5)
    for name in ("big", "t"):
        store.snapshot().table(name).directory.latest("n")
    before = store.snapshot().log

    captured.finish()
    moved = store.snapshot().log

    assert (before.state.base, moved.state.base.version) == (None, 7)
    assert moved.chain((2, 1)) is before.chain((2, 1))
    assert moved.chain((1, 1)).num_rows == 10
    assert not any(kind == 1 for kind in moved.chain((1, 1)).all_pages().numbers("kind"))


def test_a_checkpoint_that_cannot_be_read_is_not_adopted_and_not_asked_for_again():
    store = new_store({**QUIET, "checkpoint_commits": "64"})
    meter = MeteredStore(store.object_store)
    reader = Store(meter)
    reader.snapshot()
    append(store, 70)
    (root,) = [each.key for each in store.object_store.list("_log/checkpoints/")]
    store.object_store.put(root, b"damaged")

    reader.snapshot()
    before = meter.counts
    append(store, 2)

    assert reader.snapshot().table("t").num_rows == 144
    assert not [key for key in (meter.counts - before).keys if "checkpoints" in key]


def test_to_stand_on_a_checkpoint_is_the_same_as_to_replay_from_it():
    store = store_with(*[ROWS] * 5)
    with store.transaction() as txn:
        txn.update_rows("t", [1], {"n": [9]})
        txn.create_table("u", ROWS.schema)
    named = store.checkpoint()
    with store.transaction() as txn:
        txn.append("u", ROWS)
        txn.create_table("v", ROWS.schema)
    append(store, 2)
    log = store._log
    whole = replay(LogState(), log.commits(0, 11), log.load_manifest)

    moved = rebase_on_checkpoint(whole, named)
    fresh = on_named_checkpoint(log._slots, log._tree, log.open(whole).state, log.load_manifest)
    again = replay(
        Store(store.object_store)._log._tree.root(named).state, log.commits(8, 11), log.load_manifest
    )

    assert {key: len(edits) for key, edits in moved.edits.items()} == {
        key: len(edits) for key, edits in again.edits.items()
    }
    for name in ("tables", "names", "tokens", "changed"):
        assert set(getattr(moved, name)) == set(getattr(again, name)), name
    assert moved.tail_bytes == pytest.approx(again.tail_bytes, rel=0.05)
    assert moved.added_bytes == again.added_bytes > 0
    assert fresh.base == moved.base == named
    check_same(log.open(moved), log.open(whole))
