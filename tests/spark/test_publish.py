"""Checkpoints, history and change feed as Delta tables, read by a Delta client that is not ours."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

import spark_pages as sp
from spark_pages.format.names import segment_key
from spark_pages.model.page_schema import LOCATION_COLUMNS
from spark_pages.runtime import Runtime
from spark_pages.spark import delta_log
from spark_pages.spark.delta_log import DeltaLog, decode_checkpoint, encode_checkpoint
from spark_pages.spark.feed import Feed
from spark_pages.spark.publish import CHANGES, HISTORY, PARTS, ROOTS, SEGMENTS, TABLES, publish_delta
from spark_pages.storage.store import Doubtful
from tests.invariants import check_store
from tests.spark.published import descriptors, folder, table

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string())])


def rows(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table({"n": numbers, "s": [f"text {n}" for n in numbers]}, SCHEMA)


@pytest.fixture
def store(tmp_path: Path) -> sp.Store:
    store = sp.create(str(tmp_path / "store"), properties={"checkpoint_commits": "0"})
    with store.transaction() as txn:
        txn.create_table("t", SCHEMA, properties={"page_bytes": "1024"})
        txn.append("t", rows(0, 5_000))
    store.checkpoint()
    return store


def change(store: sp.Store, number: int) -> None:
    with store.transaction() as txn:
        txn.append("t", rows(10_000 * number, 200))
        txn.update_rows("t", [number], {"s": ["changed"]})
    store.checkpoint()


def published_ids(store: sp.Store, version: int | None = None) -> list[int]:
    found = table(store, SEGMENTS.root, version).to_pyarrow_table(columns=["page_id"])
    return sorted(found.column("page_id").to_pylist())


def local_ids(store: sp.Store, version: int) -> list[int]:
    snapshot = store.snapshot(version).log
    return sorted(int(p) for key in snapshot.chain_keys() for p in snapshot.chain(key).all_pages().page_ids)


def test_each_checkpoint_is_one_version_that_a_delta_client_reads(store: sp.Store) -> None:
    publish_delta(store.url)
    versions = [store.snapshot().version]
    for number in (1, 2, 3):
        change(store, number)
        versions.append(store.snapshot().version)

    done = publish_delta(store.url)

    assert done.checkpoints == 3
    assert table(store, SEGMENTS.root).version() == 3
    for delta_version, version in enumerate(versions):
        assert published_ids(store, delta_version) == local_ids(store, version)
    assert table(store, SEGMENTS.root).transaction_version(SEGMENTS.app_id) == versions[-1]


def test_descriptors_read_through_delta_are_those_of_the_local_snapshot(store: sp.Store) -> None:
    change(store, 1)
    publish_delta(store.url)
    snapshot = store.snapshot().log
    compared = ["page_id", "entry_count", "actual_len", "checksum"]

    found = descriptors(store)

    assert not set(compared) & set(LOCATION_COLUMNS)
    assert {key: of.select(compared).to_pylist() for key, of in found.items()} == {
        key: pa.Table.from_batches([snapshot.chain(key).all_pages().pages]).select(compared).to_pylist()
        for key in snapshot.chain_keys()
        if snapshot.chain(key).num_pages
    }


def test_polars_reads_the_descriptors_of_every_version(store: sp.Store) -> None:
    publish_delta(store.url)
    versions = [store.snapshot().version]
    change(store, 1)
    publish_delta(store.url)
    versions.append(store.snapshot().version)

    found = [
        pl.scan_delta(f"{folder(store)}/{SEGMENTS.root}", version=version).select("page_id").collect()
        for version in (0, 1)
    ]

    assert [sorted(ids["page_id"]) for ids in found] == [local_ids(store, version) for version in versions]


def test_nothing_is_copied_and_a_small_change_is_published_in_few_bytes(store: sp.Store) -> None:
    publish_delta(store.url)
    change(store, 1)
    before = {info.key: info.size_bytes for info in store.object_store.list("")}

    done = publish_delta(store.url, history=False)

    new = {i.key: i.size_bytes for i in store.object_store.list("") if i.key not in before}
    assert all("/_delta_log/" in key for key in new)
    assert sum(new.values()) == done.bytes_written
    assert 0 < done.files_added <= 6
    assert sum(new.values()) < 4_000


def told(store: sp.Store) -> pa.Table:
    """The history as far as commits tell it."""
    history = store.history()
    return history.filter(history.column("version").is_valid())


def test_history_and_changes_grow_by_what_is_new(store: sp.Store) -> None:
    publish_delta(store.url)
    change(store, 1)

    first, again = publish_delta(store.url), publish_delta(store.url)

    newest = store.snapshot().version
    history = table(store, HISTORY.root).to_pyarrow_table()
    changes = table(store, CHANGES.root).to_pyarrow_table()
    expected = Feed(store.url, "rows", None).read(0, newest)
    assert first.version == again.version == newest
    assert again.bytes_written == 0
    assert sorted(map(str, history.to_pylist())) == sorted(map(str, told(store).to_pylist()))
    assert (
        changes.sort_by("version").select(["version"]).equals(expected.select(["version"]).combine_chunks())
    )
    assert sorted(map(str, changes.to_pylist())) == sorted(map(str, expected.to_pylist()))
    assert table(store, HISTORY.root).transaction_version(HISTORY.app_id) == newest


def test_what_is_published_is_right_after_compaction_and_vacuum(store: sp.Store) -> None:
    publish_delta(store.url)
    for number in range(1, 4):
        change(store, number)
    store.compact_pages("t")
    store.checkpoint()
    publish_delta(store.url)

    store.vacuum(retention=1, orphans=True)
    publish_delta(store.url)

    newest = store.snapshot().log.checkpoint
    assert newest is not None
    segments = [newest.tree.segment(n) for part in newest.root.parts for n in newest.tree.part(part)]
    assert published_ids(store) == sorted(
        page for segment in segments for page in segment.pages.column("page_id").to_pylist()
    )
    assert store.verify("all").faults == ()
    assert sp.open(store.url).snapshot().table("t").num_rows == 5_600


def writes(root: str) -> dict[str, Callable[[], object]]:
    """Everything by which a client could change the table or delete its files."""
    made = pa.table({"page_id": [1]})
    return {
        "vacuum": lambda: DeltaTable(root).vacuum(0, dry_run=False, enforce_retention_duration=False),
        "full vacuum": lambda: DeltaTable(root).vacuum(
            0, dry_run=False, enforce_retention_duration=False, full=True
        ),
        "delete": DeltaTable(root).delete,
        "delete some": lambda: DeltaTable(root).delete("entry_count > 0"),
        "compact": lambda: DeltaTable(root).optimize.compact(max_concurrent_tasks=1),
        "z-order": lambda: DeltaTable(root).optimize.z_order(["page_id"]),
        "update": lambda: DeltaTable(root).update(updates={"entry_count": "5"}),
        "append": lambda: write_deltalake(root, made, mode="append", schema_mode="merge"),
        "overwrite": lambda: write_deltalake(root, made, mode="overwrite", schema_mode="overwrite"),
        "restore": lambda: DeltaTable(root).restore(0),
        "checkpoint": lambda: DeltaTable(root).create_checkpoint(),
        "clean up": lambda: DeltaTable(root).cleanup_metadata(),
        "generate": lambda: DeltaTable(root).generate(),
    }


LET_THROUGH = {"checkpoint", "clean up", "generate"}
"""What deltalake does without asking whether it may write; nothing that we need goes by it."""


@pytest.mark.parametrize("published", [SEGMENTS, PARTS, ROOTS], ids=lambda each: each.name)
def test_delta_rs_reads_guarded_tables_and_can_neither_write_nor_delete(
    store: sp.Store, published: delta_log.DeltaTable
) -> None:
    publish_delta(store.url)
    for number in (1, 2):
        change(store, number)
        publish_delta(store.url)
    (folder(store) / published.root / "unpublished.parquet").write_bytes(b"not named by any Delta commit")
    before = {info.key for info in store.object_store.list("")}
    root = f"{store.url}/{published.root}"

    ended = {}
    for name, write in writes(root).items():
        try:
            write()
        except CommitFailedError:
            ended[name] = "refused"
        else:
            ended[name] = "done"

    kept = {info.key for info in store.object_store.list("")}
    nothing_to_do = {"compact", "z-order"} if published is not SEGMENTS else set()
    assert {name for name, how in ended.items() if how == "done"} - nothing_to_do == LET_THROUGH
    assert before <= kept
    (folder(store) / published.root / "unpublished.parquet").unlink()
    assert store.verify("all").ok
    check_store(store)


def test_a_delta_client_reads_a_long_log_from_its_checkpoint(
    store: sp.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_log, "CHECKPOINT_COMMITS", 3)
    for number in range(5):
        change(store, number)
        publish_delta(store.url, history=False)
    log = folder(store) / SEGMENTS.root / "_delta_log"
    newest = json.loads((log / "_last_checkpoint").read_text())["version"]
    for version in range(newest + 1):
        (log / f"{version:020d}.json").unlink()  # so that only the checkpoint tells

    state = DeltaLog(store.object_store, Runtime(), SEGMENTS).state()

    assert newest == 2
    assert state.version == 4
    assert state.published == store.snapshot().version
    assert published_ids(store) == local_ids(store, store.snapshot().version)


def test_what_clients_leave_behind_is_neither_counted_nor_deleted_by_vacuum(store: sp.Store) -> None:
    publish_delta(store.url)
    left = ["part-00000-781ef5e6-d483-4567-9a8a-014d37293651-c000.snappy.parquet"]
    left += ["duckdb-0a1b.parquet", "_symlink_format_manifest/manifest"]
    (folder(store) / SEGMENTS.root / "_symlink_format_manifest").mkdir()
    segment = next((folder(store) / SEGMENTS.root).glob("*.parquet")).read_bytes()
    for name in left:
        (folder(store) / SEGMENTS.root / name).write_bytes(segment)
    change(store, 1)

    planned = store.vacuum_plan(retention=1, orphans=True).objects.column("key").to_pylist()
    store.vacuum(retention=1, orphans=True)
    publish_delta(store.url)

    assert planned
    assert not {f"{SEGMENTS.root}{name}" for name in left} & {*planned}
    assert all((folder(store) / SEGMENTS.root / name).exists() for name in left)
    assert published_ids(store) == local_ids(store, store.snapshot().version)
    told = {fault.key: fault for fault in store.verify("all").faults}
    assert {*told} == {f"{SEGMENTS.root}{name}" for name in left}
    assert all(each.harmless and "no object of the store" in each.what for each in told.values())


def clean_up(store: sp.Store, root: str) -> None:
    """A client writes a checkpoint of the Delta log and deletes the commits before it, after forty days."""
    log = folder(store) / root / "_delta_log"
    for each in log.iterdir():
        os.utime(each, (time.time() - 40 * 86_400,) * 2)
    DeltaTable(f"{store.url}/{root}").create_checkpoint()
    DeltaTable(f"{store.url}/{root}").cleanup_metadata()


def openings(store: sp.Store, root: str, version: int) -> list[dict[str, Any]]:
    """What a checkpoint of the Delta log tells of protocol and metadata."""
    log = folder(store) / root / "_delta_log"
    actions = decode_checkpoint((log / f"{version:020d}.checkpoint.parquet").read_bytes())
    return [action for action in actions if {"protocol", "metaData"} & set(action)]


def identity(store: sp.Store, root: str) -> tuple[str, list[str] | None]:
    """By which id clients know the table, and what they must be able to do to write it."""
    found = table(store, root)
    return str(found.metadata().id), found.protocol().writer_features


def test_a_client_that_cleans_up_leaves_every_version_of_a_guarded_table(store: sp.Store) -> None:
    for number in range(3):
        change(store, number)
        publish_delta(store.url, history=False)

    clean_up(store, SEGMENTS.root)

    assert [len(published_ids(store, each)) for each in range(3)] == [
        len(local_ids(store, each)) for each in range(2, 5)
    ]


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("published", TABLES, ids=lambda each: each.name)
def test_publishing_goes_on_where_a_client_has_deleted_the_first_delta_commits(
    store: sp.Store, monkeypatch: pytest.MonkeyPatch, published: delta_log.DeltaTable
) -> None:
    monkeypatch.setattr(delta_log, "CHECKPOINT_COMMITS", 6)
    monkeypatch.setattr(delta_log, "_KEPT", {})  # so the table is one that was published before
    for number in range(3):
        change(store, number)
        publish_delta(store.url)
    before = identity(store, published.root)

    clean_up(store, published.root)
    for number in range(3, 8):
        change(store, number)
        publish_delta(store.url)

    log = folder(store) / published.root / "_delta_log"
    assert not (log / f"{0:020d}.json").exists()
    assert (log / f"{5:020d}.checkpoint.parquet").exists()
    assert [sorted(each) for each in openings(store, published.root, 5)] == [["protocol"], ["metaData"]]
    assert table(store, published.root).version() == 7
    assert all(table(store, published.root, each).to_pyarrow_table().num_rows for each in range(2, 8))
    assert identity(store, published.root) == before
    assert published_ids(store) == local_ids(store, store.snapshot().version)
    versions = table(store, HISTORY.root).to_pyarrow_table().column("version").to_pylist()
    assert sorted(versions) == sorted(told(store).column("version").to_pylist())
    assert store.verify("all").ok


@pytest.mark.parametrize("left", ["an older checkpoint", "nothing older", "a protocol without guard"])
def test_a_delta_log_that_does_not_tell_what_the_table_is_gets_it_anew(
    store: sp.Store, monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    monkeypatch.setattr(delta_log, "_KEPT", {})
    for number in range(3):
        change(store, number)
        publish_delta(store.url, history=False)
    before = identity(store, SEGMENTS.root)
    log = folder(store) / SEGMENTS.root / "_delta_log"
    clean_up(store, SEGMENTS.root)
    change(store, 3)
    publish_delta(store.url, history=False)
    table(store, SEGMENTS.root).create_checkpoint()
    newest = log / f"{3:020d}.checkpoint.parquet"
    kept = [each for each in decode_checkpoint(newest.read_bytes()) if "protocol" not in each]
    if left == "a protocol without guard":
        kept.append({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}})
    else:
        kept = [each for each in kept if "metaData" not in each]
    newest.write_bytes(encode_checkpoint(kept))
    if left == "nothing older":
        (log / f"{2:020d}.checkpoint.parquet").unlink()

    done, again = (publish_delta(store.url, history=False) for _ in range(2))

    assert (done.files_added, done.files_removed, again.bytes_written) == (0, 0, 0)
    found = identity(store, SEGMENTS.root)
    assert found[1] == before[1] == ["appendOnly", delta_log.GUARD]
    assert (found[0] == before[0]) == (left != "nothing older")
    assert [sorted(each) for each in openings(store, SEGMENTS.root, 4)] == [["protocol"], ["metaData"]]
    assert table(store, SEGMENTS.root).version() == 4
    assert published_ids(store) == local_ids(store, store.snapshot().version)


@pytest.mark.parametrize("lost", ["the hint", "hint and checkpoint"])
def test_publishing_goes_on_where_the_beginning_of_the_delta_log_is_lost(
    store: sp.Store, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    monkeypatch.setattr(delta_log, "_KEPT", {})
    for number in range(4):
        change(store, number)
        publish_delta(store.url)
    log = folder(store) / SEGMENTS.root / "_delta_log"
    clean_up(store, SEGMENTS.root)
    (log / "_last_checkpoint").unlink()
    if lost == "hint and checkpoint":
        (log / f"{3:020d}.checkpoint.parquet").unlink()

    for number in range(4, 6):
        change(store, number)
        publish_delta(store.url)

    assert table(store, SEGMENTS.root).version() == 5
    assert published_ids(store) == local_ids(store, store.snapshot().version)
    assert published_ids(store, 4)
    assert not (log / f"{0:020d}.json").exists()


def test_two_publications_at_once_publish_everything_once(store: sp.Store) -> None:
    for number in range(3):
        change(store, number)
    threads = [threading.Thread(target=publish_delta, args=(store.url,)) for _ in range(3)]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    newest = store.snapshot().version
    history = table(store, HISTORY.root).to_pyarrow_table()
    assert sorted(history.column("version").to_pylist()) == sorted(told(store).column("version").to_pylist())
    assert published_ids(store) == local_ids(store, newest)


def test_a_commit_whose_answer_is_lost_is_found_and_not_repeated(
    store: sp.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = store.object_store
    log, create = DeltaLog(objects, Runtime(), SEGMENTS), type(objects).create

    def silent(self: object, key: str, data: bytes) -> object:
        create(self, key, data)  # type: ignore[arg-type]
        return Doubtful("the connection was lost")

    monkeypatch.setattr(type(objects), "create", silent)
    first = log.commit(1, lambda _: ([delta_log.DeltaFile("a.parquet", 10, 1)], []))
    again = log.commit(1, lambda _: ([delta_log.DeltaFile("b.parquet", 10, 1)], []))

    assert first > 0 == again
    assert log.state().version == 0
    assert list(log.state().files or {}) == ["a.parquet"]


def test_segments_are_published_under_the_names_that_checkpoints_give_them(store: sp.Store) -> None:
    publish_delta(store.url)

    checkpoint = store.snapshot().log.checkpoint
    assert checkpoint is not None
    named = {segment_key(n.digest) for part in checkpoint.root.parts for n in checkpoint.tree.part(part)}
    assert named == {f"{SEGMENTS.root}{Path(uri).name}" for uri in table(store, SEGMENTS.root).file_uris()}
