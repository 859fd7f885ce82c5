"""What a newer release may ask of its readers and writers: this one refuses what it does not know."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.errors import UnsupportedFormatError
from spark_pages.log.checkpoint import root
from spark_pages.log.encoding.commit_codec import encode_commit
from spark_pages.log.names import commit_key
from spark_pages.model.actions import Features
from spark_pages.tables.store import Store
from tests.log.records import commit, record
from tests.tables.stores import store_with

SCHEMA = pa.schema([("n", pa.int64())])


def store_of_features(features: Features) -> Store:
    """A store whose newest commit, made by another release, asks for features."""
    store = store_with(pa.table({"n": [1, 2]}))
    (parent,) = store._log.commits(2, 3)
    other = commit(3, record(50), parent=parent)
    other = replace(other, timestamp_us=parent.timestamp_us + 1, features=features)
    store.objects.create(commit_key(3), encode_commit(other)[0])
    return Store(store.objects)


def test_a_store_with_an_unknown_reader_feature_gives_out_no_row():
    with pytest.raises(UnsupportedFormatError, match=r"00000000000000000003.avro needs.*holograms"):
        store_of_features(Features(reader=("holograms",))).snapshot()


def test_a_store_with_an_unknown_writer_feature_is_read_but_not_written():
    store = store_of_features(Features(writer=("frozen-pages",)))
    before = [each.key for each in store.objects.list("")]

    assert store.snapshot().table("t").num_rows == 2
    with pytest.raises(UnsupportedFormatError, match="frozen-pages"), store.transaction() as txn:
        txn.append("t", pa.table({"n": [3]}))
    with pytest.raises(UnsupportedFormatError, match="frozen-pages"):
        store.checkpoint()
    assert [each.key for each in store.objects.list("")] == before


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
        Store(store.objects).snapshot()


def with_features(encode, features):
    def encoded(tree: root.Root) -> bytes:
        return encode(replace(tree, state=replace(tree.state, features=Features(reader=features))))

    return encoded


def test_a_commit_repeats_the_features_of_its_parent(monkeypatch):
    known = frozenset({"frozen-pages"})
    monkeypatch.setattr("spark_pages.log.features.WRITER_FEATURES", known)
    store = store_of_features(Features(writer=("frozen-pages",)))

    with store.transaction() as txn:
        txn.append("t", pa.table({"n": [3]}))
    store.checkpoint()

    assert store.snapshot().log.state.features == Features(writer=("frozen-pages",))
    assert Store(store.objects).snapshot().log.state.features == Features(writer=("frozen-pages",))
    assert isinstance(store, sp.Store)
