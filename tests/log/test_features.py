"""What a newer release may ask of its readers and writers: this one refuses what it does not know."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.errors import UnsupportedFormatError
from spark_pages.io import PageHandler
from spark_pages.log.auto_maintenance import Due
from spark_pages.log.checkpoint import root
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.log.state import LogState
from spark_pages.maintenance import purge
from spark_pages.model.actions import Features
from spark_pages.runtime import Runtime
from spark_pages.spark.checkpoints import Spread, checkpoint_of
from spark_pages.spark.options import WriteOptions
from spark_pages.spark.publish import publish_delta
from spark_pages.spark.vacuum import delete_objects, find_orphans
from spark_pages.spark.writing import plan_write
from spark_pages.store import Store
from spark_pages.versions import restore
from tests.log.newer import ask, content
from tests.transaction.stores import QUIET, store_with

SCHEMA = pa.schema([("n", pa.int64())])


def store_of_features(features: Features) -> Store:
    """A store whose newest commit, made by another release, asks for features."""
    return ask(store_with(pa.table({"n": [1, 2]})), features)


def test_a_store_with_an_unknown_reader_feature_gives_out_no_row():
    with pytest.raises(UnsupportedFormatError, match=r"00000000000000000003.avro: it needs.*holograms"):
        store_of_features(Features(reader=("holograms",))).snapshot()


def test_there_is_no_snapshot_of_a_state_that_needs_a_newer_release_whoever_has_decoded_it():
    state = LogState(features=Features(reader=("holograms",)))

    with pytest.raises(UnsupportedFormatError, match="holograms"):
        LogSnapshot(state, None)


def test_a_store_with_an_unknown_writer_feature_is_read_but_not_written():
    store = store_of_features(Features(writer=("frozen-pages",)))
    before = [each.key for each in store.object_store.list("")]

    assert store.snapshot().table("t").num_rows == 2
    with pytest.raises(UnsupportedFormatError, match="frozen-pages"), store.transaction() as txn:
        txn.append("t", pa.table({"n": [3]}))
    with pytest.raises(UnsupportedFormatError, match="frozen-pages"):
        store.checkpoint()
    assert [each.key for each in store.object_store.list("")] == before


@pytest.fixture
def frozen(tmp_path: Path) -> Store:
    """A store with a checkpoint, to which a release that knows more has committed."""
    store = sp.create(str(tmp_path / "store"), properties=QUIET)
    with store.transaction() as txn:
        txn.create_table("t", SCHEMA)
        txn.append("t", pa.table({"n": range(9_000)}))
    store.checkpoint()
    with store.transaction() as txn:
        txn.update_rows("t", [1], {"n": [7]})
    ask(store)
    return sp.open(store.url)


def checkpoint_of_an_older_version(store: Store) -> None:
    checkpoint_of(store._log, store.snapshot(version=2).log, Spread(store.url, None))


NO_SPARK = cast(Any, None)
"""What is refused in time needs no session."""

ONE_OBJECT = pa.table({"key": ["pages/00000000000000000000-" + "ab" * 16 + "-0.pages"], "bytes": [4096]})

WRITERS: dict[str, Callable[[Store], object]] = {
    "log compaction": lambda store: store.compact_log(),
    "a checkpoint": lambda store: store.checkpoint(),
    "a checkpoint of an older version": checkpoint_of_an_older_version,
    "page compaction": lambda store: store.compact_pages(),
    "a restore": lambda store: store.restore(version=1),
    "a tag": lambda store: store.tag("x"),
    "a lease": lambda store: store.snapshot().lease(timedelta(hours=1)),
    "a vacuum": lambda store: store.vacuum(retention=1),
    "Delta tables": lambda store: publish_delta(store.url),
    "a write by Spark": lambda store: plan_write(store.url, SCHEMA, False, WriteOptions("t")),
    "a search for orphans": lambda store: find_orphans(NO_SPARK, store.url),
    "a deletion by Spark": lambda store: delete_objects(NO_SPARK, store.url, ONE_OBJECT),
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_whoever_would_write_refuses_before_it_has_written_anything(frozen, write, monkeypatch):
    monkeypatch.setattr(restore, "MANIFEST_PAGES", 0)
    before = content(frozen.object_store)

    with pytest.raises(UnsupportedFormatError, match="frozen-pages"):
        write(frozen)

    assert content(frozen.object_store) == before


def test_a_transaction_that_began_before_writes_no_page_file():
    store = store_with(pa.table({"n": [1]}))
    txn = store.transaction()
    txn.append("t", pa.table({"n": np.random.default_rng(1).integers(0, 1 << 62, 40_000)}))
    ask(store)
    before = content(store.object_store)

    with pytest.raises(UnsupportedFormatError, match="frozen-pages"):
        txn.commit()

    assert content(store.object_store) == before


def test_rows_of_table_zero_are_not_put_into_a_page_file_where_they_cannot_be_committed(monkeypatch):
    store = store_with(pa.table({"n": [1]}))
    head = store._log.refresh()
    ask(store)
    store._log.refresh()  # as another thread may
    monkeypatch.setattr(store._log, "refresh", lambda: head)
    monkeypatch.setattr(purge, "removable_rows", lambda zero, _: np.ones(zero.num_rows, bool))
    monkeypatch.setattr(purge, "place_splices", lambda *_: pytest.fail("something was written"))

    with pytest.raises(UnsupportedFormatError, match="frozen-pages"):
        purge.collect_rows(store._log, Runtime(), PageHandler(store.object_store))


def test_what_was_due_beside_a_commit_is_left_undone_once_a_newer_release_has_come(caplog):
    store = store_with(*[pa.table({"n": [1]})] * 15)
    ask(store)
    store.snapshot()
    before = content(store.object_store)

    with caplog.at_level(logging.WARNING):
        store._log._care._background.request(Due(checkpoint=True, compaction=True))
        store.close()

    assert content(store.object_store) == before
    assert (
        "UnsupportedFormatError: Cannot write to the store: it asks its writers to know frozen-pages"
        in caplog.text
    )


@pytest.mark.parametrize(("version", "features"), [(2, ()), (1, ("holograms",))])
def test_a_checkpoint_of_a_newer_release_is_refused_and_not_taken_for_damage(monkeypatch, version, features):
    store = store_with(pa.table({"n": [1]}))
    with monkeypatch.context() as newer:
        newer.setattr(root, "FORMAT_VERSION", version)
        newer.setattr(root, "check_readable", lambda *_: None)
        newer.setattr(root, "encode_root", with_features(root.encode_root, features))
        newer.setattr("spark_pages.log.checkpoint.writer.encode_root", root.encode_root)
        store.checkpoint()

    with pytest.raises(UnsupportedFormatError, match="_log/checkpoints/"):
        Store(store.object_store).snapshot()


def with_features(encode, features):
    def encoded(tree: root.Root) -> bytes:
        return encode(replace(tree, state=replace(tree.state, features=Features(reader=features))))

    return encoded


def test_a_commit_repeats_the_features_of_its_parent(monkeypatch):
    known = frozenset({"frozen-pages"})
    monkeypatch.setattr("spark_pages.format.features.WRITER_FEATURES", known)
    store = store_of_features(Features(writer=("frozen-pages",)))

    with store.transaction() as txn:
        txn.append("t", pa.table({"n": [3]}))
    store.checkpoint()

    assert store.snapshot().log.state.features == Features(writer=("frozen-pages",))
    assert Store(store.object_store).snapshot().log.state.features == Features(writer=("frozen-pages",))
    assert isinstance(store, sp.Store)
