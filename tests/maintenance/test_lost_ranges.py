"""Compacted ranges that are gone: what should be there is noticed and made again, and nothing else is."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_pages.format.names import commit_key
from spark_pages.log.compaction import compacted_range
from spark_pages.log.compaction.compacted_range import CompactedRange
from spark_pages.maintenance.repair import StepKind, plan_repair
from spark_pages.maintenance.verify.faults import FaultKind
from spark_pages.maintenance.verify.verify import verify
from spark_pages.storage import MeteredStore
from spark_pages.storage.store import ObjectStore
from spark_pages.store import Store
from tests.effort import some
from tests.log.newer import content
from tests.maintenance.stores import flip
from tests.maintenance.vacuum.stores import KilledError, WatchedStore, opened
from tests.transaction.stores import store_with


def append(store: Store, times: int) -> None:
    for _ in range(times):
        with store.transaction() as txn:
            txn.append("t", pa.table({"n": [1]}))


@pytest.fixture
def compacted() -> Store:
    """Versions 0 to 74. Of these 0 to 73 are in ranges, as commit 74 says, and two ranges are out of use."""
    store = store_with(pa.table({"n": [1]}))
    append(store, 68)
    store.compact_log()
    append(store, 3)
    assert store.compact_log().compacted == 74
    append(store, 1)
    return store


OUT_OF_USE = (CompactedRange(64, 2).key, CompactedRange(68, 1).key)
IN_USE = 9
"""Ranges of 64, 32, 32, 16, 16, 16, 16, 8 and 2 slots."""


def ranges_of(objects: ObjectStore) -> dict[str, bytes]:
    return {key: data for key, data in content(objects).items() if "compacted" in key}


def lose(objects: ObjectStore, *keys: str) -> None:
    for key in keys:
        objects.delete(key)


def requests_to_open(objects: ObjectStore) -> int:
    metered = MeteredStore(objects)
    Store(metered).snapshot()
    return metered.counts.requests


def test_all_ranges_that_are_lost_are_a_notice_and_come_back_byte_for_byte(compacted: Store) -> None:
    before, requests = ranges_of(compacted.object_store), requests_to_open(compacted.object_store)
    lose(compacted.object_store, *before)

    found = verify(compacted.object_store)
    plan = plan_repair(compacted.object_store)
    plan.execute()

    assert found.ok
    assert [(notice.kind, notice.what) for notice in found.notices] == [
        (FaultKind.RANGE, "9 compacted ranges of slots 0 to 73 are missing: reading takes more requests.")
    ]
    assert [step.kind for step in plan.steps] == [StepKind.COMPACT]
    assert "9 compacted ranges of slots 0 to 73 are made again." in repr(plan)
    assert len(before) == IN_USE + 2
    assert len(ranges_of(compacted.object_store)) == IN_USE
    assert ranges_of(compacted.object_store).items() <= before.items()
    assert requests_to_open(compacted.object_store) == requests
    assert verify(compacted.object_store).faults == ()


@pytest.mark.sampled
def test_each_range_that_is_lost_alone_comes_back(compacted: Store) -> None:
    before = ranges_of(compacted.object_store)
    lose(compacted.object_store, OUT_OF_USE[0], OUT_OF_USE[1])
    assert verify(compacted.object_store).faults == ()
    for key in some(sorted(before.keys() - {*OUT_OF_USE}), 3):
        lose(compacted.object_store, key)

        found = verify(compacted.object_store, pages="none")
        plan_repair(compacted.object_store).execute()

        assert [notice.key for notice in found.notices] == [key]
        assert ranges_of(compacted.object_store)[key] == before[key]


def test_a_range_is_made_again_beside_a_damaged_one_and_out_of_slots_that_come_back(compacted: Store) -> None:
    before = ranges_of(compacted.object_store)
    whole, half, quarter = (CompactedRange(0, exponent).key for exponent in (6, 5, 4))
    lose(compacted.object_store, whole, quarter, commit_key(20))
    flip(compacted.object_store, half)

    plan_repair(compacted.object_store).execute()

    assert ranges_of(compacted.object_store) == before
    assert verify(compacted.object_store).faults == ()


def test_ranges_that_no_commit_tells_of_are_not_missed() -> None:
    store = store_with(pa.table({"n": [1]}))
    append(store, 40)
    store.compact_log()
    lose(store.object_store, *ranges_of(store.object_store))

    found = verify(store.object_store)

    assert found.faults == ()
    assert store.compact_log().compacted == 42


def test_ranges_that_are_never_made_for_their_bytes_are_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compacted_range, "MAX_RANGE_BYTES", 16 * 5_900)
    store = store_with(pa.table({"n": [1]}))
    append(store, 70)
    store.compact_log()
    append(store, 1)
    there = ranges_of(store.object_store)

    found = verify(store.object_store)

    assert CompactedRange(0, 5).key not in there
    assert CompactedRange(16, 4).key in there
    assert found.faults == ()


@pytest.mark.parametrize("keep", [1, 2, 11, 30, 58])
def test_ranges_that_a_vacuum_deleted_are_not_missed(compacted: Store, keep: int) -> None:
    before = ranges_of(compacted.object_store)

    compacted.vacuum(retention=keep)

    assert ranges_of(compacted.object_store).keys() < before.keys()
    assert verify(compacted.object_store).faults == ()
    assert plan_repair(compacted.object_store).steps == ()


@pytest.mark.parametrize(("more", "keep"), [(0, 30), (10, 1)])
def test_ranges_that_a_killed_vacuum_deleted_are_not_missed_though_their_slots_are_still_commits(
    compacted: Store, more: int, keep: int
) -> None:
    def at_the_first_tombstone(_: int, kind: str, key: str) -> str | None:
        return "before" if (kind, key) == ("put", commit_key(0)) else None

    append(compacted, more)
    before = ranges_of(compacted.object_store)
    with pytest.raises(KilledError):
        opened(WatchedStore(compacted.object_store, at_the_first_tombstone)).vacuum(retention=keep)

    found = verify(compacted.object_store)

    assert ranges_of(compacted.object_store).keys() < before.keys()
    assert FaultKind.RANGE not in {notice.kind for notice in found.notices}
    assert found.ok


def test_a_range_that_is_lost_after_a_vacuum_is_missed_where_its_slots_are_kept(compacted: Store) -> None:
    compacted.vacuum(retention=30)
    lost = CompactedRange(48, 4).key
    before = ranges_of(compacted.object_store)[lost]
    lose(compacted.object_store, lost)

    found = verify(compacted.object_store)
    plan_repair(compacted.object_store).execute()

    assert [notice.key for notice in found.notices] == [lost]
    assert ranges_of(compacted.object_store)[lost] == before


def test_a_range_that_could_not_be_made_again_for_its_tombstones_is_not_missed(compacted: Store) -> None:
    compacted.vacuum(retention=60)
    lose(compacted.object_store, CompactedRange(0, 4).key)

    found = verify(compacted.object_store)

    assert found.faults == ()


BUNDLE = CompactedRange(0, 6, bundled=True).key


@pytest.fixture
def bundled(monkeypatch: pytest.MonkeyPatch) -> Store:
    """Versions 0 to 72, of which 32 are too much for one frame, so that 0 to 63 are in a bundle."""
    monkeypatch.setattr(compacted_range, "MAX_RANGE_BYTES", 28 * 5_900)
    store = store_with(pa.table({"n": [1]}))
    append(store, 70)
    store.compact_log()
    append(store, 1)
    assert {key for key in content(store.object_store) if key.endswith(".bundle")} == {BUNDLE}
    return store


def test_a_bundle_that_is_missing_is_made_by_log_compaction(bundled: Store) -> None:
    before = bundled.object_store.get(BUNDLE)
    lose(bundled.object_store, BUNDLE)

    found = verify(bundled.object_store)
    done = opened(bundled.object_store).compact_log()

    assert found.faults == ()
    assert BUNDLE in done.keys
    assert bundled.object_store.get(BUNDLE) == before
    assert opened(bundled.object_store).compact_log().keys == ()


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("where", [0, 40, 5_000, 20_000, -1])
def test_a_bundle_that_is_damaged_is_a_notice_and_comes_back_byte_for_byte(
    bundled: Store, where: int
) -> None:
    before = bundled.object_store.get(BUNDLE)
    damaged = bytearray(before)
    damaged[where] ^= 1
    bundled.object_store.put(BUNDLE, bytes(damaged))

    found = verify(bundled.object_store)
    plan = plan_repair(bundled.object_store)
    plan.execute()

    assert found.ok
    assert [(notice.kind, notice.key) for notice in found.notices] == [(FaultKind.RANGE, BUNDLE)]
    assert [step.what for step in plan.steps] == ["1 compacted range of slots 0 to 63 is made again."]
    assert bundled.object_store.get(BUNDLE) == before
    assert verify(bundled.object_store).faults == ()


def test_a_bundle_of_other_slots_is_found_out_and_made_again(bundled: Store) -> None:
    before = bundled.object_store.get(BUNDLE)
    other = store_with(pa.table({"n": [1]}))
    append(other, 70)
    other.compact_log()
    bundled.object_store.put(BUNDLE, other.object_store.get(BUNDLE))

    found = verify(bundled.object_store)
    plan_repair(bundled.object_store).execute()

    assert f"{BUNDLE} holds slot 0 otherwise than {commit_key(0)}." in [
        notice.what for notice in found.notices
    ]
    assert bundled.object_store.get(BUNDLE) == before


def test_repair_leaves_a_damaged_bundle_that_alone_has_a_slot(bundled: Store) -> None:
    damaged = bytearray(bundled.object_store.get(BUNDLE))
    damaged[40] ^= 1
    bundled.object_store.put(BUNDLE, bytes(damaged))
    lose(bundled.object_store, commit_key(20), CompactedRange(16, 4).key)

    plan = plan_repair(bundled.object_store)
    plan.execute()

    assert BUNDLE not in {step.key for step in plan.steps}
    assert bundled.object_store.get(BUNDLE) == bytes(damaged)


def test_bytes_behind_a_bundle_are_noticed(bundled: Store) -> None:
    before = bundled.object_store.get(BUNDLE)
    bundled.object_store.put(BUNDLE, before + b"x")

    found = verify(bundled.object_store)
    plan_repair(bundled.object_store).execute()

    assert [notice.what for notice in found.notices] == [
        f"Cannot read {BUNDLE}: expected {len(before)} bytes, found {len(before) + 1}."
    ]
    assert bundled.object_store.get(BUNDLE) == before


@pytest.mark.parametrize("name", [f"{5:020d}-{4:020d}", f"{0:020d}-{62:020d}", f"{1:020d}-{64:020d}"])
@pytest.mark.parametrize("kind", ["bundle", "compacted.avro"])
def test_an_object_that_is_named_like_a_range_and_is_none_is_an_orphan(
    bundled: Store, name: str, kind: str
) -> None:
    key = f"_log/{name}.{kind}"
    bundled.object_store.put(key, b"x")

    found = verify(bundled.object_store)

    assert [(notice.kind, notice.key) for notice in found.notices] == [(FaultKind.ORPHAN, key)]


def test_a_slot_comes_back_out_of_a_bundle(bundled: Store) -> None:
    before = bundled.object_store.get(commit_key(20))
    lose(bundled.object_store, commit_key(20), CompactedRange(16, 4).key)

    plan_repair(bundled.object_store).execute()

    assert bundled.object_store.get(commit_key(20)) == before
    assert verify(bundled.object_store).faults == ()


@pytest.mark.parametrize(("keep", "stays"), [(1, False), (20, True)])
def test_a_vacuum_deletes_a_bundle_once_its_last_slot_is_cleaned(
    bundled: Store, keep: int, stays: bool
) -> None:
    bundled.vacuum(retention=keep)

    assert (BUNDLE in content(bundled.object_store)) == stays
    assert verify(bundled.object_store).faults == ()


def test_a_bundle_that_a_vacuum_left_is_an_orphan(bundled: Store) -> None:
    left = bundled.object_store.get(BUNDLE)
    bundled.vacuum(retention=1)
    bundled.object_store.put(BUNDLE, left)
    append(bundled, 3)

    bundled.vacuum(retention=1, orphans=True)

    assert BUNDLE not in content(bundled.object_store)
