"""A store that was created again at its address is another store, and nobody takes one for the other."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from threading import Event
from uuid import uuid4

import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.format.commit import decode_slot, encode_commit
from spark_pages.format.names import LOST, commit_key
from spark_pages.model.actions import Commit
from spark_pages.runtime import Runtime
from spark_pages.storage.store import ObjectStore
from spark_pages.store import Store

SCHEMA = pa.schema([("n", pa.int64())])
LARGE = 40_000
"""Rows that do not fit into a commit."""


QUIET = {"checkpoint_commits": "0", "log_compaction_commits": "0"}


def made(url: str, properties: dict[str, str] | None = None) -> Store:
    store = sp.create(url, properties=properties)
    with store.transaction() as txn:
        txn.create_table("t", SCHEMA)
    return store


def numbers_from(first: int, count: int) -> list[int]:
    """Numbers that cannot be compressed; a single one is `first`."""
    return [first, *(number * 0x9E3779B97F4A7C15 % (1 << 61) for number in range(1, count))]


def append(store: Store, first: int, count: int = 1) -> int:
    with store.transaction() as txn:
        txn.append("t", {"n": numbers_from(first, count)})
    assert txn.version is not None
    return txn.version


def rows(store: Store) -> list[int]:
    return sorted(store.snapshot().table("t").read().column("n").to_pylist())


def remove(objects: ObjectStore) -> None:
    """Delete every object, as `rm -rf` or an emptied bucket do."""
    for each in objects.list(""):
        objects.delete(each.key)


def replaced(url: str, commits: int) -> tuple[Store, Store]:
    """A handle whose store was removed after some commits, and the store that was created in its place."""
    old = made(url)
    for number in range(commits):
        append(old, number)
    remove(old.object_store)
    return old, made(url)


def foreign_at(store: Store, version: int, count: int = 1) -> None:
    """Put a commit of another store into a slot, as a writer did that did not notice."""
    other = made(f"memory://{uuid4().hex}")
    while append(other, 77, count) < version:
        pass
    store.object_store.put(commit_key(version), other.object_store.get(commit_key(version)))
    for each in other.object_store.list("pages/"):
        if each.key.startswith(f"pages/{version - 1:020d}-"):
            store.object_store.put(each.key, other.object_store.get(each.key))


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture(params=["folder", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "store") if request.param == "folder" else f"memory://{uuid4().hex}"


# what carries the id


def test_every_commit_tombstone_and_checkpoint_carries_the_token_of_the_first_commit(url: str) -> None:
    store = made(url)
    for number in range(4):
        append(store, number)
    store.checkpoint()
    append(store, 4)
    store.vacuum_plan(retention=1).execute()

    slots = [decode_slot(store.object_store.get(commit_key(version)), "") for version in range(7)]

    assert {slot.store_id for slot in slots} == {slots[0].token}
    assert not all(isinstance(slot, Commit) for slot in slots)
    assert sp.open(url).snapshot().log.state.store_id == slots[0].token


def test_a_store_whose_commits_carry_no_id_has_the_token_of_its_first_one_and_writes_it_from_now_on() -> None:
    store = made(f"memory://{uuid4().hex}")
    append(store, 1)
    digest = ""
    for version in range(3):
        data = store.object_store.get(commit_key(version))
        older = decode_slot(data, "")
        older = Commit(
            **{**{n: getattr(older, n) for n in older.__slots__}, "store_id": "", "parent_digest": digest}
        )
        data, digest = encode_commit(older)
        store.object_store.put(commit_key(version), data)
    late = Store(store.object_store)

    append(late, 2)

    first, last = (decode_slot(store.object_store.get(commit_key(version)), "") for version in (0, 3))
    assert (first.store_id, last.store_id) == ("", first.token)
    assert rows(Store(store.object_store)) == [1, 2]


# a handle whose store was replaced


def test_a_commit_by_a_handle_of_a_removed_store_is_refused_and_the_new_store_goes_on(tmp_path: Path) -> None:
    url = str(tmp_path / "store")
    old = made(url)
    for number in range(10):
        append(old, number)
    shutil.rmtree(url)
    new = made(url)

    with pytest.raises(sp.StoreReplacedError, match="removed and another one was created"):
        append(old, 999)
    for number in range(15):
        append(new, number)

    assert rows(sp.open(url)) == [*range(15)]
    assert sp.open(url).verify().ok


def test_a_handle_far_away_notices_once_its_last_look_is_some_seconds_old() -> None:
    clock, url = Clock(), f"memory://{uuid4().hex}"
    objects = made(url).object_store
    old = Store(objects, Runtime(monotonic_s=clock))
    append(old, 1)
    remove(objects)
    new = made(url)

    clock.now_s += 6
    with pytest.raises(sp.StoreReplacedError):
        append(old, 999)

    assert rows(new) == []
    assert new.snapshot().version == 1


def test_a_commit_within_those_seconds_asks_for_one_object_alone() -> None:
    clock = Clock()
    objects = sp.storage.MeteredStore(made(f"memory://{uuid4().hex}").object_store)
    store = Store(objects, Runtime(monotonic_s=clock))
    append(store, 1)

    before = objects.counts
    append(store, 2)
    near = objects.counts - before
    clock.now_s += 6
    before = objects.counts
    append(store, 3)
    late = objects.counts - before

    assert (near.requests, near.creates) == (1, 1)
    assert (late.requests, late.creates, late.stamps) == (11, 1, 10)


def test_a_large_transaction_of_such_a_handle_leaves_no_page_file_in_the_new_store(url: str) -> None:
    old, new = replaced(url, 3)
    before = [each.key for each in new.object_store.list("")]

    with pytest.raises(sp.StoreReplacedError):
        append(old, 0, LARGE)

    assert [each.key for each in new.object_store.list("")] == before


def test_maintenance_by_such_a_handle_changes_nothing_in_the_new_store(url: str) -> None:
    old, new = replaced(url, 12)
    before = {each.key: new.object_store.get(each.key) for each in new.object_store.list("")}

    for work in (
        old.checkpoint,
        old.compact_log,
        lambda: old.tag("kept"),
        lambda: old.vacuum_plan(1).execute(),
    ):
        with pytest.raises(sp.StoreReplacedError):
            work()

    assert {each.key: new.object_store.get(each.key) for each in new.object_store.list("")} == before


def test_a_reader_keeps_its_version_and_warns_once(url: str, caplog: pytest.LogCaptureFixture) -> None:
    old, new = replaced(url, 3)
    for number in range(9):
        append(new, number)

    with caplog.at_level(logging.WARNING):
        versions = [old.snapshot().version, old.snapshot().version]

    assert versions == [4, 4]
    assert [each.message for each in caplog.records if "was replaced by another one" in each.message] != []
    assert len(caplog.records) == 1


def test_a_commit_in_doubt_is_not_brought_into_another_store(url: str) -> None:
    old = made(url)
    append(old, 1)
    data = old.object_store.get(commit_key(2))
    commit = decode_slot(data, "")
    error = sp.CommitUnknownError("", version=2, token=commit.token, data=data, tries=1)
    remove(old.object_store)
    new = made(url)

    for handle in (old, new, sp.open(url)):
        with pytest.raises(sp.StoreReplacedError):
            handle.resume(error)
    assert new.snapshot().version == 1


def test_a_writer_whose_store_was_removed_says_so(tmp_path: Path) -> None:
    store = made(str(tmp_path / "store"))
    remove(store.object_store)

    with pytest.raises(sp.StoreNotFoundError, match="is missing"):
        append(store, 1)
    assert not [each for each in store.object_store.list("_log/") if each.key.endswith(".avro")]


class Uploading:
    """Storage that takes a page file only once somebody has looked at the log meanwhile."""

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner
        self.looked = Event()
        self.has_seen_a_look: list[bool] = []

    def put(self, key: str, data: bytes) -> None:
        if key.startswith("pages/"):
            self.has_seen_a_look.append(self.looked.wait(60))
        self._inner.put(key, data)

    def stamps(self, keys: list[str]) -> list[str | None]:
        self.looked.set()
        return self._inner.stamps(keys)

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)


def test_a_transaction_that_uploads_pages_looks_meanwhile_and_not_once_more_for_its_commit() -> None:
    clock = Clock()
    uploading = Uploading(made(f"memory://{uuid4().hex}").object_store)
    meter = sp.storage.MeteredStore(uploading)
    store = Store(meter, Runtime(monotonic_s=clock))

    with store.transaction() as txn:
        txn.table("t").read()
        txn.append("t", {"n": numbers_from(0, LARGE)})
        clock.now_s += 6
        uploading.looked.clear()
        before = meter.counts
    asked = meter.counts - before

    assert uploading.has_seen_a_look == [True]
    assert (asked.puts, asked.creates, asked.stamps) == (1, 1, 10)


def test_such_a_transaction_is_refused_where_the_store_was_replaced_before_it_uploads() -> None:
    clock, url = Clock(), f"memory://{uuid4().hex}"
    store = Store(made(url).object_store, Runtime(monotonic_s=clock))
    txn = store.transaction()
    txn.table("t").read()
    txn.append("t", {"n": numbers_from(0, LARGE)})
    remove(store.object_store)
    new = made(url)
    clock.now_s += 6

    with pytest.raises(sp.StoreReplacedError):
        txn.commit()

    assert new.snapshot().version == 1


# an earlier copy of the same store


def contents(objects: ObjectStore) -> dict[str, bytes]:
    return {each.key: objects.get(each.key) for each in objects.list("")}


def put_back(objects: ObjectStore, copy: dict[str, bytes]) -> None:
    """Put a copy in place of a store, as a restored backup is."""
    remove(objects)
    for key, data in copy.items():
        objects.put(key, data)


def rolled_back(url: str, behind: int, more: int = 0) -> tuple[Store, Store]:
    """A handle whose store was put back by some versions, and one that has committed to the copy since."""
    clock = Clock()
    old = Store(made(url, QUIET).object_store, Runtime(monotonic_s=clock))
    append(old, 0)
    copy = contents(old.object_store)
    for number in range(behind):
        append(old, 100 + number)
    put_back(old.object_store, copy)
    clock.now_s += 6
    new = sp.open(url)
    for number in range(more):
        append(new, 200 + number)
    return old, new


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(("behind", "more"), [(1, 0), (3, 0), (90, 0), (3, 2), (3, 3), (3, 9), (1, 1)])
def test_a_commit_on_versions_that_an_earlier_copy_lacks_is_refused(url: str, behind: int, more: int) -> None:
    old, new = rolled_back(url, behind, more)
    before = contents(new.object_store)

    for count in (1, LARGE):
        with pytest.raises(sp.StoreReplacedError, match="An earlier copy of the store was put back"):
            append(old, 999, count)
    for work in (old.checkpoint, old.compact_log, lambda: old.vacuum_plan(1).execute()):
        with pytest.raises(sp.StoreReplacedError):
            work()

    assert contents(new.object_store) == before
    assert append(new, 300) == 3 + more
    assert rows(sp.open(url)) == [0, *range(200, 200 + more), 300]
    assert sp.open(url).verify().ok


def test_a_reader_of_versions_that_an_earlier_copy_lacks_keeps_them_and_warns_once(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = rolled_back(url, behind=2)
    for number in range(6):
        append(new, number)

    with caplog.at_level(logging.WARNING):
        versions = [old.snapshot().version, old.snapshot().version]

    assert versions == [4, 4]
    assert [commit_key(4) in each.message for each in caplog.records] == [True]


def test_a_handle_that_knows_no_more_than_the_copy_goes_on(url: str) -> None:
    old = made(url)
    append(old, 0)
    put_back(old.object_store, contents(old.object_store))

    append(old, 1)

    assert rows(sp.open(url)) == [0, 1]


def test_a_commit_that_meets_another_history_in_its_slot_says_that_the_log_was_put_back() -> None:
    url = f"memory://{uuid4().hex}"
    old = made(url)
    copy = contents(old.object_store)
    append(old, 1)
    append(old, 2)
    put_back(old.object_store, copy)
    new = sp.open(url)
    for number in range(9):
        append(new, number)

    with pytest.raises(sp.StoreReplacedError):
        append(old, 3)


def test_a_handle_goes_on_once_the_newer_log_is_there_again(url: str) -> None:
    clock = Clock()
    old = Store(made(url).object_store, Runtime(monotonic_s=clock))
    append(old, 0)
    append(old, 1)
    newer = contents(old.object_store)
    old.object_store.delete(commit_key(3))
    clock.now_s += 6
    with pytest.raises(sp.StoreReplacedError):
        append(old, 2)
    put_back(old.object_store, newer)

    append(old, 3)

    assert rows(sp.open(url)) == [0, 1, 3]


def test_a_commit_in_doubt_of_a_log_that_was_put_back_stays_out_of_it(url: str) -> None:
    old, new = rolled_back(url, behind=2)
    append(old_again := sp.open(url), 7)
    data = old_again.object_store.get(commit_key(3))
    error = sp.CommitUnknownError("", version=3, token=decode_slot(data, "").token, data=data, tries=1)
    new.object_store.delete(commit_key(3))

    with pytest.raises(sp.StoreReplacedError):
        old.resume(error)

    assert rows(sp.open(url)) == [0]


def test_a_newest_slot_that_vacuum_or_nobody_touched_costs_no_read_in_a_refresh(url: str) -> None:
    made(url)
    meter = sp.storage.MeteredStore(sp.storage.open_object_store(url))
    store, others = Store(meter), sp.open(url)
    for handle, number in ((store, 1), (others, 2), (others, 3), (store, 4)):
        append(handle, number)
        store.snapshot()

    before = meter.counts
    store.snapshot()
    store.snapshot()
    asked = meter.counts - before

    assert (asked.stamps, asked.requests) == (20, 20)


# a commit of another store behind the head


def test_readers_serve_the_versions_before_a_foreign_commit_and_warn(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = made(url)
    append(store, 1)
    foreign_at(store, 5)

    with caplog.at_level(logging.WARNING):
        found = rows(sp.open(url))

    assert found == [1]
    assert any(commit_key(5) in each.message for each in caplog.records)


@pytest.mark.parametrize("ahead", [1, 2, 3, 9])
def test_writers_refuse_while_a_foreign_commit_is_near(url: str, ahead: int) -> None:
    store = made(url)
    append(store, 1)
    foreign_at(store, 2 + ahead)

    with pytest.raises(sp.StoreReplacedError, match=f"{2 + ahead:020d}.avro holds a commit of another store"):
        append(sp.open(url), 2)
    assert rows(sp.open(url)) == [1]


def test_a_writer_that_meets_one_in_the_slot_that_it_wanted_refuses() -> None:
    clock = Clock()
    store = Store(made(f"memory://{uuid4().hex}").object_store, Runtime(monotonic_s=clock))
    append(store, 1)
    foreign_at(store, 3)

    with pytest.raises(sp.StoreReplacedError, match=r"03\.avro holds a commit of another store"):
        append(store, 2)


@pytest.mark.parametrize("count", [1, LARGE])
def test_repair_moves_a_foreign_commit_away_and_everybody_goes_on(url: str, count: int) -> None:
    store = made(url)
    append(store, 1)
    foreign_at(store, 5, count)
    foreign = store.object_store.get(commit_key(5))
    found = store.verify()

    steps = store.repair_plan().execute()
    append(store, 2)
    append(sp.open(url), 3)

    assert [fault.kind.value for fault in found.damage] == ["foreign commit"]
    assert [step.kind.value for step in steps] == ["move away"]
    assert [store.object_store.get(each.key) for each in store.object_store.list(LOST)] == [foreign]
    assert rows(sp.open(url)) == [1, 2, 3]
    assert sp.open(url).verify().ok


def test_a_foreign_commit_below_the_head_is_damage_and_stays() -> None:
    store = made(f"memory://{uuid4().hex}")
    for number in range(6):
        append(store, number)
    foreign_at(store, 4)
    before = store.object_store.get(commit_key(4))

    plan = Store(store.object_store).repair_plan()

    assert [fault.key for fault in plan.beyond] == [commit_key(4)]
    assert plan.steps == ()
    assert store.object_store.get(commit_key(4)) == before
    with pytest.raises(sp.DamageError, match="holds a commit of another store, though"):
        Store(store.object_store).snapshot()
