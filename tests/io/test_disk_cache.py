"""The tier on a local disk: shared, bounded, and never believed."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.errors import InvalidInputError, ObjectNotFoundError
from spark_pages.io import CacheConfig, PageHandler, ReadTrace, page_reader
from spark_pages.io.disk_cache import DiskCache
from spark_pages.model.run import key_of
from tests.io.fakes import FolderStore, MemoryStore, inline_page, write_pages

ARRAYS = [pa.array(np.random.default_rng(n).integers(0, 2**62, 600)) for n in range(8)]


class FarStore(MemoryStore):
    url = "s3://bucket/store"


@pytest.fixture
def store():
    return FarStore()


@pytest.fixture
def pages(store):
    return write_pages(store, ARRAYS)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cache"


LEFT_BY_A_CRASH = f"{'ab' * 20}.77-{'cd' * 8}.tmp"


def handler_of(store, folder, **options) -> PageHandler:
    return PageHandler(store, CacheConfig(decoded_bytes=0, compressed_bytes=0, disk_path=folder, **options))


def files(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def values(batches):
    return [batch.column("data") for batch in batches]


def test_a_page_that_was_read_once_is_on_the_disk_for_every_later_handler(store, pages, folder):
    handler_of(store, folder).get_pages(pages)
    asked = len(store.asked)
    trace = ReadTrace()

    found = handler_of(store, folder).get_pages(pages, trace=trace)

    assert values(found) == ARRAYS
    assert len(store.asked) == asked
    assert (trace.disk_hits, trace.misses, trace.requests) == (8, 0, 0)


def test_pages_of_another_store_at_the_same_address_are_not_taken_from_the_disk(store, pages, folder):
    # given
    first, second, again = (handler_of(store, folder) for _ in range(3))
    for handler, store_id in ((first, "one"), (second, "two"), (again, "one")):
        handler.bind_store(store_id)
    first.get_pages(pages)
    # when
    for handler in (second, again):
        handler.get_pages(pages)
    # then
    assert (second.stats().disk_hits, second.stats().misses) == (0, 8)
    assert (again.stats().disk_hits, again.stats().misses) == (8, 0)


def test_a_handler_that_is_bound_to_another_store_drops_its_pages(store, pages):
    # given
    handler = PageHandler(store)
    handler.bind_store("one")
    handler.get_pages(pages)
    # when
    handler.bind_store("one")
    kept = handler.stats().decoded_bytes
    handler.bind_store("two")
    # then
    assert kept > 0
    assert handler.stats().decoded_bytes == handler.stats().compressed_bytes == 0


def test_only_what_the_disk_lacks_is_read_in_as_few_requests_as_can_be(store, pages, folder):
    handler = handler_of(store, folder)
    handler.get_pages([pages[2], pages[5]])
    before = handler.stats()

    handler.get_pages(pages)

    spent = handler.stats() - before
    assert (spent.disk_hits, spent.misses, spent.requests) == (2, 6, 3)


def test_a_scan_uses_what_is_on_the_disk_and_adds_nothing(store, pages, folder):
    handler = handler_of(store, folder)
    handler.get_pages(pages[:2])
    kept = files(folder)

    handler.get_pages(pages, admit=False)

    assert files(folder) == kept
    assert handler.stats().disk_hits == 2


def test_each_page_of_one_call_comes_from_the_first_place_that_has_it_in_the_order_asked(
    store, pages, folder
):
    handler_of(store, folder).get_pages(pages[2:3])
    handler = PageHandler(
        store, CacheConfig(decoded_bytes=12_000, compressed_bytes=1 << 20, disk_path=folder)
    )
    handler.get_page(pages[1])
    handler.get_page(pages[0])
    asked = [pages[3], inline_page(ARRAYS[5], 5), pages[2], pages[0], pages[4], pages[1], pages[3]]
    trace = ReadTrace()

    found = handler.get_pages(asked, trace=trace)

    assert values(found) == [ARRAYS[number] for number in (3, 5, 2, 0, 4, 1, 3)]
    assert (trace.decoded_hits, trace.compressed_hits, trace.disk_hits, trace.misses, trace.requests) == (
        1,
        2,
        1,
        2,
        1,
    )
    assert len(trace.page_ids) == 6


def test_what_another_content_is_expected_of_has_another_name(store, pages, folder):
    cache = DiskCache(folder, 1 << 20, store.url)
    path, offset, alloc_len, actual_len, checksum, entries = key_of(pages[0])
    others = [
        (path, offset, alloc_len, actual_len, checksum ^ 1, entries),
        (path, offset, alloc_len, actual_len, checksum, entries + 1),
        (path, offset + 4096, alloc_len, actual_len, checksum, entries),
    ]

    cache.put(key_of(pages[0]), memoryview(bytes(actual_len)))

    assert cache.get(key_of(pages[0])) is not None
    assert [cache.get(other) for other in others] == [None] * 3


def test_neighbours_on_the_disk_are_opened_together_and_a_damaged_one_costs_only_itself(
    store, pages, folder, monkeypatch
):
    monkeypatch.setattr(page_reader, "_PAGES_OF_A_LOOK", 5)
    handler_of(store, folder).get_pages(pages)
    alone = []
    real = page_reader.decode_loaded
    monkeypatch.setattr(
        page_reader, "decode_loaded", lambda key, *rest: alone.append(key) or real(key, *rest)
    )

    assert values(handler_of(store, folder).get_pages(pages[:5])) == ARRAYS[:5]
    assert alone == []

    damaged = DiskCache(folder, CacheConfig().disk_bytes, store.url)._place(key_of(pages[2]))[1]
    whole = Path(damaged).read_bytes()
    Path(damaged).write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    handler = handler_of(store, folder)

    assert values(handler.get_pages(pages)) == ARRAYS
    assert (handler.stats().disk_hits, handler.stats().misses) == (7, 1)
    assert Path(damaged).read_bytes() == whole


def test_every_flipped_bit_of_a_file_is_a_miss_and_is_mended(store, pages, folder):
    handler_of(store, folder).get_pages(pages[:1])
    (file,) = files(folder)
    whole = file.read_bytes()
    chosen = np.random.default_rng(0).integers(0, 8 * len(whole), 60).tolist()

    for bit in [*range(64 * 8), *chosen]:
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        file.write_bytes(damaged)
        handler = handler_of(store, folder)

        assert values(handler.get_pages(pages[:1])) == ARRAYS[:1], bit
        assert (handler.stats().disk_hits, handler.stats().misses) == (0, 1), bit
        assert file.read_bytes() == whole, bit


@pytest.mark.parametrize("length", [0, 1, 63, 64, 1000])
def test_a_torn_file_is_a_miss_and_is_mended(store, pages, folder, length):
    handler_of(store, folder).get_pages(pages[:1])
    (file,) = files(folder)
    whole = file.read_bytes()
    os.truncate(file, length)
    handler = handler_of(store, folder)

    found = handler.get_pages(pages[:1])

    assert values(found) == ARRAYS[:1]
    assert (handler.stats().misses, file.read_bytes()) == (1, whole)


def test_a_file_that_grew_is_a_miss(store, pages, folder):
    handler_of(store, folder).get_pages(pages[:1])
    (file,) = files(folder)
    file.write_bytes(file.read_bytes() + b"x")
    handler = handler_of(store, folder)

    handler.get_pages(pages[:1])

    assert handler.stats().misses == 1


def test_another_page_under_the_name_is_a_miss(store, pages, folder):
    handler_of(store, folder).get_pages(pages[:1])
    (file,) = files(folder)
    handler_of(store, folder).get_pages(pages[1:2])
    (other,) = set(files(folder)) - {file}
    file.write_bytes(other.read_bytes())
    handler = handler_of(store, folder)

    assert values(handler.get_pages(pages[:2])) == ARRAYS[:2]
    assert (handler.stats().disk_hits, handler.stats().misses) == (1, 1)


def test_a_link_in_place_of_a_file_is_not_followed(store, pages, folder, tmp_path):
    handler_of(store, folder).get_pages(pages[:1])
    (file,) = files(folder)
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    handler = handler_of(store, folder)

    handler.get_pages(pages[:1])

    assert handler.stats().misses == 1


def test_a_pipe_in_place_of_a_file_is_a_miss_and_is_replaced(store, pages, folder):
    handler_of(store, folder).get_pages(pages[:1])
    (file,) = files(folder)
    file.unlink()
    os.mkfifo(file)
    script = f"""
from tests.io.test_disk_cache import ARRAYS, FarStore, handler_of, values, write_pages
store = FarStore()
handler = handler_of(store, {str(folder)!r})
assert values(handler.get_pages(write_pages(store, ARRAYS)[:1])) == ARRAYS[:1]
assert (handler.stats().disk_hits, handler.stats().misses) == (0, 1)
"""

    subprocess.run([sys.executable, "-c", script], check=True, timeout=240)

    assert files(folder) == [file]


def test_a_folder_in_place_of_a_file_is_a_miss(store, pages, folder):
    handler_of(store, folder).get_pages(pages[:1])
    (file,) = files(folder)
    file.unlink()
    file.mkdir()
    handler = handler_of(store, folder)

    assert values(handler.get_pages(pages[:1])) == ARRAYS[:1]
    assert handler.stats().misses == 1
    assert list(file.parent.iterdir()) == [file]


def test_two_stores_with_the_same_keys_do_not_meet(store, pages, folder):
    other = FarStore()
    other.url = "s3://bucket/other"
    write_pages(other, ARRAYS)
    handler_of(store, folder).get_pages(pages)
    handler = handler_of(other, folder)

    handler.get_pages(pages)

    assert handler.stats().disk_hits == 0


def test_the_disk_holds_no_more_than_its_budget_and_what_was_used_last(store, pages, folder):
    size = -(-pages[0].actual_len // 4096) * 4096
    cache = DiskCache(folder, 5 * size, store.url)
    packed = {
        key_of(page): memoryview(store.objects[page.disk_path])[page.offset :][: page.actual_len]
        for page in pages
    }
    keys = list(packed)

    for number, key in enumerate(keys):
        cache.put(key, packed[key])
        os.utime(cache._place(key)[1], ns=(number, number))
        assert cache.size_bytes() <= 5 * size

    held = [cache.get(key) is not None for key in keys]
    assert held == sorted(held)
    assert 3 <= sum(held) <= 5
    assert held[-1]


def test_to_read_a_page_is_to_use_it(store, pages, folder):
    size = -(-pages[0].actual_len // 4096) * 4096
    cache = DiskCache(folder, 4 * size, store.url)
    keys = [key_of(page) for page in pages]
    for number, key in enumerate(keys[:3]):
        cache.put(key, memoryview(bytes(key[3])))
        os.utime(cache._place(key)[1], ns=(number, number))

    cache.get(keys[0])
    cache.put(keys[3], memoryview(bytes(keys[3][3])))

    assert cache.get(keys[0]) is not None
    assert cache.get(keys[1]) is None


def test_what_another_process_wrote_counts_and_unfinished_files_go_too(store, pages, folder):
    size = -(-pages[0].actual_len // 4096) * 4096
    ours, theirs = (DiskCache(folder, 4 * size, store.url) for _ in range(2))
    keys = [key_of(page) for page in pages]
    for key in keys[:3]:
        theirs.put(key, memoryview(bytes(key[3])))
    shard = next(path for path in folder.rglob("*") if path.is_file()).parent
    (shard / LEFT_BY_A_CRASH).write_bytes(bytes(size))
    os.utime(shard / LEFT_BY_A_CRASH, ns=(0, 0))

    for key in keys[3:]:
        ours.put(key, memoryview(bytes(key[3])))

    assert ours.size_bytes() <= 4 * size
    assert not (shard / LEFT_BY_A_CRASH).exists()


def test_a_page_larger_than_the_budget_is_not_kept(store, pages, folder):
    handler = handler_of(store, folder, disk_bytes=4096)

    handler.get_pages(pages)

    assert not folder.exists() or files(folder) == []


@pytest.mark.parametrize("call", ["open", "write", "rename", "makedirs"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES, errno.EIO])
def test_a_disk_that_is_full_or_fails_costs_requests_and_no_answer(
    store, pages, folder, monkeypatch, call, code
):
    real = getattr(os, call)

    def fail(*arguments, **options):
        if call == "open" and not arguments[1] & os.O_CREAT:
            return real(*arguments, **options)
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, call, fail)
    found = handler_of(store, folder).get_pages(pages)
    monkeypatch.undo()

    assert values(found) == ARRAYS
    assert not folder.exists() or files(folder) == []


def test_a_write_that_the_disk_cuts_short_leaves_nothing(store, pages, folder, monkeypatch):
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:100]))

    handler_of(store, folder).get_pages(pages)

    assert files(folder) == []


def test_nobody_else_can_look_into_the_folder(store, pages, folder):
    handler_of(store, folder).get_pages(pages)

    (inside,) = folder.iterdir()
    assert stat.S_IMODE(inside.stat().st_mode) == 0o700


def test_a_store_on_a_local_disk_makes_no_use_of_it(tmp_path, folder):
    store = FolderStore(tmp_path)
    handler = handler_of(store, folder)

    handler.get_pages(write_pages(store, ARRAYS))

    assert not folder.exists()


def test_a_page_file_that_is_gone_is_served_from_the_disk_and_missed_without(store, pages, folder):
    handler_of(store, folder).get_pages(pages[:1])
    store.objects.clear()

    assert values(handler_of(store, folder).get_pages(pages[:1])) == ARRAYS[:1]
    with pytest.raises(ObjectNotFoundError):
        handler_of(store, folder).get_pages(pages[:2])


def test_two_processes_share_a_folder_and_both_read_right(tmp_path, folder):
    script = textwrap.dedent(
        """
        import sys
        from spark_pages.io import CacheConfig, PageHandler
        from tests.io.test_disk_cache import ARRAYS, FarStore, values, write_pages
        store = FarStore()
        pages = write_pages(store, ARRAYS)
        wrong = hits = 0
        for _ in range(10):
            config = CacheConfig(0, 0, disk_path=sys.argv[1], disk_bytes=int(sys.argv[2]))
            handler = PageHandler(store, config)
            for page, array in zip(pages, ARRAYS):
                wrong += values([handler.get_page(page), handler.get_page(page)]) != [array, array]
            hits += handler.stats().disk_hits
        print(wrong, hits > 0)
        """
    )
    command = [sys.executable, "-c", script, str(folder), str(40 << 10)]

    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]

    assert [process.communicate(timeout=240)[0].split() for process in both] == [["0", "True"]] * 2
    assert not [path for path in files(folder) if path.suffix == ".tmp"]
    assert DiskCache(folder, 40 << 10, "").size_bytes() <= (40 << 10) * 10 // 8


def test_a_store_is_opened_with_a_disk_cache(tmp_path, folder):
    address = "memory://disk-cache"
    store = sp.create(address)
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("x", pa.int64())]))
        txn.append("t", pa.table({"x": np.random.default_rng(0).integers(0, 2**62, 50_000)}))
    rows = sp.open(address, cache=sp.CacheConfig(disk_path=folder)).snapshot().table("t").take([1, 40_000])

    again = sp.open(address, cache=sp.CacheConfig(disk_path=folder))

    assert again.snapshot().table("t").take([1, 40_000]) == rows
    assert (again.cache_stats.disk_hits, again.cache_stats.misses) == (2, 0)


@pytest.mark.parametrize(
    "wrong", [{"decoded_bytes": -1}, {"disk_bytes": -1}, {"threads": 0}, {"gap_bytes": -5}]
)
def test_a_configuration_that_cannot_be_is_refused(wrong):
    with pytest.raises(InvalidInputError, match=next(iter(wrong))):
        CacheConfig(**wrong)


def test_a_folder_of_the_cache_that_is_a_link_is_left_alone(store, pages, folder, tmp_path):
    outside = tmp_path / "home-of-somebody"
    outside.mkdir()
    (outside / "thesis.doc").write_bytes(bytes(1 << 20))
    os.utime(outside / "thesis.doc", ns=(1, 1))
    (folder / "v1-1").mkdir(parents=True)
    (folder / "v1-1" / "00").symlink_to(outside)
    cache, key = DiskCache(folder, 8192, store.url), key_of(pages[0])

    cache.put(key, memoryview(bytes(key[3])))
    cache.drop(key)

    assert cache.get(key) is None
    assert cache.size_bytes() == 0
    assert os.listdir(outside) == ["thesis.doc"]


def test_what_the_cache_did_not_write_stays_in_its_folders(store, pages, folder):
    (folder / "v1-1" / "00").mkdir(parents=True)
    (folder / "v1-1" / "00" / "notes.txt").write_bytes(bytes(1 << 20))
    cache, key = DiskCache(folder, 8192, store.url), key_of(pages[0])

    cache.put(key, memoryview(bytes(key[3])))

    assert cache.size_bytes() == 8192
    assert (folder / "v1-1" / "00" / "notes.txt").exists()
