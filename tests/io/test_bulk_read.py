"""Runs of pages of numbers read straight hold what each page holds, or are left to the general way."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_pages.errors import DamageError, ObjectNotFoundError
from spark_pages.io import Codec, PageFileWriter, PageHandler, bulk_read, encode_page, linux_aio, local_reads
from spark_pages.model.added_pages import NewPage
from spark_pages.model.page import PageDescriptor, PageStats
from spark_pages.model.run import PageRun
from spark_pages.query.concat import as_array
from spark_pages.storage import open_object_store
from spark_pages.storage.store import ObjectStore
from tests.format.test_lazy_page import PLAIN, values_of
from tests.io.fakes import descriptor, inline_page
from tests.io.strategies import steady

needs_queue = pytest.mark.skipif(not linux_aio.HAS_QUEUES, reason="no asynchronous I/O here")

ROWS = 3000
NUMBERS = {name: kind for name, kind in PLAIN.items() if kind.num_buffers == 2 and kind != pa.bool_()}


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_object_store(str(tmp_path / "store"))


def run_of(pages: list[PageDescriptor]) -> PageRun:
    new = tuple(
        NewPage(
            page.entry_count, page.payload_entries, page.kind, page.disk_path or None, page.offset,
            page.alloc_len, page.actual_len, page.checksum, page.data, PageStats(0),
        )
        for page in pages
    )  # fmt: skip
    return PageRun.of_few(range(len(new)), new)


def written(
    store: ObjectStore, arrays: list[pa.Array], key: str = "pages/a.pages", codec: Codec = Codec.LZ4, **more
) -> list[PageDescriptor]:
    """A page file that holds the arrays, a page each."""
    writer = PageFileWriter(store, key)
    pages = [encode_page(array, codec=codec, **more) for array in arrays]
    places = [descriptor(page, key, writer.add(page), number) for number, page in enumerate(pages)]
    writer.finish()
    return places


def read(store: ObjectStore, *runs: tuple[list[PageDescriptor], pa.DataType]) -> list[pa.Array | None]:
    handler = PageHandler(store)
    return list(handler.read_numbers([(run_of(pages), kind) for pages, kind in runs]))


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("kind", NUMBERS.values(), ids=NUMBERS)
def test_a_run_holds_the_values_of_its_pages(store, kind, nulls, codec):
    columns = [values_of(kind, ROWS, nulls, seed) for seed in range(7)]
    pages = written(store, columns, codec=codec)

    for _ in range(2):  # streams of this kind may not have been seen before
        (found,) = read(store, (pages, kind))

        found.validate(full=True)
        assert found.equals(pa.concat_arrays(columns))
        assert found.null_count == sum(column.null_count for column in columns)


@steady
@given(data=st.data())
def test_runs_of_any_shape_and_order_are_read_as_page_by_page(data, tmp_path_factory):
    store = open_object_store(str(tmp_path_factory.mktemp("store")))
    random = np.random.default_rng(data.draw(st.integers(0, 1 << 32)))
    every = []
    for number in range(data.draw(st.integers(1, 4))):
        rows = data.draw(st.lists(st.sampled_from([1, 40, 500, 501]), min_size=1, max_size=9))
        noisy = data.draw(st.booleans())
        arrays = [pa.array(random.integers(0, 1 << 62 if noisy else 9, each)) for each in rows]
        every += zip(written(store, arrays, f"pages/{number}.pages"), arrays, strict=True)
    order = data.draw(st.permutations(range(len(every)))) if data.draw(st.booleans()) else range(len(every))
    cuts = sorted({0, len(every), *data.draw(st.lists(st.integers(0, len(every)), max_size=4))})
    runs = [[every[index] for index in order[low:high]] for low, high in pairwise(cuts)]

    found = read(store, *(([page for page, _ in run], pa.int64()) for run in runs))

    for values, run in zip(found, runs, strict=True):
        assert (values is None) == (len(run) < 2)
        assert values is None or values.equals(pa.concat_arrays([array for _, array in run]))


def test_more_than_there_is_memory_for_is_read_all_the_same(store, monkeypatch):
    monkeypatch.setattr(local_reads, "_AHEAD_BYTES", 512 << 10)
    monkeypatch.setattr(bulk_read, "LOCAL_SPAN_BYTES", 16 << 10)
    monkeypatch.setattr(bulk_read, "_TOGETHER_BYTES", 120 << 10)
    arrays = [pa.array(np.random.default_rng(seed).random(ROWS)) for seed in range(40)]
    pages = written(store, arrays)

    found = read(store, (pages[:13], pa.float64()), (pages[13:], pa.float64()))

    assert pa.concat_arrays(found).equals(pa.concat_arrays(arrays))


def test_what_is_read_is_counted_and_not_kept(store):
    arrays = [pa.array(np.random.default_rng(seed).random(ROWS)) for seed in range(8)]
    pages = written(store, arrays[:4], "pages/a.pages") + written(store, arrays[4:], "pages/b.pages")
    handler = PageHandler(store)

    list(handler.read_numbers([(run_of(pages[:4]), pa.float64()), (run_of(pages[4:]), pa.float64())]))

    spent = handler.stats()
    assert (spent.misses, spent.requests, spent.decoded_bytes, spent.compressed_bytes) == (8, 2, 0, 0)


@needs_queue
def test_the_next_run_is_being_read_before_it_is_asked_for(store, monkeypatch):
    monkeypatch.setattr(local_reads, "_AHEAD_BYTES", 256 << 10)  # for two runs
    arrays = [pa.array(np.random.default_rng(seed).random(ROWS)) for seed in range(12)]
    pages = written(store, arrays)
    in_flight: list[int] = []
    real = linux_aio._AioBatch.submit

    def submit(wave: linux_aio._AioBatch, *of_what: object) -> int:
        taken = real(wave, *of_what)
        in_flight.append(wave._submitted)
        return taken

    monkeypatch.setattr(linux_aio._AioBatch, "submit", submit)
    runs = [(run_of(pages[low : low + 4]), pa.float64()) for low in (0, 4, 8)]

    numbers = PageHandler(store).read_numbers(runs)
    next(numbers)

    assert in_flight == [1, 1]
    assert len(list(numbers)) == 2
    assert in_flight == [1, 1, 1]


@needs_queue
def test_one_queue_serves_all_and_only_its_memory_grows_for_a_while(store, monkeypatch):
    arrays = [pa.array(np.random.default_rng(seed).random(ROWS)) for seed in range(6)]
    places = written(store, arrays, "pages/a.pages") + written(store, arrays, "pages/b.pages")
    calls: list[int] = []
    real = linux_aio._call
    monkeypatch.setattr(linux_aio, "_call", lambda which, *rest: calls.append(which) or real(which, *rest))
    monkeypatch.setattr(linux_aio, "_spare", [])
    handler = PageHandler(store)
    tools = handler._live().reader._local._tools

    for _ in range(3):
        (found,) = handler.read_numbers([(run_of(places), pa.float64())])
        (again,) = handler.get_values([run_of(places)], admit=False)

        assert found.equals(pa.concat_arrays(arrays + arrays))
        assert [as_array(page) for page in again] == arrays + arrays
        assert [len(tool.memory()) for tool in tools._idle] == [linux_aio.QUEUE_BYTES]

    assert calls.count(0) == 2, "a context for each wave"


def other_runs(store: ObjectStore) -> dict[str, tuple[list[PageDescriptor], pa.DataType]]:
    numbers = [pa.array(range(seed, seed + 100)) for seed in range(6)]
    text = [pa.array([f"{n}" for n in range(100)])] * 6
    good = written(store, numbers, "pages/good.pages")
    return {
        "text": (written(store, text, "pages/text.pages"), pa.string()),
        "bits": (written(store, [pa.array([True, False] * 50)] * 6, "pages/bits.pages"), pa.bool_()),
        "another type": (good, pa.int32()),
        "inline": ([inline_page(numbers[0]), *good[1:]], pa.int64()),
        "fewer than it holds": ([replace(good[0], entry_count=9), *good[1:]], pa.int64()),
        "one page": (good[:1], pa.int64()),
        "a page twice": ([good[0], good[0]], pa.int64()),
        "metadata": (
            [*written(store, numbers[:5], "pages/m.pages", page_metadata={"k": "v"}), good[5]],
            pa.int64(),
        ),
        "suffixes": (
            [*good[:5], *written(store, numbers[5:], "pages/s.pages", suffix_meta=pa.array([b"x"] * 100))],
            pa.int64(),
        ),
    }


def test_other_runs_are_left_to_the_general_way_and_those_between_them_are_not(store):
    numbers = [pa.array(np.random.default_rng(seed).random(100)) for seed in range(5)]
    between = (written(store, numbers), pa.float64())
    others = list(other_runs(store).values())

    found = read(store, *(run for other in others for run in (other, between)))

    assert found[0::2] == [None] * len(others)
    assert all(values.equals(pa.concat_arrays(numbers)) for values in found[1::2])


@steady
@given(data=st.data())
def test_no_byte_of_a_page_can_change_unseen(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("store")
    store = open_object_store(str(folder))
    noisy, nulls = data.draw(st.booleans()), data.draw(st.booleans())
    random = np.random.default_rng(5)
    mask = random.integers(0, 2, 400).astype(bool) if nulls else None
    arrays = [pa.array(random.integers(0, 1 << 62 if noisy else 50, 400), mask=mask) for _ in range(6)]
    pages = written(store, arrays)
    read(store, (pages, pa.int64()))
    chosen = data.draw(st.sampled_from(pages))
    bit = data.draw(st.integers(0, 8 * chosen.actual_len - 1))
    path = folder / "pages/a.pages"
    stored = bytearray(path.read_bytes())
    stored[chosen.offset + bit // 8] ^= 1 << bit % 8
    path.write_bytes(stored)

    with pytest.raises(DamageError, match=f"pages/a.pages@{chosen.offset}:"):
        read(store, (pages, pa.int64()))


def test_a_descriptor_that_lies_and_a_file_that_is_gone_are_told(store):
    pages = written(store, [pa.array(range(seed, seed + 100)) for seed in range(6)])
    lying = [*pages[:3], replace(pages[3], entry_count=101, payload_entries=101), *pages[4:]]
    gone = [replace(page, disk_path="pages/gone.pages") for page in pages]

    with pytest.raises(DamageError, match=rf"pages/a.pages@{pages[3].offset}: .* entries 101"):
        read(store, (lying, pa.int64()))
    with pytest.raises(ObjectNotFoundError, match=r"gone\.pages"):
        read(store, (gone, pa.int64()))
    with pytest.raises(DamageError, match=r"a\.pages"):
        read(store, ([*pages, replace(pages[0], offset=1 << 20)], pa.int64()))
