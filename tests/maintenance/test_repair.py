from __future__ import annotations

import os
import time
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.errors import StorageError
from spark_pages.format.checkpoint_tree import Node
from spark_pages.format.commit import encode_tombstone
from spark_pages.format.names import HINT_KEY, commit_key
from spark_pages.format.segment import encode_nodes
from spark_pages.log.checkpoint import segment_writer
from spark_pages.log.compaction.compacted_range import CompactedRange, decode_range, encode_range
from spark_pages.log.last_checkpoint import read_hints, write_hint
from spark_pages.maintenance.repair import RepairPlan, StepKind, plan_repair
from spark_pages.maintenance.verify.faults import FaultKind
from spark_pages.maintenance.verify.verify import verify
from spark_pages.model.actions import Tombstone
from spark_pages.storage import MeteredStore, open_object_store
from spark_pages.storage.store import ObjectStore
from spark_pages.store import Store
from tests.effort import some
from tests.maintenance.stores import flip, keys_of, rich_store, slot
from tests.transaction.stores import store_with


@pytest.fixture
def rich(url: str, monkeypatch: pytest.MonkeyPatch) -> Store:
    return rich_store(url, monkeypatch)


OLD, YOUNG = "0" * 32, "1" * 32
"""Names of unfinished files."""


def rows_of(objects: ObjectStore) -> dict[int, dict[str, pa.Table]]:
    """Every row of every table at every version, by a fresh reader."""
    store = Store(objects)
    head = store.snapshot().version
    snapshots = [store.snapshot(version=version) for version in range(head + 1)]
    return {snap.version: {name: snap.table(name).read() for name in snap.tables()} for snap in snapshots}


def derived_keys(store: Store) -> list[str]:
    """Objects that the log can give again."""
    folders = ("checkpoints", "parts", "segments", "stats", "catalog", "manifests")
    return [key for folder in folders for key in keys_of(store, f"_log/{folder}/")]


def kinds(plan: RepairPlan) -> list[StepKind]:
    return [step.kind for step in plan.steps]


def test_nothing_is_planned_for_a_whole_store(rich: Store) -> None:
    plan = plan_repair(rich.object_store)

    assert (plan.steps, plan.beyond) == ((), ())


@pytest.mark.sampled
def test_every_lost_object_that_the_log_can_give_comes_back_byte_for_byte(rich: Store) -> None:
    keys = derived_keys(rich)
    before = {key: rich.object_store.get(key) for key in keys}
    assert any("manifests" in key for key in keys)
    for key in some(keys, 3):
        rich.object_store.delete(key)

        plan = plan_repair(rich.object_store)
        plan.execute()

        assert kinds(plan)[0] is StepKind.PUT_BACK, key
        assert rich.object_store.get(key) == before[key]
        assert plan.beyond == ()
    assert verify(rich.object_store, pages="all").faults == ()


def test_all_of_a_checkpoint_lost_at_once_comes_back(rich: Store) -> None:
    before = rows_of(rich.object_store)
    for key in derived_keys(rich):
        if "manifests" not in key:
            rich.object_store.delete(key)

    plan = plan_repair(rich.object_store)
    plan.execute()

    assert plan.beyond == ()
    assert verify(rich.object_store, pages="all").faults == ()
    assert rows_of(rich.object_store) == before


def test_a_plan_writes_nothing(rich: Store) -> None:
    rich.object_store.delete(keys_of(rich, "_log/checkpoints/")[-1])
    metered = MeteredStore(rich.object_store)

    plan_repair(metered)

    assert (metered.counts.puts, metered.counts.creates, metered.counts.deletes) == (0, 0, 0)


def test_a_damaged_page_file_that_a_checkpoint_made_comes_back_from_the_commits(rich: Store) -> None:
    key = keys_of(rich, "pages/00000000000000000001-")[0]
    data = rich.object_store.get(key)
    flip(rich.object_store, key, 100)

    plan = plan_repair(rich.object_store, pages="all")
    plan.execute()

    assert [step.key for step in plan.steps] == [key]
    assert rich.object_store.get(key) == data
    assert plan.beyond == ()


def test_a_page_file_of_a_writer_is_lost_and_told_so(rich: Store) -> None:
    path = rich.snapshot().table("u").pages().column("path")[0].as_py()
    rich.object_store.delete(path)

    plan = plan_repair(rich.object_store)

    assert plan.steps == ()
    (fault,) = plan.beyond
    assert fault.key == path
    assert "u.x" in fault.what
    assert "cannot be made again" in fault.remedy


def test_a_lost_slot_is_beyond_repair_and_nothing_is_deleted(rich: Store) -> None:
    rich.object_store.delete(commit_key(2))
    before = keys_of(rich)

    plan = plan_repair(rich.object_store)
    plan.execute()

    assert [fault.key for fault in plan.beyond] == [commit_key(2)]
    assert "Versions from 2 up to 3 cannot be read" in plan.beyond[0].what
    assert keys_of(rich) == before


def test_a_hint_that_stayed_behind_is_told_and_moved_on_and_so_does_the_next_checkpoint(rich: Store) -> None:
    named = slot(rich.object_store, 8).checkpoint
    older = slot(rich.object_store, 4).checkpoint
    assert older.version < named.version
    write_hint(rich.object_store, older)

    found = verify(rich.object_store)
    plan = plan_repair(rich.object_store)
    plan.execute()

    assert found.ok
    assert [notice.kind for notice in found.notices] == [FaultKind.HINT]
    assert kinds(plan) == [StepKind.HINT]
    assert read_hints(rich.object_store).checkpoint == named

    write_hint(rich.object_store, older)
    made = Store(rich.object_store).checkpoint()

    assert read_hints(rich.object_store).checkpoint == made


@pytest.mark.parametrize("content", [None, b"", b"{}", b"nonsense"])
def test_a_lost_or_wrong_hint_is_written_anew(rich: Store, content: bytes | None) -> None:
    before = read_hints(rich.object_store)
    if content is None:
        rich.object_store.delete(HINT_KEY)
    else:
        rich.object_store.put(HINT_KEY, content)

    plan = plan_repair(rich.object_store)
    plan.execute()

    assert kinds(plan) == [StepKind.HINT]
    assert read_hints(rich.object_store) == replace(before, upkeep=())


@pytest.fixture
def other_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing a checkpoint again gives other bytes, as another release of a library would."""

    def otherwise(nodes: list[Node], metadata: dict[bytes, bytes]) -> bytes:
        return encode_nodes(nodes, {**metadata, b"spark_pages.by": b"another"})

    monkeypatch.setattr(segment_writer, "encode_nodes", otherwise)


@pytest.mark.parametrize("hint", [True, False], ids=["with a hint", "without a hint"])
def test_a_checkpoint_that_cannot_be_made_again_is_replaced(rich: Store, other_release, hint: bool) -> None:
    before = rows_of(rich.object_store)
    newest = rich.snapshot().log.state.base
    (part,) = newest_parts(rich)
    rich.object_store.delete(part)
    if not hint:
        rich.object_store.delete(HINT_KEY)

    plan = plan_repair(rich.object_store)
    plan.execute()

    assert kinds(plan) == [StepKind.CHECKPOINT]
    assert plan.beyond == ()
    after = rows_of(rich.object_store)
    assert {version: after[version] for version in before} == before
    assert verify(rich.object_store, pages="all").ok
    assert Store(rich.object_store).history(1).column("operation").to_pylist() == ["repair"]
    assert Store(rich.object_store).snapshot().log.state.newest_checkpoint.version > newest.version


def newest_parts(store: Store) -> list[str]:
    """Manifest parts that only the newest checkpoint names."""
    head = store.snapshot().log.checkpoint
    named = {part.digest for part in head.root.parts}
    for _, older in head.root.predecessors:
        named -= {part.digest for part in head.tree.root(older).parts}
    return [f"_log/parts/{digest}.parquet" for digest in sorted(named)][:1]


@pytest.mark.parametrize("hint", [True, False], ids=["with a hint", "without a hint"])
def test_a_store_whose_newest_root_is_lost_opens_and_reads_every_version(rich: Store, hint: bool) -> None:
    before = rows_of(rich.object_store)
    rich.object_store.delete(rich.snapshot().log.state.base.location.key)
    if not hint:
        rich.object_store.delete(HINT_KEY)

    assert rows_of(rich.object_store) == before


def test_a_store_without_any_root_opens_and_reads_every_version(rich: Store) -> None:
    before = rows_of(rich.object_store)
    for key in keys_of(rich, "_log/checkpoints/"):
        rich.object_store.delete(key)

    assert rows_of(rich.object_store) == before


def test_a_store_whose_newest_root_is_lost_can_be_written_to(rich: Store) -> None:
    rich.object_store.delete(rich.snapshot().log.state.base.location.key)
    store = Store(rich.object_store)

    with store.transaction() as txn:
        txn.append("u", pa.table({"x": [1]}))
    plan_repair(rich.object_store).execute()
    Store(rich.object_store).checkpoint()

    assert Store(rich.object_store).snapshot().table("u").num_rows == store.snapshot().table("u").num_rows
    assert rows_of(rich.object_store).keys() == set(range(10))


class DyingStore:
    """A store whose process dies at a given write."""

    def __init__(self, inner: ObjectStore, writes: int) -> None:
        self.inner = inner
        self.left = writes

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def put(self, key: str, data: bytes) -> None:
        if not self.left:
            raise StorageError("killed")
        self.left -= 1
        self.inner.put(key, data)


@pytest.mark.sampled
def test_a_repair_that_is_killed_anywhere_is_finished_by_the_next(rich: Store, url: str) -> None:
    lost = {key: rich.object_store.get(key) for key in derived_keys(rich)[:6]}
    for writes in some(range(len(lost)), 2):
        for key in lost:
            rich.object_store.delete(key)
        with pytest.raises(StorageError, match="killed"):
            plan_repair(DyingStore(rich.object_store, writes)).execute()

        plan_repair(rich.object_store).execute()

        assert verify(rich.object_store, pages="none").faults == ()


def test_two_repairs_at_once_are_harmless(rich: Store, other_release) -> None:
    rich.object_store.delete(newest_parts(rich)[0])
    one, two = plan_repair(rich.object_store), plan_repair(rich.object_store)

    one.execute()
    two.execute()

    assert verify(rich.object_store, pages="all").ok
    assert plan_repair(rich.object_store).steps == ()


@pytest.mark.sampled
def test_any_two_objects_lost_together_come_back_or_are_told(url: str) -> None:
    store = store_with(pa.table({"n": [1]}))
    store.checkpoint()
    with store.transaction() as txn:
        txn.append("t", pa.table({"n": [2]}))
    store.checkpoint()
    with store.transaction() as txn:
        txn.append("t", pa.table({"n": [3]}))
    before = {key: store.object_store.get(key) for key in keys_of(store)}

    # Without its newest slot the log ends one version earlier, as it did before.
    pairs = combinations([key for key in before if key not in (HINT_KEY, commit_key(4))], 2)
    for pair in some(list(pairs), 5):
        for key in pair:
            store.object_store.delete(key)
        plan = plan_repair(store.object_store)
        plan.execute()
        told = {fault.key for fault in plan.beyond}
        for key in pair:
            came_back = key in keys_of(store) and store.object_store.get(key) == before[key]
            replaced = StepKind.CHECKPOINT in kinds(plan)
            assert came_back or replaced or key in told, (pair, plan)
        for key in keys_of(store):
            store.object_store.delete(key)
        for key, data in before.items():
            store.object_store.put(key, data)


def test_unfinished_files_of_the_dead_are_swept(tmp_path: Path) -> None:
    sp.create(tmp_path / "store")
    for name, age_s in ((OLD, 2 * 86_400), (YOUNG, 60)):
        file = tmp_path / "store" / "_tmp" / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"half")
        os.utime(file, (time.time() - age_s, time.time() - age_s))

    plan = plan_repair(open_object_store(tmp_path / "store"))
    plan.execute()

    assert kinds(plan) == [StepKind.SWEEP]
    assert os.listdir(tmp_path / "store" / "_tmp") == [YOUNG]


def test_a_plan_is_a_table_and_a_text(rich: Store) -> None:
    key = keys_of(rich, "_log/segments/")[0]
    rich.object_store.delete(key)
    rich.object_store.delete(commit_key(8))
    rich.object_store.put(commit_key(8), b"nonsense")

    plan = plan_repair(rich.object_store)

    assert plan.table().column("key").to_pylist()[0] == key
    assert f"put back: {key}" in repr(plan)
    assert f"beyond repair: Cannot read commit {commit_key(8)}:" in repr(plan)


@pytest.fixture
def compacted(url: str) -> Store:
    """A store of 20 versions whose first 16 are in compacted ranges."""
    store = store_with(*(pa.table({"n": [number]}) for number in range(18)))
    store.compact_log()
    assert any("compacted" in key for key in keys_of(store))
    return store


def test_lost_slots_come_back_out_of_compacted_ranges(compacted: Store) -> None:
    before = {version: compacted.object_store.get(commit_key(version)) for version in (0, 5, 6)}
    compacted.object_store.delete(commit_key(0))
    compacted.object_store.delete(commit_key(5))
    flip(compacted.object_store, commit_key(6))

    plan = plan_repair(compacted.object_store)
    plan.execute()

    assert plan.beyond == ()
    assert {version: compacted.object_store.get(commit_key(version)) for version in before} == before
    assert verify(compacted.object_store).ok


def test_a_slot_that_no_later_commit_vouches_for_is_not_taken_from_a_range(url: str) -> None:
    store = store_with(*(pa.table({"n": [number]}) for number in range(14)))
    store.compact_log()
    newest = commit_key(15)
    assert newest in keys_of(store)
    store.object_store.put(newest, b"damaged")

    plan = plan_repair(store.object_store)

    assert [fault.key for fault in plan.beyond] == [newest]


def test_a_tombstone_that_came_meanwhile_is_not_overwritten(compacted: Store) -> None:
    commit = slot(compacted.object_store, 5)
    checkpoint = compacted.checkpoint()
    compacted.object_store.delete(commit_key(5))
    plan = plan_repair(compacted.object_store)
    tombstone = Tombstone(commit.version, commit.timestamp_us, commit.token, commit.digest, (), checkpoint)
    buried = encode_tombstone(tombstone)[0]
    compacted.object_store.put(commit_key(5), buried)

    plan.execute()

    assert plan.steps[0].key == commit_key(5)
    assert compacted.object_store.get(commit_key(5)) == buried


def test_a_damaged_compacted_range_is_made_again(compacted: Store) -> None:
    key = next(key for key in keys_of(compacted) if "compacted" in key)
    before = compacted.object_store.get(key)
    flip(compacted.object_store, key)

    found = verify(compacted.object_store)
    plan_repair(compacted.object_store).execute()

    assert found.ok
    assert [notice.key for notice in found.notices] == [key]
    assert compacted.object_store.get(key) == before


def test_a_vacuumed_store_whose_newest_root_is_lost_opens_from_the_checkpoint_before(rich: Store) -> None:
    rich.vacuum(retention=2)
    with rich.transaction() as txn:
        txn.append("u", pa.table({"x": [1]}))
    newest = rich.checkpoint()
    with rich.transaction() as txn:
        txn.append("u", pa.table({"x": [2]}))
    expected = rich.snapshot().table("u").read()
    rich.object_store.delete(newest.location.key)
    rich.object_store.delete(HINT_KEY)

    again = Store(rich.object_store)

    assert again.snapshot().table("u").read() == expected
    assert again.snapshot(version=newest.version).table("u").num_rows == len(expected) - 1
    assert again.snapshot().log.state.base.version < newest.version


def test_a_lost_root_costs_the_commits_since_the_checkpoint_before_and_not_the_whole_log(url: str) -> None:
    store = store_with(*(pa.table({"n": [number]}) for number in range(60)))
    store.checkpoint()
    with store.transaction() as txn:
        txn.append("t", pa.table({"n": [1]}))
    newest = store.checkpoint()
    with store.transaction() as txn:
        txn.append("t", pa.table({"n": [2]}))
    store.object_store.delete(newest.location.key)
    store.object_store.delete(HINT_KEY)
    metered = MeteredStore(store.object_store)

    assert Store(metered).snapshot().table("t").num_rows == 62

    assert metered.counts.gets < 40


def test_a_compacted_range_that_holds_other_slots_is_told_and_made_again(compacted: Store) -> None:
    around = CompactedRange(0, 4)
    before = compacted.object_store.get(around.key)
    slots = decode_range(before, around)
    compacted.object_store.put(around.key, encode_range(0, [*slots[:5], slots[4], *slots[6:]]))

    found = verify(compacted.object_store)
    plan_repair(compacted.object_store).execute()

    assert found.ok
    assert f"{around.key} holds slot 5 otherwise" in found.notices[0].what
    assert compacted.object_store.get(around.key) == before
