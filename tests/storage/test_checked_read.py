"""One wrong answer of an object store is read again; a second one is damage."""

from __future__ import annotations

from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.errors import DamageError
from spark_pages.io import CacheConfig, PageHandler
from spark_pages.io.disk_cache import DiskCache
from spark_pages.log.compaction.compacted_range import CompactedRange
from spark_pages.log.compaction.reader import slots_of
from spark_pages.log.slots import SlotReader
from spark_pages.model.run import key_of
from spark_pages.storage import open_object_store
from spark_pages.store import Store
from tests.io.fakes import FolderStore, MemoryStore, write_pages
from tests.io.test_bulk_read import run_of
from tests.maintenance.vacuum.stores import WatchedStore

READS = ("get", "get_range", "get_ranges")
ROWS = 40_000


def flipped(data: bytes) -> bytes:
    """The bytes with one bit of the middle one flipped."""
    middle = len(data) // 2
    return bytes(data[:middle]) + bytes([data[middle] ^ 1]) + bytes(data[middle + 1 :])


def cut(data: bytes) -> bytes:
    return bytes(data[:-1])


def of_another_object(data: bytes) -> bytes:
    return bytes(np.random.default_rng(len(data)).integers(0, 256, len(data), dtype=np.uint8))


WAYS = pytest.mark.parametrize("spoil", [flipped, cut, of_another_object])


class WrongAnswers(WatchedStore):
    """Spoils the first answers for keys that begin with a prefix; counts the reads of these keys."""

    def __init__(self, inner, prefix="", times=0, spoil=flipped):
        super().__init__(inner)
        self.prefix, self.times, self.spoil = prefix, times, spoil
        self.reads: list[str] = []

    def __getattr__(self, name):
        ask = super().__getattr__(name)
        return self._spoiling(name, ask) if name in READS else ask

    def _spoiling(self, name, ask):
        def read(key, *more):
            answer = ask(key, *more)
            if not self.prefix or not key.startswith(self.prefix):
                return answer
            self.reads.append(key)
            if len(self.reads) > self.times:
                return answer
            return [self.spoil(each) for each in answer] if name == "get_ranges" else self.spoil(answer)

        return read


@pytest.fixture(scope="module")
def url():
    """A store with a checkpoint, compacted ranges and slots behind them."""
    url = f"memory://{uuid4().hex}"
    with sp.create(url, properties={"log_compaction_commits": "0"}) as store:
        numbers = np.random.default_rng(7).integers(0, 2**62, ROWS)
        with store.transaction() as txn:
            txn.create_table("t", pa.schema([("id", pa.int64()), ("text", pa.string())]))
            txn.append("t", pa.table({"id": numbers, "text": [f"x{each}" for each in numbers]}))
        store.checkpoint()
        for number in range(20):
            with store.transaction() as txn:
                txn.append("t", pa.table({"id": [number], "text": ["y"]}))
        store.compact_log()
    return url


def opened(url, *spoiled) -> tuple[Store, WrongAnswers]:
    objects = WrongAnswers(open_object_store(url), *spoiled)
    return Store(objects), objects


def everything(store):
    table = store.snapshot().table("t")
    return table.read(), [len(list(table.pages(column))) for column in table.columns]


OBJECTS = [
    "_log/00000000000000000021.avro",
    "_log/checkpoints/",
    "_log/parts/",
    "_log/segments/",
    "_log/catalog/",
    "pages/",
]


@WAYS
@pytest.mark.parametrize("prefix", OBJECTS)
def test_one_wrong_answer_is_read_again(url, prefix, spoil):
    right = everything(opened(url)[0])
    usual, counted = opened(url, prefix)
    everything(usual)

    store, objects = opened(url, prefix, 1, spoil)

    assert everything(store) == right
    assert len(objects.reads) == len(counted.reads) + 1


def test_a_checkpoint_that_is_wrong_twice_is_passed_over(url):
    right = everything(opened(url)[0])

    store, objects = opened(url, "_log/checkpoints/", 2)

    assert everything(store) == right
    assert len(objects.reads) >= 2


@WAYS
@pytest.mark.parametrize("prefix", [prefix for prefix in OBJECTS if prefix != "_log/checkpoints/"])
def test_objects_that_are_wrong_at_every_read_are_damage(url, prefix, spoil):
    store, objects = opened(url, prefix, 1_000, spoil)

    with pytest.raises(DamageError):
        everything(store)

    assert objects.reads.count(objects.reads[0]) >= 2


@WAYS
def test_a_compacted_range_that_came_wrong_once_is_read_again(url, spoil):
    objects = WrongAnswers(open_object_store(url), "_log/0", 1, spoil)
    piece = CompactedRange(0, 4)

    ((_, slots),) = slots_of(objects, piece, piece.start, piece.stop)

    assert len(slots) == 16
    assert objects.reads == [piece.key] * 2


@WAYS
def test_verify_reports_nothing_after_one_wrong_answer(url, spoil):
    store, _ = opened(url, "_log/00000000000000000003.avro", 1, spoil)

    assert store.verify().ok


def test_the_digest_of_a_slot_is_read_again(url):
    right = SlotReader(open_object_store(url)).digest(5)
    objects = WrongAnswers(open_object_store(url), "_log/00000000000000000005", 1)

    assert SlotReader(objects).digest(5) == right


def test_the_disk_cache_keeps_the_second_answer_for_a_page_that_came_wrong(tmp_path):
    inner = MemoryStore()
    (page, *_) = write_pages(inner, [pa.array(np.random.default_rng(1).integers(0, 2**62, 600))])
    objects = WrongAnswers(inner, "", 0)
    objects.url = "s3://bucket/store"
    objects.prefix, objects.times = page.disk_path, 1
    handler = PageHandler(objects, CacheConfig(decoded_bytes=0, compressed_bytes=0, disk_path=tmp_path))

    read = handler.get_page(page)
    kept = DiskCache(tmp_path, CacheConfig().disk_bytes, objects.url).get(key_of(page))

    assert len(objects.reads) == 2
    assert bytes(kept) == inner.get_range(page.disk_path, page.offset, page.actual_len)
    assert read.num_rows == 600


class SecondAnswerRight(FolderStore):
    """Files hold spoiled pages; a second read, by range, gets the right ones."""

    def get_range(self, key, offset, length):
        return MemoryStore.get_range(self, key, offset, length)


@pytest.fixture
def spoiled_files(tmp_path):
    """A local store whose first reads are wrong, with the pages in it."""
    store = SecondAnswerRight(tmp_path)
    pages = write_pages(store, [pa.array(np.arange(600) + first) for first in range(3)])
    path = tmp_path / pages[1].disk_path
    right = path.read_bytes()
    store.objects[pages[1].disk_path] = right
    place = pages[1].offset + pages[1].actual_len // 2
    path.write_bytes(right[:place] + bytes([right[place] ^ 1]) + right[place + 1 :])
    return store, pages


def test_a_page_of_a_local_file_is_read_again_alone(spoiled_files):
    store, pages = spoiled_files

    found = PageHandler(store).get_pages(pages)

    assert [batch.column("data")[0].as_py() for batch in found] == [0, 1, 2]
    assert store.asked == [(pages[1].disk_path, pages[1].offset, pages[1].actual_len)]


def test_a_page_of_a_run_of_numbers_is_read_again(spoiled_files):
    store, pages = spoiled_files

    (found,) = PageHandler(store).read_numbers([(run_of(pages), pa.int64())])

    assert found.to_pylist() == [row + first for first in range(3) for row in range(600)]
    assert len(store.asked) == 1
