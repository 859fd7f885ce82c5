"""What a client builds from the service's answers is what storage says, descriptor by descriptor."""

from __future__ import annotations

import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.errors import (
    InvalidInputError,
    ObjectNotFoundError,
    SnapshotExpiredError,
    TableNotFoundError,
    VersionNotFoundError,
)
from spark_pages.log.slots import SlotReader
from spark_pages.model.chain_tree import UnloadedRun
from spark_pages.service import segment_locator
from spark_pages.service.metadata import MetadataService
from spark_pages.service.responses import PieceName
from spark_pages.service.table_view import LocalPieces, TableView, apply_changes
from spark_pages.storage import MeteredStore
from spark_pages.transaction import placement
from tests.service.stores import (
    check_same_table,
    forget_all_but,
    served,
    splices_of,
    store_with_a_past,
    write_more,
)

TABLES = [("default", "t"), ("default", "other"), ("private", "secrets")]


def check_versions(store: sp.Store, versions: list[int]) -> None:
    service = MetadataService(store.object_store)
    for version in versions:
        for db, table in TABLES:
            check_same_table(served(service, db, table, version), store.snapshot(version).log)


def test_every_version_of_a_log_without_a_checkpoint(small_trees):
    store = store_with_a_past()

    check_versions(store, list(range(3, store.snapshot().version + 1, 5)))


def test_versions_before_at_and_after_checkpoints(small_trees):
    store = store_with_a_past()
    made = [store.checkpoint().version]
    for turn in range(4):
        write_more(store, 1000 * turn)
        write_more(store, 1000 * turn + 500)
        made.append(store.checkpoint().version)
    newest = write_more(store)

    check_versions(store, sorted({*made, *(v - 1 for v in made), newest}))


def test_columns_that_have_more_pages_than_a_part_is_listed_for(small_trees, monkeypatch):
    store = store_with_a_past()
    store.checkpoint()
    write_more(store)
    monkeypatch.setattr(segment_locator, "MANY_PAGES", 1)
    answer = MetadataService(store.object_store).get_table_meta_snapshot("default", "t")

    assert any(place.is_part for found in answer.places.values() for place in found)
    check_versions(store, [store.snapshot().version])


def test_after_page_compaction_log_compaction_and_changes_of_the_table(small_trees):
    store = store_with_a_past()
    store.checkpoint()
    with store.transaction() as txn:
        txn.add_column("t", pa.field("more", pa.int32()), default=7)
    with store.transaction() as txn:
        txn.rename_column("t", "v", "value")
    before = store.snapshot().version
    store.compact_pages("t")
    store.compact_log()
    with store.transaction() as txn:
        txn.truncate_table("other")
    store.checkpoint()

    check_versions(store, [before - 1, before, store.snapshot().version])


def test_after_a_vacuum_kept_versions_are_the_same_and_older_ones_are_expired(small_trees):
    store = store_with_a_past()
    service = MetadataService(store.object_store, staleness_s=1e-6)
    old = service.get_table_meta_snapshot("default", "t")
    for turn in range(3):
        write_more(store, 1000 * turn)
        store.checkpoint()
    forget_all_but(store, 2)

    newest = store.snapshot().version
    check_versions(store, [newest - 1, newest])
    check_same_table(served(service, "default", "t", newest - 1), store.snapshot(newest - 1).log)
    with pytest.raises(SnapshotExpiredError, match="retention keeps versions"):
        service.get_table_meta_snapshot("default", "t", old.version)


class Losing(MeteredStore):
    """A store in which one segment is not found, once."""

    lost = 0

    def get(self, key: str, *most: int) -> bytes:
        if "/segments/" in key and not self.lost:
            self.lost += 1
            raise ObjectNotFoundError(f"There is no object {key}.", key=key)
        return super().get(key, *most)


def test_where_an_object_has_gone_a_version_is_read_from_what_is_kept_now(small_trees):
    store = store_with_a_past()
    store.checkpoint()
    old = write_more(store)
    write_more(store, 2000)
    objects = Losing(store.object_store)
    service = MetadataService(objects)

    check_same_table(served(service, "default", "t", old), store.snapshot(old).log, places=False)
    assert objects.lost == 1


def test_changes_carry_a_snapshot_on_and_share_what_it_has_loaded(small_trees):
    store = store_with_a_past()
    store.checkpoint()
    first = write_more(store)
    service = MetadataService(store.object_store, staleness_s=1e-6)
    before = served(service, "default", "t", first)
    key = (before.answer.table_id, 1)
    before.chain(key).all_pages()
    second = write_more(store, 2000)

    changes = service.collect_table_meta_changes_in_range("default", "t", first + 1, second)
    answer = apply_changes(before.answer, changes)

    assert answer is not None
    assert not changes.redo_locations
    after = TableView(answer, LocalPieces(service, "default", "t", second), before)
    check_same_table(after, store.snapshot(second).log)
    loaded = {id(piece) for piece in before.chain(key).pieces}
    assert loaded & {id(piece) for piece in after.chain(key).pieces}
    check_same_table(before, store.snapshot(first).log)


def test_changes_on_another_checkpoint_do_not_carry_a_snapshot_on(small_trees):
    store = store_with_a_past()
    store.checkpoint()
    first = write_more(store)
    before = MetadataService(store.object_store).get_table_meta_snapshot("default", "t", first)
    store.checkpoint()
    second = write_more(store, 2000)
    changes = MetadataService(store.object_store).collect_table_meta_changes_in_range(
        "default", "t", first + 1, second
    )

    assert changes.checkpoint != before.checkpoint
    assert not changes.redo_locations
    assert apply_changes(before, changes) is None


def test_changes_older_than_the_checkpoint_are_told_by_location_and_give_the_same_splices(small_trees):
    store = store_with_a_past()
    first = store.snapshot().version
    for turn in range(40):
        write_more(store, 100 * turn, 3)
    store.compact_log()
    store.checkpoint()
    newest = write_more(store, 9000)
    service = MetadataService(store.object_store)
    before = served(service, "default", "t", first)

    changes = service.collect_table_meta_changes_in_range("default", "t", first + 1, newest)

    slots = [
        slot for each in changes.redo_locations for slot in range(each.first_version, each.last_version + 1)
    ]
    assert set(range(first + 1, newest)) <= set(slots)
    assert len(changes.redo_locations) < 15
    assert {edit.version for edits in changes.hot_redo.values() for edit in edits} == {newest}
    for each in changes.redo_locations:
        assert store.object_store.size(each.key) > 0
    slots_reader = SlotReader(store.object_store)
    persisted = splices_of(
        slots_reader.commits(first + 1, newest), changes.table_id, store._log.load_manifest
    )
    for field_id in (1, 2):
        key = (changes.table_id, field_id)
        chain = before.chain(key).apply([*persisted[field_id], *changes.hot_redo[field_id]])
        theirs = store.snapshot(newest).log.chain(key)
        same = ["page_id", "entry_count", "payload_entries", "checksum", "actual_len"]
        assert chain.all_pages().pages.select(same).equals(theirs.all_pages().pages.select(same))


def test_answers_are_shared_and_never_changed(small_trees):
    store = store_with_a_past()
    store.checkpoint()
    first = write_more(store)
    service = MetadataService(store.object_store, staleness_s=1e-6)
    one = service.get_table_meta_snapshot("default", "t", first)
    edits = {field_id: list(made) for field_id, made in one.redo.items()}
    write_more(store, 2000)
    store.checkpoint()
    write_more(store, 3000)

    later = service.get_table_meta_snapshot("default", "t")

    assert service.get_table_meta_snapshot("default", "t", first) is one
    assert {field_id: list(made) for field_id, made in one.redo.items()} == edits
    assert later.version > first


def test_bulk_commits_are_answered_with_promises_that_are_kept_when_they_are_asked_for(monkeypatch):
    store = store_with_a_past(versions=1)
    monkeypatch.setattr(placement, "MANIFEST_PAGES", 1)
    newest = write_more(store)
    answer = MetadataService(store.object_store).get_table_meta_snapshot("default", "t")
    assert any(isinstance(edit.added, UnloadedRun) for edits in answer.redo.values() for edit in edits)

    check_versions(store, [newest])


def test_unknown_tables_versions_and_tags_give_the_errors_of_an_opened_store():
    store = store_with_a_past(versions=2)
    service = MetadataService(store.object_store)
    newest = store.snapshot().version

    with pytest.raises(TableNotFoundError, match=r"table 'default.othr'.*'other'"):
        service.get_table_meta_snapshot("default", "othr")
    with pytest.raises(TableNotFoundError, match="namespace 'nowhere'"):
        service.get_table_meta_snapshot("nowhere", "t")
    with pytest.raises(VersionNotFoundError, match=f"versions 0 to {newest}"):
        service.get_table_meta_snapshot("default", "t", newest + 1)
    with pytest.raises(VersionNotFoundError, match="find tag 'x'"):
        service.version_info(tag="x")
    with pytest.raises(VersionNotFoundError, match="created after"):
        service.version_info(timestamp_us=5)
    with pytest.raises(InvalidInputError, match="from_ is after to"):
        service.collect_table_meta_changes_in_range("default", "t", newest + 2, newest)


def test_suggestions_never_name_tables_of_other_namespaces():
    service = MetadataService(store_with_a_past(versions=1).object_store)

    with pytest.raises(TableNotFoundError) as caught:
        service.get_table_meta_snapshot("default", "secrets")

    assert "private" not in str(caught.value)


def test_pieces_that_a_snapshot_does_not_name_are_refused(small_trees):
    store = store_with_a_past()
    store.checkpoint()
    newest = write_more(store)
    service = MetadataService(store.object_store)
    of_others = service.get_table_meta_snapshot("private", "secrets")
    digests = {p.location.digest for found in of_others.places.values() for p in found}
    own = service.get_table_meta_snapshot("default", "t")
    foreign = digests - {p.location.digest for found in own.places.values() for p in found}
    assert foreign

    for name in [
        *(PieceName(1, digest) for digest in foreign),
        PieceName(1, "no such digest"),
        PieceName(99, next(iter(digests))),
        PieceName(1, next(iter(digests)), part="no such part"),
        PieceName(1, commit=newest, nth=7),
    ]:
        with pytest.raises(ObjectNotFoundError):
            service.piece("default", "t", newest, name)


def test_times_and_tags_name_the_versions_that_they_name_in_the_store():
    store = store_with_a_past(versions=3)
    store.tag("release", 5)
    service = MetadataService(store.object_store)

    assert service.version_info(tag="release").version == 5
    for version in range(store.snapshot().version + 1):
        opened = store.snapshot(version)
        moment = service.version_info(timestamp_us=opened.log.state.timestamp_us)
        assert (moment.version, moment.timestamp_us) == (version, opened.log.state.timestamp_us)


def test_tables_are_listed_with_their_namespaces():
    service = MetadataService(store_with_a_past(versions=1).object_store)

    assert [names[:2] for names in service.tables()] == [TABLES[1], TABLES[0], TABLES[2]]
    assert service.tables(0) == []
