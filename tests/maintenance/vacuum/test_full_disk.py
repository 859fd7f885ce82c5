"""Vacuum where the disk has no room left."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_pages.catalog.table_zero import first_record
from spark_pages.errors import StorageError
from spark_pages.storage.disk_reserve import keep_reserve, release_reserve
from spark_pages.storage.local import DurableLocalStore
from spark_pages.storage.store import CreateOutcome, NotCreated
from spark_pages.store import Store
from tests.invariants import check_versions_stay
from tests.maintenance.vacuum.stores import Past, numbers, runtime


class SmallDisk(DurableLocalStore):
    """A folder on a disk with so many bytes; any number until it is said to be full."""

    bytes_of_disk: int | None = None

    def used(self) -> int:
        return sum(each.stat().st_size for each in Path(self._root).rglob("*") if each.is_file())

    def is_full(self, data: bytes) -> bool:
        return self.bytes_of_disk is not None and self.used() + len(data) > self.bytes_of_disk

    def put(self, key: str, data: bytes) -> None:
        if self.is_full(data):
            raise StorageError(f"Writing {key} failed: no space left.")
        super().put(key, data)

    def create(self, key: str, data: bytes) -> CreateOutcome:
        return (
            NotCreated(f"Creating {key} failed: no space left.")
            if self.is_full(data)
            else super().create(key, data)
        )


@pytest.fixture
def disk(tmp_path: Path) -> SmallDisk:
    return SmallDisk(str(tmp_path / "store"))


@pytest.fixture
def past(disk: SmallDisk) -> Past:
    """Two page files of which one is needed, and no checkpoint."""
    store = Store(disk, runtime())
    record = first_record(runtime(), {})
    store._log.create(lambda _: record)
    keep_reserve(disk)
    past = Past(store)
    with store.transaction() as txn:
        txn.create_table("large", numbers(1).schema)
    past.append("large", 1)
    past.rewrite("large", 7)
    return past


def fill(past: Past, disk: SmallDisk) -> None:
    disk.bytes_of_disk = disk.used()
    with pytest.raises(StorageError, match="no space left"):
        past.append("large", 2)


def test_a_vacuum_frees_room_on_a_disk_that_has_none(past: Past, disk: SmallDisk):
    fill(past, disk)

    done = past.store.vacuum(retention=1)

    assert done.objects > 0
    check_versions_stay(disk, past.history)


def test_a_vacuum_takes_the_reserve_back_when_it_has_made_room(past: Past, disk: SmallDisk):
    fill(past, disk)

    past.store.vacuum(retention=1)

    assert release_reserve(disk)


def test_a_vacuum_whose_checkpoint_has_no_room_makes_do_with_the_one_before(past: Past, disk: SmallDisk):
    past.store.checkpoint()
    past.append("large", 3)
    past.rewrite("large", 8)
    release_reserve(disk)
    fill(past, disk)
    disk.bytes_of_disk += 16_000  # holds the commit and no checkpoint

    done = past.store.vacuum(retention=1)

    assert done.objects > 0
    check_versions_stay(disk, past.history)


def test_without_reserve_and_without_a_checkpoint_the_reason_is_told(past: Past, disk: SmallDisk):
    release_reserve(disk)
    fill(past, disk)

    with pytest.raises(StorageError, match="no space left"):
        past.store.vacuum(retention=1)

    check_versions_stay(disk, past.history)


def test_the_reserve_is_no_object_and_may_be_kept_twice(past: Past, disk: SmallDisk):
    keep_reserve(disk)

    assert [info.key for info in disk.list("") if "reserve" in info.key] == []
    assert past.store.verify().ok
    assert release_reserve(disk)
    assert not release_reserve(disk)
