"""A slot that is missing below the head is reported, whichever it is, before anything is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import combinations
from uuid import uuid4

import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.errors import DamageError, ObjectNotFoundError
from spark_pages.format.names import commit_key
from spark_pages.log.compaction import compacted_range
from spark_pages.storage import open_object_store
from spark_pages.store import Store
from tests.transaction.stores import metered

PLAIN = {"checkpoint_commits": "0", "log_compaction_commits": "0"}
SCHEMA = pa.schema([("n", pa.int64())])


def new_store(slots: int, checkpoints: tuple[int, ...] = (), folder: str = "") -> Store:
    """A store with so many slots, and a checkpoint of each of some versions."""
    store = sp.create(folder or f"memory://{uuid4().hex}", properties=PLAIN)
    for version in range(1, slots):
        with store.transaction() as txn:
            if version == 1:
                txn.create_table("t", SCHEMA)
            else:
                txn.append("t", {"n": [version]})
        if version in checkpoints:
            store.checkpoint()
    return store


def compacted(slots: int) -> Store:
    store = new_store(slots)
    store.compact_log()
    return store


@contextmanager
def without(store: Store, missing: tuple[int, ...]) -> Iterator[Store]:
    """A handle on the store while some of its slots are missing."""
    kept = {version: store.object_store.get(commit_key(version)) for version in missing}
    for version in missing:
        store.object_store.delete(commit_key(version))
    try:
        yield Store(store.object_store)
    finally:
        for version, data in kept.items():
            store.object_store.put(commit_key(version), data)


def rows_or_damage(store: Store) -> list[int] | type[Exception]:
    try:
        return store.snapshot().table("t").read().column("n").to_pylist()
    except (DamageError, ObjectNotFoundError, sp.StoreNotFoundError, sp.TableNotFoundError) as error:
        return type(error)


def right(slots: int, missing: tuple[int, ...]) -> list[object]:
    """What may be answered: what the whole log says, damage, or what is left of one that lost its end."""
    end = next(version for version in range(slots, -1, -1) if version - 1 not in missing)
    left = [*range(2, end)] if end > 1 else sp.TableNotFoundError if end else sp.StoreNotFoundError
    return [[*range(2, slots)], DamageError, left]


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(
    ("make", "slots"),
    [
        *((new_store, slots) for slots in (2, 3, 5, 8, 9)),
        (lambda slots: new_store(slots, checkpoints=(4,)), 9),
        (lambda slots: new_store(slots, checkpoints=(3, 8)), 11),
        (compacted, 9),
        (compacted, 18),
    ],
    ids=["2", "3", "5", "8", "9", "9 with a checkpoint", "11 with two", "9 compacted", "18 compacted"],
)
def test_a_log_without_one_or_two_of_its_slots_is_answered_rightly_or_reported(
    make: Callable[[int], Store], slots: int
) -> None:
    store = make(slots)
    lost = [*((one,) for one in range(slots)), *combinations(range(slots), 2)]

    wrong = []
    for missing in lost:
        with without(store, missing) as late:
            found = rows_or_damage(late)
            if found not in right(slots, missing):
                wrong.append((missing, found))

    assert wrong == []


def test_a_log_in_a_bundle_without_one_of_its_slots_is_answered_rightly_or_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compacted_range, "MAX_RANGE_BYTES", 1)
    store = compacted(67)
    bundles = [each.key for each in store.object_store.list("_log/") if each.key.endswith(".bundle")]

    wrong = []
    for version in range(67):
        with without(store, (version,)) as late:
            if rows_or_damage(late) not in right(67, (version,)):
                wrong.append(version)

    assert len(bundles) == 1
    assert wrong == []


def test_a_log_of_which_a_run_of_slots_within_reach_is_missing_is_reported() -> None:
    store = new_store(80)

    with (
        without(store, tuple(range(5, 69))) as late,
        pytest.raises(DamageError, match=r"0005\.avro is missing"),
    ):
        late.snapshot()


def test_a_gap_is_named_before_anything_is_written() -> None:
    store = new_store(9)
    before = {each.key for each in store.object_store.list("")}

    with without(store, (7,)) as late:
        with pytest.raises(DamageError, match=r"00000007\.avro is missing, though .*08\.avro is there"):
            late.transaction()
        assert {each.key for each in store.object_store.list("")} == before - {commit_key(7)}


def test_a_gap_behind_the_version_that_a_writer_knows_is_named_before_it_commits(tmp_path) -> None:
    knows_six = new_store(7, folder=str(tmp_path / "store"))
    others = sp.open(str(tmp_path / "store"))
    for number in (7, 8):
        with others.transaction() as txn:
            txn.append("t", {"n": [number]})
    others.object_store.delete(commit_key(7))

    with pytest.raises(DamageError, match="so it has a gap"), knows_six.transaction() as txn:
        txn.append("t", {"n": [0]})
    with pytest.raises(ObjectNotFoundError):
        others.object_store.get(commit_key(7))


def test_a_slot_that_comes_while_the_next_ones_are_looked_for_is_no_gap() -> None:
    store = new_store(5)
    late = Store(store.object_store)
    late.snapshot()
    for number in (5, 6):
        with store.transaction() as txn:
            txn.append("t", {"n": [number]})
    data, look = store.object_store.get(commit_key(5)), late._log._slots.identity.find_slots
    store.object_store.delete(commit_key(5))

    def look_and_let_it_come(start: int, digest: str = ""):
        found = look(start, digest)
        store.object_store.put(commit_key(5), data)
        return found

    late._log._slots.identity.find_slots = look_and_let_it_come

    assert late.snapshot().version == 6


def test_a_refresh_asks_for_ten_objects_in_one_round_and_reads_what_is_new() -> None:
    store, meter = metered(new_store(5))
    store.snapshot()

    before = meter.counts
    store.snapshot()
    idle = meter.counts - before
    with Store(store.object_store).transaction() as txn:
        txn.append("t", {"n": [5]})
    before = meter.counts
    store.snapshot()
    one = meter.counts - before

    assert (idle.requests, idle.stamps) == (10, 10)
    assert (one.gets, one.stamps) == (1, 20)


def test_objects_of_a_folder_are_told_from_others_of_their_names(tmp_path) -> None:
    objects = open_object_store(str(tmp_path))
    objects.put("_log/a", b"one")
    first = objects.stamps(["_log/a", "_log/b", "other/a"])
    objects.put("_log/a", b"two")

    again = objects.stamps(["_log/a"])

    assert first[1:] == [None, None]
    assert again != first[:1]
    assert again == objects.stamps(["_log/a"])
