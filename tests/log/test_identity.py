"""A store that was created again at its address is another store, and nobody takes one for the other."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
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


def made(url: str) -> Store:
    store = sp.create(url)
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
    remove(old.objects)
    return old, made(url)


def foreign_at(store: Store, version: int, count: int = 1) -> None:
    """Put a commit of another store into a slot, as a writer did that did not notice."""
    other = made(f"memory://{uuid4().hex}")
    while append(other, 77, count) < version:
        pass
    store.objects.put(commit_key(version), other.objects.get(commit_key(version)))
    for each in other.objects.list("pages/"):
        if each.key.startswith(f"pages/{version - 1:020d}-"):
            store.objects.put(each.key, other.objects.get(each.key))


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

    slots = [decode_slot(store.objects.get(commit_key(version)), "") for version in range(7)]

    assert {slot.store_id for slot in slots} == {slots[0].token}
    assert not all(isinstance(slot, Commit) for slot in slots)
    assert sp.open(url).snapshot().log.state.store_id == slots[0].token


def test_a_store_whose_commits_carry_no_id_has_the_token_of_its_first_one_and_writes_it_from_now_on() -> None:
    store = made(f"memory://{uuid4().hex}")
    append(store, 1)
    digest = ""
    for version in range(3):
        data = store.objects.get(commit_key(version))
        older = decode_slot(data, "")
        older = Commit(
            **{**{n: getattr(older, n) for n in older.__slots__}, "store_id": "", "parent_digest": digest}
        )
        data, digest = encode_commit(older)
        store.objects.put(commit_key(version), data)
    late = Store(store.objects)

    append(late, 2)

    first, last = (decode_slot(store.objects.get(commit_key(version)), "") for version in (0, 3))
    assert (first.store_id, last.store_id) == ("", first.token)
    assert rows(Store(store.objects)) == [1, 2]


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
    objects = made(url).objects
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
    objects = sp.storage.MeteredStore(made(f"memory://{uuid4().hex}").objects)
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
    assert (late.requests, late.creates, late.stamps) == (10, 1, 9)


def test_a_large_transaction_of_such_a_handle_leaves_no_page_file_in_the_new_store(url: str) -> None:
    old, new = replaced(url, 3)
    before = [each.key for each in new.objects.list("")]

    with pytest.raises(sp.StoreReplacedError):
        append(old, 0, LARGE)

    assert [each.key for each in new.objects.list("")] == before


def test_maintenance_by_such_a_handle_changes_nothing_in_the_new_store(url: str) -> None:
    old, new = replaced(url, 12)
    before = {each.key: new.objects.get(each.key) for each in new.objects.list("")}

    for work in (
        old.checkpoint,
        old.compact_log,
        lambda: old.tag("kept"),
        lambda: old.vacuum_plan(1).execute(),
    ):
        with pytest.raises(sp.StoreReplacedError):
            work()

    assert {each.key: new.objects.get(each.key) for each in new.objects.list("")} == before


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
    data = old.objects.get(commit_key(2))
    commit = decode_slot(data, "")
    error = sp.CommitUnknownError("", version=2, token=commit.token, data=data, tries=1)
    remove(old.objects)
    new = made(url)

    for handle in (old, new, sp.open(url)):
        with pytest.raises(sp.StoreReplacedError):
            handle.resume(error)
    assert new.snapshot().version == 1


def test_a_writer_whose_store_was_removed_says_so(tmp_path: Path) -> None:
    store = made(str(tmp_path / "store"))
    remove(store.objects)

    with pytest.raises(sp.StoreNotFoundError, match="is missing"):
        append(store, 1)
    assert not [each for each in store.objects.list("_log/") if each.key.endswith(".avro")]


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
    store = Store(made(f"memory://{uuid4().hex}").objects, Runtime(monotonic_s=clock))
    append(store, 1)
    foreign_at(store, 3)

    with pytest.raises(sp.StoreReplacedError, match=r"03\.avro holds a commit of another store"):
        append(store, 2)


@pytest.mark.parametrize("count", [1, LARGE])
def test_repair_moves_a_foreign_commit_away_and_everybody_goes_on(url: str, count: int) -> None:
    store = made(url)
    append(store, 1)
    foreign_at(store, 5, count)
    foreign = store.objects.get(commit_key(5))
    found = store.verify()

    steps = store.repair_plan().execute()
    append(store, 2)
    append(sp.open(url), 3)

    assert [fault.kind.value for fault in found.damage] == ["foreign commit"]
    assert [step.kind.value for step in steps] == ["move away"]
    assert [store.objects.get(each.key) for each in store.objects.list(LOST)] == [foreign]
    assert rows(sp.open(url)) == [1, 2, 3]
    assert sp.open(url).verify().ok


def test_a_foreign_commit_below_the_head_is_damage_and_stays() -> None:
    store = made(f"memory://{uuid4().hex}")
    for number in range(6):
        append(store, number)
    foreign_at(store, 4)
    before = store.objects.get(commit_key(4))

    plan = Store(store.objects).repair_plan()

    assert [fault.key for fault in plan.beyond] == [commit_key(4)]
    assert plan.steps == ()
    assert store.objects.get(commit_key(4)) == before
    with pytest.raises(sp.DamageError, match="holds a commit of another store, though"):
        Store(store.objects).snapshot()
